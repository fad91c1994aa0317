//! A cluster of processes with a mount, in a directory that is gone afterwards.
#![allow(dead_code, unused_imports)] // every test file uses a part of it

mod lenders;
mod ports;
mod up;

pub use lenders::{json_lines, lending, members, seen, shape_of, until_top};
pub use ports::free_ports;
pub use rig::{lacks, python, skip};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;
use trapeze::children::Process;
use trapeze::local::Shape;
use trapeze::scratch::Processes;
pub use up::{Up, said};

/// A program that signals end, also where who started the tests ignores them, as nohup and a shell's `&` do.
pub fn ended_by_signals(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT").arg(program);
    command
}

/// The command under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_trapeze"))
}

/// Whether the long counts are asked for.
pub fn soaks() -> bool {
    std::env::var_os("TRAPEZE_SOAK").is_some()
}

/// Why nothing can be mounted here, told once more on the terminal.
pub fn cannot_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let why = match (root, Path::new("/dev/fuse").exists()) {
        (true, true) => return false,
        (false, _) => "only root may mount here",
        (_, false) => "there is no /dev/fuse",
    };
    skip(why);
    true
}

/// A running cluster. The mount goes first, then the machines, then the directory.
pub struct Cluster {
    pub processes: Processes,
    others: Vec<(Process, PathBuf)>,
    dir: TempDir,
}

impl Cluster {
    /// `servers` I/O servers and a manager, not mounted.
    pub fn bare(servers: u16) -> Cluster {
        Cluster::shaped(&Shape::of(servers))
    }

    /// A cluster of this shape, not mounted.
    pub fn shaped(shape: &Shape) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let processes = Processes::start_program(program(), dir.path(), shape, None).unwrap();
        Cluster { processes, others: Vec::new(), dir }
    }

    /// With a mount.
    pub fn mounted(servers: u16) -> Cluster {
        let mut cluster = Cluster::bare(servers);
        cluster.processes.mount().unwrap();
        cluster
    }

    /// A path in the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.processes.mount_point().join(name)
    }

    /// A path beside the cluster, on this machine's own disk.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Another mount, by a process of its own, which tells of its links in `mnt2.log` beside the cluster; where it is.
    pub fn mount_again(&mut self) -> PathBuf {
        let number = self.others.len() + 2;
        let path = self.beside(&format!("mnt{number}"));
        fs::create_dir_all(&path).unwrap();
        let arguments = ["mount".to_string(), self.processes.target(), path.display().to_string()];
        let log = self.beside(&format!("mnt{number}.log"));
        let mut command = Command::new(program());
        command.args(&arguments).env("TRAPEZE_LOG", "1");
        let process = Process::start_command("mount", command, &log).unwrap();
        self.others.push((process, path.clone()));
        path
    }

    /// Unmounts and mounts: the client has forgotten everything.
    pub fn remount(&mut self) {
        self.processes.unmount().unwrap();
        self.processes.mount().unwrap();
    }

    /// Crashes machine `number` and starts it again after `down`.
    pub fn crash(&mut self, number: usize, down: Duration) {
        self.processes.kill_server(number).unwrap();
        std::thread::sleep(down);
        self.processes.start_server(number).unwrap();
    }

    /// Stops everything in order and sees that nothing complains.
    pub fn stop(&mut self) {
        for (process, path) in self.others.drain(..) {
            process.stop().unwrap();
            assert!(!is_mounted(&path), "{} is left behind", path.display());
        }
        let point = self.processes.mount_point().to_path_buf();
        self.processes.stop().unwrap();
        assert!(!is_mounted(&point), "{} is left behind", point.display());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // After a failed test: a dead mount would keep the directory.
        for (process, path) in self.others.drain(..) {
            let _ = process.stop();
            detach(&path);
        }
        let _ = self.processes.unmount();
        detach(self.processes.mount_point());
    }
}

/// Whether the kernel has a mount there.
pub fn is_mounted(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(&path))
}

/// Lets a killed mount's directory be used again.
pub fn detach(path: &Path) {
    let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
}

/// Runs `trapeze ARGUMENTS` to its end; it is killed when that takes a minute.
pub fn trapeze(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(program()).args(arguments);
    command.output().unwrap()
}

/// A path as an argument of the command.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The message of `trapeze ARGUMENTS`, which must fail; a panic when it succeeds or says nothing.
pub fn refusal(arguments: &[&str]) -> String {
    let output = trapeze(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {:?}: {text}", output.status);
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Runs a shell script with `-e`, within `seconds`; its output.
pub fn shell(dir: &Path, seconds: u32, script: &str) -> String {
    let mut command = Command::new("timeout");
    let span = seconds.to_string();
    let output = command.args([&span, "bash", "-euc", script]).current_dir(dir).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{:?}: {said}\n{complained}", output.status);
    said
}

/// Stops a process and lets it go on after `span`.
pub fn pause(process: &Process, span: Duration) {
    process.signal(Signal::STOP);
    std::thread::sleep(span);
    process.signal(Signal::CONT);
}

/// Bytes that tell their place.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    files::conformance::client::pattern(seed, 0, bytes)
}

/// Sends garbage of several kinds and sizes; whether the far end still listens is for the caller to see.
pub fn garbage(mut connect: impl FnMut() -> Box<dyn Write>) {
    let long = pattern(1, 200_000);
    let zeros = vec![0; 5000];
    let request = b"GET / HTTP/1.1\r\nHost: trapeze\r\n\r\n".to_vec();
    for bytes in [&long[..], &zeros, &request, &long[..1], &[0xff; 127], &[]] {
        let _ = connect().write_all(bytes); // it may have been refused half-way
    }
}
