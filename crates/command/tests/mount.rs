//! Mounts as applications see them: names, contents, maps, locks, and effects of two mounts on each other.

use crate::common::{Cluster, cannot_mount, pattern, shell};
use files::conformance::random::{self, Step};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, XattrFlags};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// The errno of what must fail.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&result.unwrap_err()).unwrap()
}

#[test]
fn files_as_applications_use_them() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(3);
    let root = cluster.at("");
    contents(&root);
    renamed_and_unlinked_while_open(&root);
    links(&root);
    names(&root);
    long_paths(&root);
    attributes(&root);
    let expected = mapped(&root);
    cluster.remount();
    assert!(fs::read(root.join("mapped")).unwrap() == expected, "after another mount");
    assert_eq!(fs::read(root.join("big")).unwrap(), pattern(1, 3_000_000));
    cluster.stop();
}

fn contents(root: &Path) {
    let path = root.join("big");
    fs::write(&path, pattern(1, 3_000_000)).unwrap();
    assert!(fs::read(&path).unwrap() == pattern(1, 3_000_000));
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"middle", 1_500_000).unwrap();
    file.seek(SeekFrom::Start(1_499_998)).unwrap();
    let mut seen = [0; 10];
    file.read_exact(&mut seen).unwrap();
    assert_eq!(&seen[2..8], b"middle");
    file.write_all_at(&pattern(1, 3_000_000)[1_500_000..1_500_006], 1_500_000).unwrap();
    file.set_len(4_000_000).unwrap();
    file.set_len(3_000_000).unwrap();
    file.sync_all().unwrap();
    let log = root.join("log");
    let mut first = File::options().append(true).create(true).open(&log).unwrap();
    let mut second = File::options().append(true).open(&log).unwrap();
    for turn in 0..20 {
        writeln!(if turn % 2 == 0 { &mut first } else { &mut second }, "{turn}").unwrap();
    }
    let lines: String = (0..20).map(|turn| format!("{turn}\n")).collect();
    assert_eq!(fs::read_to_string(&log).unwrap(), lines);
}

fn renamed_and_unlinked_while_open(root: &Path) {
    let (old, new) = (root.join("old"), root.join("new"));
    fs::write(&old, "old").unwrap();
    fs::write(&new, "new").unwrap();
    let mut open = File::open(&old).unwrap();
    fs::rename(&new, &old).unwrap();
    let mut seen = String::new();
    open.read_to_string(&mut seen).unwrap();
    assert_eq!((seen.as_str(), fs::read_to_string(&old).unwrap().as_str()), ("old", "new"));
    let mut open = File::options().read(true).write(true).open(&old).unwrap();
    fs::remove_file(&old).unwrap();
    assert!(File::open(&old).is_err());
    open.write_all(&pattern(2, 200_000)).unwrap();
    open.rewind().unwrap();
    let mut seen = Vec::new();
    open.read_to_end(&mut seen).unwrap();
    assert!(seen == pattern(2, 200_000));
    assert_eq!(open.metadata().unwrap().nlink(), 0);
}

fn links(root: &Path) {
    let (one, two) = (root.join("one"), root.join("two"));
    fs::write(&one, "linked").unwrap();
    fs::hard_link(&one, &two).unwrap();
    assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
    fs::remove_file(&one).unwrap();
    assert_eq!(fs::read_to_string(&two).unwrap(), "linked");
    assert_eq!(fs::metadata(&two).unwrap().nlink(), 1);
    symlink("two", root.join("soft")).unwrap();
    assert_eq!(fs::read_to_string(root.join("soft")).unwrap(), "linked");
}

fn names(root: &Path) {
    let dir = root.join("names");
    fs::create_dir(&dir).unwrap();
    let name = |bytes: Vec<u8>| dir.join(OsString::from_vec(bytes));
    fs::write(name(vec![b'x'; 255]), "255").unwrap();
    let refused = File::create(name(vec![b'x'; 256]));
    assert_eq!(errno(refused), rustix::io::Errno::NAMETOOLONG);
    fs::write(name(b"\xff\xfe not UTF-8 \x80\n".to_vec()), "any").unwrap();
    assert_eq!(fs::read(name(b"\xff\xfe not UTF-8 \x80\n".to_vec())).unwrap(), b"any");
    let mut listed: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect();
    listed.sort();
    assert_eq!(listed, [vec![b'x'; 255], b"\xff\xfe not UTF-8 \x80\n".to_vec()]);
}

