//! By which names files are known here: for opens by a name that the kernel still believes in, and for messages.
//!
//! It is not a cache of names: nothing is looked up in it. A file has at most one name here, the last that was told for
//! it, and a name one file. Files with several hard links are not named: the kernel is told not to believe their names
//! (see `live::fuse`), so that they are always looked up. While a kernel may believe in two names of a file, because
//! another client renamed it, an open counts only right after a look-up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{FileId, Time};

/// A name in a directory.
type Name = (FileId, Rc<[u8]>);

/// Most directories of a path: as many as a path of Linux can have.
const DEPTH_MAX: usize = wire::limits::PATH_BYTES_MAX / 2;

/// The name of a file, as known here.
#[derive(Clone)]
struct Known {
    name: Name,
    /// Until then the kernel may believe in another name too.
    doubted_until: Time,
    /// It was told since the last open.
    told: bool,
}

/// How an open is to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OpenBy {
    /// By number: no name is believed in.
    Number,
    /// By this name.
    Name(FileId, Rc<[u8]>),
    /// Not before the name was looked up: it may come by either of two names.
    Again,
}

/// The names.
#[derive(Default)]
pub(crate) struct Names {
    files: RefCell<BTreeMap<Name, FileId>>,
    names: RefCell<BTreeMap<FileId, Known>>,
}

impl Names {
    /// The file was told to have this name. Another that it had until now is believed in until `believed`.
    pub fn set(&self, file: FileId, parent: FileId, name: &[u8], believed: Time) {
        let doubted_until = match self.names.borrow_mut().get_mut(&file) {
            Some(known) if known.name.0 == parent && *known.name.1 == *name => {
                known.told = true;
                return;
            }
            Some(_) => believed,
            None => Time::ZERO,
        };
        self.put(file, Known { name: (parent, name.into()), doubted_until, told: true });
    }

    fn put(&self, file: FileId, known: Known) {
        self.forget(file);
        if let Some(other) = self.files.borrow_mut().insert(known.name.clone(), file) {
            self.names.borrow_mut().remove(&other);
        }
        self.names.borrow_mut().insert(file, known);
    }

    /// The file that was told to have the name.
    pub fn file(&self, parent: FileId, name: &[u8]) -> Option<FileId> {
        self.files.borrow().get(&(parent, name.into())).copied()
    }

    /// How an open of the file goes.
    pub fn way(&self, file: FileId, now: Time) -> OpenBy {
        let mut names = self.names.borrow_mut();
        let Some(known) = names.get_mut(&file) else { return OpenBy::Number };
        let told = std::mem::take(&mut known.told);
        match told || now >= known.doubted_until {
            true => OpenBy::Name(known.name.0, known.name.1.clone()),
            false => OpenBy::Again,
        }
    }

    /// Its name is not known any more.
    pub fn forget(&self, file: FileId) {
        if let Some(known) = self.names.borrow_mut().remove(&file) {
            self.files.borrow_mut().remove(&known.name);
        }
    }

    /// The name was taken away; whose it was.
    pub fn remove(&self, parent: FileId, name: &[u8]) -> Option<FileId> {
        let file = self.files.borrow_mut().remove(&(parent, name.into()))?;
        self.names.borrow_mut().remove(&file);
        Some(file)
    }

    /// A rename by this mount, of which its kernel knows; with `exchange` the other way too.
    pub fn rename(&self, from: (FileId, &[u8]), to: (FileId, &[u8]), exchange: bool) {
        let (moved, other) = (self.remove(from.0, from.1), self.remove(to.0, to.1));
        let put = |file, to: (FileId, &[u8])| {
            let name = (to.0, to.1.into());
            self.put(file, Known { name, doubted_until: Time::ZERO, told: false });
        };
        moved.into_iter().for_each(|file| put(file, to));
        other.filter(|_| exchange).into_iter().for_each(|file| put(file, from));
    }

    /// The file's path from the root of the volume, as far as it is known: from the first directory whose name is.
    pub fn path(&self, file: FileId) -> Option<String> {
        let (mut parts, mut at) = (Vec::new(), file);
        while at != FileId::ROOT && parts.len() < DEPTH_MAX {
            let known = self.names.borrow().get(&at).map(|known| known.name.clone());
            let Some((parent, name)) = known else {
                parts.push("...".to_string());
                break;
            };
            parts.push(String::from_utf8_lossy(&name).into_owned());
            at = parent;
        }
        parts.reverse();
        (parts.len() > 1 || parts.first().is_some_and(|name| name != "..."))
            .then(|| parts.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Time = Time(9);

    #[test]
    fn a_file_has_one_name_and_a_name_one_file() {
        let names = Names::default();
        let (dir, one, two) = (FileId(7), FileId(8), FileId(9));
        let set = |file, parent, name| names.set(file, parent, name, LATER);
        set(dir, FileId::ROOT, b"dir");
        set(one, dir, b"a");
        set(two, dir, b"b");
        assert_eq!(names.path(one).as_deref(), Some("dir/a"));
        names.rename((dir, b"a"), (dir, b"b"), true);
        assert_eq!((names.file(dir, b"b"), names.file(dir, b"c")), (Some(one), None));
        assert_eq!(names.path(one).as_deref(), Some("dir/b"));
        assert_eq!(names.path(two).as_deref(), Some("dir/a"));
        names.rename((dir, b"b"), (dir, b"a"), false);
        assert_eq!(names.path(one).as_deref(), Some("dir/a"));
        assert_eq!(names.way(two, Time::ZERO), OpenBy::Number);
        set(two, dir, b"a");
        assert_eq!(names.way(one, Time::ZERO), OpenBy::Number);
        names.forget(dir);
        assert_eq!(names.path(two).as_deref(), Some(".../a"));
        assert_eq!(names.path(dir), None);
        assert_eq!(names.remove(dir, b"a"), Some(two));
        assert_eq!(names.remove(dir, b"a"), None);
    }

    #[test]
    fn of_two_names_that_are_believed_the_one_just_told_counts() {
        let names = Names::default();
        let (dir, file) = (FileId::ROOT, FileId(8));
        let by = |name: &[u8]| OpenBy::Name(dir, name.into());
        names.set(file, dir, b"log", LATER);
        assert_eq!([0, 1].map(|now| names.way(file, Time(now))), [by(b"log"), by(b"log")]);
        names.set(file, dir, b"log.1", LATER);
        assert_eq!(names.way(file, Time::ZERO), by(b"log.1"));
        assert_eq!(names.way(file, Time::ZERO), OpenBy::Again, "it may come by the old name");
        names.set(file, dir, b"log.1", LATER);
        assert_eq!(names.way(file, Time::ZERO), by(b"log.1"));
        assert_eq!(names.way(file, LATER), by(b"log.1"));
    }
}
