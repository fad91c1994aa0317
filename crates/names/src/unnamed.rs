//! Files without a name and without bytes elsewhere, which programs still have open.

use wire::Attr;
use wire::field::fields;

/// A file that went with its last name and has no bytes elsewhere: a directory, a symbolic link, a FIFO, a device.
/// Clients with it open go on with this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Its attributes, with no links.
    pub attr: Attr,
    /// Of a symbolic link, where it leads.
    pub target: Box<[u8]>,
}
fields!(Unnamed { attr, target });
