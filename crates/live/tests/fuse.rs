//! Mounts, used as programs use them: over a directory (pass-through) and over a node.

use crate::support::{exercise, in_namespace, memory, pattern};
use live::fuse::{Mount, MountError, MountOptions, Stage, passthrough};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Pages of a node's pool in these tests: 16 MiB.
const PAGES: usize = 4096;

struct Places {
    _all: tempfile::TempDir,
    source: PathBuf,
    mount: PathBuf,
}

fn places() -> Places {
    let all = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(all.path()).unwrap();
    let (source, mount) = (root.join("source"), root.join("a mount\\point"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&mount).unwrap();
    Places { _all: all, source, mount }
}

fn is_mounted(path: &Path) -> bool {
    let escaped = path.to_str().unwrap().replace('\\', "\\134").replace(' ', "\\040");
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&escaped))
}

/// Waits for something that must come; a minute is for ever.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

fn unmount(path: &Path) {
    rustix::mount::unmount(path, rustix::mount::UnmountFlags::empty()).unwrap();
}

#[test]
fn a_directory_passed_through_is_that_directory() {
    in_namespace(|| {
        let Places { source, mount, _all } = places();
        let (from, to) = (source.clone(), MountOptions::new(&mount));
        let server = thread::spawn(move || passthrough::serve(&from, &to, false, || {}));
        wait_until("the mount", || is_mounted(&mount));
        exercise(&mount);
        let listed = rustix::fs::Dir::new(File::open(&mount).unwrap()).unwrap();
        let mut names: Vec<_> = listed.map(|e| e.unwrap().file_name().to_owned()).collect();
        names.sort();
        assert_eq!(names, [c".".to_owned(), c"..".to_owned()]);
        let data = pattern(5_000_000, 1);
        fs::write(mount.join("same"), &data).unwrap();
        assert!(fs::read(source.join("same")).unwrap() == data);
        unmount(&mount);
        server.join().unwrap().unwrap();
        assert!(!is_mounted(&mount));
    });
}

#[test]
fn an_open_sees_what_others_closed_and_an_open_file_sees_them_append() {
    in_namespace(|| {
        let Places { source, mount, _all } = places();
        let (from, to) = (source.clone(), MountOptions::new(&mount));
        fs::write(source.join("file"), pattern(10_000, 1)).unwrap();
        let server = thread::spawn(move || passthrough::serve(&from, &to, false, || {}));
        wait_until("the mount", || is_mounted(&mount));
        assert!(fs::read(mount.join("file")).unwrap() == pattern(10_000, 1));
        // Behind the kernel's back, as another client would, of the same length.
        fs::write(source.join("file"), pattern(10_000, 2)).unwrap();
        assert!(fs::read(mount.join("file")).unwrap() == pattern(10_000, 2));
        let mut following = File::open(mount.join("file")).unwrap();
        following.read_to_end(&mut Vec::new()).unwrap();
        let mut appending = OpenOptions::new().append(true).open(source.join("file")).unwrap();
        appending.write_all(b"more").unwrap();
        let mut more = Vec::new();
        wait_until("what was appended", || following.read_to_end(&mut more).unwrap() > 0);
        assert_eq!(more, b"more");
        drop(following);
        unmount(&mount);
        server.join().unwrap().unwrap();
    });
}

#[test]
fn an_ordinary_users_writes_take_away_set_id_bits() {
    in_namespace(|| {
        let Places { source, mount, _all } = places();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(_all.path(), open).unwrap();
        let program = source.join("program");
        fs::write(&program, b"x").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
        let (from, to) = (source.clone(), MountOptions::new(&mount));
        let server = thread::spawn(move || passthrough::serve(&from, &to, false, || {}));
        wait_until("the mount", || is_mounted(&mount));
        let mode = || fs::metadata(&program).unwrap().mode() & 0o7777;
        fs::write(mount.join("program"), b"by root").unwrap();
        assert_eq!(mode(), 0o6777);
        let by_nobody = Command::new("sh")
            .args(["-c", "echo nobody >> \"$0\""])
            .arg(mount.join("program"))
            .uid(65534)
            .gid(65534)
            .status()
            .unwrap();
        assert!(by_nobody.success());
        assert_eq!(mode(), 0o777);
        unmount(&mount);
        server.join().unwrap().unwrap();
    });
}

#[test]
fn an_ordinary_user_mounts_through_the_helper() {
    if rig::lacks("fusermount3") {
        return;
    }
    in_namespace(|| {
        let Places { source, mount, _all } = places();
        open_device_to_all(_all.path());
        fs::set_permissions(_all.path(), fs::Permissions::from_mode(0o755)).unwrap();
        [&source, &mount].iter().for_each(|path| {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        });
        let program = _all.path().join("test");
        rig::copy_program(&std::env::current_exe().unwrap(), &program, "755");
        let mut server = serving_process(&program, &source, &mount, 65534);
        wait_until("the mount", || is_mounted(&mount) || server.try_wait().unwrap().is_some());
        let by_user = Command::new("sh")
            .args(["-c", "echo data > \"$0/file\" && cat \"$0/file\""])
            .arg(&mount)
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        assert_eq!(by_user.stdout, b"data\n", "{by_user:?}");
        assert_eq!(fs::read(source.join("file")).unwrap(), b"data\n");
        unmount(&mount);
        assert!(server.wait().unwrap().success());
    });
}

/// /dev/fuse is open to all users in most distributions; where only root may open it, a node of the same device is put
/// over it in this namespace.
fn open_device_to_all(place: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (node, mode) = (place.join("device"), Mode::from_raw_mode(0o666));
    let number = fs::metadata("/dev/fuse").unwrap().rdev();
    mknodat(CWD, &node, FileType::CharacterDevice, mode, number).unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
    rustix::mount::mount_bind(&node, "/dev/fuse").unwrap();
}

