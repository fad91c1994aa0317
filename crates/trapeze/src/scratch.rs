//! Directories and clusters of processes that live as long as a demonstration or a measurement.

use crate::children::{Prepared, Process};
use crate::interrupted;
use crate::local::{LocalCluster, LocalError, Shape};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is removed at the end, unless it is to be kept.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// A new directory in `parent`, or where temporary files go.
    pub fn new(parent: Option<&Path>, keep: bool) -> io::Result<Scratch> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let tag = u32::from_le_bytes(crate::random::bytes());
        let path = parent.join(format!("trapeze-{tag:08x}"));
        fs::create_dir(&path)?;
        // As the kernel's table of mounts has it.
        Ok(Scratch { path: path.canonicalize()?, keep })
    }

    /// From now on a signal that ends this process removes it, too. For the command: the signals are the whole
    /// process's.
    pub fn removed_at_interrupt(self) -> io::Result<Scratch> {
        if !self.keep {
            interrupted::remove_at_interrupt(&self.path)?;
        }
        Ok(self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
            interrupted::forget(&self.path);
        }
    }
}

/// A cluster whose machines are processes of their own, and a mount of it.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    cluster: LocalCluster,
    /// The manager, then the I/O servers; `None` is down.
    servers: Vec<Option<Process>>,
    mount: Option<Process>,
    mount_point: PathBuf,
    cpu: Option<usize>,
}

impl Processes {
    /// Makes a cluster in `dir` and starts its machines, all on processor `cpu` if one is named.
    pub fn start(dir: &Path, shape: &Shape, cpu: Option<usize>) -> Result<Processes, LocalError> {
        let program = std::env::current_exe();
        let program = program.map_err(|error| LocalError::System(dir.to_path_buf(), error))?;
        Processes::start_program(&program, dir, shape, cpu)
    }

    /// As [`start`](Processes::start), its machines run by the trapeze at `program`.
    pub fn start_program(
        program: &Path,
        dir: &Path,
        shape: &Shape,
        cpu: Option<usize>,
    ) -> Result<Processes, LocalError> {
        let system = |error| LocalError::System(dir.to_path_buf(), error);
        let mount_point = dir.join("mnt");
        let cluster = LocalCluster::open_or_create(&dir.join("cluster"), shape)?;
        fs::create_dir_all(&mount_point).map_err(system)?;
        let servers = cluster.machines.iter().map(|_| None).collect();
        let program = program.to_path_buf();
        let mut processes = Processes { program, cluster, servers, mount: None, mount_point, cpu };
        for number in 0..processes.servers.len() {
            processes.start_server(number).map_err(system)?;
        }
        Ok(processes)
    }

    /// Starts machine `number`, 0 is the manager.
    pub fn start_server(&mut self, number: usize) -> io::Result<()> {
        let name = &self.cluster.machines[number].name;
        let (arguments, log) = (self.serve_arguments(number), self.cluster.log_of(name));
        self.servers[number] = Some(Process::start_program(&self.program, name, &arguments, &log)?);
        Ok(())
    }

    /// I/O servers.
    pub fn servers(&self) -> usize {
        self.cluster.servers()
    }

    /// Takes a running machine out, for who is to end it.
    pub fn take_server(&mut self, number: usize) -> io::Result<Process> {
        let missing = || io::Error::other(format!("machine {number} does not run"));
        self.servers[number].take().ok_or_else(missing)
    }

    /// Puts a machine back that runs again.
    pub fn put_server(&mut self, number: usize, process: Process) {
        self.servers[number] = Some(process);
    }

    /// A process that becomes machine `number` when it is told to.
    pub fn prepare_server(&self, number: usize) -> io::Result<Prepared> {
        let name = &self.cluster.machines[number].name;
        let mut command = Command::new(&self.program);
        command.args(self.serve_arguments(number)).arg("--on-line");
        Process::prepare(name, command, &self.cluster.log_of(name))
    }

    fn serve_arguments(&self, number: usize) -> Vec<String> {
        let config = self.cluster.config_of(&self.cluster.machines[number]).display().to_string();
        let mut arguments = vec!["serve".to_string(), "--config".to_string(), config];
        arguments.extend(self.cpu_flag());
        arguments
    }

    fn cpu_flag(&self) -> Vec<String> {
        self.cpu.map_or_else(Vec::new, |cpu| vec!["--cpu".to_string(), cpu.to_string()])
    }

    /// Kills machine `number` as a crash would.
    pub fn kill_server(&mut self, number: usize) -> io::Result<()> {
        self.servers[number].take().map_or(Ok(()), Process::kill)
    }

    /// Stops all machines and starts them again: their caches are empty then.
    pub fn restart_servers(&mut self) -> io::Result<()> {
        for number in (0..self.servers.len()).rev() {
            self.servers[number].take().map_or(Ok(()), Process::stop)?;
        }
        (0..self.servers.len()).try_for_each(|number| self.start_server(number))
    }

    /// The directory that names the cluster to clients.
    pub fn target(&self) -> String {
        self.cluster.dir().display().to_string()
    }

    /// Where the mount is, when there is one.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Mounts the cluster.
    pub fn mount(&mut self) -> io::Result<()> {
        let point = self.mount_point.display().to_string();
        let mut arguments = vec!["mount".to_string(), self.target(), point];
        arguments.extend(self.cpu_flag());
        let log = self.cluster.log_of("mount");
        self.mount = Some(Process::start_program(&self.program, "mount", &arguments, &log)?);
        Ok(())
    }

    /// The process that serves the mount, for who is to end it.
    pub fn take_mount(&mut self) -> io::Result<Process> {
        self.mount.take().ok_or_else(|| io::Error::other("nothing is mounted"))
    }

    /// The running machine `number`, 0 is the manager.
    pub fn server(&self, number: usize) -> Option<&Process> {
        self.servers[number].as_ref()
    }

    /// The cluster's directory and the machines' configurations.
    pub fn cluster(&self) -> &LocalCluster {
        &self.cluster
    }

    /// Unmounts: the client writes back what it has and its caches are gone.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.mount.take().map_or(Ok(()), Process::stop)
    }

    /// The process ids of machines and mount.
    pub fn ids(&self) -> Vec<u32> {
        let processes = self.servers.iter().flatten().chain(&self.mount);
        processes.map(Process::id).collect()
    }

    /// The end of what each running process wrote to its log, a line each.
    pub fn last_words(&self) -> String {
        let processes = self.servers.iter().flatten().chain(&self.mount);
        processes.map(|process| format!("\n  {}: {}", process.name, process.last_words())).collect()
    }

    /// Stops everything in order.
    pub fn stop(&mut self) -> io::Result<()> {
        self.unmount()?;
        for server in self.servers.iter_mut().rev() {
            server.take().map_or(Ok(()), Process::stop)?;
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The mount first: a file system whose servers are gone would keep its users waiting.
        let _ = self.unmount();
    }
}
