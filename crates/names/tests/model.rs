//! The name space against a tree in memory: any operations, with restarts and checkpoints between them.

use crate::common::{ROOT, World};
use names::{DirectoryEntry, How, Plus, Span, VolumeSettings, Who};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::{Errno, FileId, VolumeId};

/// The names of a directory, but `.` and `..`, with their files.
pub type Names = Vec<(Vec<u8>, FileId)>;

/// A name space that is compared with the model. Its errors are those of the manager.
pub trait Space {
    fn create(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno>;
    fn make_directory(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno>;
    fn link(&mut self, file: FileId, parent: FileId, name: &[u8]) -> Result<(), Errno>;
    fn unlink(&mut self, parent: FileId, name: &[u8]) -> Result<(), Errno>;
    fn remove_directory(&mut self, parent: FileId, name: &[u8]) -> Result<(), Errno>;
    fn rename(
        &mut self,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        flags: u32,
    ) -> Result<(), Errno>;
    /// Links of a file.
    fn links(&mut self, file: FileId) -> Result<u32, Errno>;
    fn lookup(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno>;
    fn list(&mut self, directory: FileId) -> Result<Names, Errno>;
}

impl Space for World {
    fn create(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        let made = self.change(|t| t.create(&WHO, parent, name, 0o644, How::Guarded, None));
        made.map(|(entry, _)| entry.attr.file)
    }
    fn make_directory(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        let hashes = self.hashes && name.len() % 2 == 1;
        self.change(|t| t.make_directory(&WHO, parent, name, 0o755)).map(|entry| {
            let file = entry.attr.file;
            if hashes {
                self.change(|t| t.hash_directory(&WHO, file)).unwrap();
            }
            file
        })
    }
    fn link(&mut self, file: FileId, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        self.change(|t| t.link(&WHO, file, parent, name)).map(drop)
    }
    fn unlink(&mut self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        self.change(|t| t.unlink(&WHO, parent, name))
    }
    fn remove_directory(&mut self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        self.change(|t| t.remove_directory(&WHO, parent, name))
    }
    fn rename(
        &mut self,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let entry = |(parent, name)| DirectoryEntry { parent, name };
        self.change(|t| t.rename(&WHO, entry(from), entry(to), flags))
    }
    fn links(&mut self, file: FileId) -> Result<u32, Errno> {
        self.get(file).map(|entry| entry.attr.links)
    }
    fn lookup(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        self.read(|t| t.lookup(&WHO, parent, name)).map(|entry| entry.attr.file)
    }
    fn list(&mut self, directory: FileId) -> Result<Names, Errno> {
        Ok(World::list(self, directory, 600))
    }
}

/// A file of the model.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Of a directory: its names.
    names: Option<BTreeMap<Vec<u8>, FileId>>,
    parent: Option<FileId>,
    links: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Model(BTreeMap<FileId, Node>);

#[derive(Clone, Debug)]
pub enum Step {
    Create(usize, u8),
    MakeDirectory(usize, u8),
    Link(usize, usize, u8),
    Unlink(usize, u8),
    RemoveDirectory(usize, u8),
    Rename(usize, u8, usize, u8, u32),
    Checkpoint,
    Restart,
}

pub fn step() -> impl Strategy<Value = Step> {
    let (d, n) = (0usize..8, 0u8..6);
    prop_oneof![
        4 => (d.clone(), n.clone()).prop_map(|(d, n)| Step::Create(d, n)),
        4 => (d.clone(), n.clone()).prop_map(|(d, n)| Step::MakeDirectory(d, n)),
        2 => (0usize..8, d.clone(), n.clone()).prop_map(|(f, d, n)| Step::Link(f, d, n)),
        3 => (d.clone(), n.clone()).prop_map(|(d, n)| Step::Unlink(d, n)),
        3 => (d.clone(), n.clone()).prop_map(|(d, n)| Step::RemoveDirectory(d, n)),
        6 => (d.clone(), n.clone(), d, n, 0u32..3).prop_map(|(a, b, c, d, e)| Step::Rename(a, b, c, d, e)),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Restart),
    ]
}

/// Names of any bytes, some of them long.
fn name(number: u8) -> Vec<u8> {
    match number {
        0 => vec![0xff; 255],
        1 => vec![0xc3, 0x28, b'\n'],
        number => vec![b'a' + number; 1 + usize::from(number)],
    }
}

impl Model {
    /// Files and directories that there are.
    pub fn files(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn new() -> Model {
        let root = Node { names: Some(BTreeMap::new()), parent: Some(ROOT), links: 2 };
        Model(BTreeMap::from([(ROOT, root)]))
    }

    fn directory(&self, number: usize) -> FileId {
        let all: Vec<_> = self.0.iter().filter(|(_, node)| node.names.is_some()).collect();
        *all[number % all.len()].0
    }

    fn any(&self, number: usize) -> FileId {
        *self.0.keys().nth(number % self.0.len()).unwrap()
    }

    fn names(&mut self, directory: FileId) -> &mut BTreeMap<Vec<u8>, FileId> {
        self.0.get_mut(&directory).unwrap().names.as_mut().unwrap()
    }

    fn at(&self, directory: FileId, name: &[u8]) -> Option<FileId> {
        self.0[&directory].names.as_ref().unwrap().get(name).copied()
    }

    fn is_directory(&self, file: FileId) -> bool {
        self.0[&file].names.is_some()
    }

    fn links(&mut self, file: FileId, change: i32) {
        let node = self.0.get_mut(&file).unwrap();
        node.links = node.links.wrapping_add_signed(change);
        if node.links == 0 {
            self.0.remove(&file);
        }
    }

    fn add(&mut self, parent: FileId, name: Vec<u8>, file: FileId, directory: bool) {
        let names = directory.then(BTreeMap::new);
        let links = if directory { 2 } else { 1 };
        self.0.insert(file, Node { names, parent: directory.then_some(parent), links });
        self.names(parent).insert(name, file);
        if directory {
            self.links(parent, 1);
        }
    }

    fn take(&mut self, parent: FileId, name: &[u8]) {
        let file = self.names(parent).remove(name).unwrap();
        if self.is_directory(file) {
            self.0.remove(&file);
            self.links(parent, -1);
        } else {
            self.links(file, -1);
        }
    }

    fn is_within(&self, mut at: FileId, above: FileId) -> bool {
        while at != above && at != ROOT {
            at = self.0[&at].parent.unwrap();
        }
        at == above
    }

    fn put(&mut self, parent: FileId, name: &[u8], file: FileId) {
        self.names(parent).insert(name.to_vec(), file);
        let was = self.0[&file].parent;
        if let Some(was) = was {
            self.0.get_mut(&file).unwrap().parent = Some(parent);
            self.links(was, -1);
            self.links(parent, 1);
        }
    }

    fn rename(
        &mut self,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let source = self.at(from.0, from.1).ok_or(Errno::ENOENT)?;
        let target = self.at(to.0, to.1);
        match (target, flags) {
            (Some(_), 1) => return Err(Errno::EEXIST),
            (None, 2) => return Err(Errno::ENOENT),
            _ => {}
        }
        if self.is_directory(source) && self.is_within(to.0, source) {
            return Err(Errno::EINVAL);
        }
        let above = target.filter(|t| self.is_directory(*t) && self.is_within(from.0, *t));
        if above.is_some() {
            return Err(if flags == 2 { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if target == Some(source) {
            return Ok(());
        }
        if let (Some(target), 2) = (target, flags) {
            self.put(to.0, to.1, source);
            self.put(from.0, from.1, target);
            return Ok(());
        }
        if let Some(target) = target {
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) if !self.0[&target].names.as_ref().unwrap().is_empty() => {
                    return Err(Errno::ENOTEMPTY);
                }
                _ => self.take(to.0, to.1),
            }
        }
        self.names(from.0).remove(from.1);
        self.put(to.0, to.1, source);
        Ok(())
    }
}

const WHO: Who<'static> = Who::ROOT;

/// Does one step in both; the error, if any, is the same.
pub fn take(space: &mut impl Space, model: &mut Model, step: &Step) {
    match *step {
        Step::Create(directory, number) => {
            let (parent, name) = (model.directory(directory), name(number));
            let made = space.create(parent, &name);
            let exists = model.at(parent, &name).is_some();
            assert_eq!(made.is_err(), exists, "{made:?}");
            if let Ok(file) = made {
                model.add(parent, name, file, false);
            }
        }
        Step::MakeDirectory(directory, number) => {
            let (parent, name) = (model.directory(directory), name(number));
            let made = space.make_directory(parent, &name);
            assert_eq!(made.is_err(), model.at(parent, &name).is_some(), "{made:?}");
            if let Ok(file) = made {
                model.add(parent, name, file, true);
            }
        }
        Step::Link(file, directory, number) => {
            let (file, parent, name) = (model.any(file), model.directory(directory), name(number));
            let expected = match () {
                _ if model.at(parent, &name).is_some() => Err(Errno::EEXIST),
                _ if model.is_directory(file) => Err(Errno::EPERM),
                _ => Ok(()),
            };
            assert_eq!(space.link(file, parent, &name), expected);
            if expected.is_ok() {
                model.links(file, 1);
                model.names(parent).insert(name, file);
            }
        }
        Step::Unlink(directory, number) => {
            let (parent, name) = (model.directory(directory), name(number));
            let expected = match model.at(parent, &name) {
                None => Err(Errno::ENOENT),
                Some(file) if model.is_directory(file) => Err(Errno::EISDIR),
                Some(_) => Ok(()),
            };
            assert_eq!(space.unlink(parent, &name), expected);
            if expected.is_ok() {
                model.take(parent, &name);
            }
        }
        Step::RemoveDirectory(directory, number) => {
            let (parent, name) = (model.directory(directory), name(number));
            let expected = match model.at(parent, &name) {
                None => Err(Errno::ENOENT),
                Some(file) if !model.is_directory(file) => Err(Errno::ENOTDIR),
                Some(file) if !model.names(file).is_empty() => Err(Errno::ENOTEMPTY),
                Some(_) => Ok(()),
            };
            assert_eq!(space.remove_directory(parent, &name), expected);
            if expected.is_ok() {
                model.take(parent, &name);
            }
        }
        Step::Rename(from, from_name, to, to_name, flags) => {
            let (parent, new_parent) = (model.directory(from), model.directory(to));
            let (name, new_name) = (name(from_name), name(to_name));
            let (from, to) = ((parent, &name[..]), (new_parent, &new_name[..]));
            let expected = model.rename(from, to, flags);
            assert_eq!(space.rename(from, to, flags), expected, "{from:?} {to:?} {flags}");
        }
        Step::Checkpoint | Step::Restart => {}
    }
}

/// The name space is what the model says; else what is different.
pub fn compare(space: &mut impl Space, model: &Model) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut expect = |what: String, is: bool| wrong.extend((!is).then_some(what));
    for (file, node) in &model.0 {
        let links = space.links(*file);
        expect(format!("links of {file:?}: {links:?} of {}", node.links), links == Ok(node.links));
        let Some(names) = &node.names else { continue };
        let mut listed = space.list(*file);
        listed.iter_mut().for_each(|names| names.sort());
        let expected: Names = names.iter().map(|(name, file)| (name.clone(), *file)).collect();
        let is = listed.as_ref() == Ok(&expected);
        expect(format!("{file:?} has {listed:?}, not {expected:?}"), is);
        let up = space.lookup(*file, b"..").ok();
        expect(format!("{file:?} is in {up:?}"), up == node.parent);
        for (name, named) in names {
            let found = space.lookup(*file, name);
            expect(format!("{name:?} of {file:?} is {found:?}"), found == Ok(*named));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_name_space_is_a_tree(
        switch in 0u16..=1000,
        hashes in any::<bool>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut settings = VolumeSettings::new(VolumeId(1));
        settings.switch_per_mille = switch;
        let (mut world, mut model) = (World::with(&settings), Model::new());
        world.hashes = hashes;
        for step in &steps {
            take(&mut world, &mut model, step);
            match step {
                Step::Checkpoint => world.checkpoint(),
                Step::Restart => {
                    world = world.restart();
                    world.end_grace();
                }
                _ => {}
            }
        }
        compare(&mut world, &model).unwrap();
        let mut world = world.restart();
        compare(&mut world, &model).unwrap();
        prop_assert_eq!(world.read(|t| t.files()).unwrap(), model.files());
    }

    /// A listing that goes on while entries come and go shows each one that stays exactly once.
    #[test]
    fn cookies_stay(
        before in 1usize..60,
        bytes in 300usize..900,
        changes in prop::collection::vec((any::<bool>(), 0usize..80), 0..60),
        hashed in any::<bool>(),
    ) {
        let mut world = World::new();
        if hashed {
            world.change(|t| t.hash_directory(&WHO, ROOT)).unwrap();
        }
        let stays = |i: usize| format!("stays-{i:0width$}", width = i % 40);
        for i in 0..before {
            world.touch(&WHO, &stays(i), 0o600).unwrap();
            world.touch(&WHO, &format!("goes-{i}"), 0o600).unwrap();
        }
        let (mut span, mut seen, mut changes) = (Span::default(), Vec::new(), changes.into_iter());
        loop {
            let listing = world.read(|t| t.read_directory(&WHO, ROOT, span, bytes, Plus::Nothing));
            let mut listing = listing.unwrap();
            if hashed {
                // A kernel has room for some of them only.
                let room = listing.entries.len() * 2 / 3 + 1;
                listing.end &= room >= listing.entries.len();
                listing.entries.truncate(room);
            }
            for entry in &listing.entries {
                seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
                span = Span { cookie: entry.cookie, until: listing.until };
            }
            if listing.end {
                break;
            }
            for (add, number) in changes.by_ref().take(7) {
                let _ = match add {
                    true => world.touch(&WHO, &format!("new-{number}"), 0o600).map(drop),
                    false => world.unlink(&WHO, &format!("goes-{number}")),
                };
            }
        }
        let mut kept: Vec<_> = seen.iter().filter(|name| name.starts_with("stays")).cloned().collect();
        kept.sort();
        let mut expected: Vec<_> = (0..before).map(stays).collect();
        expected.sort();
        prop_assert_eq!(kept, expected);
        let is_new = |name: &String| name.starts_with("new");
        prop_assert!(hashed || !seen.iter().any(is_new), "made after it began");
        prop_assert_eq!(&seen[..2], &[".".to_string(), "..".to_string()]);
    }
}
