//! Disks that are removed, not mounted, read-only or full: each has a clear error, and what was acknowledged before is
//! still there.

use crate::common::{Cluster, cannot_mount, pattern, refusal, shell, soaks, text, trapeze};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;
use trapeze::local::Shape;

#[test]
fn a_manager_whose_directory_is_removed() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let file = cluster.beside("file");
    fs::write(&file, "file").unwrap();
    assert!(trapeze(&["cp", "-c", &target, text(&file), ":/before"]).status.success());
    let mounts = !cannot_mount();
    if mounts {
        cluster.processes.mount().unwrap();
    }
    fs::remove_dir_all(cluster.beside("cluster/manager")).unwrap();
    let copied = |name: &str| trapeze(&["cp", "-c", &target, text(&file), name]).status.success();
    assert!(!copied(":/file"));
    nobody_joins_any_more(&target);
    // The looking command is no member, and so it sees why.
    let told = |arguments: &[&str]| {
        let done = trapeze(&[arguments, &["-c", &target]].concat());
        let well = arguments[0] != "status";
        assert_eq!(done.status.success(), well, "{arguments:?} {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let said = told(&["status"]);
    assert!(said.contains("changes of names are refused with EIO"), "{said}");
    assert!(said.contains("was removed while it was in use"), "{said}");
    let said = told(&["top", "--count", "1", "--json"]);
    assert!(said.contains("\"name\":\"io1\""), "{said}");
    if mounts {
        assert_eq!(
            fs::read(cluster.at("before")).unwrap(),
            b"file",
            "who was there before reads on"
        );
        cluster.processes.unmount().unwrap();
    }
    cluster.stop();
}

/// Waits until the manager notices that it cannot write either who joins.
fn nobody_joins_any_more(target: &str) {
    let listed = || trapeze(&["ls", "-c", target, "/"]);
    let refused = (0..300).map(|_| listed()).find(|done| !done.status.success());
    let said = String::from_utf8(refused.expect("it notices").stderr).unwrap();
    assert!(said.contains("the manager cannot write what it keeps"), "{said}");
}

/// As when its disk is not mounted.
#[test]
fn a_manager_whose_directory_is_empty() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let file = cluster.beside("file");
    fs::write(&file, "file").unwrap();
    assert!(trapeze(&["cp", "-c", &target, text(&file), ":/file"]).status.success());
    cluster.stop();
    let (store, away) = (cluster.beside("cluster/manager"), cluster.beside("away"));
    fs::rename(&store, &away).unwrap();
    let config = cluster.beside("cluster/manager.toml");
    let refused = || {
        let said = refusal(&["serve", "--config", text(&config)]);
        assert!(said.contains("cluster/manager holds no name space"), "{said}");
        assert!(said.contains("is the disk mounted"), "{said}");
        assert!(said.contains("`trapeze restore`"), "{said}");
    };
    refused();
    fs::create_dir(&store).unwrap();
    refused();
    assert_eq!(fs::read_dir(&store).unwrap().count(), 0, "nothing is made there");
    // A database that nothing was ever put into is no name space either.
    fs::write(store.join("names.redb"), "").unwrap();
    refused();
    fs::remove_dir_all(&store).unwrap();
    fs::rename(&away, &store).unwrap();
    (0..2).for_each(|number| cluster.processes.start_server(number).unwrap());
    let said = trapeze(&["cat", "-c", &target, "/file"]);
    assert_eq!(said.stdout, b"file");
    assert!(!store.join("begin").exists(), "it has begun");
    cluster.stop();
}

