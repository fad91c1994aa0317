//! The rules of POSIX and Linux, each with its error number, one line each where possible.

use crate::common::{CLIENT, ROOT, World};
use names::rename::{EXCHANGE, NO_REPLACE, WHITEOUT};
use names::xattr::{CREATE, REPLACE};
use names::{DirectoryEntry, EXECUTE, Final, How, Plus, READ, Transaction, WRITE, Who};
use wire::{Errno, FileId, FileKind, SetAttr, SetTime, Wall};

const WHO: Who<'static> = Who::ROOT;

pub fn user(uid: u32) -> Who<'static> {
    Who::new(uid, uid, &[])
}

fn chmod(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn chown(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

fn set(world: &mut World, who: &Who<'_>, file: FileId, changes: SetAttr) -> Result<u32, Errno> {
    world.change(|t| t.set_attr(who, file, &changes)).map(|entry| entry.attr.mode)
}

/// A world whose root directory all users may write.
pub fn open_world() -> World {
    let mut world = World::new();
    set(&mut world, &WHO, ROOT, chmod(0o777)).unwrap();
    world
}

#[test]
fn names_have_limits_and_are_bytes() {
    let mut world = World::new();
    let mut make = |name: &[u8]| {
        world.change(|t| t.create(&WHO, ROOT, name, 0o644, How::Guarded, None)).map(drop)
    };
    assert_eq!(make(&[b'x'; 255]), Ok(()));
    assert_eq!(make(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
    assert_eq!(make(b"\xff\xfe\x80"), Ok(()));
    assert_eq!(make(b"a/b"), Err(Errno::EINVAL));
    assert_eq!(make(b"a\0"), Err(Errno::EINVAL));
    assert_eq!(make(b""), Err(Errno::ENOENT));
    assert_eq!(make(b"."), Err(Errno::EEXIST));
    let link = |t: &mut Transaction<'_>, n| t.symlink(&WHO, ROOT, b"l", &vec![b'y'; n]);
    assert_eq!(world.change(|t| link(t, 4096)).map(drop), Err(Errno::ENAMETOOLONG));
    let entry = world.change(|t| link(t, 4095)).unwrap();
    assert_eq!((entry.attr.size, entry.attr.mode), (4095, 0o777));
    assert_eq!(world.read(|t| t.read_link(entry.attr.file)).unwrap().len(), 4095);
    assert_eq!(world.read(|t| t.read_link(ROOT)), Err(Errno::EINVAL));
}

#[test]
fn permissions_of_the_parent_decide_about_names() {
    let mut world = World::new();
    let d = world.mkdir(&WHO, "d", 0o755).unwrap();
    world.touch(&WHO, "d/f", 0o644).unwrap();
    let (u, file) = (user(5), |name: &'static str| "d/".to_string() + name);
    assert_eq!(world.touch(&u, &file("g"), 0o644).map(drop), Err(Errno::EACCES));
    assert_eq!(world.touch(&u, &file("f"), 0o644).map(drop), Err(Errno::EEXIST));
    assert_eq!(world.unlink(&u, "d/f"), Err(Errno::EACCES));
    assert_eq!(world.rename(&u, "d/f", "d/g", 0), Err(Errno::EACCES));
    set(&mut world, &WHO, d, chmod(0o766)).unwrap();
    let found = world.read(|t| t.lookup(&u, d, b"f"));
    assert_eq!(found.map(drop), Err(Errno::EACCES));
    let listed = world.read(|t| t.read_directory(&u, d, 0, 4096, Plus::Nothing)).unwrap();
    assert_eq!(listed.entries.len(), 3);
    set(&mut world, &WHO, d, chmod(0o733)).unwrap();
    assert!(world.read(|t| t.lookup(&u, d, b"f")).is_ok());
    let listed = world.read(|t| t.read_directory(&u, d, 0, 4096, Plus::Nothing));
    assert_eq!(listed.map(drop), Err(Errno::EACCES));
    assert_eq!(world.read(|t| t.access(&u, d, WRITE | EXECUTE)), Ok(()));
    assert_eq!(world.read(|t| t.access(&u, d, READ)), Err(Errno::EACCES));
}

#[test]
fn sticky_directories() {
    let mut world = open_world();
    let d = world.mkdir(&WHO, "d", 0o777).unwrap();
    set(&mut world, &WHO, d, chmod(0o1777)).unwrap();
    world.touch(&user(5), "d/five", 0o666).unwrap();
    world.touch(&user(6), "d/six", 0o666).unwrap();
    assert_eq!(world.unlink(&user(6), "d/five"), Err(Errno::EPERM));
    assert_eq!(world.rename(&user(6), "d/five", "d/x", 0), Err(Errno::EPERM));
    assert_eq!(world.rename(&user(6), "d/six", "d/five", 0), Err(Errno::EPERM));
    assert_eq!(world.rename(&user(5), "d/five", "d/x", 0), Ok(()));
    assert_eq!(world.unlink(&user(5), "d/x"), Ok(()));
}

#[test]
fn groups_and_set_id_bits() {
    let mut world = open_world();
    let d = world.mkdir(&user(5), "d", 0o777).unwrap();
    set(&mut world, &WHO, d, chown(None, Some(9))).unwrap();
    set(&mut world, &WHO, d, chmod(0o2777)).unwrap();
    let sub = world.mkdir(&user(6), "d/sub", 0o755).unwrap();
    let file = world.touch(&user(6), "d/f", 0o2755).unwrap();
    let attr = world.get(sub).unwrap().attr;
    assert_eq!((attr.uid, attr.gid, attr.mode), (6, 9, 0o2755));
    let attr = world.get(file).unwrap().attr;
    assert_eq!((attr.gid, attr.mode), (9, 0o755));
    // A user outside the group does not make it set-group-id; a member does.
    assert_eq!(set(&mut world, &user(6), file, chmod(0o6755)), Ok(0o4755));
    let nine = 9u32.to_le_bytes();
    assert_eq!(set(&mut world, &Who::new(6, 6, &nine), file, chmod(0o6755)), Ok(0o6755));
    // Giving a program away takes its rights, even for root.
    assert_eq!(set(&mut world, &WHO, file, chown(Some(7), None)), Ok(0o755));
    assert_eq!(set(&mut world, &user(6), file, chmod(0o644)), Err(Errno::EPERM));
}

#[test]
fn who_may_chown() {
    let mut world = open_world();
    let file = world.touch(&user(5), "f", 0o644).unwrap();
    let groups = 8u32.to_le_bytes();
    let member = Who::new(5, 5, &groups);
    let table = [
        (user(5), chown(Some(6), None), Err(Errno::EPERM)),
        (user(5), chown(Some(5), None), Ok(0o644)),
        (user(5), chown(None, Some(8)), Err(Errno::EPERM)),
        (member, chown(None, Some(8)), Ok(0o644)),
        (member, chown(Some(5), Some(8)), Ok(0o644)),
        (user(6), chown(Some(5), None), Err(Errno::EPERM)),
        (user(6), chown(None, Some(6)), Err(Errno::EPERM)),
        (WHO, chown(Some(6), Some(6)), Ok(0o644)),
        (user(5), chmod(0o600), Err(Errno::EPERM)),
    ];
    for (who, changes, expected) in table {
        assert_eq!(set(&mut world, &who, file, changes), expected, "{who:?} {changes:?}");
    }
}

#[test]
fn who_may_set_times() {
    let mut world = open_world();
    let file = world.touch(&user(5), "f", 0o646).unwrap();
    let then = SetTime::To(Wall { seconds: -5, nanos: 7 });
    let times = |atime, mtime| SetAttr { atime, mtime, ..SetAttr::default() };
    let now = times(Some(SetTime::Now), Some(SetTime::Now));
    assert_eq!(set(&mut world, &user(6), file, now).map(drop), Ok(()));
    let given = times(Some(then), Some(then));
    assert_eq!(set(&mut world, &user(6), file, given).map(drop), Err(Errno::EPERM));
    let alone = times(Some(SetTime::Now), None);
    assert_eq!(set(&mut world, &user(6), file, alone).map(drop), Err(Errno::EPERM));
    assert_eq!(set(&mut world, &user(5), file, given).map(drop), Ok(()));
    let attr = world.get(file).unwrap().attr;
    assert_eq!((attr.mtime.seconds, attr.atime.nanos), (-5, 7));
    assert!(attr.ctime > attr.mtime);
    set(&mut world, &user(5), file, chmod(0o644)).unwrap();
    assert_eq!(set(&mut world, &user(6), file, now).map(drop), Err(Errno::EACCES));
    let nonsense = times(Some(SetTime::To(Wall { seconds: 0, nanos: 1_000_000_000 })), None);
    assert_eq!(set(&mut world, &user(5), file, nonsense).map(drop), Err(Errno::EINVAL));
}

#[test]
fn nodes_and_links() {
    let mut world = open_world();
    let node = |t: &mut Transaction<'_>, who: Who<'_>, name: &[u8], mode| {
        t.make_node(&who, ROOT, name, mode, 0x103).map(|e| (e.attr.kind, e.attr.rdev))
    };
    let fifo = world.change(|t| node(t, user(5), b"p", 0o010644));
    assert_eq!(fifo, Ok((FileKind::Fifo, 0)));
    assert_eq!(world.change(|t| node(t, user(5), b"c", 0o020644)), Err(Errno::EPERM));
    let device = world.change(|t| node(t, WHO, b"c", 0o020644));
    assert_eq!(device, Ok((FileKind::CharDevice, 0x103)));
    let directory = world.change(|t| t.make_node(&WHO, ROOT, b"d", 0o040755, 0));
    assert_eq!(directory.map(drop), Err(Errno::EPERM));
    assert_eq!(world.change(|t| node(t, WHO, b"e", 0o170000)), Err(Errno::EINVAL));
    let d = world.mkdir(&WHO, "d", 0o755).unwrap();
    let linked = world.change(|t| t.link(&WHO, d, ROOT, b"e"));
    assert_eq!(linked.map(drop), Err(Errno::EPERM));
    let before = world.find("p").unwrap().attr;
    let after = world.change(|t| t.link(&WHO, before.file, d, b"q")).unwrap().attr;
    assert_eq!(after.links, 2);
    assert!(after.ctime > before.ctime && after.mtime == before.mtime);
    assert_eq!(world.find("p/x").map(drop), Err(Errno::ENOTDIR));
    assert_eq!(world.unlink(&WHO, "d"), Err(Errno::EISDIR));
    assert_eq!(world.rmdir(&WHO, "p"), Err(Errno::ENOTDIR));
    assert_eq!(world.rmdir(&WHO, "d"), Err(Errno::ENOTEMPTY));
    assert_eq!(world.rmdir(&WHO, "d/."), Err(Errno::EINVAL));
    assert_eq!(world.rmdir(&WHO, "d/.."), Err(Errno::ENOTEMPTY));
}

#[test]
fn parents_learn_of_changes() {
    let mut world = World::new();
    let d = world.mkdir(&WHO, "d", 0o755).unwrap();
    let mut last = world.get(d).unwrap().attr;
    let mut changed = |world: &World, what: &str| {
        let attr = world.get(d).unwrap().attr;
        assert!(attr.mtime > last.mtime && attr.ctime > last.ctime, "{what}");
        assert!(attr.change > last.change, "{what}");
        last = attr;
    };
    world.touch(&WHO, "d/f", 0o644).unwrap();
    changed(&world, "create");
    world.rename(&WHO, "d/f", "d/g", 0).unwrap();
    changed(&world, "rename");
    world.rename(&WHO, "d/g", "g", 0).unwrap();
    changed(&world, "rename away");
    world.mkdir(&WHO, "d/e", 0o755).unwrap();
    changed(&world, "mkdir");
    assert_eq!(world.get(d).unwrap().attr.links, 3);
    world.rmdir(&WHO, "d/e").unwrap();
    changed(&world, "rmdir");
    assert_eq!(world.get(d).unwrap().attr.links, 2);
}

#[test]
fn a_file_that_is_made_without_a_name_lives_while_it_is_open() {
    let mut world = open_world();
    let make = |world: &mut World| {
        world.change(|t| t.create_unnamed(&user(5), ROOT, 0o640, READ | WRITE)).unwrap().attr
    };
    let (kept, lost) = (make(&mut world), make(&mut world));
    assert_eq!((kept.links, kept.mode, kept.uid), (0, 0o640, 5));
    let link = |world: &mut World, who: &Who<'_>| {
        world.change(|t| t.link(who, kept.file, ROOT, b"kept")).map(|entry| entry.attr.links)
    };
    assert_eq!(link(&mut world, &WHO), Err(Errno::ENOENT));
    assert_eq!(link(&mut world, &Who::decided(5, 5)), Ok(1));
    let mut world = world.restart();
    assert_eq!(world.get(lost.file).unwrap().attr.links, 0, "its client may still have it");
    world.end_grace();
    assert_eq!(world.get(lost.file).map(drop), Err(Errno::ESTALE));
    assert_eq!(world.find("kept").unwrap().attr.file, kept.file);
    let refused = world.change(|t| t.create_unnamed(&user(5), kept.file, 0o640, WRITE));
    assert_eq!(refused.map(drop), Err(Errno::ENOTDIR));
}

#[test]
fn a_renamed_file_leaves_a_whiteout_when_asked() {
    let mut world = open_world();
    let d = world.mkdir(&WHO, "d", 0o777).unwrap();
    let (f, g) = (world.touch(&WHO, "f", 0o644).unwrap(), world.touch(&WHO, "g", 0o644).unwrap());
    for (from, to, flags) in [("f", "d/f", WHITEOUT | NO_REPLACE), ("g", "h", WHITEOUT)] {
        world.rename(&user(5), from, to, flags).unwrap();
        let whiteout = world.find(from).unwrap().attr;
        assert_eq!((whiteout.kind, whiteout.rdev, whiteout.links), (FileKind::CharDevice, 0, 1));
    }
    assert_eq!([world.find("d/f").unwrap().attr.file, world.find("h").unwrap().attr.file], [f, g]);
    world.rename(&WHO, "d/f", "h", WHITEOUT).unwrap();
    assert_eq!((world.find("h").unwrap().attr.file, world.list(d, 4096).len()), (f, 1));
    assert_eq!(world.get(g).map(drop), Err(Errno::ESTALE));
    let mut world = world.restart();
    world.unlink(&WHO, "d/f").unwrap();
    world.rmdir(&WHO, "d").unwrap();
    assert_eq!(world.list(ROOT, 4096).len(), 3);
}

#[test]
fn renames() {
    let mut world = open_world();
    for path in ["a", "a/b", "a/b/c", "x"] {
        world.mkdir(&WHO, path, 0o777).unwrap();
    }
    let (f, g) = (world.touch(&WHO, "f", 0o644).unwrap(), world.touch(&WHO, "g", 0o644).unwrap());
    let table = [
        ("a", "a/b/c/d", 0, Err(Errno::EINVAL)),
        ("a/b/c", "a", 0, Err(Errno::ENOTEMPTY)),
        ("a/b", "a", EXCHANGE, Err(Errno::EINVAL)),
        ("f", "x", 0, Err(Errno::EISDIR)),
        ("x", "f", 0, Err(Errno::ENOTDIR)),
        ("x", "a", 0, Err(Errno::ENOTEMPTY)),
        ("f", "g", NO_REPLACE, Err(Errno::EEXIST)),
        ("f", "h", EXCHANGE, Err(Errno::ENOENT)),
        ("f", "g", NO_REPLACE | EXCHANGE, Err(Errno::EINVAL)),
        ("f", "g", WHITEOUT | EXCHANGE, Err(Errno::EINVAL)),
        ("f", "g", WHITEOUT | NO_REPLACE, Err(Errno::EEXIST)),
        ("f", "g", 8, Err(Errno::EINVAL)),
        ("nothing", "g", 0, Err(Errno::ENOENT)),
        ("f", "f", 0, Ok(())),
        ("f", "x", EXCHANGE, Ok(())),
        ("x", "a/b/c/f", NO_REPLACE, Ok(())),
        ("a/b/c/f", "g", 0, Ok(())),
        ("a/b", "f", 0, Ok(())),
    ];
    for (from, to, flags, expected) in table {
        assert_eq!(world.rename(&WHO, from, to, flags), expected, "{from} {to} {flags}");
    }
    assert_eq!(world.find("g").unwrap().attr.file, f);
    assert_eq!(world.get(g).map(drop), Err(Errno::ESTALE));
    assert_eq!(world.find("f/c/..").unwrap().attr.file, world.find("f").unwrap().attr.file);
    assert_eq!(world.get(ROOT).unwrap().attr.links, 4);
    // The new parent is written into a directory that moves: that takes write permission on it.
    let d = world.mkdir(&user(5), "d", 0o555).unwrap();
    assert_eq!(world.rename(&user(5), "d", "a/d", 0), Err(Errno::EACCES));
    assert_eq!(world.rename(&user(5), "d", "e", 0), Ok(()));
    assert_eq!(world.find("e").unwrap().attr.file, d);
}

#[test]
fn creates_of_every_kind() {
    let mut world = open_world();
    let create = |world: &mut World, who: Who<'_>, how, open| {
        let made = world.change(|t| t.create(&who, ROOT, b"f", 0o600, how, open));
        made.map(|(_, made)| made)
    };
    let verifier = How::Exclusive(7);
    assert_eq!(create(&mut world, user(5), verifier, None), Ok(true));
    assert_eq!(create(&mut world, user(5), verifier, None), Ok(false));
    assert_eq!(create(&mut world, user(5), How::Exclusive(8), None), Err(Errno::EEXIST));
    assert_eq!(create(&mut world, user(5), How::Guarded, None), Err(Errno::EEXIST));
    assert_eq!(create(&mut world, user(5), How::Unchecked, Some(READ | WRITE)), Ok(false));
    assert_eq!(create(&mut world, user(6), How::Unchecked, Some(READ)), Err(Errno::EACCES));
    world.mkdir(&WHO, "d", 0o755).unwrap();
    let made = world.change(|t| t.create(&WHO, ROOT, b"d", 0o600, How::Unchecked, None));
    assert_eq!(made.map(drop), Err(Errno::EISDIR));
    // The creator of a file may write it with any mode.
    let made = world.change(|t| t.create(&user(5), ROOT, b"r", 0o400, How::Guarded, Some(WRITE)));
    assert!(made.unwrap().1);
    let file = world.find("r").unwrap().attr.file;
    let opened = world.change(|t| t.open(&user(5), file, WRITE));
    assert_eq!(opened.map(drop), Err(Errno::EACCES));
}

#[test]
fn files_without_names_live_while_they_are_open() {
    let mut world = World::new();
    let file = world.touch(&WHO, "f", 0o644).unwrap();
    world.change(|t| t.open(&WHO, file, READ)).unwrap();
    world.change_of(8, |t| t.open(&WHO, file, READ | WRITE)).unwrap();
    world.unlink(&WHO, "f").unwrap();
    assert_eq!(world.get(file).unwrap().attr.links, 0);
    assert_eq!(world.change(|t| t.link(&WHO, file, ROOT, b"g")).map(drop), Err(Errno::ENOENT));
    world.change_of(8, |t| t.close(file, Some(Final::default()))).unwrap();
    assert!(world.manager.removing().is_empty());
    let mut world = world.restart();
    assert_eq!(world.manager.opens().get(file, CLIENT).readers, 1);
    world.change(|t| t.close(file, None)).unwrap();
    assert!(world.get(file).is_ok(), "another client may still say that it has it open");
    world.end_grace();
    assert_eq!(world.get(file).map(drop), Err(Errno::ESTALE));
    assert!(world.manager.removing().contains(&file));
    let removed = world.read(|t| t.removed(file)).unwrap().unwrap();
    assert_eq!(removed.layout.width(), 3);
    assert!(world.change(|t| t.objects_removed(file, 10)).unwrap());
    assert!(world.restart().manager.removing().is_empty());
}

#[test]
fn sizes_and_times_of_one_writer() {
    let mut world = World::new();
    let file = world.touch(&user(5), "f", 0o4755).map(drop);
    assert_eq!(file, Err(Errno::EACCES));
    set(&mut world, &WHO, ROOT, chmod(0o777)).unwrap();
    let file = world.touch(&user(5), "f", 0o4755).unwrap();
    let entry = world.change(|t| t.open(&user(5), file, WRITE)).unwrap();
    assert!(!entry.writers);
    assert!(world.manager.read(8, |t| t.get_attr(file)).unwrap().writers);
    let late = Wall { seconds: 2000, nanos: 0 };
    let outcome = Final { size: 10, mtime: late, used: Some(4096), ..Final::default() };
    let after = world.change(|t| t.close(file, Some(outcome))).unwrap().unwrap().attr;
    assert_eq!((after.size, after.used, after.mtime), (10, 4096, late));
    assert_eq!(after.mode, 0o755, "a program that was written has no rights of its owner");
    // A time set by hand stays until something is written after it.
    world.change(|t| t.open(&user(5), file, WRITE)).unwrap();
    let old = Wall { seconds: 5, nanos: 0 };
    let by_hand = SetAttr { mtime: Some(SetTime::To(old)), ..SetAttr::default() };
    world.now = Wall { seconds: 3000, nanos: 0 };
    set(&mut world, &user(5), file, by_hand).unwrap();
    let before = Wall { seconds: 2999, nanos: 0 };
    let outcome = Final { size: 20, mtime: before, ..Final::default() };
    let after = world.change(|t| t.close(file, Some(outcome))).unwrap().unwrap().attr;
    assert_eq!((after.size, after.used, after.mtime), (20, 4096, old));
}

#[test]
fn two_writers_are_settled_by_the_objects() {
    let mut world = World::new();
    let file = world.touch(&WHO, "f", 0o644).unwrap();
    world.change(|t| t.open(&WHO, file, WRITE)).unwrap();
    world.change_of(8, |t| t.open(&WHO, file, WRITE)).unwrap();
    let outcome = |size| Some(Final { size, ..Final::default() });
    assert_eq!(world.change(|t| t.close(file, outcome(5))), Ok(None));
    assert!(world.manager.opens().settling().iter().eq(&[(file, CLIENT)]));
    assert!(world.get(file).unwrap().writers, "even to itself, until it is settled");
    // A restart does not lose that: an unclaimed session is settled too.
    let mut world = world.restart();
    world.end_grace();
    assert!(world.manager.opens().settling().iter().eq(&[(file, CLIENT)]));
    let mtime = Wall { seconds: 9000, nanos: 0 };
    let totals = Final { size: 9, mtime, used: Some(1), ..Final::default() };
    world.change_of(0, |t| t.settle(file, CLIENT, totals)).unwrap();
    world.manager.expire(8, names::Origin::default()).unwrap();
    assert!(world.manager.opens().settling().iter().eq(&[(file, 8)]));
    world.change_of(0, |t| t.settle(file, 8, totals)).unwrap();
    let entry = world.get(file).unwrap();
    assert_eq!((entry.attr.size, entry.writers), (9, false));
}

#[test]
fn truncation_raises_the_generation_and_survives_a_restart() {
    let mut world = open_world();
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let file = world.touch(&user(5), "f", 0o4755).unwrap();
    let cut = |world: &mut World, who: Who<'_>, bytes, opened| {
        world.change(|t| t.prepare_truncation(&who, file, &size(bytes), opened))
    };
    let (entry, asks) = cut(&mut world, user(5), 0, false).unwrap();
    assert_eq!((entry.truncations, asks, entry.attr.mode), (0, false, 0o755));
    assert_eq!(cut(&mut world, user(6), 1, false).map(drop), Err(Errno::EACCES));
    assert_eq!(cut(&mut world, user(5), 1 << 63, false).map(drop), Err(Errno::EFBIG));
    let (entry, asks) = cut(&mut world, user(5), 100, false).unwrap();
    assert_eq!((entry.attr.size, entry.truncations, asks), (100, 1, true));
    let mut world = world.restart();
    assert_eq!(world.manager.truncating().get(&file), Some(&100));
    let ended = |t: &mut Transaction<'_>| t.truncated(file);
    world.change_of(0, ended).unwrap();
    let mut world = world.restart();
    assert!(world.manager.truncating().is_empty());
    // Through an open file its mode does not matter any more.
    world.change(|t| t.open(&user(5), file, WRITE)).unwrap();
    set(&mut world, &WHO, file, chmod(0)).unwrap();
    assert_eq!(cut(&mut world, user(5), 1, false).map(drop), Err(Errno::EACCES));
    assert!(cut(&mut world, user(5), 1, true).unwrap().1);
    let refused = world.change(|t| t.prepare_truncation(&WHO, ROOT, &size(0), false));
    assert_eq!(refused.map(drop), Err(Errno::EISDIR));
}

#[test]
fn a_length_of_before_a_truncation_is_not_taken_over() {
    let mut world = World::new();
    let file = world.touch(&WHO, "f", 0o644).unwrap();
    world.change(|t| t.open(&WHO, file, WRITE)).unwrap();
    let cut = SetAttr { size: Some(10), ..SetAttr::default() };
    let (entry, _) = world.change(|t| t.prepare_truncation(&WHO, file, &cut, false)).unwrap();
    assert_eq!(entry.truncations, 1);
    let ended = |t: &mut Transaction<'_>| t.truncated(file);
    world.change_of(0, ended).unwrap();
    // Sent before the truncation, taken up after it.
    let before = Final { size: 100, ..Final::default() };
    assert_eq!(world.change(|t| t.close(file, Some(before))), Ok(None));
    assert_eq!(world.get(file).unwrap().attr.size, 10);
    assert!(world.manager.opens().settling().contains(&(file, CLIENT)));
    let totals = Final { size: 10, truncations: 1, ..Final::default() };
    world.change_of(0, |t| t.settle(file, CLIENT, totals)).unwrap();
    // One that knows of it is exact.
    world.change(|t| t.open(&WHO, file, WRITE)).unwrap();
    let after = Final { size: 30, truncations: 1, ..Final::default() };
    let closed = world.change(|t| t.close(file, Some(after))).unwrap();
    assert_eq!(closed.unwrap().attr.size, 30);
}

#[test]
fn extended_attributes() {
    let mut world = open_world();
    let file = world.touch(&user(5), "f", 0o644).unwrap();
    let put = |world: &mut World, who: Who<'_>, name: &[u8], value: &[u8], flags| {
        world.change(|t| t.set_xattr(&who, file, name, value, flags))
    };
    let long = [b"user.".as_slice(), &[b'x'; 250]].concat();
    let longer = [b"user.".as_slice(), &[b'x'; 251]].concat();
    let huge = vec![7; 65_537];
    type Row<'a> = (Who<'a>, &'a [u8], &'a [u8], u32, Result<(), Errno>);
    let table: [Row<'_>; 12] = [
        (user(5), b"user.a", b"1", REPLACE, Err(Errno::ENODATA)),
        (user(5), b"user.a", b"1", CREATE, Ok(())),
        (user(5), b"user.a", b"2", CREATE, Err(Errno::EEXIST)),
        (user(5), b"user.a", b"", REPLACE, Ok(())),
        (user(6), b"user.a", b"3", 0, Err(Errno::EACCES)),
        (user(5), b"user.", b"3", 0, Err(Errno::EINVAL)),
        (user(5), b"trusted.a", b"3", 0, Err(Errno::EPERM)),
        (WHO, b"trusted.a", b"3", 0, Ok(())),
        (WHO, b"system.posix_acl_access", b"3", 0, Err(Errno::EOPNOTSUPP)),
        (user(5), &long, &huge[1..], 0, Ok(())),
        (user(5), &long, &huge, 0, Err(Errno::ENOSPC)),
        (user(5), &longer, b"", 0, Err(Errno::ERANGE)),
    ];
    for (who, name, value, flags, expected) in table {
        assert_eq!(put(&mut world, who, name, value, flags), expected, "{name:?} {flags}");
    }
    let listed = world.read(|t| t.list_xattr(&user(6), file)).unwrap();
    assert_eq!(listed, [b"user.a\0".as_slice(), &long, b"\0"].concat());
    assert_eq!(world.read(|t| t.get_xattr(&user(6), file, b"user.a")), Ok(vec![]));
    let hidden = world.read(|t| t.get_xattr(&user(6), file, b"trusted.a"));
    assert_eq!(hidden, Err(Errno::ENODATA));
    let remove =
        |world: &mut World, name: &[u8]| world.change(|t| t.remove_xattr(&user(5), file, name));
    assert_eq!(remove(&mut world, b"user.a"), Ok(()));
    assert_eq!(remove(&mut world, b"user.a"), Err(Errno::ENODATA));
    let link = world.change(|t| t.symlink(&WHO, ROOT, b"l", b"f")).unwrap().attr.file;
    let set = world.change(|t| t.set_xattr(&user(5), link, b"user.a", b"", 0));
    assert_eq!(set, Err(Errno::EPERM));
    world.unlink(&WHO, "f").unwrap();
    assert_eq!(world.read(|t| t.list_xattr(&WHO, file)), Err(Errno::ESTALE));
}

