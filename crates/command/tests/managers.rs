//! Several file managers as processes: one tree over all of them, also when they are killed in the middle of it.

use crate::common::{Cluster, cannot_mount, detach, free_ports, is_mounted, program, shell, soaks};
use crate::common::{ended_by_signals, refusal, text, trapeze};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use trapeze::local::Shape;

/// Makes, renames, links and removes directories and files across all managers; the tree that it leaves is known.
const WORK: &str = r#"
set -e
mkdir tree && cd tree
for i in $(seq 0 79); do mkdir d$i; echo $i > d$i/f; done
for i in $(seq 0 39); do mv d$i/f d$((i + 40))/g; done
for i in $(seq 0 39); do ln d$((i + 40))/g d$i/h; done
for i in $(seq 0 19); do mv d$i/h d$((79 - i))/h; rmdir d$i; done
for i in $(seq 20 39); do mv d$i d$((i + 20))/; done
for i in $(seq 40 59); do mv -T d$i/d$((i - 20)) e$i; done
"#;

/// The tree that is left, with contents and links.
const LISTED: &str =
    r#"cd tree && find . -type d | sort && find . -type f -printf '%p %n ' -exec cat {} \; | sort"#;

fn expected() -> String {
    let mut directories: Vec<String> = vec![".".into()];
    directories.extend((40..80).map(|i| format!("./d{i}")));
    directories.extend((40..60).map(|i| format!("./e{i}")));
    let mut files = Vec::new();
    for i in 40..80 {
        files.push(format!("./d{i}/f 1 {i}"));
        files.push(format!("./d{i}/g 2 {}", i - 40));
    }
    files.extend((0..20).map(|i| format!("./d{}/h 2 {i}", 79 - i)));
    files.extend((20..40).map(|i| format!("./e{}/h 2 {i}", i + 20)));
    directories.sort();
    files.sort();
    directories.into_iter().chain(files).collect::<Vec<_>>().join("\n")
}

/// How many sites each manager has, as `status` says.
fn sites(cluster: &str) -> Vec<u64> {
    let told = trapeze(&["status", "--json", "--cluster", cluster]);
    let rows = String::from_utf8_lossy(&told.stdout).into_owned();
    let rows = rows.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.filter_map(|row| row["report"]["sites"].as_u64()).filter(|sites| *sites > 0).collect()
}