/// A memory file system of a node, mounted; stopped by the second value.
fn node_on(mount: &Path, pages: usize) -> (thread::JoinHandle<Stage>, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (path, stopped) = (mount.to_path_buf(), stop.clone());
    let server = thread::spawn(move || memory::serve(&path, pages, &stopped));
    wait_until("the mount", || is_mounted(mount));
    (server, stop)
}

#[test]
fn a_node_behind_a_mount_serves_programs_and_stops_clean() {
    in_namespace(|| {
        let Places { mount, _all, .. } = places();
        let (server, stop) = node_on(&mount, PAGES);
        exercise(&mount);
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
        assert!(!is_mounted(&mount));
    });
}

#[test]
fn a_small_pool_and_many_threads_only_slow_a_mount_down() {
    in_namespace(|| {
        let Places { mount, _all, .. } = places();
        // Room for one landing and two large reads; the threads ask for sixteen times as much.
        let (server, stop) = node_on(&mount, 1024);
        let workers: Vec<_> = (0..8)
            .map(|number| {
                let path = mount.join(format!("of-{number}"));
                thread::spawn(move || {
                    for round in 0..5 {
                        let data = pattern((1 << 20) + number * 1000 + round, number as u32);
                        fs::write(&path, &data).unwrap();
                        assert!(fs::read(&path).unwrap() == data);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
    });
}

#[test]
fn somebody_else_unmounts() {
    in_namespace(|| {
        let Places { mount, _all, .. } = places();
        let (server, _) = node_on(&mount, PAGES);
        fs::write(mount.join("file"), b"x").unwrap();
        unmount(&mount);
        assert_eq!(server.join().unwrap(), Stage::Ended);
    });
}

#[test]
fn stopping_takes_the_mount_from_who_still_uses_it() {
    in_namespace(|| {
        let Places { mount, _all, .. } = places();
        let (server, stop) = node_on(&mount, PAGES);
        let file = File::create(mount.join("in use")).unwrap();
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
        assert!(!is_mounted(&mount));
        let error = file.sync_all().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    });
}

#[test]
fn a_waiting_lock_ends_with_its_process_and_with_the_mount() {
    in_namespace(|| {
        let Places { mount, _all, .. } = places();
        let (server, stop) = node_on(&mount, PAGES);
        fs::write(mount.join("locked"), b"").unwrap();
        let mut waiting =
            Command::new("flock").arg(mount.join("locked")).arg("true").spawn().unwrap();
        thread::sleep(Duration::from_millis(200));
        assert!(waiting.try_wait().unwrap().is_none());
        waiting.kill().unwrap();
        assert_eq!(waiting.wait().unwrap().signal(), Some(libc::SIGKILL));
        let mut second =
            Command::new("flock").arg(mount.join("locked")).arg("true").spawn().unwrap();
        thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
        assert!(!second.wait().unwrap().success());
    });
}

#[test]
fn places_that_cannot_be_mounted_on_are_named() {
    in_namespace(|| {
        let Places { source, mount, _all } = places();
        let mounted = |path: &Path| Mount::new(&MountOptions::new(path)).map(|_| ());
        let missing = mounted(&mount.join("none")).unwrap_err();
        assert!(matches!(missing, MountError::Missing { .. }), "{missing}");
        assert!(missing.to_string().contains("mkdir -p"), "{missing}");
        fs::write(source.join("file"), b"").unwrap();
        let file = mounted(&source.join("file")).unwrap_err();
        assert!(matches!(file, MountError::NotDirectory { .. }), "{file}");
        let (server, stop) = node_on(&mount, PAGES);
        let used = mounted(&mount).unwrap_err();
        assert!(matches!(used, MountError::InUse { .. }), "{used}");
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
    });
}

const SOURCE: &str = "TRAPEZE_TEST_SOURCE";
const MOUNT: &str = "TRAPEZE_TEST_MOUNT";

/// Not a test: the process that another test kills.
#[test]
#[ignore = "run by the test that kills it"]
fn serve_until_killed() {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(source), Some(mount)) = (path(SOURCE), path(MOUNT)) else {
        return; // a soak runs what is ignored too
    };
    passthrough::serve(&source, &MountOptions::new(mount), false, || {}).unwrap();
}

fn serving_process(program: &Path, source: &Path, mount: &Path, user: u32) -> Child {
    Command::new(program)
        .uid(user)
        .gid(user)
        .args(["--exact", "fuse::serve_until_killed", "--ignored"])
        .env(SOURCE, source)
        .env(MOUNT, mount)
        .stdout(Stdio::null()) // its result is none of a test
        .spawn()
        .unwrap()
}

#[test]
fn a_mount_whose_process_was_killed_is_replaced() {
    in_namespace(|| {
        let Places { source, mount, _all } = places();
        let program = std::env::current_exe().unwrap();
        let mut first = serving_process(&program, &source, &mount, 0);
        wait_until("the mount", || is_mounted(&mount));
        fs::write(mount.join("kept"), b"data").unwrap();
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(is_mounted(&mount));
        let error = fs::read_dir(&mount).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
        let mut second = serving_process(&program, &source, &mount, 0);
        wait_until("the new mount", || fs::read(mount.join("kept")).is_ok());
        assert_eq!(fs::read(mount.join("kept")).unwrap(), b"data");
        unmount(&mount);
        assert!(second.wait().unwrap().success());
        assert!(!is_mounted(&mount));
    });
}