/// A path of 4095 bytes and its zero is the longest that the kernel takes; one more is refused.
fn long_paths(root: &Path) {
    let mut path = root.join("deep").into_os_string().into_vec();
    while path.len() < 3900 {
        path.extend_from_slice(b"/");
        path.extend_from_slice(&[b'd'; 99]);
    }
    fs::create_dir_all(OsString::from_vec(path.clone())).unwrap();
    path.push(b'/');
    path.resize(4095, b'f');
    let longest = OsString::from_vec(path.clone());
    fs::write(&longest, "deep").unwrap();
    assert_eq!(fs::read(&longest).unwrap(), b"deep");
    path.push(b'f');
    assert_eq!(errno(File::open(OsString::from_vec(path))), rustix::io::Errno::NAMETOOLONG);
    fs::remove_dir_all(root.join("deep")).unwrap();
}

fn attributes(root: &Path) {
    let path = root.join("attributed");
    fs::write(&path, "x").unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&path, name, value, XattrFlags::empty()).unwrap();
    };
    set("user.colour", b"blue");
    set("user.large", &pattern(3, 4000));
    let mut value = vec![0; 8192];
    let bytes = rustix::fs::getxattr(&path, "user.colour", &mut value).unwrap();
    assert_eq!(&value[..bytes], b"blue");
    let bytes = rustix::fs::getxattr(&path, "user.large", &mut value).unwrap();
    assert!(value[..bytes] == pattern(3, 4000));
    let bytes = rustix::fs::listxattr(&path, &mut value).unwrap();
    assert_eq!(&value[..bytes], b"user.colour\0user.large\0");
    rustix::fs::removexattr(&path, "user.colour").unwrap();
    let gone = rustix::fs::getxattr(&path, "user.colour", &mut value);
    assert_eq!(gone.unwrap_err(), rustix::io::Errno::NODATA);
}

/// Writes through a shared map, which only another program can do without unsafe code; the bytes the file has then.
fn mapped(root: &Path) -> Vec<u8> {
    let path = root.join("mapped");
    let mut expected = pattern(4, 100_000);
    fs::write(&path, &expected).unwrap();
    let script = r#"
python3 - mapped <<'END'
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    with mmap.mmap(file.fileno(), 0) as map:
        for at in range(0, len(map), 5000):
            map[at:at + 5] = b"mmap!"
        map.flush()
END
"#;
    if crate::common::lacks("python3") {
        return expected;
    }
    shell(root, 60, script);
    for at in (0..expected.len()).step_by(5000) {
        expected[at..at + 5].copy_from_slice(b"mmap!");
    }
    assert!(fs::read(&path).unwrap() == expected);
    expected
}

#[test]
fn two_mounts_see_each_other() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(3);
    let (one, two) = (cluster.at(""), cluster.mount_again());
    for round in 0..20 {
        let (from, to) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let bytes = pattern(round, 1000 + 60_000 * (round as usize % 4));
        fs::write(from.join("shared"), &bytes).unwrap();
        assert!(fs::read(to.join("shared")).unwrap() == bytes, "close to open, round {round}");
        let mut log = File::options().append(true).create(true).open(from.join("log")).unwrap();
        writeln!(log, "{round}").unwrap();
    }
    let lines: String = (0..20).map(|round| format!("{round}\n")).collect();
    assert_eq!(fs::read_to_string(one.join("log")).unwrap(), lines, "appended in turns");
    let mut open = File::open(one.join("shared")).unwrap();
    fs::write(two.join("replacement"), "replacement").unwrap();
    fs::rename(two.join("replacement"), two.join("shared")).unwrap();
    let mut seen = Vec::new();
    open.read_to_end(&mut seen).unwrap();
    assert!(seen == pattern(19, 1000 + 60_000 * 3), "an open file stays what it was");
    assert!(fs::read(one.join("shared")).unwrap() == b"replacement", "the kernel's old name");
    locks(&one, &two);
    drop(open);
    cluster.stop();
}

