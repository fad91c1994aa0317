//! Directories to measure: a plain one, one behind a pass-through mount, a mounted cluster.

use rustix::fs::Advice;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapeze::children::Process;
use trapeze::local::{LocalCluster, Shape};
use trapeze::machine_stat::drop_kernel_caches;
use trapeze::scratch::Processes;

/// A directory to measure, and how to make who is in between forget.
pub enum Target<'a> {
    /// A directory of this machine.
    Plain(PathBuf),
    /// The same through a FUSE mount over plain system calls, in a process of its own.
    PassThrough(PassThrough),
    /// A cluster in one process.
    Embedded(Embedded),
    /// A mounted cluster.
    Cluster(&'a mut Processes),
}

/// The kinds of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Plain,
    /// Behind our device loop.
    PassThrough,
    /// Behind libfuse's `passthrough_ll`.
    Libfuse,
    /// A cluster in one process.
    Embedded,
    /// A cluster.
    Cluster,
    /// A cluster that keeps two copies.
    TwoCopies,
}

impl Kind {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain directory",
            Kind::PassThrough => "pass-through FUSE",
            Kind::Libfuse => "passthrough_ll of libfuse",
            Kind::Embedded => "trapeze, one process",
            Kind::Cluster => "trapeze",
            Kind::TwoCopies => "trapeze, two copies",
        }
    }

    /// Whether it is Trapeze.
    pub fn is_ours(self) -> bool {
        matches!(self, Kind::Embedded | Kind::Cluster | Kind::TwoCopies)
    }

    /// Whether it is what this kind is compared with: a cluster with two copies with one that keeps one, others of ours
    /// with a FUSE mount of a plain directory.
    pub fn is_baseline_of(self, ours: Kind) -> bool {
        match ours {
            Kind::TwoCopies => self == Kind::Cluster,
            _ => matches!(self, Kind::PassThrough | Kind::Libfuse),
        }
    }
}

/// libfuse's own pass-through, an example program that few systems install.
const LIBFUSE: &str = "passthrough_ll";

/// A pass-through mount.
pub struct PassThrough {
    directory: PathBuf,
    mount_point: PathBuf,
    process: Option<Process>,
    /// libfuse's program, or ours.
    libfuse: Option<PathBuf>,
}

impl PassThrough {
    fn mount(&mut self) -> io::Result<()> {
        let (from, to) =
            (self.directory.display().to_string(), self.mount_point.display().to_string());
        let log = self.mount_point.with_extension("log");
        self.process = Some(match &self.libfuse {
            None => Process::start("pass-through", &["pass-through".to_string(), from, to], &log)?,
            Some(program) => {
                let mut command = Command::new(program);
                command.args(["-f", "-o", &format!("source={from}"), &to]);
                Process::start_until(LIBFUSE, command, &log, || self.is_mounted())?
            }
        });
        Ok(())
    }

    fn unmount(&mut self) -> io::Result<()> {
        let Some(process) = self.process.take() else { return Ok(()) };
        match (process.stop(), self.libfuse.is_some()) {
            // It calls a signal a failure.
            (Err(_), true) if !self.is_mounted() => Ok(()),
            (result, _) => result,
        }
    }

    fn is_mounted(&self) -> bool {
        let device = |path: &Path| fs::metadata(path).map(|attributes| attributes.dev()).ok();
        device(&self.mount_point) != device(&self.directory)
    }
}

/// The program of this name in PATH.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
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

