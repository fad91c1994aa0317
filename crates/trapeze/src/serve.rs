//! Machines that run until they are asked to stop.

use crate::children::READY;
use crate::cli;
use crate::client::{Reach, ReachError};
use crate::config::Machine;
use crate::embedded::{Embedded, Mounted};
use crate::lending::Lending;
use crate::local::{Asked, LocalCluster, LocalError, Shape};
use crate::machine::{self, MachineError, Running, Setup};
use crate::size::Size;
use crate::stopping;
use crate::{mount_helper, mount_options};
use live::fuse::{
    Belief, Fuse, MountError, MountOptions, MountWatch, Stage, check_mount_point, detach_below,
};
use live::signals::{self, Signals};
use live::wait::WaitPolicy;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripe::Health;

/// Why a machine or a mount does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The cluster.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The directory.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The baseline.
    #[error(transparent)]
    PassThrough(#[from] live::fuse::passthrough::ServeError),
    /// A disk or a service refuses.
    #[error("{0}")]
    Refused(String),
}

impl From<cli::Wait> for WaitPolicy {
    fn from(wait: cli::Wait) -> WaitPolicy {
        match wait {
            cli::Wait::Adaptive => WaitPolicy::Adaptive,
            cli::Wait::Spin => WaitPolicy::Spin,
            cli::Wait::Block => WaitPolicy::Block,
        }
    }
}

/// Keeps this thread, and those it starts, on one processor.
pub fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let refused = |why: &str| {
        let text = format!("cannot run on processor {cpu}: {why}; /proc/cpuinfo lists them");
        io::Error::other(text)
    };
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(refused("there is none"));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let pinned = rustix::thread::sched_setaffinity(None, &set);
    pinned.map_err(|error| refused(&error.to_string()))
}

/// `trapeze serve`.
pub fn serve(arguments: &cli::Serve) -> Result<(), ServeError> {
    if arguments.on_line && io::stdin().read_line(&mut String::new())? == 0 {
        return Ok(()); // whoever was to say go is gone
    }
    pin(arguments.cpu)?;
    let machine = Machine::load(&arguments.config).map_err(MachineError::from)?;
    signals::install()?;
    let setup = Setup::of(&machine, arguments.wait.into()).map_err(MachineError::from)?;
    let lending = arguments.lending.or(setup.lending);
    check_lending(&lending, machine.memory.pool, 1)?;
    let mut running = start_as(&machine, &Setup { lending, ..setup })?;
    println!("{READY} {} listens at {}", machine.name, machine.listen.join(", "));
    running.host.add(Signals::default())?;
    drive(running, signals::asked)
}

/// Runs a machine until `done` says so or the manager refuses it for good, and stops it.
pub(crate) fn drive(mut running: Running, done: impl Fn() -> bool) -> Result<(), ServeError> {
    let is_replaced = running.is_replaced();
    running.host.run(|| done() || is_replaced())?;
    let refusal = running.refusal();
    let stopped = stop(running);
    refusal.map_or(stopped, |text| Err(ServeError::Refused(text)))
}

fn check_lending(lending: &Lending, pool: Size, nodes: u64) -> Result<(), MachineError> {
    lending.problem(pool, nodes).map_or(Ok(()), |text| Err(MachineError::Lending(text)))
}

/// Starts a machine and drives it until its services accept requests.
pub(crate) fn start_as(machine: &Machine, setup: &Setup) -> Result<Running, ServeError> {
    let mut running = machine::run_as(machine, setup)?;
    let Some(io) = running.services.io.clone() else { return Ok(running) };
    let waiting = io.clone();
    // What it says is asked for disk by disk.
    let _ = running.host.block_on(async move { waiting.ready().await })?;
    for (disk, health) in (0..).zip(io.disks()) {
        let Health::Refused(errno, text) = health else { continue };
        match running.lost.iter().find(|(lost, _)| *lost == disk) {
            Some((_, why)) => eprintln!("serving without {why}"),
            // Another disk's directory is a mistake to be put right first. A damaged one may be all there is of it: the
            // other disks serve, and what is on this one is an error at once instead of a server that does not answer.
            None if errno == wire::Errno::ENODEV => return Err(ServeError::Refused(text)),
            None => eprintln!("serving without {text}"),
        }
    }
    Ok(running)
}

/// Says good-bye: what clients have written is durable, the lease is given back. Ends also when servers are away, with
/// an error then.
pub(crate) fn stop(mut running: Running) -> Result<(), ServeError> {
    let written = stopping::write_back(&mut running);
    if running.services.files.is_some() {
        stopping::leave(&mut running)?;
    }
    match written {
        Ok(()) => running.host.stop()?,
        // Who has not answered for so long is not waited for again.
        Err(_) => running.host.stop_within(stopping::GIVEN_UP_SPAN)?,
    };
    written
}

