//! `--accept`: a loss is taken as final, so that the rest of the file can be used.
//!
//! Columns that are lost begin anew as empty ones; blocks that cannot be read are written over with zeros. From then on
//! the file reads as zeros there, because a person has said so, and the check finds nothing wrong with it. Of a file
//! that got columns after the backup that the names were restored from, what they hold is given up: it ends before.

use super::file::LostColumn;
use super::ranges::Range;
use super::walk::look;
use crate::cli::Target;
use crate::tools::ToolError;
use names::Who;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terminal::table::print_json;
use trapeze::volume::{Volume, VolumeError};
use wire::{Errno, FileId, FileKind};

type Result<T> = super::Result<T>;

/// Takes what is lost of the file at `path` as final.
pub fn accept(volume: &mut Volume, path: &Path, target: &Target) -> Result<()> {
    let attr = match volume.stat(path) {
        Err(VolumeError::File { errno: Errno::ESTALE, .. }) => return forget(volume, path, target),
        attr => attr?,
    };
    if attr.kind == FileKind::Directory && is_elsewhere(volume, path, attr.file)? {
        return forget(volume, path, target);
    }
    let (reference, found) = look(volume, path, attr.file)?;
    let refused = |text: String| Err(ToolError::Usage(format!("{}: {text}", path.display())));
    if let Some(server) = found.silent.first() {
        return refused(format!(
            "{server} does not answer, so what is lost is not known: start it"
        ));
    }
    if found.uncompared {
        return refused(
            "the names were restored, and what the disks have of it is not known before all servers are up".into(),
        );
    }
    let is_final = |lost: &&LostColumn| matches!(lost.why, Errno::EIO | Errno::ENOENT);
    if let Some(away) = found.columns.iter().find(|lost| !is_final(lost)) {
        return refused(format!(
            "column {} is on a disk that is not served, and may come back with it: start its server with the disk, \
             or declare the disk gone with `trapeze forget`",
            away.column
        ));
    }
    let bytes = found.lost.bytes();
    for lost in found.columns.iter().filter(|lost| lost.why == Errno::EIO) {
        volume.accept_column(path, reference, lost.column)?;
    }
    volume.accept_lost(path, attr.file)?;
    let (_, left) = look(volume, path, attr.file)?;
    for Range { offset, bytes } in left.lost.kept() {
        volume.write_zeros(path, *offset, *bytes)?;
    }
    let size = volume.stat(path)?.size;
    match target.json {
        true => {
            print_json(&json!({ "accepted": path.to_string_lossy(), "bytes": bytes, "size": size }))
        }
        false if found.grown => println!("{}: ends at {size} bytes from now on", path.display()),
        false => println!("{}: {bytes} bytes read as zeros from now on", path.display()),
    }
    Ok(())
}

/// Whether a directory is in another one than this name of it.
fn is_elsewhere(volume: &mut Volume, path: &Path, directory: FileId) -> Result<bool> {
    let Some(parent) = path.parent() else { return Ok(false) };
    let parent = volume.stat(parent)?.file;
    let (_, names, _) = volume.asking();
    let found = volume.run(async move { names.lookup(&Who::ROOT, directory, b"..").await })?;
    let found = found.map_err(|errno| VolumeError::File { path: path.to_path_buf(), errno })?;
    Ok(found.attr.file != parent)
}

/// Removes a name whose file is gone from its manager, or is a directory in another one.
fn forget(volume: &mut Volume, path: &Path, target: &Target) -> Result<()> {
    let parent = volume.stat(path.parent().unwrap_or(Path::new("/")))?.file;
    let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    let (_, names, _) = volume.asking();
    let removed = volume.run(async move {
        match names.unlink(&Who::ROOT, parent, &name).await {
            Err(Errno::EISDIR) => names.remove_directory(&Who::ROOT, parent, &name).await?,
            removed => removed?,
        };
        names.sync().await
    })?;
    removed.map_err(|errno| VolumeError::File { path: path.to_path_buf(), errno })?;
    match target.json {
        true => print_json(&json!({ "accepted": path.to_string_lossy(), "removed": true })),
        false => println!("{}: the name is removed", path.display()),
    }
    Ok(())
}