impl Target<'_> {
    /// A directory, made if it is not there.
    pub fn plain(path: &Path) -> io::Result<Target<'static>> {
        fs::create_dir_all(path)?;
        Ok(Target::Plain(path.to_path_buf()))
    }

    /// A pass-through mount of that directory beside it.
    pub fn pass_through(directory: &Path) -> io::Result<Target<'static>> {
        let mount_point = directory.with_extension("pass-through");
        fs::create_dir_all(&mount_point)?;
        let directory = directory.to_path_buf();
        let mut place = PassThrough { directory, mount_point, process: None, libfuse: None };
        place.mount()?;
        Ok(Target::PassThrough(place))
    }

    /// The same by libfuse's program, where there is one in PATH.
    pub fn libfuse(directory: &Path) -> io::Result<Option<Target<'static>>> {
        let Some(program) = find_program(LIBFUSE) else { return Ok(None) };
        let mount_point = directory.with_extension("libfuse");
        fs::create_dir_all(&mount_point)?;
        let (directory, libfuse) = (directory.to_path_buf(), Some(program));
        let mut place = PassThrough { directory, mount_point, process: None, libfuse };
        place.mount()?;
        Ok(Some(Target::PassThrough(place)))
    }

    /// A whole cluster in one process, its data and mount in `parent`.
    pub fn embedded(parent: &Path, servers: u16) -> io::Result<Target<'static>> {
        let (directory, mount_point) = (parent.join("embedded"), parent.join("embedded.mnt"));
        fs::create_dir_all(&mount_point)?;
        let made = LocalCluster::open_or_create(&directory, &Shape::prefaulted(servers));
        drop(made.map_err(io::Error::other)?); // `up` opens it
        let mut place = Embedded { directory, mount_point, servers, process: None };
        place.start()?;
        Ok(Target::Embedded(place))
    }

    /// A cluster's mount.
    pub fn cluster(cluster: &mut Processes) -> Target<'_> {
        Target::Cluster(cluster)
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Target::Plain(_) => Kind::Plain,
            Target::PassThrough(place) if place.libfuse.is_some() => Kind::Libfuse,
            Target::PassThrough(_) => Kind::PassThrough,
            Target::Embedded(_) => Kind::Embedded,
            Target::Cluster(place) if place.cluster().copies() > 1 => Kind::TwoCopies,
            Target::Cluster(_) => Kind::Cluster,
        }
    }

    /// Where to work.
    pub fn path(&self) -> &Path {
        match self {
            Target::Plain(path) => path,
            Target::PassThrough(place) => &place.mount_point,
            Target::Embedded(place) => &place.mount_point,
            Target::Cluster(cluster) => cluster.mount_point(),
        }
    }

    /// The client's caches are empty afterwards; servers keep theirs, unless they live in the client's process. A
    /// plain directory has no client.
    pub fn forget_client(&mut self) -> io::Result<()> {
        match self {
            Target::Plain(_) => Ok(()),
            Target::PassThrough(place) => place.unmount().and_then(|()| place.mount()),
            Target::Embedded(place) => place.stop().and_then(|()| place.start()),
            Target::Cluster(cluster) => cluster.unmount().and_then(|()| cluster.mount()),
        }
    }

    /// The kernel of this machine has none of the file's bytes from the mount afterwards; what is below or behind the
    /// mount stays in its memory. A plain directory has nothing in between.
    pub fn forget_file(&mut self, file: &Path) -> io::Result<()> {
        if let Target::Plain(_) = self {
            return Ok(());
        }
        Ok(rustix::fs::fadvise(File::open(file)?, 0, None, Advice::DontNeed)?)
    }

    /// All caches are empty afterwards. Whether the kernel's could be emptied: that takes root.
    pub fn forget_all(&mut self) -> io::Result<bool> {
        match self {
            Target::Plain(_) => {}
            Target::PassThrough(place) => place.unmount()?,
            Target::Embedded(place) => place.stop()?,
            Target::Cluster(cluster) => {
                cluster.unmount()?;
                cluster.restart_servers()?;
            }
        }
        let dropped = drop_kernel_caches();
        match self {
            Target::Plain(_) => {}
            Target::PassThrough(place) => place.mount()?,
            Target::Embedded(place) => place.start()?,
            Target::Cluster(cluster) => cluster.mount()?,
        }
        Ok(dropped)
    }
}
