//! Files and directories that a command makes on the way: removed again unless the command says that it is done.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Paths that were not there before, in the order in which they are made.
#[derive(Debug, Default)]
pub(crate) struct Undo(Vec<PathBuf>);

impl Undo {
    /// Makes a directory, and those above it that are missing.
    pub fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        let above = dir.ancestors().take_while(|part| !part.as_os_str().is_empty());
        let missing: Vec<_> =
            above.take_while(|part| !part.exists()).map(Path::to_path_buf).collect();
        self.0.extend(missing.into_iter().rev());
        fs::create_dir_all(dir)
    }

    /// A file that is made next, unless it is there.
    pub fn file(&mut self, path: PathBuf) {
        if !path.exists() {
            self.0.push(path);
        }
    }

    /// All of it stays.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // A directory that has got anything else in it stays.
        for path in self.0.iter().rev() {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_or_came_from_elsewhere_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "").unwrap();
        let mut undo = Undo::default();
        undo.create_dir_all(&at("a/b/c")).unwrap();
        undo.create_dir_all(&at("a/d")).unwrap();
        for name in ["old", "a/b/key", "a/never"] {
            undo.file(at(name));
        }
        fs::write(at("a/b/key"), "").unwrap();
        fs::write(at("a/d/foreign"), "").unwrap();
        drop(undo);
        let left = ["old", "a/d/foreign", "a/b"].map(|name| at(name).exists());
        assert_eq!(left, [true, true, false]);
    }
}
