//! Directories to measure: a plain one, one behind a pass-through mount, a mounted cluster.

use crate::children::Process;
use crate::machine_stat::drop_kernel_caches;
use crate::scratch::Processes;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory to measure, and how to make who is in between forget.
pub enum Place<'a> {
    /// A directory of this machine.
    Plain(PathBuf),
    /// The same through our FUSE device loop over plain system calls, in a process of its own.
    PassThrough(PassThrough),
    /// A cluster in one process.
    Embedded(Embedded),
    /// A mounted cluster.
    Cluster(&'a mut Processes),
}

/// A pass-through mount.
pub struct PassThrough {
    directory: PathBuf,
    mount_point: PathBuf,
    process: Option<Process>,
}

impl PassThrough {
    fn mount(&mut self) -> io::Result<()> {
        let (from, to) =
            (self.directory.display().to_string(), self.mount_point.display().to_string());
        let arguments = ["pass-through".to_string(), from, to];
        let log = self.mount_point.with_extension("log");
        self.process = Some(Process::start("pass-through", &arguments, &log)?);
        Ok(())
    }

    fn unmount(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), Process::stop)
    }
}

impl Drop for PassThrough {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// `trapeze up` with its mount.
pub struct Embedded {
    directory: PathBuf,
    mount_point: PathBuf,
    servers: u16,
    process: Option<Process>,
}

impl Embedded {
    fn start(&mut self) -> io::Result<()> {
        let (dir, mount) =
            (self.directory.display().to_string(), self.mount_point.display().to_string());
        let servers = self.servers.to_string();
        let arguments = ["up", "--dir", &dir, "--servers", &servers, "--mount", &mount];
        let log = self.mount_point.with_extension("log");
        self.process = Some(Process::start("up", &arguments.map(String::from), &log)?);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), Process::stop)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

impl Place<'_> {
    /// A directory, made if it is not there.
    pub fn plain(path: &Path) -> io::Result<Place<'static>> {
        fs::create_dir_all(path)?;
        Ok(Place::Plain(path.to_path_buf()))
    }

    /// A pass-through mount of that directory beside it.
    pub fn pass_through(directory: &Path) -> io::Result<Place<'static>> {
        let mount_point = directory.with_extension("pass-through");
        fs::create_dir_all(&mount_point)?;
        let directory = directory.to_path_buf();
        let mut place = PassThrough { directory, mount_point, process: None };
        place.mount()?;
        Ok(Place::PassThrough(place))
    }

    /// A whole cluster in one process, its data and mount in `parent`.
    pub fn embedded(parent: &Path, servers: u16) -> io::Result<Place<'static>> {
        let (directory, mount_point) = (parent.join("embedded"), parent.join("embedded.mnt"));
        fs::create_dir_all(&mount_point)?;
        let mut place = Embedded { directory, mount_point, servers, process: None };
        place.start()?;
        Ok(Place::Embedded(place))
    }

    /// A cluster's mount.
    pub fn cluster(cluster: &mut Processes) -> Place<'_> {
        Place::Cluster(cluster)
    }

    /// What it is called in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Place::Plain(_) => "plain directory",
            Place::PassThrough(_) => "pass-through FUSE",
            Place::Embedded(_) => "trapeze, one process",
            Place::Cluster(_) => "trapeze",
        }
    }

    /// Where to work.
    pub fn path(&self) -> &Path {
        match self {
            Place::Plain(path) => path,
            Place::PassThrough(place) => &place.mount_point,
            Place::Embedded(place) => &place.mount_point,
            Place::Cluster(cluster) => cluster.mount_point(),
        }
    }

    /// The client's caches are empty afterwards; servers keep theirs, unless they live in the client's process. A
    /// plain directory has no client.
    pub fn forget_client(&mut self) -> io::Result<()> {
        match self {
            Place::Plain(_) => Ok(()),
            Place::PassThrough(place) => place.unmount().and_then(|()| place.mount()),
            Place::Embedded(place) => place.stop().and_then(|()| place.start()),
            Place::Cluster(cluster) => cluster.unmount().and_then(|()| cluster.mount()),
        }
    }

    /// All caches are empty afterwards. Whether the kernel's could be emptied: that takes root.
    pub fn forget_all(&mut self) -> io::Result<bool> {
        match self {
            Place::Plain(_) => {}
            Place::PassThrough(place) => place.unmount()?,
            Place::Embedded(place) => place.stop()?,
            Place::Cluster(cluster) => {
                cluster.unmount()?;
                cluster.restart_servers()?;
            }
        }
        let dropped = drop_kernel_caches();
        match self {
            Place::Plain(_) => {}
            Place::PassThrough(place) => place.mount()?,
            Place::Embedded(place) => place.start()?,
            Place::Cluster(cluster) => cluster.mount()?,
        }
        Ok(dropped)
    }
}
