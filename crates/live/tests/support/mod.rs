//! Common parts of the tests of mounts: a private mount namespace, and users' operations on files.

pub mod memory;

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;

/// Runs `test` on a thread with a mount namespace of its own, unless this machine has no FUSE or does not let us.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !Path::new("/dev/fuse").exists() {
        return rig::skip("there is no /dev/fuse");
    }
    if !rustix::process::geteuid().is_root() {
        return rig::skip("a mount namespace needs root");
    }
    let thread = thread::spawn(|| {
        // SAFETY: only this thread and those it starts see the new namespace; no descriptor is affected.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
        use rustix::mount::{MountPropagationFlags, mount_change};
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        test();
        Ok::<_, rustix::io::Errno>(())
    });
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => rig::skip(format!("no mount namespace: {error}")),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Bytes that differ from place to place.
pub fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) ^ seed).to_be_bytes()[0]).collect()
}

/// All that users do, one after the other, in an empty directory.
pub fn exercise(root: &Path) {
    whole_files(root);
    parts_of_files(root);
    names(root);
    long_names(root);
    many_entries(root);
    attributes(root);
    extended_attributes(root);
    open_but_gone(root);
    tree(root);
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
}

fn whole_files(root: &Path) {
    for bytes in [0, 1, 4095, 4096, 16 << 10, (16 << 10) + 1, 100_000, 1 << 20, (3 << 20) + 5] {
        let (path, data) = (root.join("whole"), pattern(bytes, bytes as u32));
        let mut file = File::create(&path).unwrap();
        // In calls of a megabyte, as large as one request.
        data.chunks(1 << 20).for_each(|part| file.write_all(part).unwrap());
        file.sync_all().unwrap();
        drop(file);
        assert!(fs::read(&path).unwrap() == data, "{bytes} bytes");
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes as u64);
        fs::remove_file(&path).unwrap();
    }
}

fn parts_of_files(root: &Path) {
    let path = root.join("parts");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let mut model = vec![0; 300_000];
    for (seed, (at, bytes)) in
        [(0, 10), (4090, 20), (299_000, 1000), (70_001, 65_536), (5, 4096)].into_iter().enumerate()
    {
        let data = pattern(bytes, seed as u32);
        file.write_all_at(&data, at as u64).unwrap();
        model[at..at + bytes].copy_from_slice(&data);
    }
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut read).unwrap();
    assert!(read == model);
    file.set_len(100).unwrap();
    file.set_len(5000).unwrap();
    model.truncate(100);
    model.resize(5000, 0);
    assert!(fs::read(&path).unwrap() == model);
    let mut appending = OpenOptions::new().append(true).open(&path).unwrap();
    appending.write_all(b"tail").unwrap();
    model.extend_from_slice(b"tail");
    assert!(fs::read(&path).unwrap() == model);
    File::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    drop((file, appending));
    fs::remove_file(&path).unwrap();
}

fn names(root: &Path) {
    let (a, b, c) = (root.join("a"), root.join("b"), root.join("c"));
    fs::write(&a, b"one").unwrap();
    assert!(OpenOptions::new().write(true).create_new(true).open(&a).is_err());
    fs::hard_link(&a, &b).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(&a).unwrap().ino(), fs::metadata(&b).unwrap().ino());
    std::os::unix::fs::symlink("b", &c).unwrap();
    assert_eq!(fs::read_link(&c).unwrap(), Path::new("b"));
    assert_eq!(fs::read(&c).unwrap(), b"one");
    fs::write(root.join("d"), b"two").unwrap();
    fs::rename(root.join("d"), &a).unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"two");
    assert_eq!(fs::read(&b).unwrap(), b"one");
    let error = fs::read(root.join("d")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let no_replace = rustix::fs::renameat_with(
        rustix::fs::CWD,
        &a,
        rustix::fs::CWD,
        &b,
        rustix::fs::RenameFlags::NOREPLACE,
    );
    assert_eq!(no_replace, Err(rustix::io::Errno::EXIST));
    [a, b, c].iter().for_each(|path| fs::remove_file(path).unwrap());
}

