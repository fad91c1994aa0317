//! `trapeze prefetch`: says which files will be read soon, in order.

use crate::cli;
use crate::tools::{Result, ToolError, close, name_of, volume};
use indicatif::ProgressBar;
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use terminal::table::print_json;
use trapeze::volume::{Volume, VolumeError};
use wire::{Errno, FileKind};

/// All bytes of a file.
const WHOLE: std::ops::Range<u64> = 0..u64::MAX;

/// Counts of the hints that were noted.
#[derive(Debug, Default, Serialize)]
struct Tally {
    files: u64,
    bytes: u64,
}

/// `trapeze prefetch`.
pub fn prefetch(arguments: &cli::Prefetch) -> Result<()> {
    let in_cluster = |path: &PathBuf| path.as_os_str().as_bytes().starts_with(b":");
    let volume = match arguments.paths.iter().any(in_cluster) {
        true => Some(volume(&arguments.target)?),
        false => None,
    };
    let bar = terminal::progress::bytes_moved("noted");
    let mut hints = Prefetch { volume, bar: &bar, tally: Tally::default() };
    let noted = arguments.paths.iter().try_for_each(|path| hints.path(path));
    bar.finish_and_clear();
    let Prefetch { volume, tally, .. } = hints;
    let closed = volume.map_or(Ok(()), close);
    match arguments.target.json {
        true => print_json(&tally),
        false => println!("{} files, {} bytes noted", tally.files, tally.bytes),
    }
    noted.and(closed)
}

struct Prefetch<'a> {
    /// For paths in the cluster.
    volume: Option<Volume>,
    bar: &'a ProgressBar,
    tally: Tally,
}

impl Prefetch<'_> {
    fn path(&mut self, path: &Path) -> Result<()> {
        match path.as_os_str().as_bytes().strip_prefix(b":") {
            Some(name) => {
                let path = name_of(name);
                let kind = self.volume().stat(&path)?.kind;
                self.in_cluster(&path, kind)
            }
            None => self.mounted(path),
        }
    }

    fn volume(&mut self) -> &mut Volume {
        self.volume.as_mut().expect("opened for paths in the cluster")
    }

    fn note(&mut self, bytes: u64) {
        self.tally.files += 1;
        self.tally.bytes += bytes;
        self.bar.inc(bytes);
    }

    /// A path of this machine, which leads into a mount. Anything that is no file or directory is passed over.
    fn mounted(&mut self, path: &Path) -> Result<()> {
        let local = |error| ToolError::Local(path.to_path_buf(), error);
        let kind = fs::metadata(path).map_err(local)?.file_type();
        if kind.is_dir() {
            let entries = fs::read_dir(path).map_err(local)?;
            let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
            let mut names = names.map_err(local)?;
            names.sort();
            let is_link = |path: &PathBuf| path.is_symlink();
            return names.iter().filter(|path| !is_link(path)).try_for_each(|at| self.mounted(at));
        }
        if !kind.is_file() {
            return Ok(());
        }
        let file = File::open(path).map_err(local)?;
        let bytes =
            live::fuse::hint::prefetch(&file, WHOLE).map_err(|error| refused(path, error))?;
        self.note(bytes);
        Ok(())
    }

    fn in_cluster(&mut self, path: &Path, kind: FileKind) -> Result<()> {
        match kind {
            FileKind::Directory => {
                let mut entries = self.volume().list(path)?;
                entries.sort_by(|one, other| one.name.cmp(&other.name));
                entries.iter().try_for_each(|entry| {
                    let name = std::ffi::OsStr::from_bytes(&entry.name);
                    self.in_cluster(&path.join(name), entry.kind)
                })
            }
            FileKind::Regular => {
                let noted = self.volume().prefetch(path, WHOLE);
                let bytes = noted.map_err(|error| match error {
                    VolumeError::File { errno: Errno::EAGAIN, .. } => too_many(path),
                    other => other.into(),
                })?;
                self.note(bytes);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Why a mount did not note a file.
fn refused(path: &Path, error: io::Error) -> ToolError {
    match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::NOTTY) => ToolError::Usage(format!(
            "{}: not in a mount of a cluster; name files in the cluster as :/path",
            path.display()
        )),
        Some(rustix::io::Errno::AGAIN) => too_many(path),
        _ => ToolError::Local(path.to_path_buf(), error),
    }
}

fn too_many(path: &Path) -> ToolError {
    ToolError::Usage(format!(
        "{}: this client keeps no more than {} hints; name fewer, or read those named before",
        path.display(),
        files::limits::HINTS_MAX
    ))
}
