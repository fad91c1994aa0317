//! One random damage to the directories of a stopped cluster is never silent: every file has the right bytes, or an
//! error.
//!
//! The cluster ran a mixed workload twice, so that every file on its disks has an older version; then it was killed, or
//! stopped, a while after the last change. Each case restores that state, damages one thing ([`node::decay`]), starts
//! the cluster, and reads and lists everything.

use crate::common::{Cluster, pattern, shell, soaks, text};
use node::decay::{Decay, Medium};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The contents of every file.
type Model = BTreeMap<String, Vec<u8>>;

const DISK: &str = "io1/disk0";
const MANAGER: &str = "manager";

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = wire::mix(self.0);
        self.0 % bound
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A directory of a cluster that is stopped, and what it was earlier.
struct Directory {
    now: PathBuf,
    older: PathBuf,
}

impl Medium for Directory {
    type File = PathBuf;

    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.now, &mut found);
        found.iter().map(|file| file.strip_prefix(&self.now).unwrap().to_path_buf()).collect()
    }

    /// By what is in front of the first number, or else the name: logs are alike, and so are objects.
    fn class(&self, file: &PathBuf) -> usize {
        let class = |file: &Path| {
            let name = file.iter().next().unwrap().to_string_lossy().into_owned();
            name.trim_end_matches(|end: char| end.is_ascii_digit()).to_string()
        };
        let mut classes: Vec<String> = self.files().iter().map(|file| class(file)).collect();
        classes.sort();
        classes.iter().position(|other| *other == class(file)).unwrap()
    }

    fn bytes(&self, file: &PathBuf) -> Vec<u8> {
        fs::read(self.now.join(file)).unwrap()
    }

    fn earlier(&self, file: &PathBuf) -> Option<Vec<u8>> {
        fs::read(self.older.join(file)).ok()
    }

    fn put(&mut self, file: &PathBuf, bytes: Vec<u8>) {
        fs::write(self.now.join(file), bytes).unwrap();
    }

    fn remove(&mut self, file: &PathBuf) {
        fs::remove_file(self.now.join(file)).unwrap();
    }

    fn restore(&mut self) {
        copy(&self.older, &self.now);
    }
}

/// All of a directory, in the place of what is there.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    shell(from, 60, &format!("rm -rf {to} && cp -a . {to}", to = text(to)));
}

/// A cluster's directories, and what they were at other times.
struct Bench {
    cluster: Cluster,
    target: String,
    model: Model,
}

impl Bench {
    fn new() -> Bench {
        let cluster = Cluster::bare(1);
        let target = cluster.processes.target();
        let mut bench = Bench { cluster, target, model: Model::new() };
        let files: Vec<_> = (0..8u64).map(|file| (file, file, 3_000 << file)).collect();
        bench.put(&files);
        bench.cluster.stop();
        bench.save("older");
        bench.start().unwrap();
        let files = [(0, 5_000), (3, 70_000), (6, 300_000), (8, 4_096), (9, 2_000_000)];
        bench.put(&files.map(|(file, bytes)| (file, file + 100, bytes)));
        let removed = bench.trapeze(&["rm", "/f1"]).wait().unwrap();
        assert!(removed.success());
        bench.model.remove("f1");
        // Behind it: the last second before an unclean stop is not covered.
        std::thread::sleep(Duration::from_secs(2));
        bench.kill();
        bench.save("killed");
        bench.start().unwrap();
        bench.cluster.stop();
        bench.save("stopped");
        bench
    }

