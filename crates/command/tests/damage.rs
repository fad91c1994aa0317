//! Damage to what a stopped server has on its disk: right bytes or an error that names what is damaged, never zeros.

use crate::common::{Cluster, cannot_mount, json_lines, pattern, shell, trapeze};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const FILES: u64 = 20;
const BYTES: usize = 8192;
const BLOCK: usize = 4096;

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Where the log's records begin.
fn records(log: &[u8]) -> Vec<usize> {
    let mut places = vec![0];
    while let Some(record) =
        log.get(places[places.len() - 1]..).filter(|rest| rest.starts_with(b"TZLG"))
    {
        let blocks = number(record, 12) + number(record, 32);
        places.push(places[places.len() - 1] + blocks * BLOCK);
    }
    places
}

/// Files written and synced one after the other; their server is killed.
fn killed(idle: Duration) -> (Cluster, PathBuf) {
    let mut cluster = Cluster::mounted(1);
    for name in 0..FILES {
        let mut file = File::create(cluster.at(&format!("file{name}"))).unwrap();
        file.write_all(&pattern(name, BYTES)).unwrap();
        file.sync_all().unwrap();
    }
    std::thread::sleep(idle);
    cluster.processes.kill_server(1).unwrap();
    cluster.processes.take_mount().unwrap().kill().unwrap();
    crate::common::detach(&cluster.at(""));
    let log = cluster.beside("cluster/io1/disk0/log/1");
    (cluster, log)
}

/// How many files are right; the others are errors.
fn read_all(cluster: &Cluster) -> usize {
    let target = cluster.processes.target();
    let read = |name: u64| trapeze(&["cat", "-c", &target, &format!("/file{name}")]);
    let right = (0..FILES).filter(|name| {
        let done = read(*name);
        let right = done.status.success() && done.stdout == pattern(*name, BYTES);
        assert!(right || !done.status.success(), "file{name}: {} other bytes", done.stdout.len());
        right
    });
    right.count()
}

/// The server starts, says which disk it does without and why, and so does `status`; every file is an error.
fn assert_refused(cluster: &mut Cluster, what: &str) {
    cluster.processes.start_server(1).unwrap();
    let said = fs::read_to_string(cluster.beside("cluster/log/io1.log")).unwrap();
    assert!(said.contains("serving without disk 0: its") && said.contains(what), "{said}");
    let target = cluster.processes.target();
    let status = String::from_utf8(trapeze(&["status", "-c", &target]).stdout).unwrap();
    assert!(status.contains("disk 0: its") && status.contains(what), "{status}");
    assert_eq!(read_all(cluster), 0);
    cluster.processes.take_server(1).unwrap().stop().unwrap();
}

fn assert_whole(cluster: &mut Cluster) {
    cluster.processes.start_server(1).unwrap();
    assert_eq!(read_all(cluster), FILES as usize);
    cluster.stop();
}

/// The input of issue 26: today files 3 to 19 read as zeros, with exit code 0.
#[test]
fn a_flipped_bit_in_an_early_record_of_the_log_refuses_the_disk_by_name() {
    if cannot_mount() {
        return;
    }
    let (mut cluster, path) = killed(Duration::ZERO);
    let log = fs::read(&path).unwrap();
    let places = records(&log);
    assert!(places.len() > FILES as usize, "{places:?}");
    let mut damaged = log.clone();
    damaged[places[2] + 60] ^= 1;
    fs::write(&path, damaged).unwrap();
    assert_refused(
        &mut cluster,
        &format!("log 1 is damaged, cut short or older at offset {}", places[2]),
    );
    fs::write(&path, log).unwrap();
    assert_whole(&mut cluster);
}

/// A second after the last fsync the label knows how far the log was.
#[test]
fn a_log_that_is_cut_short_or_gone_or_older_refuses_the_disk_by_name() {
    if cannot_mount() {
        return;
    }
    let (mut cluster, path) = killed(Duration::from_secs(3));
    let log = fs::read(&path).unwrap();
    let places = records(&log);
    fs::write(&path, &log[..places[5]]).unwrap();
    assert_refused(&mut cluster, "log 1 is damaged, cut short or older");
    let mut older = log.clone();
    older[places[5]..].fill(0);
    fs::write(&path, older).unwrap();
    assert_refused(&mut cluster, "log 1 is damaged, cut short or older");
    fs::remove_file(&path).unwrap();
    assert_refused(&mut cluster, "log is missing");
    fs::write(&path, log).unwrap();
    assert_whole(&mut cluster);
}

