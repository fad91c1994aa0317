//! Machines and mounts: started, driven until they are asked to stop, and stopped.

use crate::config::Machine;
use crate::local::LocalError;
use crate::machine::{self, MachineError, Running, Setup};
use crate::new_disk;
use crate::reach::ReachError;
use crate::stopping::{self, WriteBackError};
use crate::waiting;
use files::cluster::Services;
use live::fuse::{Belief, Fuse, MountError, MountOptions, MountWatch, Stage};
use std::io;
use std::path::PathBuf;
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
    /// The end: something was not written back.
    #[error(transparent)]
    WriteBack(#[from] WriteBackError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// A disk or a service refuses.
    #[error("{0}")]
    Refused(String),
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

/// Runs a machine until `done` says so or the manager refuses it for good, and stops it.
pub fn drive(mut running: Running, done: impl Fn() -> bool) -> Result<(), ServeError> {
    let is_replaced = running.is_replaced();
    running.host.run(|| done() || is_replaced())?;
    let refusal = running.refusal();
    let stopped = stop(running);
    refusal.map_or(stopped, |text| Err(ServeError::Refused(text)))
}

/// Starts a machine and drives it until its services accept requests.
pub fn start_as(machine: &Machine, setup: &Setup) -> Result<Running, ServeError> {
    let mut running = machine::run_as(machine, setup)?;
    let Some(io) = running.services.io.clone() else { return Ok(running) };
    let replacing = io.replacing();
    let waiting = io.clone();
    // Its result is asked for disk by disk.
    let _ = running.host.block_on(async move { waiting.ready().await })?;
    for (disk, health) in (0..).zip(io.disks()) {
        let Health::Refused(errno, text) = health else {
            let path = machine.disks[usize::from(disk)].path.clone();
            match replacing >> disk & 1 == 1 {
                // The manager must know it first.
                true => watch_replacement(&running, disk, path),
                false => new_disk::has_begun(&path),
            }
            continue;
        };
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

/// How often it is looked whether the manager knows a disk that has taken another one's place.
const REPLACEMENT_PAUSE: Duration = Duration::from_millis(500);

/// Takes the mark of a replaced disk away once the disk serves; says so when it is refused.
fn watch_replacement(running: &Running, disk: u16, path: PathBuf) {
    let Some(io) = running.services.io.clone() else { return };
    let cx = running.host.node().cx().clone();
    cx.clone().spawn("new disk", async move {
        loop {
            match &io.disks()[usize::from(disk)] {
                Health::Serving => return new_disk::has_begun(&path),
                Health::Refused(_, why) => return eprintln!("serving without {why}"),
                Health::Starting => cx.sleep(REPLACEMENT_PAUSE).await,
            }
        }
    });
}

/// Says good-bye: what clients have written is durable, the lease is given back. Ends also when servers are away, with
/// an error then.
pub fn stop(mut running: Running) -> Result<(), ServeError> {
    let written = stopping::write_back(&mut running);
    let Services { io, manager, .. } = &running.services;
    match (io, manager) {
        (None, None) => stopping::leave(&mut running)?,
        _ => stopping::settle(&mut running)?,
    }
    match written {
        Ok(()) => running.host.stop()?,
        // Servers that have not answered for so long are not waited for again.
        Err(_) => running.host.stop_within(stopping::GIVEN_UP_SPAN)?,
    };
    Ok(written?)
}

/// Mounts, and drives the host until the kernel has agreed with us.
pub fn add_mount(running: &mut Running, options: &MountOptions) -> Result<MountWatch, ServeError> {
    let fuse = Fuse::new(options, Belief::default())?;
    let watch = fuse.watch();
    running.host.add(fuse)?;
    let waiting = watch.clone();
    running.host.run(|| waiting.stage() != Stage::Starting)?;
    // Programs may wait at any time.
    waiting::watch(running).begin(running.host.node().cx().now());
    Ok(watch)
}
