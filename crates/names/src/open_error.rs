//! Why a store's name space cannot be served.

use crate::record::FORMAT;
use store::StoreError;
use wire::Decoder;
use wire::field::Field;

/// Why the name space in a store cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is another volume's.
    #[error("the store holds volume {found}, not {wanted}: give the directory of the right volume")]
    Volume {
        /// The store's volume.
        found: u32,
        /// The volume asked for.
        wanted: u32,
    },
    /// It was written by another release.
    #[error(
        "the store's name space has format {found}, this program knows {FORMAT}: use the release that wrote it"
    )]
    Format {
        /// The store's format.
        found: u32,
    },
    /// A record cannot be read.
    #[error(
        "the store's record {key:02x?} is damaged: bring the names back from a backup with `trapeze restore`"
    )]
    Damaged {
        /// Its key.
        key: Vec<u8>,
    },
}

pub(crate) fn damaged<'a, T: Field<'a>>(key: &[u8], value: &'a [u8]) -> Result<T, OpenError> {
    let record = T::take(&mut Decoder::new(value));
    record.map_err(|_| OpenError::Damaged { key: key.to_vec() })
}
