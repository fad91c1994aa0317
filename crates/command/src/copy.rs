//! `trapeze cp`: files and trees between this machine and the cluster.
//!
//! A file that cannot be read or written, on this machine or in the cluster, and anything that is no file, directory or
//! link, is named and left out; the rest is copied. A manager that does not answer ends the copy, and so does a side
//! that takes nothing more: the next file would meet it, too, and copies of an earlier time would be truncated for
//! nothing.
//!
//! An I/O server that is away is waited for once. While it stays away, other files on it are left out soon: one dead
//! server must not cost its timeout for every file.

use crate::cli;
use crate::tools::{Result, ToolError, close, name_of, volume};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terminal::table::print_json;
use trapeze::volume::{Volume, VolumeError};
use wire::{Errno, FileKind};

/// A side of a copy.
enum Side {
    Local(PathBuf),
    Cluster(PathBuf),
    /// Standard input or output.
    Pipe,
}

impl Side {
    fn of(text: &OsStr) -> Side {
        match text.as_bytes().strip_prefix(b":") {
            Some(path) => Side::Cluster(name_of(path)),
            None if text == "-" => Side::Pipe,
            None => Side::Local(PathBuf::from(text)),
        }
    }
}

/// `trapeze cp`.
pub fn cp(arguments: &cli::Cp) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    volume.set_patience(PATIENCE);
    let bar = terminal::progress::bytes_moved("copied");
    let (recursive, tally) = (arguments.recursive, Tally::default());
    let mut copy = Copy { volume: &mut volume, recursive, bar: &bar, tally };
    let copied = copy.all(&arguments.paths);
    let tally = copy.tally;
    bar.finish_and_clear();
    let ended = copied.and_then(|()| close(volume));
    let errors = tally.errors + u64::from(ended.is_err());
    if arguments.target.json {
        print_json(&Tally { errors, ..tally });
    }
    ended.and_then(|()| tally.check())
}

/// Counts of a copy so far.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Tally {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    skipped: u64,
    errors: u64,
}

impl Tally {
    fn check(self) -> Result<()> {
        let Tally { skipped, errors, .. } = self;
        if skipped + errors == 0 { Ok(()) } else { Err(ToolError::Partial { skipped, errors }) }
    }
}

struct Copy<'a> {
    volume: &'a mut Volume,
    recursive: bool,
    bar: &'a indicatif::ProgressBar,
    tally: Tally,
}

/// The error of a file whose other side is `path` on this machine.
fn local(path: &Path) -> impl Fn(std::io::Error) -> ToolError {
    move |error| ToolError::Local(path.to_path_buf(), error)
}

/// As [`local`], of a transfer, in which either side may have failed.
fn transfer(path: &Path) -> impl Fn(VolumeError) -> ToolError {
    move |error| match error {
        VolumeError::Local(error) => ToolError::Local(path.to_path_buf(), error),
        other => other.into(),
    }
}

/// How long the first file waits for an I/O server that is away.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long those after it wait.
const PATIENCE_LATER: Duration = Duration::from_secs(1);

/// Whether an error of the cluster is one that every other file would meet.
fn is_of_the_cluster(errno: Errno) -> bool {
    let all = [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS, Errno::ETIMEDOUT, Errno::EHOSTDOWN];
    all.contains(&errno)
}

/// Whether it is full, or may not be written.
fn is_of_the_disk(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let all = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS];
    error.raw_os_error().is_some_and(|number| all.iter().any(|e| e.raw_os_error() == number))
}