fn locks(one: &Path, two: &Path) {
    let first = File::create(one.join("locked")).unwrap();
    let second = File::options().write(true).open(two.join("locked")).unwrap();
    let (lock, unlock) = (FlockOperation::NonBlockingLockExclusive, FlockOperation::Unlock);
    let busy = rustix::io::Errno::WOULDBLOCK;
    rustix::fs::flock(&first, lock).unwrap();
    assert_eq!(rustix::fs::flock(&second, lock).unwrap_err(), busy);
    rustix::fs::flock(&first, unlock).unwrap();
    rustix::fs::flock(&second, lock).unwrap();
    rustix::fs::flock(&second, unlock).unwrap();
    rustix::fs::fcntl_lock(&first, lock).unwrap();
    let refused = rustix::fs::fcntl_lock(&second, lock).unwrap_err();
    assert!(refused == busy || refused == rustix::io::Errno::ACCESS, "{refused}");
    let waiting = std::thread::spawn(move || {
        rustix::fs::fcntl_lock(&second, FlockOperation::LockExclusive).unwrap();
    });
    rustix::fs::fcntl_lock(&first, unlock).unwrap();
    waiting.join().unwrap();
}

/// A program has a file locked while its mount is stopped.
#[test]
fn a_mount_that_is_stopped_gives_its_locks_back_at_once() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    let (one, two) = (cluster.at("locked"), cluster.mount_again().join("locked"));
    let (whole, range) = (File::create(&one).unwrap(), File::create(cluster.at("range")).unwrap());
    let lock = FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&whole, lock).unwrap();
    rustix::fs::fcntl_lock(&range, lock).unwrap();
    let others = [&two, &two.with_file_name("range")]
        .map(|path| File::options().write(true).open(path).unwrap());
    assert!(rustix::fs::flock(&others[0], lock).is_err(), "it is locked");
    cluster.processes.unmount().unwrap();
    rustix::fs::flock(&others[0], lock).unwrap();
    rustix::fs::fcntl_lock(&others[1], lock).unwrap();
    drop((whole, range, others));
    cluster.stop();
}

#[test]
fn what_differs_from_a_local_file_system() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let (one, two) = (cluster.at("file"), cluster.mount_again().join("file"));
    fs::write(&one, pattern(1, 300_000)).unwrap();
    let (before, there) = (fs::metadata(&one).unwrap(), fs::metadata(&two).unwrap());
    assert_eq!(before.modified().unwrap(), there.modified().unwrap(), "exact after the close");
    cluster.remount();
    assert!(fs::read(&one).unwrap() == pattern(1, 300_000));
    assert_eq!(fs::metadata(&one).unwrap().accessed().unwrap(), before.accessed().unwrap());
    let file = File::options().write(true).read(true).open(&one).unwrap();
    let set = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
    file.set_times(fs::FileTimes::new().set_accessed(set)).unwrap();
    assert_eq!(fs::metadata(&one).unwrap().accessed().unwrap(), set);
    file.set_len(900_000).unwrap();
    let keep = FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, keep, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 900_000, "nothing is reserved");
    drop(file);
    cluster.stop();
}

/// Bytes that a program wrote through a shared map and synced are read by another mount.
#[test]
fn a_mapped_file_is_seen_by_another_mount() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let two = cluster.mount_again();
    let expected = mapped(&cluster.at(""));
    assert!(fs::read(two.join("mapped")).unwrap() == expected);
    cluster.stop();
}

#[test]
fn random_operations_as_a_model() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(3);
    for seed in 0..if crate::common::soaks() { 200 } else { 3 } {
        let steps = random::steps(seed, 300, 1 << 20);
        let fails = |steps: &[Step]| operations(&cluster.at("fsx"), steps).is_err();
        if let Err(text) = operations(&cluster.at("fsx"), &steps) {
            panic!("seed {seed}: {text}\nshort: {:#?}", random::shrink(&steps, fails));
        }
    }
    cluster.stop();
}