    /// `trapeze` with this command.
    fn trapeze(&self, words: &[&str]) -> Child {
        let mut command = Command::new("timeout");
        command.arg("20").arg(crate::common::program()).args([words[0], "-c", &self.target]);
        command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn data(&self) -> PathBuf {
        self.cluster.beside("cluster")
    }

    /// Files with other contents, each with a seed and a length.
    fn put(&mut self, files: &[(u64, u64, usize)]) {
        let put = |(file, seed, bytes): &(u64, u64, usize)| {
            let (name, content) = (format!("f{file}"), pattern(*seed, *bytes));
            let from = self.cluster.beside(&name);
            fs::write(&from, &content).unwrap();
            let child = self.trapeze(&["cp", text(&from), &format!(":/{name}")]);
            (name, content, child)
        };
        let under_way: Vec<_> = files.iter().map(put).collect();
        for (name, content, child) in under_way {
            let done = child.wait_with_output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            self.model.insert(name, content);
        }
    }

    fn start(&mut self) -> Result<(), String> {
        (0..2).try_for_each(|number| {
            self.cluster.processes.start_server(number).map_err(|error| error.to_string())
        })
    }

    fn kill(&mut self) {
        for number in 0..2 {
            if let Ok(server) = self.cluster.processes.take_server(number) {
                let _ = server.kill();
            }
        }
    }

    fn save(&self, name: &str) {
        for dir in [DISK, MANAGER] {
            copy(&self.data().join(dir), &self.cluster.beside(name).join(dir));
        }
    }

    fn restore(&self, name: &str) {
        for dir in [DISK, MANAGER] {
            copy(&self.cluster.beside(name).join(dir), &self.data().join(dir));
        }
    }

    /// Does one damage to a directory; what.
    fn damage(&self, random: &mut Random, dir: &str) -> String {
        let now = self.data().join(dir);
        let mut medium = Directory { now, older: self.cluster.beside("older").join(dir) };
        let decay = random.pick(&[&Decay::OF_FILES[..], &Decay::OF_ALL].concat());
        let said = decay.strike(&mut medium, &mut |bound| random.below(bound));
        format!("{dir}: {decay:?}: {}", said.unwrap_or_else(|| "nothing to decay".into()))
    }

    /// Files that are silently wrong now.
    fn wrong(&mut self) -> Vec<String> {
        if self.start().is_err() {
            return self.panics(); // it says why, and serves nothing
        }
        let list = self.trapeze(&["ls", "/"]);
        let read = |name: &String| self.trapeze(&["cat", &format!("/{name}")]);
        let reads: Vec<Child> = self.model.keys().map(read).collect();
        let mut wrong = Vec::new();
        if let Some(said) = said(list) {
            let said = String::from_utf8(said).unwrap();
            let words = said.lines().filter_map(|line| line.split_whitespace().last());
            let names: Vec<&str> = words.filter(|name| name.starts_with('f')).collect();
            let known: Vec<&str> = self.model.keys().map(String::as_str).collect();
            if names != known {
                wrong.push(format!("listed {names:?}, there are {known:?}"));
            }
        }
        for ((name, content), read) in self.model.iter().zip(reads) {
            if let Some(bytes) = said(read).filter(|bytes| bytes != content) {
                let zeros = bytes.iter().filter(|byte| **byte == 0).count();
                wrong.push(format!("{name}: {} other bytes, {zeros} zeros", bytes.len()));
            }
        }
        wrong.extend(self.panics());
        wrong
    }

    fn panics(&self) -> Vec<String> {
        let found = shell(&self.data(), 30, "grep -rl --include=*.log panicked . || true");
        found.lines().map(|log| format!("a panic in {log}")).collect()
    }
}

/// The output of a command that succeeded.
fn said(child: Child) -> Option<Vec<u8>> {
    let done = child.wait_with_output().unwrap();
    done.status.success().then_some(done.stdout)
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true => walk(&path, found),
            false if path.ends_with("lock") => {}
            false => found.push(path),
        }
    }
}

/// Damages of one directory. TRAPEZE_SEED: the only case. TRAPEZE_CASES: how many.
fn none_is_silent(dir: &str, cases: u64, in_soak: u64) {
    let setting = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cases = setting("TRAPEZE_CASES").unwrap_or(if soaks() { in_soak } else { cases });
    let seeds = setting("TRAPEZE_SEED").map_or(1..=cases, |seed| seed..=seed);
    let mut bench = Bench::new();
    let mut silent = Vec::new();
    for seed in seeds {
        let mut random = Random(seed);
        bench.restore(random.pick(&["killed", "stopped"]));
        let damage = bench.damage(&mut random, dir);
        let wrong = bench.wrong();
        bench.kill();
        println!("{seed}: {damage}: {wrong:?}");
        if !wrong.is_empty() {
            silent.push(format!("TRAPEZE_SEED={seed}: {damage}: {wrong:?}"));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

// A disk has more kinds of files than a manager.
#[test]
fn one_damage_to_a_disk_is_never_silent() {
    none_is_silent(DISK, 20, 667);
}

#[test]
fn one_damage_to_a_managers_directory_is_never_silent() {
    none_is_silent(MANAGER, 10, 333);
}