#[test]
fn block_maps() {
    use wire::{Fragment, NodeId, Placement};
    let mut world = World::new();
    let file = world.touch(&WHO, "f", 0o644).unwrap();
    let old = world.get(file).unwrap().layout.unwrap();
    let unit = u64::from(old.unit_bytes);
    let grow = |world: &mut World, size| {
        let epoch = world.change(|t| t.fence(&WHO, file)).unwrap();
        assert!(world.read(|t| t.is_fenced(file)).unwrap());
        let before = world.get(file).unwrap().layout.unwrap();
        let next = before.with_columns(epoch, &[NodeId(9), NodeId(8)]).unwrap();
        world.change(|t| t.set_columns(file, next, size))
    };
    let all = |world: &World| world.read(|t| t.fragments(file, 0, 99)).unwrap();
    grow(&mut world, 10 * unit - 1).unwrap();
    assert!(!world.read(|t| t.is_fenced(file)).unwrap());
    let layout = world.get(file).unwrap().layout.unwrap();
    assert_eq!((layout.width(), layout.formula_width()), (5, 3));
    assert_eq!((layout.epoch, layout.placement), (2, Placement::Map));
    let open = Fragment { unit: 10, units: u64::MAX - 10, column: 3, width: 2, object_unit: 0 };
    assert_eq!(all(&world), (2, vec![open]));
    // Fragments with data written since stay; one without is never missed.
    grow(&mut world, 15 * unit).unwrap();
    let later = Fragment { unit: 15, units: u64::MAX - 15, column: 5, ..open };
    assert_eq!(all(&world), (3, vec![Fragment { units: 5, ..open }, later]));
    assert_eq!(world.read(|t| t.fragments(file, 14, 1)).unwrap().1[0].unit, 10);
    assert_eq!(world.read(|t| t.fragments(file, 15, 1)).unwrap().1[0].unit, 15);
    grow(&mut world, 0).unwrap();
    assert_eq!(all(&world).1.last().unwrap().column, 7);
    // An epoch that is not the fence's commits nothing.
    let layout = world.get(file).unwrap().layout.unwrap();
    let stale = layout.with_home(layout.epoch - 1, 0, NodeId(7)).unwrap();
    assert_eq!(world.change(|t| t.set_layout(file, stale)), Err(Errno::EAGAIN));
    world.unlink(&WHO, "f").unwrap();
    assert!(!world.change(|t| t.objects_removed(file, 1)).unwrap());
    assert!(world.change(|t| t.objects_removed(file, 1)).unwrap());
}

