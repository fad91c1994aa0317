//! The manager's directory is lost, and nothing was backed up: files are made again from what their objects know.

mod common;

use common::{ended_by_signals, pattern, program, refusal, text, trapeze};
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;
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

    fn command(&self, arguments: &[&str]) -> Output {
        let dir = self.at("data");
        trapeze(&[&arguments[..1], &["-c", text(&dir)], &arguments[1..]].concat())
    }

    /// A command of the cluster; its output.
    fn done(&self, arguments: &[&str]) -> String {
        let done = self.command(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", said(&done));
        String::from_utf8(done.stdout).unwrap()
    }

    fn put(&self, name: &str, content: &[u8]) {
        fs::write(self.at("source"), content).unwrap();
        self.done(&["cp", text(&self.at("source")), &format!(":/{name}")]);
    }

    fn get(&self, name: &str) -> Vec<u8> {
        let done = self.command(&["cat", name]);
        assert!(done.status.success(), "{name}: {}", said(&done));
        done.stdout
    }

    /// What `stat --json` says of a file, but for its change counter.
    fn stat(&self, name: &str) -> [u64; 5] {
        let told: serde_json::Value =
            serde_json::from_str(&self.done(&["stat", "--json", name])).unwrap();
        ["mode", "uid", "gid", "size", "mtime_s"].map(|field| told[field].as_u64().unwrap())
    }
}

#[test]
fn files_of_a_lost_manager_are_back_with_path_owner_times_and_contents() {
    let mut up = Up::new();
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
    assert!(
        refusal(&["salvage", "-c", text(&up.at("data"))])
            .contains("names of this volume are there")
    );
    // What changed is told within seconds; so much of it that the disks bring it into place.
    fs::create_dir(up.at("many")).unwrap();
    (0..560).for_each(|number| fs::write(up.at(&format!("many/{number}")), "x").unwrap());
    up.done(&["cp", "-r", text(&up.at("many")), ":/"]);
    std::thread::sleep(Duration::from_secs(7));
    up.stop();

    let (dir, data) = (up.at("data"), up.at("data/manager"));
    assert!(refusal(&["salvage", "--dir", text(&dir)]).contains("has names"));
    fs::rename(&data, up.at("lost")).unwrap();
    let begun = trapeze(&["salvage", "--dir", text(&dir)]);
    assert!(begun.status.success(), "{}", said(&begun));
    up.start();
    let told = up.done(&["salvage"]);
    assert!(told.contains("564 files"), "{told}");
    for ((name, content), before) in files.iter().zip(before) {
        let name = format!("lost+found/{name}");
        assert!(up.get(&name) == *content, "{name}");
        assert_eq!(up.stat(&name), before, "{name}");
    }
    let again = up.done(&["salvage"]);
    assert!(again.contains("0 files") && again.contains("564 files were known"), "{again}");
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
