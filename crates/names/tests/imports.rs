//! Directories of imports: files in them know their import, and no name crosses its border.

use crate::common::ROOT;
use crate::common::cluster::WHO;
use crate::posix::{open_world, user};
use names::{Transaction, Who};
use wire::{Errno, FileKind};

#[test]
fn what_is_made_in_an_import_belongs_to_it_and_stays_in_it() {
    let mut world = open_world();
    let import = |t: &mut Transaction<'_>, who: Who<'_>, parent, number| {
        t.make_node(&who, parent, b"i", 0o040755, number).map(|entry| entry.attr)
    };
    assert_eq!(world.change(|t| import(t, user(5), ROOT, 7)), Err(Errno::EPERM));
    let root = world.change(|t| import(t, WHO, ROOT, 7)).unwrap();
    assert_eq!((root.kind, root.import(), root.device()), (FileKind::Directory, Some(7), 0));
    let d = world.mkdir(&WHO, "i/d", 0o755).unwrap();
    let f = world.touch(&WHO, "i/d/f", 0o644).unwrap();
    world.touch(&WHO, "outside", 0o644).unwrap();
    for path in ["i/d", "i/d/f"] {
        assert_eq!(world.find(path).unwrap().attr.import(), Some(7));
    }
    assert_eq!(world.change(|t| import(t, WHO, d, 8)), Err(Errno::EXDEV));
    let device = world.change(|t| t.make_node(&WHO, d, b"c", 0o020644, 0x103)).unwrap().attr;
    assert_eq!((device.import(), device.device()), (None, 0x103));
    for (from, to) in [("i/d/f", "f"), ("i/d", "d"), ("i/d/c", "c"), ("outside", "i/outside")] {
        assert_eq!(world.rename(&WHO, from, to, 0).map(drop), Err(Errno::EXDEV), "{from}");
    }
    assert_eq!(world.change(|t| t.link(&WHO, f, ROOT, b"l")).map(drop), Err(Errno::EXDEV));
    assert_eq!(world.change(|t| t.hash_directory(&WHO, d)), Err(Errno::EINVAL));
    world.rename(&WHO, "i/d/f", "i/g", 0).unwrap();
    world.rename(&WHO, "i", "j", 0).unwrap();
    let world = world.restart();
    assert_eq!(world.find("j/g").unwrap().attr.import(), Some(7));
}
