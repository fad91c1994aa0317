//! The manager's whole directory comes back as it was some time ago.

mod common;

use common::{ended_by_signals, program, refusal, text, trapeze};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use trapeze::children::Process;

struct Up {
    folder: TempDir,
    running: Option<Process>,
}

impl Up {
    fn new() -> Up {
        let mut up = Up { folder: tempfile::tempdir().unwrap(), running: None };
        up.start();
        up
    }

    fn start(&mut self) {
        let mut command = ended_by_signals(program());
        command.args(["up", "--servers", "2", "--dir"]).arg(self.folder.path().join("data"));
        let out = self.folder.path().join("out");
        self.running = Some(Process::start_command("up", command, &out).unwrap());
    }

    fn stop(&mut self) {
        self.running.take().unwrap().stop().unwrap();
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn put(&self, name: &str, content: &str) {
        let source = self.folder.path().join("source");
        fs::write(&source, content).unwrap();
        let done = trapeze(&["cp", "-c", &self.data(), text(&source), &format!(":/{name}")]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn get(&self, name: &str) -> String {
        let done = trapeze(&["cat", "-c", &self.data(), name]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    fn status(&self) -> String {
        String::from_utf8(trapeze(&["status", "-c", &self.data()]).stdout).unwrap()
    }

    /// A copy of the manager's directory as it is.
    fn copy(&self, name: &str) {
        copy(&self.folder.path().join("data/manager"), &self.folder.path().join(name));
    }

    fn bring_back(&self, name: &str) {
        let manager = self.folder.path().join("data/manager");
        fs::remove_dir_all(&manager).unwrap();
        copy(&self.folder.path().join(name), &manager);
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_managers_directory_that_comes_back_older_is_refused_by_name_and_accepted_only_by_hand() {
    let mut up = Up::new();
    up.put("before", "1");
    up.stop();
    up.copy("older");
    up.start();
    up.put("after", "2");
    // Without an idle second: the clean stop itself notes how far the manager was.
    up.stop();
    up.copy("newest");

    up.bring_back("older");
    for _ in 0..2 {
        up.start();
        for name in ["before", "after"] {
            let said = refusal(&["cat", "-c", &up.data(), name]);
            assert!(said.contains("`trapeze status` says why"), "{said}");
        }
        let status = up.status();
        let parts = ["NOT WELL", "older than what it has acknowledged", "io", "--accept --dir"];
        assert!(parts.iter().all(|part| status.contains(part)), "{status}");
        up.stop();
        let log = fs::read_to_string(up.folder.path().join("data/log/up.log")).unwrap();
        assert!(log.contains("older than what it has acknowledged"), "{log}");
    }

    up.bring_back("newest");
    up.start();
    assert_eq!((up.get("before"), up.get("after")), ("1".into(), "2".into()));
    assert!(up.status().starts_with("all is well"), "{}", up.status());
    up.stop();

    up.bring_back("older");
    let done = trapeze(&["restore", "--accept", "--dir", &up.data()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    up.start();
    assert_eq!(up.get("before"), "1");
    assert!(refusal(&["cat", "-c", &up.data(), "after"]).contains("no such file"));
    up.put("new", "3");
    assert_eq!(up.get("new"), "3");
    assert!(up.status().contains("trapeze quarantine resume"), "{}", up.status());
    let done = trapeze(&["quarantine", "resume", "-c", &up.data()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(up.status().starts_with("all is well"), "{}", up.status());
    up.stop();

    // Of the lineage before.
    up.bring_back("newest");
    up.start();
    assert!(refusal(&["cat", "-c", &up.data(), "after"]).contains("`trapeze status` says why"));
    assert!(up.status().contains("of lineage 1: the names were restored"), "{}", up.status());
    up.stop();
    let other = up.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let said = refusal(&["restore", "--accept", "--dir", text(&other)]);
    assert!(said.contains("no directory of a manager"), "{said}");
}