/// Its blocks are not read as zeros, nothing more is acknowledged, and `status` says which disk it is.
#[test]
fn a_disk_that_is_removed_under_its_server() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    for name in ["opened", "unopened"] {
        let mut file = File::create(cluster.at(name)).unwrap();
        file.write_all(&pattern(1, 8 << 20)).unwrap();
        file.sync_all().unwrap();
    }
    // Neither the mount nor a server remembers any of it; the first start still opens what it finds in the log.
    for server in [1, 2, 1, 2] {
        cluster.processes.unmount().unwrap();
        cluster.processes.take_server(server).unwrap().stop().unwrap();
        cluster.processes.start_server(server).unwrap();
        cluster.processes.mount().unwrap();
    }
    let mut first = [0; 4096];
    File::open(cluster.at("opened")).unwrap().read_exact(&mut first).unwrap();
    let disk = cluster.beside("cluster/io1/disk0");
    fs::remove_dir_all(&disk).unwrap();
    let read = fs::read(cluster.at("unopened")).map(|bytes| bytes.len());
    assert_eq!(read.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    if let Ok(bytes) = fs::read(cluster.at("opened")) {
        assert!(bytes == pattern(1, 8 << 20), "other bytes than were written");
    }
    let script =
        "timeout -s KILL 5 dd if=/dev/zero of=new bs=1M count=4 conv=fsync 2>&1 || echo refused";
    let said = shell(&cluster.at(""), 30, script);
    assert!(said.contains("refused"), "fsync acknowledges what is nowhere: {said}");
    let target = cluster.processes.target();
    let said = String::from_utf8(trapeze(&["status", "--all", "-c", &target]).stdout).unwrap();
    assert!(said.starts_with("NOT WELL: "), "{said}");
    assert!(said.contains("disk 0: its directory went missing"), "{said}");
    assert!(said.contains(text(&disk)), "{said}");
    if soaks() {
        fsync_ends(&cluster);
    }
    cluster.processes.take_mount().unwrap().kill().unwrap();
    crate::common::detach(&cluster.at(""));
    // It is not made anew.
    assert!(!disk.exists());
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    let said = refusal(&["serve", "--config", text(&cluster.beside("cluster/io1.toml"))]);
    assert!(said.contains("disk0") && said.contains("missing"), "{said}");
}

/// As a mount waits for a server: five minutes, of a file that is on the disk; new ones avoid it.
fn fsync_ends(cluster: &Cluster) {
    let script = "dd if=/dev/zero of=opened bs=1M count=4 conv=notrunc,fsync 2>&1 || echo refused";
    let said = shell(&cluster.at(""), 900, script);
    assert!(said.contains("refused") && said.contains("Input/output error"), "{said}");
}

/// Two disks with records in their logs when the server is killed; one is mounted read-only then. The server starts
/// without it and says what to do, the other disk's files are served, and nothing is lost when it is writable again.
#[test]
fn a_disk_that_is_mounted_read_only() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::shaped(&Shape { stores: 2, ..Shape::of(1) });
    let (target, disk) = (cluster.processes.target(), cluster.beside("cluster/io1/disk1"));
    cluster.processes.mount().unwrap();
    for name in 0..12 {
        let mut file = File::create(cluster.at(&format!("file{name}"))).unwrap();
        file.write_all(&pattern(name, 20_000)).unwrap();
        file.sync_all().unwrap();
    }
    cluster.processes.kill_server(1).unwrap();
    shell(&disk, 10, "mount --bind . . && mount -o remount,bind,ro $PWD");
    cluster.processes.start_server(1).unwrap();
    let read = |name: u64| trapeze(&["cat", "-c", &target, &format!("/file{name}")]);
    let right = |name: &u64| read(*name).stdout == pattern(*name, 20_000);
    let served = (0..12).filter(right).count();
    let refused = (0..12).filter(|name| read(*name).status.code() == Some(1)).count();
    let log = fs::read_to_string(cluster.beside("cluster/log/io1.log")).unwrap();
    let said = String::from_utf8(trapeze(&["status", "-c", &target]).stdout).unwrap();
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    crate::common::detach(&disk);
    assert!(served > 1 && refused > 1 && served + refused == 12, "{served} {refused}");
    let why = format!("{}: the file system is read-only; remount it writable", disk.display());
    assert!(log.contains(&format!("serving without disk {why}")), "{log}");
    assert!(said.contains("disk 1") && said.contains("io1"), "{said}");
    cluster.processes.start_server(1).unwrap();
    assert_eq!((0..12).filter(right).count(), 12);
    cluster.stop();
}

/// A disk of 64 MiB: a copy of more ends with ENOSPC at the latest at its close, what was there is intact, also what
/// was synced of copies that came to an end, and what is removed makes room.
#[test]
fn a_full_disk() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::bare(1);
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    let disk = cluster.beside("cluster/io1/disk0");
    shell(
        &disk,
        10,
        "mv . ../was 2>/dev/null || cp -a . ../was; mount -t tmpfs -o size=64M none .",
    );
    shell(&disk.join(".."), 10, "cp -a was/. disk0/");
    let full = fill(&mut cluster);
    cluster.processes.unmount().unwrap();
    cluster.processes.take_server(1).map(|server| server.stop().unwrap()).unwrap();
    crate::common::detach(&disk);
    assert_eq!(full, Some(rustix::io::Errno::NOSPC.raw_os_error()));
    cluster.stop();
}

