//! The volume's record of an import, and the directory that has the import's number.

use crate::protocol::{Import, record_name};
use names::{Client, Who};
use wire::field::{Field, encoded};
use wire::{Decoder, Errno, FileId, FileKind};

/// Permissions of the directory until the origin's are known.
const MODE: u32 = 0o755;

/// An import that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its number.
    pub import: u32,
    /// Its directory.
    pub root: FileId,
}

/// A step that failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The operation that failed.
    pub what: &'static str,
    /// The manager's answer.
    pub errno: Errno,
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Failed {
    move |errno| Failed { what, errno }
}

/// A new import: the record takes a number, and the directory has it from the beginning.
pub async fn begin(
    names: &Client,
    (parent, name): (FileId, &[u8]),
    record: Import,
) -> Result<Known, Failed> {
    let mut import = 0;
    loop {
        import += 1;
        match put(names, import, &record, names::xattr::CREATE).await {
            Err(Errno::EEXIST) => {}
            result => break result.map_err(failed("writing the record of the import"))?,
        }
    }
    let mode = FileKind::Directory.mode_bits() | MODE;
    let root = match names.make_node(&Who::ROOT, parent, name, mode, import).await {
        Ok(made) => made.attr.file,
        Err(errno) => {
            // the number is free again
            let _ = names.remove_xattr(&Who::ROOT, FileId::ROOT, &record_name(import)).await;
            return Err(failed("making the directory")(errno));
        }
    };
    let known = Known { import, root };
    take_over(names, known, record).await?;
    Ok(known)
}

/// The record of an import that is there says that `record`'s importer serves it.
pub async fn take_over(names: &Client, known: Known, record: Import) -> Result<(), Failed> {
    let record = Import { directory: Some(known.root), ..record };
    let written = match put(names, known.import, &record, 0).await {
        Ok(()) => names.sync().await,
        Err(errno) => Err(errno),
    };
    written.map_err(failed("writing the record of the import"))
}

async fn put(names: &Client, import: u32, record: &Import, flags: u32) -> Result<(), Errno> {
    let (name, value) = (record_name(import), encoded(record));
    names.set_xattr(&Who::ROOT, FileId::ROOT, &name, &value, flags).await
}

/// The record of an import, if it has one.
pub async fn get(names: &Client, import: u32) -> Result<Option<Import>, Errno> {
    match names.get_xattr(&Who::ROOT, FileId::ROOT, &record_name(import)).await {
        Ok(bytes) => Import::take(&mut Decoder::new(&bytes)).map(Some).map_err(|_| Errno::EIO),
        Err(Errno::ENODATA) => Ok(None),
        Err(errno) => Err(errno),
    }
}
