//! The manager's directory is lost, and nothing was backed up: files are made again from what their objects know.

use crate::common::{Up, pattern, refusal, said, text, trapeze};
use std::fs;

impl Up {
    /// Fields of `stat --json` of a file.
    fn stat(&self, name: &str) -> [u64; 5] {
        let told: serde_json::Value =
            serde_json::from_slice(&self.done(&["stat", "--json", name])).unwrap();
        ["mode", "uid", "gid", "size", "mtime_s"].map(|field| told[field].as_u64().unwrap())
    }
}

#[test]
fn files_of_a_lost_manager_are_back_with_path_owner_times_and_contents() {
    let mut up = Up::new("3");
    up.done(&["mkdir", "/deep"]);
    up.done(&["mkdir", "/deep/folder"]);
    let files = [
        ("deep/folder/long", pattern(1, 700_000)),
        ("deep/short", b"a few bytes".to_vec()),
        ("top", pattern(2, 90_000)),
        ("moved", pattern(3, 400_000)),
    ];
    for (name, content) in &files {
        up.put(name, content);
    }
    up.put("gone", b"removed");
    up.done(&["rm", "/gone"]);
    up.done(&["rebalance", "--off", "io2"]);
    let before: Vec<_> = files.iter().map(|(name, _)| up.stat(name)).collect();
    assert!(up.refused(&["salvage"]).contains("names of this volume are there"));
    // At once: a clean stop tells the objects what they do not know yet, and they keep it.
    up.stop();

    let (dir, data) = (up.at("data"), up.at("data/manager"));
    assert!(refusal(&["salvage", "--dir", text(&dir)]).contains("has names"));
    fs::rename(&data, up.at("lost")).unwrap();
    let begun = trapeze(&["salvage", "--dir", text(&dir)]);
    assert!(begun.status.success(), "{}", said(&begun));
    up.start();
    let told = up.told(&["salvage"]);
    assert!(told.contains("4 files") && told.contains("4 by their last path"), "{told}");
    for ((name, content), before) in files.iter().zip(before) {
        let name = format!("lost+found/{name}");
        assert!(up.get(&name) == *content, "{name}");
        assert_eq!(up.stat(&name), before, "{name}");
    }
    let again = up.told(&["salvage"]);
    assert!(again.contains("0 files") && again.contains("4 files were known"), "{again}");
    up.done(&["check", "--deep"]);
    up.done(&["mv", "/lost+found/top", "/top"]);
    up.put("new", b"new");
    let resumed = trapeze(&["quarantine", "resume", "-c", text(&dir)]);
    assert!(resumed.status.success(), "{}", said(&resumed));
    up.stop();
    up.start();
    assert_eq!((up.get("top"), up.get("new")), (files[2].1.clone(), b"new".to_vec()));
    up.stop();
}