/// Fills the disk; the error that the writer is told.
fn fill(cluster: &mut Cluster) -> Option<i32> {
    cluster.processes.start_server(1).unwrap();
    cluster.processes.mount().unwrap();
    let (before, big) = (cluster.at("before"), cluster.at("big"));
    let mut file = File::create(&before).unwrap();
    file.write_all(&pattern(1, 3_000_000)).unwrap();
    file.sync_all().unwrap();
    let disk = cluster.beside("cluster/io1/disk0");
    let empty = free_bytes(&disk);
    let written = write_until_refused(&big);
    assert!(fs::read(&before).unwrap() == pattern(1, 3_000_000), "what was synced is there");
    fs::remove_file(&big).unwrap();
    wait_for_room(&disk, empty);
    let (kept, source) = (copy_until_refused(cluster), cluster.beside("source"));
    let copied = (0..kept).map(|copy| fs::read(cluster.at(&format!("copy{copy}"))).unwrap());
    let expected = fs::read(&source).unwrap();
    assert!(kept > 2 && copied.into_iter().all(|bytes| bytes == expected), "{kept} were synced");
    shell(&cluster.at(""), 20, "rm copy*");
    wait_for_room(&disk, empty);
    let mut again = File::create(cluster.at("again")).unwrap();
    again.write_all(&pattern(2, 1_000_000)).unwrap();
    again.sync_all().unwrap();
    cluster.remount();
    let mut seen = Vec::new();
    File::open(&before).unwrap().read_to_end(&mut seen).unwrap();
    assert!(seen == pattern(1, 3_000_000));
    assert!(fs::read(cluster.at("again")).unwrap() == pattern(2, 1_000_000));
    written.err()
}

fn free_bytes(disk: &Path) -> u64 {
    let told = rustix::fs::statvfs(disk).unwrap();
    told.f_bavail * told.f_frsize
}

/// Waits until what was removed is gone from the disk, which had `empty` bytes free without it: the server is told of
/// a removal a while later. A new file of its own may stay.
fn wait_for_room(disk: &Path, empty: u64) {
    for _ in 0..600 {
        if free_bytes(disk) + (8 << 20) >= empty {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{} of {empty} bytes are free", free_bytes(disk));
}

/// Copies of 5 MB, each synced, until cp or its sync is told that the disk is full; how many were not.
fn copy_until_refused(cluster: &Cluster) -> usize {
    let source = cluster.beside("source");
    fs::write(&source, pattern(7, 5_000_000)).unwrap();
    let copy = format!("cp {} copy$n 2>&1 && sync copy$n 2>&1", source.display());
    let script =
        format!("for n in $(seq 0 19); do {copy} || {{ echo refused; exit 0; }}; echo; done");
    let said = shell(&cluster.at(""), 60, &script);
    assert!(said.contains("No space left on device") && said.contains("refused"), "{said}");
    said.lines().filter(|line| line.is_empty()).count()
}

fn write_until_refused(path: &Path) -> Result<(), i32> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        for chunk in 0..150 {
            file.write_all(&pattern(chunk, 1 << 20))?;
        }
        file.sync_all()
    };
    write().map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// The manager and the I/O server on one disk, filled to its last byte by a write through the mount and by another
/// program: names are refused, everything is killed and serves again, `rm` makes room, and writing works.
#[test]
fn on_a_disk_that_is_full_rm_makes_room_and_a_restart_serves() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::bare(1);
    (0..2).for_each(|at| cluster.processes.take_server(at).unwrap().stop().unwrap());
    let disk = cluster.beside("cluster");
    let onto = "cp -a . ../was; mount -t tmpfs -o size=96M none .; cp -a ../was/. $PWD/";
    shell(&disk, 10, onto);
    (0..2).for_each(|at| cluster.processes.start_server(at).unwrap());
    cluster.processes.mount().unwrap();
    full_and_back(&mut cluster, &disk);
    cluster.processes.unmount().unwrap();
    (0..2).for_each(|at| cluster.processes.take_server(at).unwrap().stop().unwrap());
    crate::common::detach(&disk);
    cluster.stop();
}

