//! A whole cluster on threads of this process: a manager, I/O servers, and mounts of it.
//!
//! It is for programs that bring their storage along, for examples and tests. All parts end with the one process;
//! machines that are to survive each other are started with `trapeze serve`.

use crate::client::{Reach, ReachError};
use crate::config::CLIENT_POOL_BYTES;
use crate::import::{self, Plan};
use crate::lending::Lending;
use crate::local::{LocalCluster, Shape};
use crate::machine::{MachineError, Setup};
use crate::nfs;
use crate::serve::{self, ServeError};
use crate::stopper::Stopper;
use crate::volume::Volume;
use live::fuse::{MountOptions, Stage};
use live::wait::WaitPolicy;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

type Result<T> = std::result::Result<T, ServeError>;

/// How long the groups of a cluster with copies are waited for.
const GROUPS_SPAN: Duration = Duration::from_secs(30);

/// Something that runs on a thread until it is asked to stop, or dropped.
#[derive(Debug)]
struct Worker {
    stopper: Stopper,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Worker {
    /// Runs `work`, which says when it can be used. Returns then.
    fn start(
        name: &str,
        work: impl FnOnce(&Stopper, &dyn Fn()) -> Result<()> + Send + 'static,
    ) -> Result<Worker> {
        let stopper = Stopper::new()?;
        let (tell, told) = mpsc::channel();
        let copy = stopper.clone();
        let work = move || work(&copy, &|| tell.send(()).unwrap_or_default());
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(work)?;
        if told.recv().is_err() {
            // It ended instead of saying that it is ready.
            thread.join().expect("no panic")?;
            return Err(ServeError::Refused(format!("{name} ended at once")));
        }
        Ok(Worker { stopper, thread: Some(thread) })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.stopper.stop();
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("no panic"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // how it ended is of interest where it is stopped
        let _ = self.end();
    }
}

/// A running cluster. Dropping it stops it; what clients have written is durable then.
#[derive(Debug)]
pub struct Embedded {
    cluster: LocalCluster,
    workers: Vec<Worker>,
}

impl Embedded {
    /// Starts the cluster whose data is in `dir`, or makes one with `servers` I/O servers there.
    pub fn start(dir: &Path, servers: u16) -> Result<Embedded> {
        Embedded::of_shape(dir, &Shape::of(servers))
    }

    /// As [`start`](Embedded::start), for any shape.
    pub fn of_shape(dir: &Path, shape: &Shape) -> Result<Embedded> {
        Embedded::of_cluster(LocalCluster::open_or_create(dir, shape)?)
    }

    /// Starts the cluster whose directory this process holds.
    pub fn of_cluster(cluster: LocalCluster) -> Result<Embedded> {
        let mut embedded = Embedded { cluster, workers: Vec::new() };
        for machine in embedded.cluster.machines.clone() {
            let name = machine.name.clone();
            let work = move |stopper: &Stopper, ready: &dyn Fn()| {
                let setup =
                    Setup::of(&machine, WaitPolicy::Adaptive).map_err(MachineError::from)?;
                let setup = Setup { quiet: true, ..setup };
                let mut running = serve::start_as(&machine, &setup)?;
                stopper.watch(&mut running.host)?;
                ready();
                serve::drive(running, || stopper.asked())
            };
            embedded.workers.push(Worker::start(&name, work)?);
        }
        embedded.wait_for_groups()?;
        Ok(embedded)
    }

    /// A new cluster that keeps two copies can take files a moment after its servers have joined.
    fn wait_for_groups(&self) -> Result<()> {
        if self.cluster.copies() < 2 {
            return Ok(());
        }
        let refused = |error: &dyn std::fmt::Display| ServeError::Refused(error.to_string());
        let mut volume = self.volume().map_err(|error| refused(&error))?;
        // Without groups after that it is the status that says why.
        volume.wait_for_groups(GROUPS_SPAN).map_err(|error| refused(&error))?;
        Ok(())
    }

    /// Its directory and machines.
    pub fn cluster(&self) -> &LocalCluster {
        &self.cluster
    }

    fn reach(&self) -> Reach {
        Reach { cluster: self.cluster.dir().display().to_string(), key: None, insecure: false }
    }

    /// A client of its volume for the calling thread.
    pub fn volume(&self) -> std::result::Result<Volume, ReachError> {
        self.reach().volume("embedded")
    }

    /// Mounts it at an empty directory. Use the mount from other threads or processes than its own.
    pub fn mount(&self, path: &Path) -> Result<Mounted> {
        self.mount_lending(path, Lending::default())
    }

    /// As [`mount`](Embedded::mount), with a part in network memory. Machines elsewhere reach it at the port after
    /// those of the I/O servers.
    pub fn mount_lending(&self, path: &Path, lending: Lending) -> Result<Mounted> {
        let source = self.cluster.dir().display().to_string();
        let (reach, options) = (self.reach(), MountOptions { source, ..MountOptions::new(path) });
        let listen = self.cluster.listen_of_mount();
        let work = move |stopper: &Stopper, ready: &dyn Fn()| {
            let mut running = reach.mount_client(lending, listen.as_deref())?;
            let watch = serve::add_mount(&mut running, &options)?;
            stopper.watch(&mut running.host)?;
            ready();
            running.host.run(|| stopper.asked() || watch.stage() == Stage::Ended)?;
            serve::stop(running)
        };
        Ok(Mounted(Worker::start("mount", work)?))
    }

    /// Serves its volume to clients of NFS, until that is dropped.
    pub fn serve_nfs(&self, bound: nfs::Bound) -> Result<NfsServer> {
        let reach = self.reach();
        let work = move |stopper: &Stopper, ready: &dyn Fn()| {
            let setup = reach.setup(CLIENT_POOL_BYTES, WaitPolicy::Adaptive)?;
            nfs::run(&setup, bound, stopper, ready)
        };
        Ok(NfsServer(Worker::start("nfs", work)?))
    }

    /// Imports an export of another NFS server, until that is dropped.
    pub fn import(&self, plan: Plan) -> Result<Importer> {
        let reach = self.reach();
        let work = move |stopper: &Stopper, ready: &dyn Fn()| {
            let setup = reach.setup(CLIENT_POOL_BYTES, WaitPolicy::Adaptive)?;
            import::run(&setup, &plan, stopper, ready)
        };
        Ok(Importer(Worker::start("import", work)?))
    }

    /// Removes the import at a directory, and what is cached of it.
    pub fn remove_import(&self, directory: &Path) -> Result<()> {
        import::remove(&self.reach(), directory)
    }

    /// Whether a machine has ended by itself; [`stop`](Embedded::stop) says why.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().any(Worker::has_ended)
    }

    /// Stops all machines, the manager last. An error is the first one's; the others are stopped all the same.
    pub fn stop(mut self) -> Result<()> {
        let ended: Vec<Result<()>> = self.workers.drain(..).rev().map(Worker::stop).collect();
        ended.into_iter().collect()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.workers.drain(..).rev().for_each(drop);
    }
}

/// A mount. Dropping it unmounts; what was written is written back first.
#[derive(Debug)]
pub struct Mounted(Worker);

impl Mounted {
    /// Whether it is unmounted already.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Unmounts.
    pub fn unmount(self) -> Result<()> {
        self.0.stop()
    }
}

/// A server of NFS. Dropping it ends it; what clients wrote is written back first.
#[derive(Debug)]
pub struct NfsServer(Worker);

impl NfsServer {
    /// Whether it has ended by itself; [`stop`](NfsServer::stop) says why.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Ends it.
    pub fn stop(self) -> Result<()> {
        self.0.stop()
    }
}

/// An importer. Dropping it ends it; what is cached stays.
#[derive(Debug)]
pub struct Importer(Worker);

impl Importer {
    /// Whether it has ended by itself; [`stop`](Importer::stop) says why.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Ends it.
    pub fn stop(self) -> Result<()> {
        self.0.stop()
    }
}