#[test]
fn a_call_is_executed_once_even_over_a_restart() {
    let mut world = World::new();
    let make = |world: &mut World, sequence, name: &'static [u8]| {
        world.once(3, sequence, |t| {
            let entry = t.make_directory(&WHO, ROOT, name, 0o755)?;
            Ok(entry.attr.file.0.to_le_bytes().to_vec())
        })
    };
    let first = make(&mut world, 1, b"d").unwrap();
    assert_eq!(make(&mut world, 1, b"d"), Ok(first.clone()));
    assert_eq!(make(&mut world, 2, b"d"), Err(Errno::EEXIST));
    let mut world = world.restart();
    assert_eq!(make(&mut world, 1, b"d"), Ok(first));
    make(&mut world, 3, b"e").unwrap();
    assert_eq!(make(&mut world, 1, b"d"), Err(Errno::ECANCELED));
    let from = DirectoryEntry { parent: ROOT, name: b"e" };
    let to = DirectoryEntry { parent: ROOT, name: b"g" };
    let rename = |t: &mut Transaction<'_>| t.rename(&WHO, from, to, 0).map(|()| Vec::new());
    assert_eq!(world.once(3, 4, rename), Ok(vec![]));
    assert_eq!(world.once(3, 4, rename), Ok(vec![]));
    // A dead client's answers are forgotten with it.
    world.manager.expire(CLIENT, names::Origin::default()).unwrap();
    assert_eq!(world.once(3, 4, rename), Err(Errno::ENOENT));
}