/// `trapeze mount`.
pub fn mount(arguments: &cli::Mount) -> Result<(), ServeError> {
    let (arguments, options) = mount_options::applied(arguments).map_err(ServeError::Refused)?;
    pin(arguments.cpu)?;
    if arguments.background {
        mount_helper::leave_terminal()?;
    }
    let (cluster, key, insecure) =
        (arguments.servers.clone(), arguments.key.clone(), arguments.insecure);
    check_mount(&arguments.path, Some(Path::new(&cluster)).filter(|path| path.is_dir()))?;
    let reach = Reach { cluster, key, insecure };
    check_lending(&arguments.lending, arguments.pool, 1)?;
    let setup = reach.setup(arguments.pool.0, arguments.wait.into())?;
    let setup = Setup { lending: arguments.lending, ..setup };
    signals::install()?;
    let mut running = machine::mount_client(&setup, arguments.listen.as_deref())?;
    let watch = add_mount(&mut running, &options)?;
    println!("{READY} mounted at {}", arguments.path.display());
    running.host.add(Signals::default())?;
    running.host.run(|| signals::asked() || watch.stage() == Stage::Ended)?;
    stop(running)
}

/// Before anything is made or asked for: whether it can be mounted there. A mount over the cluster's own directory
/// `dir`, or in it, would hide from its machines what they serve.
fn check_mount(path: &Path, dir: Option<&Path>) -> Result<(), ServeError> {
    let point = check_mount_point(path)?;
    let Some(dir) = dir else { return Ok(()) };
    let dir = std::path::absolute(dir)?;
    // Where it is, or would be made.
    let hidden = dir.ancestors().find_map(|part| part.canonicalize().ok());
    let why = if hidden.is_some_and(|dir| dir.starts_with(&point)) {
        "the cluster's data is in it, at"
    } else if dir.canonicalize().is_ok_and(|dir| point.starts_with(dir)) {
        "it is in the cluster's own directory,"
    } else {
        return Ok(());
    };
    let (point, dir) = (point.display(), dir.display());
    let text = format!("cannot mount on {point}: {why} {dir}; choose another directory");
    Err(ServeError::Refused(text))
}

/// Mounts, and drives the host until the kernel has agreed with us.
pub(crate) fn add_mount(
    running: &mut Running,
    options: &MountOptions,
) -> Result<MountWatch, ServeError> {
    let fuse = Fuse::new(options, Belief::default())?;
    let watch = fuse.watch();
    running.host.add(fuse)?;
    let waiting = watch.clone();
    running.host.run(|| waiting.stage() != Stage::Starting)?;
    Ok(watch)
}

/// A plain directory through the FUSE device loop.
pub fn pass_through(source: &Path, path: &Path) -> Result<(), ServeError> {
    signals::install()?;
    let options = MountOptions::new(path);
    let unmount_at = path.canonicalize()?;
    // The serving thread waits in its read; without the mount that ends.
    std::thread::spawn(move || {
        signals::wait();
        let _ = detach_below(&unmount_at);
    });
    let ready = || println!("{READY} mounted at {}", path.display());
    Ok(live::fuse::passthrough::serve(source, &options, false, ready)?)
}

/// I/O servers of a new cluster when nobody says how many.
const SERVERS: u16 = 4;

/// `trapeze up`: every machine on a thread of this process.
pub fn up(arguments: &cli::Up) -> Result<(), ServeError> {
    let cli::Up { servers, disks, listen, insecure, link, .. } = arguments.clone();
    let usual = Shape::of(servers.unwrap_or(SERVERS));
    let stores = disks.unwrap_or(usual.stores);
    let shape = Shape { listen: listen.clone(), insecure, stores, link, ..usual };
    arguments.mount.iter().try_for_each(|path| check_mount(path, Some(&arguments.dir)))?;
    signals::install()?;
    let cluster = LocalCluster::open_or_create(&arguments.dir, &shape)?;
    cluster.check(&Asked { servers, disks, listen, insecure })?;
    let lending = arguments.lending;
    let lenders = cluster.machines.len() - 1 + usize::from(arguments.mount.is_some());
    check_lending(&lending, usual.memory.pool, lenders as u64)?;
    let cluster = Embedded::of_cluster(cluster.lending(lending))?;
    let (dir, servers) = (cluster.cluster().dir().display(), cluster.cluster().machines.len() - 1);
    println!("cluster of a manager and {servers} I/O servers, data in {dir}");
    println!("every file has one copy: a lost disk loses its part of every file");
    let mount = |path: &PathBuf| cluster.mount_lending(path, lending);
    let mounted = arguments.mount.as_ref().map(mount).transpose()?;
    match &arguments.mount {
        Some(path) => println!("{READY} mounted at {}; stop with Ctrl-C", path.display()),
        None => println!("{READY} mount it with: trapeze mount {dir} PATH"),
    }
    let has_ended = || cluster.has_ended() || mounted.as_ref().is_some_and(Mounted::has_ended);
    while !signals::asked() && !has_ended() {
        std::thread::sleep(SIGNAL_PAUSE);
    }
    println!("stopping");
    let unmounted = mounted.map_or(Ok(()), Mounted::unmount);
    let stopped = cluster.stop();
    // A machine that has ended is why the mount cannot write back.
    if let (Err(unsaved), Err(_)) = (&unmounted, &stopped) {
        eprintln!("trapeze: {unsaved}");
    }
    stopped.and(unmounted)
}

/// How often the main thread, which does nothing else, looks for a signal.
const SIGNAL_PAUSE: Duration = Duration::from_millis(50);