fn long_names(root: &Path) {
    let longest = root.join("n".repeat(255));
    fs::write(&longest, b"x").unwrap();
    assert!(fs::read_dir(root).unwrap().any(|entry| entry.unwrap().path() == longest));
    fs::remove_file(&longest).unwrap();
    let error = fs::write(root.join("n".repeat(256)), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
    let odd = root.join(OsString::from_vec(b"\xff\n \\\"\x01".to_vec()));
    fs::write(&odd, b"odd").unwrap();
    assert_eq!(fs::read(&odd).unwrap(), b"odd");
    fs::remove_file(&odd).unwrap();
}

fn many_entries(root: &Path) {
    let directory = root.join("many");
    fs::create_dir(&directory).unwrap();
    let wanted: BTreeSet<_> = (0..5000).map(|n| OsString::from(format!("file-{n:05}"))).collect();
    wanted.iter().for_each(|name| drop(File::create(directory.join(name)).unwrap()));
    for round in 0..2 {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            if round == 1 {
                assert!(entry.metadata().unwrap().is_file());
            }
            assert!(found.insert(entry.file_name()), "{entry:?} came twice");
        }
        assert!(found == wanted);
    }
    let error = fs::remove_dir(&directory).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_dir_all(&directory).unwrap();
}

fn attributes(root: &Path) {
    let path = root.join("attributes");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o104751);
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (12, 34));
    let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
    file.set_modified(then).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), then);
    let space = rustix::fs::statvfs(root).unwrap();
    assert!(space.f_blocks > 0);
    assert_eq!(space.f_namemax, 255);
    drop(file);
    fs::remove_file(&path).unwrap();
}

fn extended_attributes(root: &Path) {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    use rustix::fs::{getxattr_query, listxattr_query};
    use rustix::io::Errno;
    let path = root.join("extended");
    fs::write(&path, b"").unwrap();
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    setxattr(&path, "user.colour", b"blue", XattrFlags::empty()).unwrap();
    assert_eq!(setxattr(&path, "user.colour", b"red", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(getxattr_query(&path, "user.colour"), Ok(4));
    assert_eq!(listxattr_query(&path), Ok(12));
    assert_eq!(getxattr(&path, "user.colour", &mut [0; 3]), Err(Errno::RANGE));
    let mut value = [0; 16];
    assert_eq!(getxattr(&path, "user.colour", &mut value), Ok(4));
    assert_eq!(&value[..4], b"blue");
    assert_eq!(getxattr(&path, "user.taste", &mut value), Err(Errno::NODATA));
    let mut names = [0; 64];
    let bytes = listxattr(&path, &mut names).unwrap();
    assert_eq!(&names[..bytes], b"user.colour\0");
    removexattr(&path, "user.colour").unwrap();
    assert_eq!(listxattr(&path, &mut names), Ok(0));
    fs::remove_file(root.join("extended")).unwrap();
}

fn open_but_gone(root: &Path) {
    let path = root.join("gone");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"still").unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!path.exists());
    file.write_all(b" here").unwrap();
    let mut data = [0; 10];
    file.read_exact_at(&mut data, 0).unwrap();
    assert_eq!(&data, b"still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

fn tree(root: &Path) {
    let mut path = root.to_path_buf();
    for depth in 0..20 {
        path.push(format!("level-{depth}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), pattern(depth * 1000, 3)).unwrap();
    }
    fs::rename(root.join("level-0/level-1"), root.join("moved")).unwrap();
    let deep = root.join("moved/level-2/level-3/file");
    assert!(fs::read(deep).unwrap() == pattern(3000, 3));
    fs::remove_dir_all(root.join("level-0")).unwrap();
    fs::remove_dir_all(root.join("moved")).unwrap();
}
