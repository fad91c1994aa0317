//! Several managers, all of which or one go on from a backup, or without one.

use crate::common::{Up, pattern, said, text, trapeze};
use crate::managers::until_spread;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const DIRECTORIES: usize = 12;
const MANAGERS: [&str; 3] = ["manager", "manager2", "manager3"];

fn content(number: usize) -> Vec<u8> {
    pattern(number as u64, 20_000 + 10_000 * number)
}

impl Up {
    /// The rows of a check, whatever it finds.
    fn checked(&self) -> Vec<Value> {
        let dir = self.at("data");
        let done = trapeze(&["check", "--json", "-c", text(&dir)]);
        let lines = String::from_utf8(done.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Removes a name that a check has told of.
    fn accept(&self, row: &Value) {
        let (dir, path) = (self.at("data"), row["path"].as_str().unwrap());
        let done = trapeze(&["check", "-c", text(&dir), "--accept", path]);
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(told.contains("the name is removed"), "{path}: {told} {}", said(&done));
    }

    /// The configuration of a manager.
    fn manager(&self, name: &str) -> PathBuf {
        self.at("data").join(format!("{name}.toml"))
    }

    fn restore_manager(&self, name: &str, more: &[&str]) {
        let (file, dir) = (self.at("names.backup"), self.manager(name));
        let done = trapeze(&[&["restore", text(&file), "--dir", text(&dir)], more].concat());
        assert!(done.status.success(), "{name}: {}", said(&done));
    }

    fn lose_manager(&mut self, name: &str, to: &str) {
        self.stop();
        fs::rename(self.at("data").join(name), self.at(to)).unwrap();
    }

    /// A cluster of three managers with a file in each of some directories.
    fn array() -> Up {
        let up = Up::with_managers("2", "3");
        until_spread(text(&up.at("data")), 3);
        for number in 0..DIRECTORIES {
            up.done(&["mkdir", &format!("/d{number}")]);
            up.put(&format!("d{number}/f"), &content(number));
        }
        up
    }
}

fn number_of(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_default()
}

#[test]
fn a_backup_of_an_array_restores_one_of_its_managers_and_then_all() {
    let mut up = Up::array();
    let file = up.at("names.backup");
    up.done(&["backup", text(&file)]);
    // Names move between the managers, and come and go.
    for number in 0..DIRECTORIES {
        up.put(&format!("d{number}/since"), b"since");
        let to = (number + 5) % DIRECTORIES;
        up.done(&["mv", &format!("/d{number}/f"), &format!("/d{to}/moved")]);
    }
    up.lose_manager("manager2", "lost2");
    up.restore_manager("manager2", &[]);
    up.start();
    // A name that cannot be read is told, and so is a file that has lost its name.
    let rows = up.checked();
    let paths: Vec<&str> = rows.iter().filter_map(|row| row["path"].as_str()).collect();
    let (mut whole, mut nameless) = (0, 0);
    for number in 0..DIRECTORIES {
        let to = (number + 5) % DIRECTORIES;
        let names = [format!("/d{number}/f"), format!("/d{to}/moved")];
        let read = |name: &String| {
            let done = trapeze(&["cat", "-c", text(&up.at("data")), name]);
            done.status.success().then_some(done.stdout)
        };
        let found: Vec<Vec<u8>> = names.iter().filter_map(read).collect();
        assert!(found.iter().all(|bytes| *bytes == content(number)), "file {number}");
        let is_told = names.iter().any(|name| paths.contains(&name.as_str()));
        assert!(found.len() < 2 || is_told, "file {number}: {rows:?}");
        whole += usize::from(found.len() == 1);
        nameless += usize::from(found.is_empty() && !is_told);
    }
    let is_nameless =
        |row: &&Value| row["why"].as_str().is_some_and(|it| it.contains("without a name"));
    assert!(whole > 0 && nameless <= rows.iter().filter(is_nameless).count(), "{rows:?}");
    let gone =
        rows.iter().filter(|row| row["why"].as_str().is_some_and(|it| it.contains("--accept")));
    gone.for_each(|row| up.accept(row));

    up.stop();
    MANAGERS.iter().for_each(|name| up.restore_manager(name, &["--replace"]));
    up.start();
    let rows = up.checked();
    let sum = rows.last().unwrap();
    assert_eq!((number_of(sum, "misnamed"), number_of(sum, "damaged")), (0, 0), "{rows:?}");
    for number in 0..DIRECTORIES {
        assert!(up.get(&format!("d{number}/f")) == content(number), "file {number}");
        assert!(up.refused(&["cat", &format!("d{number}/since")]).contains("no such file"));
    }
    let resumed = trapeze(&["quarantine", "resume", "-c", text(&up.at("data"))]);
    assert!(resumed.status.success(), "{}", said(&resumed));
    up.stop();
    // A manager that had no share then, and a copy of an older store that is taken as it is.
    let accepted = trapeze(&["restore", "--accept", "--dir", text(&up.manager("manager3"))]);
    assert!(accepted.status.success(), "{}", said(&accepted));
    up.start();
    assert!(up.get("d1/f") == content(1));
    up.stop();
}

#[test]
fn files_of_a_manager_of_an_array_that_lost_its_names_are_back() {
    let mut up = Up::array();
    up.lose_manager("manager3", "lost3");
    let begun = trapeze(&["salvage", "--dir", text(&up.manager("manager3"))]);
    assert!(begun.status.success(), "{}", said(&begun));
    up.start();
    let told = up.told(&["salvage"]);
    assert!(told.contains("files"), "{told}");
    let read = |name: &str| {
        let done = trapeze(&["cat", "-c", text(&up.at("data")), name]);
        done.status.success().then_some(done.stdout)
    };
    // A path begins with the first of its directories that is at the same manager.
    let listed = up.told(&["ls", "/lost+found"]);
    let names = listed.lines().filter_map(|line| line.split_whitespace().last());
    let salvaged: Vec<Vec<u8>> =
        names.filter_map(|name| read(&format!("/lost+found/{name}"))).collect();
    let mut lost = 0;
    for number in 0..DIRECTORIES {
        let content = content(number);
        let kept = read(&format!("/d{number}/f"));
        lost += usize::from(kept.is_none());
        assert!(kept.is_none_or(|kept| kept == content), "file {number}");
        let is_back = salvaged.contains(&content) || read(&format!("/d{number}/f")).is_some();
        assert!(is_back, "file {number}: {told} {listed}");
    }
    assert!(lost > 0, "{told}");
    // Names of directories that were at the lost one are told, and go.
    let rows = up.checked();
    rows.iter().filter(|row| row["problem"] == "name").for_each(|row| up.accept(row));
    assert_eq!(number_of(up.checked().last().unwrap(), "misnamed"), 0);
    up.stop();
}