pub fn until_spread(cluster: &str, managers: usize) {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let sites = sites(cluster);
        let even = sites.iter().all(|count| count.abs_diff(256 / managers as u64) <= 1);
        if sites.len() == managers && even {
            return;
        }
        assert!(Instant::now() < end, "sites are not spread: {sites:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_tree_over_three_managers_is_whole_although_each_is_killed() {
    if cannot_mount() {
        return;
    }
    let shape = Shape { managers: 3, ..Shape::prefaulted(2) };
    let mut cluster = Cluster::shaped(&shape);
    let dir = cluster.processes.mount_point().with_file_name("cluster");
    until_spread(text(&dir), 3);
    cluster.processes.mount().unwrap();
    let point = cluster.processes.mount_point().to_path_buf();
    let working = {
        let point = point.clone();
        std::thread::spawn(move || shell(&point, 240, WORK))
    };
    // The first manager, and the two behind the servers.
    for round in 0.. {
        cluster.crash([0, 3, 4][round % 3], Duration::from_millis(300));
        std::thread::sleep(Duration::from_millis(700));
        if working.is_finished() || round == 40 {
            break;
        }
    }
    working.join().expect("the work succeeds");
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    cluster.remount();
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    let backup = cluster.beside("names.backup");
    let told = trapeze(&["backup", "--cluster", text(&dir), text(&backup)]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("of 3 managers"), "{told:?}");
    assert!(shell(&point, 60, "rm -r tree && ls").is_empty());
    cluster.stop();
}

/// Makes names in one directory from four processes at once, and finds each.
const HOT: &str = r#"
set -e
make() { for i in $(seq $1 4 $((names - 1))); do : > hot/f$i; done; }
for p in 0 1 2 3; do make $p & done
wait
test $(ls hot | wc -l) = $names
test $(ls hot | sort -u | wc -l) = $names
test -e hot/f0 -a -e hot/f$((names - 1))
mkdir hot/d && mv hot/f7 hot/d/f7 && mv -T hot/d hot/e && rmdir hot 2> /dev/null && exit 1
test $(stat -c %h hot) = 3
rm -r hot
"#;

/// A new directory becomes hashed; a full one is refused with a word of what to do.
#[test]
fn thousands_of_names_of_a_hashed_directory_are_at_all_managers() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::shaped(&Shape { managers: 3, ..Shape::prefaulted(2) });
    let dir = cluster.processes.mount_point().with_file_name("cluster");
    until_spread(text(&dir), 3);
    cluster.processes.mount().unwrap();
    let point = cluster.processes.mount_point().to_path_buf();
    shell(&point, 60, "mkdir hot full && touch full/name");
    let refused = refusal(&["layout", "--hash", "--cluster", text(&dir), "/full"]);
    assert!(refused.contains("only an empty directory"), "{refused}");
    let hashed = trapeze(&["layout", "--hash", "--cluster", text(&dir), "/hot"]);
    assert!(hashed.status.success(), "{}", String::from_utf8_lossy(&hashed.stderr));
    let told = trapeze(&["layout", "--cluster", text(&dir), "/hot", "/full"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.contains("/hot: hashed") && told.contains("/full: its names are at one"),
        "{told}"
    );
    let names = if soaks() { 10_000 } else { 2_000 };
    shell(&point, 240, &format!("names={names}\n{HOT}"));
    for (asked, told) in [("0.25", "0.25 of them"), ("default", "0.667 of them")] {
        let said = trapeze(&["layout", "--mkdir-switching", asked, "--cluster", text(&dir)]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(told), "{said}");
    }
    let refused = trapeze(&["layout", "--mkdir-switching", "1.5", "--cluster", text(&dir)]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(shell(&point, 60, "ls").trim(), "full");
    cluster.stop();
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(arguments: &[&str]) -> Ended {
    let mut command = ended_by_signals(program());
    Ended(command.args(arguments).stdout(Stdio::null()).spawn().unwrap())
}

/// Makes, renames and removes in all directories until the file `stop` is there, and leaves the same tree.
const BUSY: &str = r#"
set -e
while [ ! -e stop ]; do
    for i in $(seq 40 79); do echo busy > tree/d$i/busy; mv tree/d$i/busy tree/d$(( (i - 39) % 40 + 40 ))/moved; done
    rm tree/d*/moved
done
"#;

#[test]
fn a_manager_is_taken_out_under_load_and_forgotten() {
    if cannot_mount() {
        return;
    }
    let shape = Shape { managers: 3, ..Shape::prefaulted(2) };
    let mut cluster = Cluster::shaped(&shape);
    let dir = cluster.processes.mount_point().with_file_name("cluster");
    let target = cluster.processes.target();
    until_spread(text(&dir), 3);
    cluster.processes.mount().unwrap();
    let point = cluster.processes.mount_point().to_path_buf();
    shell(&point, 120, WORK);
    let first = refusal(&["rebalance", "-c", &target, "--off", "manager"]);
    assert!(first.contains("the first manager cannot be taken out"), "{first}");
    let owns = refusal(&["forget", "-c", &target, "manager3"]);
    assert!(owns.contains("rebalance --off manager3"), "{owns}");

    let working = {
        let point = point.clone();
        std::thread::spawn(move || shell(&point, 240, BUSY))
    };
    // The command, the manager that goes and one that stays are killed meanwhile.
    let mut taking = started(&["rebalance", "-c", &target, "--off", "manager3"]);
    std::thread::sleep(Duration::from_millis(500));
    taking.0.kill().unwrap();
    for number in [4, 3, 0] {
        cluster.crash(number, Duration::from_millis(300));
        std::thread::sleep(Duration::from_millis(700));
    }
    let out = trapeze(&["rebalance", "-c", &target, "--off", "manager3"]);
    let (said, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("manager3 owns no names any more"), "{said}{why}");
    let status = trapeze(&["status", "-c", &target, "--all"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("owns no names, may be stopped"), "{status}");
    cluster.processes.kill_server(4).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !trapeze(&["forget", "-c", &target, "manager3"]).status.success() {
        assert!(Instant::now() < end, "its lease does not end");
        std::thread::sleep(Duration::from_secs(1));
    }
    fs::write(point.join("stop"), "").unwrap();
    working.join().expect("the work succeeds");
    fs::remove_file(point.join("stop")).unwrap();
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    until_spread(text(&dir), 2);

    cluster.processes.kill_server(3).unwrap();
    std::thread::sleep(Duration::from_secs(11));
    let away = refusal(&["rebalance", "-c", &target, "--off", "manager2"]);
    assert!(away.contains("manager2 is down and owns 128 of 256 sites"), "{away}");
    cluster.processes.start_server(3).unwrap();
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    assert!(shell(&point, 60, "rm -r tree && ls").is_empty());
    cluster.processes.take_server(3).unwrap().kill().unwrap();
}

/// A cluster of one machine with a mount, which others join.
struct Grown {
    _mount: Ended,
    _first: Ended,
    port: u16,
    folder: tempfile::TempDir,
}

impl Grown {
    fn new() -> Grown {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_ports(4));
        let at = |name: &str| folder.path().join(name);
        let (one, disk, listen) = (at("one"), at("disk"), format!("127.0.0.1:{port}"));
        let named = ["--name", "one", "--disk", text(&disk)];
        let made =
            trapeze(&[&["init", "--dir", text(&one), "--listen", &listen][..], &named].concat());
        let printed = String::from_utf8_lossy(&made.stdout).into_owned();
        let token = printed.split_whitespace().find(|word| word.starts_with("trapeze1:")).unwrap();
        fs::write(at("token"), token).unwrap();
        let first = started(&["serve", "--config", text(&one.join("machine.toml"))]);
        let point = at("mnt");
        fs::create_dir(&point).unwrap();
        let mount = started(&["mount", text(&one), text(&point)]);
        let end = Instant::now() + Duration::from_secs(60);
        while !is_mounted(&point) {
            assert!(Instant::now() < end, "not mounted");
            std::thread::sleep(Duration::from_millis(100));
        }
        Grown { _mount: mount, _first: first, port, folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn listen(&self, number: u16) -> String {
        format!("127.0.0.1:{}", self.port + number)
    }

    /// A machine called `two` joins as a manager, with a directory of its own.
    fn join(&self, directory: &str, number: u16) -> Ended {
        let (token, dir, listen) = (self.at("token"), self.at(directory), self.listen(number));
        let by = ["join", "--token-file", text(&token), "--dir", text(&dir)];
        let how = ["--listen", &listen, "--name", "two", "--role", "manager"];
        let joined = trapeze(&[&by[..], &how].concat());
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
        started(&["serve", "--config", text(&dir.join("machine.toml"))])
    }
}

/// A machine joins as a manager while the volume is in use, and gets its share of what is there.
#[test]
fn a_manager_that_joins_takes_over_its_share() {
    if cannot_mount() {
        return;
    }
    let grown = Grown::new();
    let (one, point) = (grown.at("one"), grown.at("mnt"));
    let detached = Detached(&point);
    shell(&point, 120, WORK);
    let _two = grown.join("two", 1);
    until_spread(text(&one), 2);
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    shell(&point, 120, &format!("mv tree old\n{WORK}"));
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    assert!(shell(&point, 120, "rm -r tree old && ls").is_empty());
    drop(detached);
}

/// A manager that was taken out and forgotten is another machine when it comes again, with an empty directory and its
/// share; its old directory is refused by name.
#[test]
fn a_manager_that_was_forgotten_joins_anew() {
    if cannot_mount() {
        return;
    }
    let grown = Grown::new();
    let (one, point) = (grown.at("one"), grown.at("mnt"));
    let detached = Detached(&point);
    let two = grown.join("two", 1);
    until_spread(text(&one), 2);
    shell(&point, 120, WORK);
    let out = trapeze(&["rebalance", "-c", text(&one), "--off", "two"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    drop(two);
    let end = Instant::now() + Duration::from_secs(60);
    while !trapeze(&["forget", "-c", text(&one), "two"]).status.success() {
        assert!(Instant::now() < end, "its lease does not end");
        std::thread::sleep(Duration::from_secs(1));
    }
    let old = grown.at("two").join("machine.toml");
    let refused = refusal(&["serve", "--config", text(&old)]);
    assert!(refused.contains("two was declared gone with `trapeze forget`"), "{refused}");

    let _two = grown.join("anew", 2);
    until_spread(text(&one), 2);
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    shell(&point, 120, &format!("mv tree old\n{WORK}"));
    assert_eq!(shell(&point, 60, LISTED).trim(), expected());
    assert!(shell(&point, 120, "rm -r tree old && ls").is_empty());
    let refused = refusal(&["serve", "--config", text(&old)]);
    assert!(refused.contains("two was declared gone with `trapeze forget`"), "{refused}");
    drop(detached);
}

/// A mount that is gone with the test, before its directory.
struct Detached<'a>(&'a Path);

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        detach(self.0);
    }
}
