use super::{Dice, Versions, contents, report, stopped};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const FILES: u64 = 16;
const PAGES: u64 = 256;
const PAGE: usize = 4096;

fn open(dir: &Path, place: u64) -> io::Result<File> {
    let path = dir.join(format!("under-load-{}", place / PAGES));
    File::options().create(true).truncate(false).read(true).write(true).open(path)
}

fn at(place: u64) -> u64 {
    // Each in a chunk of its own: it is 32 KiB that leave a server's cache.
    place % PAGES * (32 << 10)
}

fn write(dir: &Path, place: u64, version: u64) -> io::Result<()> {
    let file = open(dir, place)?;
    file.write_all_at(&contents(place, version, PAGE), at(place))?;
    file.sync_all()
}

/// Not from this machine's page cache.
fn read(dir: &Path, place: u64) -> io::Result<Vec<u8>> {
    let file = open(dir, place)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut bytes = vec![0; PAGE];
    file.read_exact_at(&mut bytes, at(place))?;
    Ok(bytes)
}

/// Writes pages of files in `dir`, each acknowledged by fsync, and reads them, until standard input ends. Errors are
/// allowed until then, since a killed mount gives them. In the end all that was acknowledged is there.
pub fn write_and_read_files(dir: &Path) {
    let (stop, mut dice, mut versions) = (stopped(), Dice(1), Versions::default());
    let (mut done, mut errors, mut wrong) = (0, 0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let place = dice.below(FILES * PAGES);
        let is_written = versions.0.get(&place).is_some_and(|version| version.acknowledged > 0);
        let outcome = if is_written && dice.below(3) > 0 {
            read(dir, place).map(|bytes| wrong.extend(versions.check(place, &bytes)))
        } else {
            let version = versions.try_next(place);
            write(dir, place, version).map(|()| versions.acknowledge(place, version))
        };
        done += u64::from(outcome.is_ok());
        if outcome.is_err() {
            errors += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    for place in versions.acknowledged() {
        match read(dir, place) {
            Ok(bytes) => wrong.extend(versions.check(place, &bytes)),
            Err(error) => wrong.push(format!("{place} cannot be read in the end: {error}")),
        }
    }
    report("files", done, errors, &wrong);
}