/// Does the steps on a new file and on a model; the first difference.
fn operations(path: &Path, steps: &[Step]) -> Result<(), String> {
    let _ = fs::remove_file(path);
    let open = |create| File::options().read(true).write(true).create(create).open(path).unwrap();
    let (mut file, mut model) = (open(true), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        if let Step::Reopen = step {
            drop(file);
            file = open(false);
            continue;
        }
        let done = operation(&file, &mut model, number, *step);
        done.map_err(|text| format!("step {number} {step:?}: {text}"))?;
    }
    drop(file);
    if fs::read(path).unwrap() == model { Ok(()) } else { Err("at the end".to_string()) }
}

fn operation(file: &File, model: &mut Vec<u8>, number: usize, step: Step) -> Result<(), String> {
    let within = |at: u64, model: &Vec<u8>| model.len().min(at as usize);
    match step {
        Step::Write(offset, bytes) => {
            let data = pattern(1 + number as u64, bytes);
            let end = offset as usize + bytes;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&data);
            file.write_all_at(&data, offset).map_err(|error| error.to_string())
        }
        Step::Read(offset, bytes) => {
            let expected = &model[within(offset, model)..within(offset + bytes as u64, model)];
            let mut seen = vec![0; expected.len()];
            file.read_exact_at(&mut seen, offset).map_err(|error| error.to_string())?;
            if seen == expected { Ok(()) } else { Err("other bytes".to_string()) }
        }
        Step::Truncate(size) => {
            model.resize(size as usize, 0);
            file.set_len(size).map_err(|error| error.to_string())
        }
        Step::Punch(offset, bytes) => {
            let (from, to) = (within(offset, model), within(offset + bytes, model));
            model[from..to].fill(0);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, offset, bytes).map_err(|error| error.to_string())
        }
        Step::Sync => file.sync_all().map_err(|error| error.to_string()),
        Step::Flush => file.try_clone().map(drop).map_err(|error| error.to_string()),
        Step::Reopen => Ok(()),
        Step::Stat => {
            let size = file.metadata().map_err(|error| error.to_string())?.len();
            let expected = model.len() as u64;
            if size == expected { Ok(()) } else { Err(format!("{size}, expected {expected}")) }
        }
    }
}

#[test]
fn synchronous_and_direct_writes() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let flags = OFlags::SYNC.bits() as i32;
    let path = cluster.at("sync");
    let file = File::options().write(true).create(true).custom_flags(flags).open(&path).unwrap();
    file.write_all_at(&pattern(9, 100_000), 0).unwrap();
    assert!(fs::read(&path).unwrap() == pattern(9, 100_000));
    drop(file);
    cluster.stop();
}

/// `umount`, as soon as no child of another test has the file that was just written: a fork has it until its exec.
fn unmount_unless_busy(point: &Path) {
    let unmount = || rustix::mount::unmount(point, rustix::mount::UnmountFlags::empty());
    let mut result = unmount();
    for _ in 0..200 {
        if result != Err(rustix::io::Errno::BUSY) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        result = unmount();
    }
    result.unwrap();
}

/// `umount M; trapeze mount C M` while the first mount's process still has something to do.
#[test]
fn a_mount_at_the_place_of_one_that_ends_stays() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let point = cluster.processes.mount_point().to_path_buf();
    for round in 0..15 {
        let written = pattern(round, 3_000_000);
        fs::write(point.join(format!("file{round}")), &written).unwrap();
        let mut ending = cluster.processes.take_mount().unwrap();
        unmount_unless_busy(&point);
        cluster.processes.mount().unwrap();
        while ending.runs() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(
            crate::common::is_mounted(&point),
            "round {round}: the second mount went with the first"
        );
        assert!(fs::read(point.join(format!("file{round}"))).unwrap() == written);
    }
    cluster.stop();
}
