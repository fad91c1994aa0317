//! Names against the records of their files: of several managers one may go on from a backup, and the others from what
//! they had.
//!
//! Within one manager a name and its file change together, and over several by one transaction. A manager that was
//! restored alone is of an earlier moment: names may be without their files, files without names or under two.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::{Attr, FileId};

/// How often a file was met, and its record then.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    names: u32,
    links: u32,
    change: u64,
}

/// A file that has another number of names than its manager knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miscounted {
    pub file: FileId,
    pub path: PathBuf,
    pub names: u32,
    pub links: u32,
    /// By which it is known whether the file has changed since.
    pub change: u64,
}

/// All names that were met, where several managers have some.
#[derive(Debug, Default)]
pub struct Names {
    files: BTreeMap<FileId, Met>,
    /// A path of each file that should have more than one name, or has.
    paths: BTreeMap<FileId, PathBuf>,
}

impl Names {
    pub fn meet(&mut self, path: &Path, attr: &Attr) {
        let met = self.files.entry(attr.file).or_default();
        *met = Met { names: met.names + 1, links: attr.links, change: attr.change };
        if met.names > 1 || met.links > 1 {
            self.paths.insert(attr.file, path.to_path_buf());
        }
    }

    pub fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// Files with too many names, and where all names were met (`whole`) with too few.
    pub fn miscounted(&self, whole: bool) -> Vec<Miscounted> {
        let wrong = |(file, met): (&FileId, &Met)| {
            let Met { names, links, change } = *met;
            let is_wrong = names > links || whole && names < links;
            let path = self.paths.get(file)?.clone();
            is_wrong.then_some(Miscounted { file: *file, path, names, links, change })
        };
        self.files.iter().filter_map(wrong).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_number_of_names_than_its_record_says_is_told() {
        let mut names = Names::default();
        let attr = |file, links| Attr { file: FileId(file), links, change: 7, ..Attr::default() };
        for (path, file, links) in
            [("a", 1, 1), ("b", 2, 2), ("c", 2, 2), ("d", 3, 1), ("e", 3, 1), ("f", 4, 2)]
        {
            names.meet(Path::new(path), &attr(file, links));
        }
        let told = |whole| {
            let all = names.miscounted(whole).into_iter();
            all.map(|it| (it.file.0, it.names, it.links)).collect::<Vec<_>>()
        };
        assert_eq!((told(false), told(true)), (vec![(3, 2, 1)], vec![(3, 2, 1), (4, 1, 2)]));
        assert!(names.has(FileId(4)) && !names.has(FileId(5)));
    }
}
