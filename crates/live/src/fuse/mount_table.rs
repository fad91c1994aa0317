//! Mounts of this machine, from the kernel's table: reading it touches no mount.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Number of the file system, `major:minor`.
    pub device: String,
    /// Where.
    pub path: PathBuf,
    /// The file system, such as `fuse.trapeze`.
    pub kind: String,
}

/// The mount on top at exactly `path`, as this thread sees the tree.
pub fn top(path: &Path) -> Option<Mounted> {
    let table = fs::read("/proc/thread-self/mountinfo").ok()?;
    table.split(|byte| *byte == b'\n').filter_map(parse).rfind(|line| line.path == path)
}

/// Mounts at `folder` or below it, the latest first.
pub fn below(folder: &Path) -> Vec<Mounted> {
    let table = fs::read("/proc/thread-self/mountinfo").unwrap_or_default();
    let lines = table.split(|byte| *byte == b'\n').filter_map(parse);
    let mut found: Vec<Mounted> = lines.filter(|line| line.path.starts_with(folder)).collect();
    found.reverse();
    found
}

/// `36 35 98:0 /root /path options [optional ...] - kind source options`
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut words = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(words.nth(2)?.to_vec()).ok()?;
    let path = PathBuf::from(OsString::from_vec(unescaped(words.nth(1)?)));
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    Some(Mounted { device, path, kind: String::from_utf8_lossy(kind).into_owned() })
}

/// The kernel writes blank, tab, line feed and backslash as `\ooo`.
fn unescaped(mut word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    while let [first, rest @ ..] = word {
        let octal = rest.get(..3).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match (first, octal) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                word = &rest[3..];
            }
            _ => {
                plain.push(*first);
                word = rest;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table() {
        let line = br"71 29 0:52 / /mnt/a\040b\134c rw,nosuid shared:3 - fuse.trapeze trapeze rw,user_id=0";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.device, "0:52");
        assert_eq!(mounted.path, Path::new(r"/mnt/a b\c"));
        assert_eq!(mounted.kind, "fuse.trapeze");
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 0:1 / /x rw -"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(top(Path::new("/")).is_some());
        assert_eq!(top(Path::new("/no/such/place")), None);
    }
}