fn full_and_back(cluster: &mut Cluster, disk: &Path) {
    let mount = cluster.at("");
    fs::write(cluster.at("small"), pattern(3, 100_000)).unwrap();
    let said = shell(&mount, 60, "sync small; dd if=/dev/zero of=big bs=1M 2>&1 || echo full");
    assert!(said.contains("No space left on device") && said.contains("full"), "{said}");
    let fill = |name: &str| {
        let script = format!("dd if=/dev/zero of={name} bs=4k 2>&1 || true");
        assert!(shell(disk, 30, &script).contains("No space left"));
    };
    // The first of them find what logs and checkpoints gave up meanwhile.
    let make = "for n in $(seq 400); do ln -s $long l$1.$n 2>&1 || break; done";
    let is_refused = |round: usize| {
        fill(&format!("filler{round}"));
        let script = format!("set {round}; long=$(printf %04000d 0); {make}");
        shell(&mount, 60, &script).contains("No space left on device")
    };
    assert!((0..5).any(is_refused), "names are made on a full disk");
    // It tells that bytes of the large file were refused.
    let _ = cluster.processes.unmount();
    (0..2).for_each(|at| cluster.processes.kill_server(at).unwrap());
    fill("filler");
    (0..2).for_each(|at| cluster.processes.start_server(at).unwrap());
    cluster.processes.mount().unwrap();
    assert!(fs::read(cluster.at("small")).unwrap() == pattern(3, 100_000));
    shell(&mount, 60, "rm big l*");
    if !soaks() {
        return; // the manager waits for the grace period before the bytes go
    }
    let write = "cp small again 2>&1 && sync again 2>&1";
    let tries =
        format!("for n in $(seq 240); do {write} && echo written && break; sleep 0.5; done");
    let said = shell(&mount, 60, &tries);
    assert!(said.ends_with("written\n"), "{said}");
    cluster.remount();
    assert!(fs::read(cluster.at("again")).unwrap() == pattern(3, 100_000));
}

/// `cat` of a file, for at most half a minute: its bytes or its message.
fn cat(target: &str, name: &str) -> Result<Vec<u8>, String> {
    let script = format!("timeout 30 {} cat -c {target} /{name}", text(crate::common::program()));
    let done = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

fn put(cluster: &Cluster, target: &str, name: &str, content: &[u8]) {
    let file = cluster.beside("content");
    fs::write(&file, content).unwrap();
    assert!(trapeze(&["cp", "-c", target, text(&file), &format!(":/{name}")]).status.success());
}

/// Waits until `status` says this of a disk.
fn status_says(target: &str, what: &str) {
    let said = || String::from_utf8(trapeze(&["status", "-c", target]).stdout).unwrap();
    let all: Vec<String> = (0..100)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            said()
        })
        .take_while(|said| !said.contains(what))
        .collect();
    assert!(all.len() < 100, "{}", all.last().unwrap());
}

/// An empty directory where the only disk of a server was, as when it is not mounted; then an older copy of the disk.
#[test]
fn an_empty_directory_or_an_older_copy_is_not_taken_for_the_disk() {
    let mut cluster = Cluster::bare(2);
    let target = cluster.processes.target();
    put(&cluster, &target, "first", &pattern(1, 100_000));
    cluster.stop();
    let (disk, away) = (cluster.beside("cluster/io1/disk0"), cluster.beside("away"));
    let (older, parent) = (cluster.beside("older"), disk.parent().unwrap().to_owned());
    fs::rename(&disk, &away).unwrap();
    fs::create_dir(&disk).unwrap();
    let start = |cluster: &mut Cluster| {
        (0..3).for_each(|number| cluster.processes.start_server(number).unwrap());
    };
    let said = refusal(&["serve", "--config", text(&cluster.beside("cluster/io1.toml"))]);
    assert!(said.contains("disk0 is empty") && said.contains("`trapeze disk add`"), "{said}");
    // Nor when a person says that it is a new one: the cluster knows another by this number.
    trapeze::new_disk::allow(&disk).unwrap();
    start(&mut cluster);
    status_says(&target, "another disk here");
    cat(&target, "first").expect_err("its bytes are on the disk that is away");
    cluster.stop();
    fs::remove_dir_all(&disk).unwrap();
    fs::rename(&away, &disk).unwrap();
    shell(&parent, 30, &format!("cp -a disk0 {}", text(&older)));
    start(&mut cluster);
    assert!(cat(&target, "first").unwrap() == pattern(1, 100_000));
    put(&cluster, &target, "first", &pattern(2, 100_000));
    cluster.stop();
    fs::rename(&disk, &away).unwrap();
    fs::rename(&older, &disk).unwrap();
    start(&mut cluster);
    status_says(&target, "an older copy of the disk");
    cat(&target, "first").expect_err("what was written last is on the disk that is away");
    // New files go to disks that serve: one with its first column here would wait for minutes.
    for name in ["a", "b", "c", "d"] {
        put(&cluster, &target, name, &pattern(3, 100));
        assert!(cat(&target, name).unwrap() == pattern(3, 100));
    }
    cluster.stop();
    fs::remove_dir_all(&disk).unwrap();
    fs::rename(&away, &disk).unwrap();
    start(&mut cluster);
    assert!(cat(&target, "first").unwrap() == pattern(2, 100_000));
    cluster.stop();
}
