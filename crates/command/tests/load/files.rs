use super::{Dice, Done, Versions, contents, end, part, stopped};
use rustix::fs::{Advice, AtFlags, Mode, OFlags, fadvise, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::Duration;

const FILES: u64 = 16;
const PAGES: u64 = 256;
/// Places from here up are files of one page that are replaced, as editors do.
const REPLACED: u64 = FILES * PAGES;
const NAMES: u64 = 64;
const PAGE: usize = 4096;

fn some_place(dice: &mut Dice) -> u64 {
    match dice.below(4) {
        0 => REPLACED + dice.below(NAMES),
        _ => dice.below(REPLACED),
    }
}

fn open(dir: &Path, place: u64) -> io::Result<File> {
    let path = dir.join(format!("under-load-{}", place / PAGES));
    File::options().create(true).truncate(false).read(true).write(true).open(path)
}

fn at(place: u64) -> u64 {
    // Each in a chunk of its own: it is 32 KiB that leave a server's cache.
    if place < REPLACED { place % PAGES * (32 << 10) } else { 0 }
}

fn name(place: u64) -> String {
    format!("replaced-{place}")
}

fn write(dir: &Path, place: u64, version: u64) -> io::Result<()> {
    if place >= REPLACED {
        return replace(dir, place, version);
    }
    let file = open(dir, place)?;
    file.write_all_at(&contents(place, version, PAGE), at(place))?;
    file.sync_all()
}

/// Another file takes the name.
fn replace(dir: &Path, place: u64, version: u64) -> io::Result<()> {
    let (dir, new) = (File::open(dir)?, format!("new-{place}"));
    // A try before this one may have left it.
    if let Err(errno) = unlinkat(&dir, &new, AtFlags::empty()).or_else(is_none) {
        return Err(errno.into());
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let mut file = File::from(openat(&dir, &new, flags, Mode::from(0o644))?);
    file.write_all(&contents(place, version, PAGE))?;
    file.sync_all()?;
    renameat(&dir, &new, &dir, name(place))?;
    dir.sync_all()
}

fn is_none(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::NOENT { Ok(()) } else { Err(errno) }
}

/// Not from this machine's page cache. A name that is not there is as a page that was never written.
fn read(dir: &Path, place: u64) -> io::Result<Vec<u8>> {
    let file = match place < REPLACED {
        true => Some(open(dir, place)?),
        false => open_replaced(dir, place)?,
    };
    let mut bytes = vec![0; PAGE];
    if let Some(file) = file {
        fadvise(&file, 0, None, Advice::DontNeed)?;
        file.read_exact_at(&mut bytes, at(place))?;
    }
    Ok(bytes)
}

/// Opens the file that has the name for good.
fn open_replaced(dir: &Path, place: u64) -> io::Result<Option<File>> {
    let dir = File::open(dir)?;
    dir.sync_all()?;
    // In this directory: its path leads elsewhere when the mount has ended.
    match openat(&dir, name(place), OFlags::RDONLY, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(errno) => Ok(is_none(errno).map(|()| None)?),
    }
}

/// Writes pages of files in `dir`, and replaces files, each acknowledged by fsync, and reads them, until standard input
/// ends. Errors are allowed until then, since a killed mount gives them. In the end all that was acknowledged is there.
fn write_and_read_files(dir: &Path) {
    let (stop, mut dice, mut versions) = (stopped(), Dice(1), Versions::default());
    let mut done = Done::default();
    while !stop.load(Ordering::Relaxed) {
        let place = some_place(&mut dice);
        let is_written = versions.0.get(&place).is_some_and(|version| version.acknowledged > 0);
        let outcome = if is_written && dice.below(3) > 0 {
            let bytes = done.count(|| read(dir, place));
            bytes.map(|bytes| done.wrong.extend(versions.check(place, &bytes)))
        } else {
            let version = versions.try_next(place);
            let written = done.count(|| write(dir, place, version));
            written.map(|()| versions.acknowledge(place, version))
        };
        if let Err(error) = outcome {
            let short = error.kind() == io::ErrorKind::UnexpectedEof;
            done.wrong.extend(short.then(|| format!("{place} is shorter than acknowledged")));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    for place in versions.acknowledged() {
        match read(dir, place) {
            Ok(bytes) => done.wrong.extend(versions.check(place, &bytes)),
            Err(error) => done.wrong.push(format!("{place} cannot be read in the end: {error}")),
        }
    }
    done.report("files");
}

/// A process that writes and reads files in a directory.
pub struct Files(Child);

impl Files {
    pub fn start(dir: &Path) -> Files {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "load::files::files_process", "--ignored", "--nocapture"]);
        command.env("TRAPEZE_FILES_IN", dir);
        Files(part(command))
    }

    /// Ends it, and how much it has done; a panic when something was wrong.
    pub fn end(self) -> String {
        end(self.0).expect("files need nothing that may be absent")
    }
}

/// Not a test of its own: started by the others, which must not have files of the mount open when they start machines.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn files_process() {
    if let Some(dir) = std::env::var_os("TRAPEZE_FILES_IN") {
        write_and_read_files(Path::new(&dir));
    }
}