/// Waits until what a server tells about itself says so.
fn until_told(target: &str, server: &str, told: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..600 {
        let rows = json_lines(&trapeze(&["status", "--json", "-c", target]));
        let row = rows.into_iter().find(|row| row["name"] == server);
        if let Some(row) = row.filter(|row| told(&row["report"])) {
            return row["report"].clone();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{server} did not tell it: {:?}", trapeze(&["status", "--all", "-c", target]));
}

#[test]
fn a_flipped_bit_that_nothing_reads_is_found_and_told_by_all_commands() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let source = cluster.beside("source");
    fs::write(&source, pattern(1, 300_000)).unwrap();
    let done = trapeze(&["cp", "-c", &target, source.to_str().unwrap(), ":/file"]);
    assert!(done.status.success(), "{done:?}");
    // A clean stop puts all of it in place.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    let config = cluster.beside("cluster/io1.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("scrub = 0.00002\n{text}")).unwrap();
    cluster.processes.start_server(1).unwrap();
    let report = until_told(&target, "io1", |report| report["disks"][0]["scrub"]["rounds"] != 0);
    assert_eq!(report["io"]["damaged_objects"], 0, "{report}");
    assert!(report["disks"][0]["scrub"]["all_bytes"].as_u64().unwrap() >= 300_000, "{report}");
    cluster.processes.take_server(1).unwrap().stop().unwrap();

    let object = object_of(&cluster.beside("cluster/io1/disk0"));
    let mut bytes = fs::read(&object).unwrap();
    bytes[250_000] ^= 1;
    fs::write(&object, bytes).unwrap();
    cluster.processes.start_server(1).unwrap();
    let report = until_told(&target, "io1", |report| report["io"]["damaged_objects"] == 1);
    assert_ne!(report["disks"][0]["scrub"]["damaged"], 0, "{report}");
    let status = trapeze(&["status", "-c", &target]);
    let text = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(
        text.contains("disk 0, object ") && text.contains("does not fit its checksum"),
        "{text}"
    );
    let all = String::from_utf8(trapeze(&["status", "--all", "-c", &target]).stdout).unwrap();
    assert!(all.contains(" damaged"), "{all}");
    cluster.stop();
}

/// The largest object of a disk.
fn object_of(disk: &Path) -> PathBuf {
    let mut folders = vec![disk.join("objects")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let to = if path.is_dir() { &mut folders } else { &mut files };
            to.push(path);
        }
    }
    files.into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

/// Writes to a file through the mount and syncs it, for at most so many seconds; what that says.
fn written(cluster: &Cluster, seconds: u32) -> String {
    let script = format!(
        "timeout -s KILL {seconds} dd if=/dev/zero of=file bs=4096 count=1 conv=notrunc,fsync 2>&1 || true"
    );
    shell(&cluster.at(""), seconds + 20, &script)
}

/// A fault that no waiting ends is an error at once, and a server that is waited for is named: in the mount's log and
/// on the terminal of a command.
#[test]
fn a_write_to_a_refused_disk_fails_and_what_is_waited_for_is_named() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    let mut file = File::create(cluster.at("file")).unwrap();
    for name in 0..5 {
        file.write_all(&pattern(name, BYTES)).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    let told =
        |cluster: &Cluster| fs::read_to_string(cluster.beside("cluster/log/mount.log")).unwrap();
    cluster.processes.kill_server(1).unwrap();
    let said = written(&cluster, 3);
    assert!(!said.contains("error"), "a server that is away is waited for: {said}");
    assert!(told(&cluster).contains("trapeze: waiting for io1: "), "{}", told(&cluster));
    let log = cluster.beside("cluster/io1/disk0/log/1");
    let mut damaged = fs::read(&log).unwrap();
    let at = records(&damaged)[2] + 60;
    damaged[at] ^= 1;
    fs::write(&log, damaged).unwrap();
    cluster.processes.start_server(1).unwrap();
    let said = written(&cluster, 20);
    assert!(said.contains("Input/output error"), "{said}");
    let why = "trapeze: io1 serves without disk 0: its log 1 is damaged";
    let target = cluster.processes.target();
    let copied = trapeze(&["cat", "-c", &target, "/file"]);
    let copied = String::from_utf8_lossy(&copied.stderr).to_string();
    assert!(copied.contains(why) && copied.contains("EIO"), "{copied}");
    // Within two seconds after the mount has heard of it.
    for _ in 0..100 {
        if told(&cluster).contains(why) {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(told(&cluster).contains(why), "{}", told(&cluster));
    cluster.stop();
}
