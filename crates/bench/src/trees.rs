//! Trees of real files: found, copied, compared.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use trapeze::volume::{Volume, VolumeError};

const CALL_BYTES: usize = 128 * 1024;

/// Files under a directory, as paths relative to it.
#[derive(Debug, Default)]
pub struct FoundFiles {
    /// Directories, parents first.
    pub directories: Vec<PathBuf>,
    /// Regular files and their lengths.
    pub files: Vec<(PathBuf, u64)>,
    /// Of all files.
    pub bytes: u64,
}

/// The first difference between two trees.
#[derive(Debug)]
pub struct Difference {
    path: PathBuf,
    what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// The readable regular files under `root` in the order of their names, up to a number of files and bytes.
pub fn find(root: &Path, files_max: usize, bytes_max: u64) -> io::Result<FoundFiles> {
    let mut found = FoundFiles::default();
    walk(root, Path::new(""), files_max, bytes_max, &mut found)?;
    Ok(found)
}

fn walk(
    root: &Path,
    folder: &Path,
    files: usize,
    bytes: u64,
    found: &mut FoundFiles,
) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return Ok(()) };
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    for name in names {
        let path = folder.join(name);
        let full = root.join(&path);
        let Ok(metadata) = fs::symlink_metadata(&full) else { continue };
        if found.files.len() >= files {
            return Ok(());
        }
        if metadata.is_dir() {
            found.directories.push(path.clone());
            walk(root, &path, files, bytes, found)?;
        } else if metadata.is_file()
            && found.bytes + metadata.len() <= bytes
            && File::open(&full).is_ok()
        {
            found.bytes += metadata.len();
            found.files.push((path, metadata.len()));
        }
    }
    Ok(())
}

/// Copies what was found under `source` to `target`. `progress` hears of each piece.
pub fn copy(
    source: &Path,
    target: &Path,
    found: &FoundFiles,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    fs::create_dir_all(target)?;
    for directory in &found.directories {
        fs::create_dir_all(target.join(directory))?;
    }
    let mut buffer = vec![0; CALL_BYTES];
    for (path, _) in &found.files {
        let mut from = File::open(source.join(path))?;
        let to = target.join(path);
        let mut to = File::create(&to).map_err(|error| named(&to, error))?;
        loop {
            let bytes = from.read(&mut buffer)?;
            if bytes == 0 {
                break;
            }
            to.write_all(&buffer[..bytes]).map_err(|error| named(path, error))?;
            progress(bytes as u64);
        }
    }
    Ok(())
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The first file whose bytes differ between the two trees.
pub fn compare(
    source: &Path,
    target: &Path,
    found: &FoundFiles,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Option<Difference>> {
    for (path, _) in &found.files {
        let ours = fs::read(source.join(path))?;
        let theirs = fs::read(target.join(path)).map_err(|error| named(path, error))?;
        progress(ours.len() as u64);
        if let Some(difference) = differ(path, &ours, &theirs) {
            return Ok(Some(difference));
        }
    }
    Ok(None)
}

fn differ(path: &Path, ours: &[u8], theirs: &[u8]) -> Option<Difference> {
    let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let what = match at {
        Some(at) => format!("differs at byte {at}"),
        None if ours.len() != theirs.len() => {
            format!("has {} bytes instead of {}", theirs.len(), ours.len())
        }
        None => return None,
    };
    Some(Difference { path: path.to_path_buf(), what })
}

/// As [`copy`], into a volume without a mount.
pub fn put(
    volume: &mut Volume,
    source: &Path,
    target: &Path,
    found: &FoundFiles,
    progress: &mut dyn FnMut(u64),
) -> Result<(), VolumeError> {
    volume.make_directory(target, 0o755)?;
    for directory in &found.directories {
        volume.make_directory(&target.join(directory), 0o755)?;
    }
    for (path, _) in &found.files {
        let mut from = File::open(source.join(path))?;
        volume.write_file(&target.join(path), 0o644, &mut from, progress)?;
    }
    Ok(())
}

/// As [`compare`], with a volume without a mount.
pub fn compare_volume(
    volume: &mut Volume,
    source: &Path,
    target: &Path,
    found: &FoundFiles,
) -> Result<Option<Difference>, VolumeError> {
    for (path, _) in &found.files {
        let ours = fs::read(source.join(path))?;
        let mut theirs = Vec::with_capacity(ours.len());
        volume.read_file(&target.join(path), &mut theirs, &mut |_| {})?;
        if let Some(difference) = differ(path, &ours, &theirs) {
            return Ok(Some(difference));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_copied_whole_and_a_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir_all(source.join("x/y")).unwrap();
        fs::write(source.join("x/one"), vec![1; 300_000]).unwrap();
        fs::write(source.join("x/y/two"), b"two").unwrap();
        let found = find(&source, 100, 1 << 30).unwrap();
        assert_eq!((found.files.len(), found.bytes), (2, 300_003));
        let mut moved = 0;
        copy(&source, &target, &found, &mut |bytes| moved += bytes).unwrap();
        assert_eq!(moved, found.bytes);
        assert!(compare(&source, &target, &found, &mut |_| {}).unwrap().is_none());
        fs::write(target.join("x/y/two"), b"tvo").unwrap();
        let difference = compare(&source, &target, &found, &mut |_| {}).unwrap().unwrap();
        assert_eq!(difference.to_string(), "x/y/two: differs at byte 1");
        assert_eq!(find(&source, 1, 1 << 30).unwrap().files.len(), 1);
    }
}
