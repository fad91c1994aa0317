//! A cluster of `trapeze up`, whose manager's directory can be lost, in a directory that is gone afterwards.

use super::{ended_by_signals, program, refusal, text, trapeze};
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use tempfile::TempDir;
use trapeze::children::Process;

/// The cluster, with its data in `data`.
pub struct Up {
    folder: TempDir,
    servers: &'static str,
    copies: &'static str,
    managers: &'static str,
    running: Option<Process>,
}

/// The standard error of a command.
pub fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

impl Up {
    /// With this many I/O servers, started.
    pub fn new(servers: &'static str) -> Up {
        Up::of(servers, "1", "1")
    }

    /// The same, with two copies of everything.
    pub fn keeping_two_copies(servers: &'static str) -> Up {
        Up::of(servers, "2", "1")
    }

    /// With this many managers, too.
    pub fn with_managers(servers: &'static str, managers: &'static str) -> Up {
        Up::of(servers, "1", managers)
    }

    fn of(servers: &'static str, copies: &'static str, managers: &'static str) -> Up {
        let folder = tempfile::tempdir().unwrap();
        let mut up = Up { folder, servers, copies, managers, running: None };
        up.start();
        up
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn start(&mut self) {
        let mut command = ended_by_signals(program());
        command.args(["up", "--servers", self.servers, "--copies", self.copies]);
        command.args(["--managers", self.managers, "--dir"]).arg(self.at("data"));
        self.running = Some(Process::start_command("up", command, &self.at("out")).unwrap());
    }

    pub fn stop(&mut self) {
        self.running.take().unwrap().stop().unwrap();
    }

    fn with_cluster<T>(&self, arguments: &[&str], run: impl FnOnce(&[&str]) -> T) -> T {
        let dir = self.at("data");
        run(&[&arguments[..1], &["-c", text(&dir)], &arguments[1..]].concat())
    }

    /// A command of the cluster; its standard output.
    pub fn done(&self, arguments: &[&str]) -> Vec<u8> {
        let done = self.with_cluster(arguments, trapeze);
        assert!(done.status.success(), "{arguments:?}: {}", said(&done));
        done.stdout
    }

    /// As [`done`](Up::done), as text.
    pub fn told(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.done(arguments)).unwrap()
    }

    /// A command of the cluster that fails; its standard error.
    pub fn refused(&self, arguments: &[&str]) -> String {
        self.with_cluster(arguments, refusal)
    }

    pub fn put(&self, name: &str, content: &[u8]) {
        fs::write(self.at("source"), content).unwrap();
        self.done(&["cp", text(&self.at("source")), &format!(":/{name}")]);
    }

    pub fn get(&self, name: &str) -> Vec<u8> {
        self.done(&["cat", name])
    }
}
