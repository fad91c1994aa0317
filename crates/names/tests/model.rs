//! The manager against a tree in memory: any operations, with restarts and checkpoints between them.

use crate::common::{ROOT, World};
use names::{DirectoryEntry, How, Span, VolumeSettings, Who};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::{Errno, FileId, VolumeId};

/// A file of the model.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Of a directory: its names.
    names: Option<BTreeMap<Vec<u8>, FileId>>,
    parent: Option<FileId>,
    links: u32,
}

#[derive(Debug, Default)]
struct Model(BTreeMap<FileId, Node>);

#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8),
    MakeDirectory(usize, u8),
    Link(usize, usize, u8),
    Unlink(usize, u8),
    RemoveDirectory(usize, u8),
    Rename(usize, u8, usize, u8, u32),
    Checkpoint,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
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
    fn new() -> Model {
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
fn take(mut world: World, model: &mut Model, step: Step) -> World {
    match step {
        Step::Create(directory, number) => {
            let (parent, name) = (model.directory(directory), name(number));
            let made = world.change(|t| t.create(&WHO, parent, &name, 0o644, How::Guarded, None));
            let exists = model.at(parent, &name).is_some();
            assert_eq!(made.is_err(), exists);
            if let Ok((entry, true)) = made {
                model.add(parent, name, entry.attr.file, false);
            }
        }
        Step::MakeDirectory(directory, number) => {
            let (parent, name) = (model.directory(directory), name(number));
            let made = world.change(|t| t.make_directory(&WHO, parent, &name, 0o755));
            assert_eq!(made.is_err(), model.at(parent, &name).is_some());
            if let Ok(entry) = made {
                model.add(parent, name, entry.attr.file, true);
            }
        }
        Step::Link(file, directory, number) => {
            let (file, parent, name) = (model.any(file), model.directory(directory), name(number));
            let made = world.change(|t| t.link(&WHO, file, parent, &name));
            let expected = match () {
                _ if model.at(parent, &name).is_some() => Err(Errno::EEXIST),
                _ if model.is_directory(file) => Err(Errno::EPERM),
                _ => Ok(()),
            };
            assert_eq!(made.map(drop), expected);
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
            assert_eq!(world.change(|t| t.unlink(&WHO, parent, &name)), expected);
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
            assert_eq!(world.change(|t| t.remove_directory(&WHO, parent, &name)), expected);
            if expected.is_ok() {
                model.take(parent, &name);
            }
        }
        Step::Rename(from, from_name, to, to_name, flags) => {
            let (parent, new_parent) = (model.directory(from), model.directory(to));
            let (name, new_name) = (name(from_name), name(to_name));
            let expected = model.rename((parent, &name), (new_parent, &new_name), flags);
            let (from, to) = (
                DirectoryEntry { parent, name: &name },
                DirectoryEntry { parent: new_parent, name: &new_name },
            );
            let result = world.change(|t| t.rename(&WHO, from, to, flags));
            assert_eq!(result, expected, "{from:?} {to:?} {flags}");
        }
        Step::Checkpoint => world.checkpoint(),
        Step::Restart => {
            world = world.restart();
            world.end_grace();
        }
    }
    world
}

fn compare(world: &World, model: &Model) {
    for (file, node) in &model.0 {
        let entry = world.get(*file).unwrap();
        assert_eq!(entry.attr.links, node.links, "links of {file:?}");
        let Some(names) = &node.names else { continue };
        let mut listed = world.list(*file, 600);
        let count = listed.len();
        listed.sort();
        listed.dedup();
        assert_eq!(listed.len(), count, "an entry is listed twice");
        let expected: Vec<_> = names.iter().map(|(name, file)| (name.clone(), *file)).collect();
        assert_eq!(listed, expected);
        let up = world.read(|t| t.lookup(&WHO, *file, b"..")).unwrap();
        assert_eq!(Some(up.attr.file), node.parent);
        for (name, file) in names {
            let found = world.read(|t| t.lookup(&WHO, entry.attr.file, name)).unwrap();
            assert_eq!(found.attr.file, *file);
        }
    }
    assert_eq!(world.read(|t| t.files()).unwrap(), model.0.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_name_space_is_a_tree(switch in 0u16..=1000, steps in prop::collection::vec(step(), 1..120)) {
        let mut settings = VolumeSettings::new(VolumeId(1));
        settings.switch_per_mille = switch;
        let (mut world, mut model) = (World::with(&settings), Model::new());
        for step in steps {
            world = take(world, &mut model, step);
        }
        compare(&world, &model);
        let world = world.restart();
        compare(&world, &model);
    }

    /// A listing that goes on while entries come and go shows each one that stays exactly once.
    #[test]
    fn cookies_stay(
        before in 1usize..60,
        bytes in 300usize..900,
        changes in prop::collection::vec((any::<bool>(), 0usize..80), 0..60),
    ) {
        let mut world = World::new();
        let stays = |i: usize| format!("stays-{i:0width$}", width = i % 40);
        for i in 0..before {
            world.touch(&WHO, &stays(i), 0o600).unwrap();
            world.touch(&WHO, &format!("goes-{i}"), 0o600).unwrap();
        }
        let (mut span, mut seen, mut changes) = (Span::default(), Vec::new(), changes.into_iter());
        loop {
            let listing = world.read(|t| t.read_directory(&WHO, ROOT, span, bytes, false)).unwrap();
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
        prop_assert!(!seen.iter().any(|name| name.starts_with("new")), "made after it began");
        prop_assert_eq!(&seen[..2], &[".".to_string(), "..".to_string()]);
    }
}
