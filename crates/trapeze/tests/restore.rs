//! A manager whose names are lost goes on from a backup: contents are then what the disks have.

mod common;

use common::{ended_by_signals, pattern, program, refusal, text, trapeze};
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use tempfile::TempDir;
use trapeze::children::Process;

struct Up {
    folder: TempDir,
    running: Option<Process>,
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

impl Up {
    fn new() -> Up {
        let mut up = Up { folder: tempfile::tempdir().unwrap(), running: None };
        up.start();
        up
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self) {
        let mut command = ended_by_signals(program());
        command.args(["up", "--servers", "3", "--dir"]).arg(self.at("data"));
        self.running = Some(Process::start_command("up", command, &self.at("out")).unwrap());
    }

    fn stop(&mut self) {
        self.running.take().unwrap().stop().unwrap();
    }

    /// A command of the cluster; its output.
    fn done(&self, arguments: &[&str]) -> Vec<u8> {
        let dir = self.at("data");
        let all = [&arguments[..1], &["-c", text(&dir)], &arguments[1..]].concat();
        let done = trapeze(&all);
        assert!(done.status.success(), "{all:?}: {}", said(&done));
        done.stdout
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let dir = self.at("data");
        refusal(&[&arguments[..1], &["-c", text(&dir)], &arguments[1..]].concat())
    }

    fn put(&self, name: &str, content: &[u8]) {
        fs::write(self.at("source"), content).unwrap();
        self.done(&["cp", text(&self.at("source")), &format!(":/{name}")]);
    }

    fn get(&self, name: &str) -> Vec<u8> {
        self.done(&["cat", name])
    }

    fn restore(&self, more: &[&str]) -> Output {
        let (file, dir) = (self.at("names.backup"), self.at("data"));
        trapeze(&[&["restore", text(&file), "--dir", text(&dir)], more].concat())
    }
}

#[test]
fn contents_after_a_restore_are_what_the_disks_have() {
    let mut up = Up::new();
    let (long, longer) = (pattern(1, 700_000), pattern(2, 900_000));
    for (name, content) in [
        ("same", &long[..]),
        ("written", &long),
        ("shorter", &long),
        ("moved", &long),
        ("empty", b""),
        ("removed", &long),
        ("small", b"a few bytes"),
    ] {
        up.put(name, content);
    }
    up.done(&["mkdir", "/folder"]);
    up.done(&["backup", text(&up.at("names.backup"))]);
    up.put("written", &longer);
    up.put("shorter", &longer[..10]);
    up.put("folder/new", &long);
    up.done(&["rm", "/removed"]);
    // Every column leaves one of the servers: files are found where they are now.
    up.done(&["rebalance", "--off", "io2"]);
    up.put("moved", &longer);
    up.stop();

    fs::rename(up.at("data/manager"), up.at("lost")).unwrap();
    let done = up.restore(&[]);
    assert!(done.status.success(), "{}", said(&done));
    up.start();
    for (name, content) in [
        ("same", &long[..]),
        ("written", &longer),
        ("shorter", &longer[..10]),
        ("moved", &longer),
        ("empty", b""),
        ("small", b"a few bytes"),
    ] {
        assert!(up.get(name) == content, "{name}: {} bytes", up.get(name).len());
    }
    let sizes = String::from_utf8(up.done(&["ls", "/"])).unwrap();
    assert!(
        sizes.lines().any(|line| line.contains(" 10 ") && line.ends_with("shorter")),
        "{sizes}"
    );
    // Its objects are gone, and it says so; it can be removed.
    assert!(up.refused(&["cat", "removed"]).contains("EIO"));
    up.done(&["rm", "/removed"]);
    assert!(up.refused(&["cat", "folder/new"]).contains("no such file"));
    up.put("made", &long);
    assert_eq!(up.get("made"), long);
    let done = trapeze(&["quarantine", "resume", "-c", text(&up.at("data"))]);
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(up.get("moved"), longer);
    up.stop();
    up.start();
    assert_eq!((up.get("same"), up.get("made")), (long.clone(), long));
    up.stop();
    // The lost one turns up, and is of an older lineage.
    fs::rename(up.at("data/manager"), up.at("restored")).unwrap();
    fs::rename(up.at("lost"), up.at("data/manager")).unwrap();
    up.start();
    assert!(up.refused(&["cat", "same"]).contains("`trapeze status` says why"));
    up.stop();
}

#[test]
fn what_is_no_whole_backup_of_this_cluster_changes_nothing() {
    let mut up = Up::new();
    up.put("file", b"bytes");
    let file = up.at("names.backup");
    up.done(&["backup", text(&file)]);
    let running = up.restore(&["--replace"]);
    assert!(said(&running).contains("in use by another process"), "{}", said(&running));
    up.stop();
    assert!(said(&up.restore(&[])).contains("--replace"));
    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    let mut later = whole.clone();
    later[8] = 200;
    for (bytes, why) in [
        (&whole[..whole.len() - 1], "cut short at byte"),
        (&whole[..70], "cut short at byte"),
        (&damaged, "damaged at byte"),
        (&later, "its version is 200"),
        (b"something else", "is no backup"),
    ] {
        fs::write(&file, bytes).unwrap();
        let done = up.restore(&["--replace"]);
        assert_eq!(done.status.code(), Some(1));
        assert!(said(&done).contains(why), "{}", said(&done));
    }
    fs::write(&file, &whole).unwrap();
    let mut other = Up::new();
    other.stop();
    fs::copy(&file, other.at("names.backup")).unwrap();
    let done = other.restore(&["--replace"]);
    assert!(said(&done).contains("name the backup of this cluster"), "{}", said(&done));
    let left = fs::read_dir(up.at("data")).unwrap();
    for name in left.map(|entry| entry.unwrap().file_name()) {
        let name = name.into_string().unwrap();
        assert!(!name.contains("restoring") && !name.contains("before"), "{name} is left");
    }
    up.start();
    assert_eq!(up.get("file"), b"bytes");
    up.stop();
}
