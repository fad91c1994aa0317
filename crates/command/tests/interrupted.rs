//! A demonstration that is interrupted or killed leaves no process and no mount, and an interrupted one no directory.

use crate::common::{Cluster, cannot_mount, ended_by_signals, is_mounted, program};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

/// Ends after a minute what has not happened by then.
fn until(what: &str, happened: impl Fn() -> bool) {
    for _ in 0..6000 {
        if happened() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within a minute");
}

/// A command under test, killed when the test ends before it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

impl Running {
    /// `trapeze ARGUMENTS` with its scratch directories in `dir`.
    fn start(dir: &Path, arguments: &[&str]) -> Running {
        let mut command = ended_by_signals(program());
        command.args(arguments).env("TMPDIR", dir).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    }

    /// The code that it ends with after this signal, if a signal does not end it.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_raw(self.0.id() as i32).unwrap(), signal).unwrap();
        self.0.wait().unwrap().code()
    }
}

fn scratch(dir: &Path) -> Option<PathBuf> {
    fs::read_dir(dir).unwrap().next().map(|entry| entry.unwrap().path())
}

/// Processes with the directory in their command line.
fn users(dir: &Path) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let name = dir.to_string_lossy().into_owned();
    lines.filter(|line| String::from_utf8_lossy(line).contains(&name)).count()
}

/// A demonstration whose mount is in use.
fn demo(dir: &Path) -> (Running, PathBuf) {
    let child = Running::start(dir, &["demo", "--servers", "2", "--size", "16M"]);
    until("the mount", || scratch(dir).is_some_and(|path| path.join("mnt/copy").is_dir()));
    let mount = scratch(dir).unwrap().join("mnt");
    (child, mount)
}

#[test]
fn an_interrupted_demonstration_leaves_nothing() {
    if cannot_mount() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, mount) = demo(dir.path());
        assert_eq!(child.end(signal), Some(130));
        assert!(!is_mounted(&mount), "{signal:?}");
        assert_eq!(scratch(dir.path()), None, "{signal:?}");
        until("its processes end", || users(dir.path()) == 0);
    }
}

/// A cluster and its mount, once the reader of its standard output has read that it is ready and gone.
fn up(dir: &Path) -> Running {
    let mut command = ended_by_signals(program());
    command.current_dir(dir).args(["up", "--servers", "2", "--dir", "data", "--mount", "mnt"]);
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().starts_with("ready")));
    child
}

#[test]
fn a_cluster_stops_as_usual_when_nobody_reads_what_it_says() {
    if cannot_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let mut child = up(dir.path());
    fs::write(mount.join("file"), vec![7; 1 << 20]).unwrap();
    assert_eq!(child.end(Signal::TERM), Some(1));
    assert!(!is_mounted(&mount));
    let mut child = up(dir.path());
    assert_eq!(fs::read(mount.join("file")).unwrap(), vec![7; 1 << 20]);
    assert_eq!(child.end(Signal::TERM), Some(1));
}

#[test]
fn the_processes_of_a_killed_demonstration_end() {
    if cannot_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut child, mount) = demo(dir.path());
    assert_eq!(child.end(Signal::KILL), None);
    until("its processes end", || users(dir.path()) == 0);
    until("its mount is gone", || !is_mounted(&mount));
}

/// A parent that is killed sends a signal for each of its threads; a mount that cannot write back is still there then.
#[test]
fn a_mount_that_its_parent_signals_again_is_taken_away() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    fs::write(cluster.at("file"), vec![7; 1 << 20]).unwrap();
    (0..=2).for_each(|number| cluster.processes.server(number).unwrap().pause());
    let mut mount = cluster.processes.take_mount().unwrap();
    for _ in 0..3 {
        mount.signal(Signal::TERM);
        thread::sleep(Duration::from_millis(100));
    }
    assert!(mount.runs());
    (0..=2).for_each(|number| cluster.processes.server(number).unwrap().resume());
    mount.stop().unwrap();
    assert!(!is_mounted(cluster.processes.mount_point()));
    cluster.processes.mount().unwrap();
    assert_eq!(fs::read(cluster.at("file")).unwrap(), vec![7; 1 << 20]);
    cluster.stop();
}

#[test]
fn an_interrupted_measurement_ends_the_servers_that_it_paused() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["bench", "fetch", "--wait", "block", "--pace", "100", "--count", "100000"];
    let mut child = Running::start(dir.path(), &arguments);
    until("the servers", || users(dir.path()) >= 2);
    assert_eq!(child.end(Signal::INT), Some(130));
    until("its processes end", || users(dir.path()) == 0);
    assert_eq!(scratch(dir.path()), None);
}
