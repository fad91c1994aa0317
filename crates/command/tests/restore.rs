//! A manager whose names are lost goes on from a backup: contents are then what the disks have.

use crate::common::{Up, pattern, said, text, trapeze};
use serde_json::Value;
use std::fs;
use std::process::Output;
use std::time::Duration;

impl Up {
    fn restore(&self, more: &[&str]) -> Output {
        let (file, dir) = (self.at("names.backup"), self.at("data"));
        trapeze(&[&["restore", text(&file), "--dir", text(&dir)], more].concat())
    }
}

#[test]
fn contents_after_a_restore_are_what_the_disks_have() {
    let mut up = Up::new("3");
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

impl Up {
    /// The rows of a command that prints JSON, whatever its exit code.
    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let dir = self.at("data");
        let done = trapeze(&[arguments, &["--json", "-c", text(&dir)]].concat());
        let lines = String::from_utf8(done.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Files that are left to compare, and that lost objects, as `status` tells.
    fn restored(&self) -> (u64, u64) {
        let rows = self.rows(&["status"]);
        let report = rows.iter().find(|row| row["name"] == "manager").map(|row| &row["report"]);
        let count = |name: &str| report.unwrap()[name].as_u64().unwrap();
        (count("restored_due"), count("restored_lost"))
    }

    /// All files are compared.
    fn compared(&self) -> (u64, u64) {
        loop {
            match self.restored() {
                (0, lost) => return (0, lost),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn lose_names(&mut self) {
        self.stop();
        fs::rename(self.at("data/manager"), self.at("lost")).unwrap();
        let done = self.restore(&[]);
        assert!(done.status.success(), "{}", said(&done));
        self.start();
    }
}

#[test]
fn what_a_restore_cannot_bring_back_is_named_counted_and_can_be_accepted() {
    let mut up = Up::new("3");
    let (long, longer) = (pattern(1, 700_000), pattern(2, 1_500_000));
    up.put("same", &long);
    up.put("removed", &long);
    up.done(&["backup", text(&up.at("names.backup"))]);
    up.done(&["rm", "/removed"]);
    up.lose_names();
    // The check has the manager compare what it did not come to yet.
    let rows = up.rows(&["check"]);
    let row = |path: &str| rows.iter().find(|row| row["path"] == path).unwrap_or(&Value::Null);
    assert_eq!(
        (&row("/removed")["problem"], &row("/same")["problem"]),
        (&"damaged".into(), &Value::Null)
    );
    assert_eq!(row("/removed")["lost_bytes"], 700_000, "{rows:?}");
    assert!(up.refused(&["cat", "removed"]).contains("EIO"));
    assert_eq!(up.compared(), (0, 1));
    let why = |rows: &[Value]| rows[0]["troubles"].to_string();
    assert!(why(&up.rows(&["status"])).contains("1 file whose objects are not on the disks"));

    up.rows(&["check", "--accept", "/removed", "--deep"]);
    assert_eq!(up.compared(), (0, 0));
    assert!(up.get("removed") == vec![0; 700_000]);
    up.put("removed", &longer);
    up.stop();
    up.start();
    assert!(up.get("removed") == longer && up.get("same") == long);
    assert_eq!(up.restored(), (0, 0));
    up.stop();
}

#[test]
fn columns_that_moved_after_the_backup_are_found_and_a_check_says_that_all_is_well() {
    let mut up = Up::new("3");
    let contents: Vec<Vec<u8>> =
        (0..12).map(|file| pattern(file, 100_000 + file as usize * 50_000)).collect();
    for (file, content) in contents.iter().enumerate() {
        up.put(&file.to_string(), content);
    }
    up.done(&["backup", text(&up.at("names.backup"))]);
    // Each file's columns on these two, some of them twice.
    for server in ["io1", "io2"] {
        let moved = up.rows(&["rebalance", "--off", server]);
        assert!(moved.last().unwrap()["moves"].as_u64().unwrap() >= 12, "{moved:?}");
        up.done(&["rebalance", "--back", server]);
    }
    up.lose_names();
    for more in [&["check"][..], &["check", "--deep"]] {
        let rows = up.rows(more);
        assert_eq!((rows.len(), &rows[0]["problems"]), (1, &0.into()), "{rows:?}");
        assert_eq!(rows[0]["files"], 12);
    }
    assert_eq!(up.restored(), (0, 0));
    for (file, content) in contents.iter().enumerate() {
        assert!(up.get(&file.to_string()) == *content, "file {file}");
    }
    up.stop();
}

#[test]
fn what_is_no_whole_backup_of_this_cluster_changes_nothing() {
    let mut up = Up::new("3");
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
    let mut other = Up::new("3");
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