impl Copy<'_> {
    /// Copies every path to the last one.
    fn all(&mut self, paths: &[OsString]) -> Result<()> {
        let (last, sources) = paths.split_last().expect("at least two paths");
        for source in sources {
            match (Side::of(source), Side::of(last)) {
                (Side::Local(from), Side::Cluster(to)) => {
                    let is_directory = self.is_directory(&to);
                    let to = self.target(to, is_directory, &from, sources.len())?;
                    let put = self.put(&from, &to);
                    self.note(put)?;
                }
                (Side::Cluster(from), Side::Local(to)) => {
                    let is_directory = to.is_dir();
                    let to = self.target(to, is_directory, &from, sources.len())?;
                    let got = self.get(&from, &to);
                    self.note(got)?;
                }
                (Side::Cluster(from), Side::Pipe) => self.print(&from)?,
                (Side::Pipe, Side::Cluster(to)) => self.take_in(&to)?,
                _ => {
                    let text = "cp copies between this machine and the cluster: write the cluster's paths as :/path";
                    return Err(ToolError::Usage(text.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Writes a file to standard output.
    fn print(&mut self, from: &Path) -> Result<()> {
        let (mut out, bar) = (std::io::stdout().lock(), self.bar);
        let read = self.volume.read_file(from, &mut out, &mut |bytes| bar.inc(bytes));
        self.tally.bytes += read.map_err(transfer(Path::new("standard output")))?;
        out.flush().map_err(local(Path::new("standard output")))?;
        self.tally.files += 1;
        Ok(())
    }

    /// Makes a file of standard input.
    fn take_in(&mut self, to: &Path) -> Result<()> {
        let (mut input, bar) = (std::io::stdin().lock(), self.bar);
        let put = self.volume.write_file(to, 0o644, &mut input, &mut |bytes| bar.inc(bytes));
        self.tally.bytes += put.map_err(transfer(Path::new("standard input")))?;
        self.tally.files += 1;
        Ok(())
    }

    /// Says why something is left out; an error that the next file would meet, too, is the whole copy's.
    fn note(&mut self, done: Result<()>) -> Result<()> {
        let error = match done {
            Err(ToolError::Local(path, error)) if !is_of_the_disk(&error) => {
                ToolError::Local(path, error)
            }
            Err(ToolError::Volume(VolumeError::File { path, errno }))
                if !is_of_the_cluster(errno) =>
            {
                if errno == Errno::EIO {
                    self.volume.set_patience(PATIENCE_LATER);
                }
                ToolError::Volume(VolumeError::File { path, errno })
            }
            done => return done,
        };
        self.tally.errors += 1;
        self.tell(format!("trapeze: {error}"));
        Ok(())
    }

    /// To open a FIFO would be to wait for who writes to it; a device may never end.
    fn skip(&mut self, path: &Path) {
        self.tally.skipped += 1;
        let text = "is a FIFO, a socket or a device: skipped";
        self.tell(format!("trapeze: {} {text}", path.display()));
    }

    /// Says it above the bar.
    fn tell(&self, text: String) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    fn is_directory(&mut self, path: &Path) -> bool {
        self.volume.stat(path).is_ok_and(|attr| attr.kind == FileKind::Directory)
    }

    /// `to`, or the source's name in it when it is a directory; what several sources go to must be one, and what is
    /// written as one.
    fn target(
        &self,
        to: PathBuf,
        is_directory: bool,
        from: &Path,
        sources: usize,
    ) -> Result<PathBuf> {
        if is_directory {
            return Ok(to.join(from.file_name().unwrap_or_default()));
        }
        let is_written_as_one = to.as_os_str().as_bytes().ends_with(b"/") && !self.recursive;
        if sources > 1 || is_written_as_one {
            let text = format!("{} is not a directory", to.display());
            return Err(ToolError::Usage(text));
        }
        Ok(to)
    }

    fn refuse_directory(&self, path: &Path) -> Result<()> {
        let text = format!("{} is a directory: use cp --recursive", path.display());
        if self.recursive { Ok(()) } else { Err(ToolError::Usage(text)) }
    }

    fn put(&mut self, from: &Path, to: &Path) -> Result<()> {
        let metadata = fs::symlink_metadata(from).map_err(local(from))?;
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_dir() {
            self.refuse_directory(from)?;
            self.volume.make_directory(to, mode)?;
            self.tally.directories += 1;
            for entry in fs::read_dir(from).map_err(local(from))? {
                let entry = entry.map_err(local(from))?;
                let put = self.put(&entry.path(), &to.join(entry.file_name()));
                self.note(put)?;
            }
        } else if metadata.is_symlink() {
            let target = fs::read_link(from).map_err(local(from))?;
            // A copy that was broken off is repeated over what is there.
            if self.volume.stat(to).is_ok_and(|attr| attr.kind == FileKind::Symlink) {
                self.volume.remove(to)?;
            }
            self.volume.symlink(to, target.as_os_str().as_bytes())?;
            self.tally.links += 1;
        } else if metadata.is_file() {
            let mut file = fs::File::open(from).map_err(local(from))?;
            let bar = self.bar;
            let put = self.volume.write_file(to, mode, &mut file, &mut |bytes| bar.inc(bytes));
            self.tally.bytes += put.map_err(transfer(from))?;
            self.tally.files += 1;
        } else {
            self.skip(from);
        }
        Ok(())
    }

    fn get(&mut self, from: &Path, to: &Path) -> Result<()> {
        let attr = self.volume.stat(from)?;
        match attr.kind {
            FileKind::Directory => {
                self.refuse_directory(from)?;
                fs::create_dir_all(to).map_err(local(to))?;
                self.tally.directories += 1;
                for entry in self.volume.list(from)? {
                    let name = name_of(&entry.name);
                    let got = self.get(&from.join(&name), &to.join(&name));
                    self.note(got)?;
                }
            }
            FileKind::Symlink => {
                let target = self.volume.read_link(from)?;
                if to.is_symlink() {
                    fs::remove_file(to).map_err(local(to))?;
                }
                std::os::unix::fs::symlink(name_of(&target), to).map_err(local(to))?;
                self.tally.links += 1;
            }
            FileKind::Regular => {
                let mut file = fs::File::create(to).map_err(local(to))?;
                let bar = self.bar;
                let got = self.volume.read_file(from, &mut file, &mut |bytes| bar.inc(bytes));
                let bytes = got.map_err(transfer(to))?;
                let mode = fs::Permissions::from_mode(attr.mode & 0o777);
                fs::set_permissions(to, mode).map_err(local(to))?;
                self.tally.bytes += bytes;
                self.tally.files += 1;
            }
            _ => self.skip(from),
        }
        Ok(())
    }
}
