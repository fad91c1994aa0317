//! The manager's whole directory comes back as it was some time ago.

use crate::common::{Up, refusal, text, trapeze};
use std::fs;
use std::path::Path;
use std::process::Command;

impl Up {
    fn data(&self) -> String {
        self.at("data").display().to_string()
    }

    fn status(&self) -> String {
        String::from_utf8(trapeze(&["status", "-c", &self.data()]).stdout).unwrap()
    }

    /// A copy of the manager's directory as it is.
    fn copy(&self, name: &str) {
        copy(&self.at("data/manager"), &self.at(name));
    }

    fn bring_back(&self, name: &str) {
        let manager = self.at("data/manager");
        fs::remove_dir_all(&manager).unwrap();
        copy(&self.at(name), &manager);
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_managers_directory_that_comes_back_older_is_refused_by_name_and_accepted_only_by_hand() {
    let mut up = Up::new("2");
    up.put("before", b"1");
    up.stop();
    up.copy("older");
    up.start();
    up.put("after", b"2");
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
        let log = fs::read_to_string(up.at("data/log/up.log")).unwrap();
        assert!(log.contains("older than what it has acknowledged"), "{log}");
    }

    up.bring_back("newest");
    up.start();
    assert_eq!((up.get("before"), up.get("after")), (b"1".to_vec(), b"2".to_vec()));
    assert!(up.status().starts_with("all is well"), "{}", up.status());
    up.stop();

    up.bring_back("older");
    let done = trapeze(&["restore", "--accept", "--dir", &up.data()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    up.start();
    assert_eq!(up.get("before"), b"1");
    assert!(refusal(&["cat", "-c", &up.data(), "after"]).contains("no such file"));
    up.put("new", b"3");
    assert_eq!(up.get("new"), b"3");
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
    let other = up.at("other");
    fs::create_dir(&other).unwrap();
    let said = refusal(&["restore", "--accept", "--dir", text(&other)]);
    assert!(said.contains("no directory of a manager"), "{said}");
}
