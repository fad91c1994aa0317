//! The directory of an import, and the volume's record of it.

use super::{ImportError, parts};
use crate::reach::Reach;
use crate::serve::{self, ServeError};
use imports::record::{Failed, Known, begin, get, take_over};
use imports::{Import, record_name};
use names::Who;
use std::path::{Path, PathBuf};
use wire::{Errno, FileId, FileKind, NodeId};

impl From<Failed> for ImportError {
    fn from(Failed { what, errno }: Failed) -> ImportError {
        ImportError::Volume(what, errno)
    }
}

fn volume(what: &'static str) -> impl Fn(Errno) -> ImportError {
    move |errno| ImportError::Volume(what, errno)
}

/// Makes the directory and the record, or takes over those of the same origin.
pub async fn open(
    names: names::Client,
    directory: PathBuf,
    record: Import,
) -> Result<Known, ImportError> {
    let refused = |why: &str| ImportError::Directory(directory.clone(), why.to_string());
    let (parent, name) = parent(&names, &directory).await?;
    let root = match names.lookup(&Who::ROOT, parent, &name).await {
        Err(Errno::ENOENT) => None,
        found => Some(found.map_err(volume("looking for the directory"))?.attr),
    };
    let Some(root) = root else {
        return Ok(begin(&names, (parent, &name), record).await?);
    };
    let other =
        || refused("it is there already, and is no import: name a directory that is not there");
    let import = root.import().filter(|_| root.kind == FileKind::Directory).ok_or_else(other)?;
    let known = get(&names, import).await.map_err(volume("reading the record of the import"))?;
    match known {
        Some(Import { directory: Some(known), .. }) if known != root.file => {
            return Err(refused("it is within another import"));
        }
        Some(known) if known.origin != record.origin => {
            let text = String::from_utf8_lossy(&known.origin).into_owned();
            return Err(refused(&format!("it is an import of {text}")));
        }
        _ => {}
    }
    let known = Known { import, root: root.file };
    take_over(&names, known, record).await?;
    Ok(known)
}

/// The directory that the last part of a path is in, and that part.
async fn parent(names: &names::Client, path: &Path) -> Result<(FileId, Vec<u8>), ImportError> {
    let mut parts = parts(path)?;
    let root = || ImportError::Directory(path.to_path_buf(), "it is the volume's root".to_string());
    let name = parts.pop().ok_or_else(root)?;
    let mut at = FileId::ROOT;
    for part in parts {
        let found = names.lookup(&Who::ROOT, at, &part).await;
        let why = |errno: Errno| ImportError::Directory(path.to_path_buf(), errno.to_string());
        at = found.map_err(why)?.attr.file;
    }
    Ok((at, name))
}

/// Whether the record still names this importer, as far as the manager says.
pub async fn is_own(names: &names::Client, import: u32, importer: NodeId) -> bool {
    match get(names, import).await {
        Ok(record) => record.is_some_and(|record| record.importer == importer),
        Err(_) => true, // it is away
    }
}

/// Removes an import: its directory with all that is cached, and its record. The origin is not asked.
pub fn remove(reach: &Reach, directory: &Path) -> Result<(), ServeError> {
    let mut running = reach.client("import")?;
    let (names, _) = running.services.files.as_ref().expect("a client has files").clients();
    let directory = directory.to_path_buf();
    let removed = running.host.block_on(async move { drop_import(&names, &directory).await })?;
    serve::stop(running)?;
    Ok(removed?)
}

async fn drop_import(names: &names::Client, directory: &Path) -> Result<(), ImportError> {
    let (parent, name) = parent(names, directory).await?;
    let found = names.lookup(&Who::ROOT, parent, &name).await;
    let attr = found.map_err(volume("looking for the directory"))?.attr;
    let no = || ImportError::Directory(directory.to_path_buf(), "it is no import".to_string());
    let import = attr.import().ok_or_else(no)?;
    let record = get(names, import).await.map_err(volume("reading the record of the import"))?;
    let own = record.and_then(|record| record.directory);
    if own.is_some_and(|own| own != attr.file) {
        let why = "it is within an import: name the import's own directory".to_string();
        return Err(ImportError::Directory(directory.to_path_buf(), why));
    }
    // first the record: an importer that runs ends when it is gone
    let gone = names.remove_xattr(&Who::ROOT, FileId::ROOT, &record_name(import)).await;
    if !matches!(gone, Err(Errno::ENODATA)) {
        gone.map_err(volume("removing the record of the import"))?;
    }
    imports::empty(&names.for_imports(), attr.file)
        .await
        .map_err(volume("removing what is cached"))?;
    let removed = names.remove_directory(&Who::ROOT, parent, &name).await;
    removed.map_err(volume("removing the directory"))?;
    names.sync().await.map_err(volume("removing the directory"))
}
