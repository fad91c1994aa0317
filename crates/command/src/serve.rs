//! Machines that run until they are asked to stop.

use crate::cli;
use crate::{mount_helper, mount_options, nfs};
use live::fuse::{MountOptions, Stage, check_mount_point, detach_below};
use live::signals::{self, Signals};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trapeze::children::READY;
use trapeze::client::Reach;
use trapeze::config::CLIENT_POOL_BYTES;
use trapeze::config::{Machine, Memory};
use trapeze::embedded::{Embedded, Mounted, NfsServer};
use trapeze::lending::Lending;
use trapeze::local::{ClusterOptions, LocalCluster, MANAGER_POOL_BYTES, Shape};
use trapeze::machine::{self, MachineError, Setup};
use trapeze::machine_stat::total_memory;
use trapeze::nfs::{Bound, drive_with};
use trapeze::output;
use trapeze::serve::{ServeError, add_mount, drive, pin, start_as, stop};
use trapeze::size::Size;

/// `trapeze serve`.
pub fn serve(arguments: &cli::Serve) -> Result<(), ServeError> {
    if arguments.on_line && io::stdin().read_line(&mut String::new())? == 0 {
        return Ok(()); // the process that was to say go is gone
    }
    output::say_when();
    pin(arguments.cpu)?;
    let machine = Machine::load(&arguments.config).map_err(MachineError::from)?;
    let machine = Machine { scrub: arguments.scrubbing.scrub.or(machine.scrub), ..machine };
    signals::install()?;
    let setup = Setup::of(&machine, arguments.wait.into()).map_err(MachineError::from)?;
    let lending = arguments.lending.or(setup.lending);
    check_lending(&lending, machine.memory.pool, 1)?;
    let bound = nfs::of_machine(&machine)?;
    let volume = setup.volume;
    let xdp = arguments.xdp.xdp.clone().or(setup.xdp.clone());
    let mut running = start_as(&machine, &Setup { lending, xdp, ..setup })?;
    println!("{READY} {} listens at {}", machine.name, machine.listen.join(", "));
    running.host.add(Signals::default())?;
    match bound {
        None => drive(running, signals::asked),
        Some(bound) => drive_with(running, volume, bound, signals::asked),
    }
}

fn check_lending(lending: &Lending, pool: Size, nodes: u64) -> Result<(), MachineError> {
    lending.problem(pool, nodes).map_or(Ok(()), |text| Err(MachineError::Lending(text)))
}

/// `trapeze mount`.
pub fn mount(arguments: &cli::Mount) -> Result<(), ServeError> {
    let (arguments, options) = mount_options::applied(arguments).map_err(ServeError::Refused)?;
    output::say_when();
    pin(arguments.cpu)?;
    if arguments.background {
        mount_helper::leave_terminal()?;
    }
    let (cluster, path) = arguments.places();
    let (key, insecure) = (arguments.key.clone(), arguments.insecure);
    check_mount(&path, Some(Path::new(&cluster)).filter(|path| path.is_dir()))?;
    check_empty(&path, arguments.nonempty)?;
    let reach = Reach { cluster, key, insecure };
    check_lending(&arguments.lending, arguments.pool, 1)?;
    let setup = reach.setup(arguments.pool.0, arguments.wait.into())?;
    let xdp = arguments.xdp.xdp.clone();
    let setup = Setup { lending: arguments.lending, xdp, ..setup };
    signals::install()?;
    let mut running = machine::mount_client(&setup, arguments.listen.as_deref())?;
    let watch = add_mount(&mut running, &options)?;
    println!("{READY} mounted at {}", path.display());
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

/// Refuses to hide what is in a directory, unless that is asked for.
fn check_empty(path: &Path, nonempty: bool) -> Result<(), ServeError> {
    // A directory that cannot be listed is the mount's own business.
    let empty = std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none());
    if empty || nonempty {
        return Ok(());
    }
    let path = path.display();
    Err(ServeError::Refused(format!(
        "cannot mount on {path}: it is not empty, and what is in it would be hidden; choose another directory, or say \
         --nonempty"
    )))
}

/// A plain directory through the FUSE device loop.
pub fn pass_through(source: &Path, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
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

/// How many copies there are of files, for people.
pub fn copies_text(copies: u8) -> &'static str {
    match copies {
        1 => "every file has one copy: a lost disk loses its part of every file",
        _ => "every file has two copies, on disks of two I/O servers",
    }
}

/// I/O servers of a new cluster by default.
const SERVERS: u16 = 4;

/// `trapeze up`: every machine on a thread of this process.
pub fn up(arguments: &cli::Up) -> Result<(), ServeError> {
    let cli::Up { servers, managers, disks, copies, listen, insecure, link, .. } =
        arguments.clone();
    let usual = Shape::of(servers.unwrap_or(SERVERS));
    let memory = memory_for(usual.servers, total_memory());
    let usual = Shape { memory, ..usual };
    let (stores, count) = (disks.unwrap_or(usual.stores), managers.unwrap_or(usual.managers));
    let access = arguments.access.clone();
    let (listened, allowed) = (listen.clone(), access.clone());
    let usual = Shape { managers: count, stores, copies: copies.unwrap_or(1), ..usual };
    let shape = Shape { listen: listened, access: allowed, insecure, link, ..usual };
    arguments.mount.iter().try_for_each(|path| {
        check_mount(path, Some(&arguments.dir))?;
        check_empty(path, arguments.nonempty)
    })?;
    let bound = nfs::of_up(arguments)?;
    signals::install()?;
    let cluster = LocalCluster::open_or_create(&arguments.dir, &shape)?;
    output::say_when();
    let made = cluster.made();
    let asked = ClusterOptions { servers, managers, disks, copies, listen, insecure, access };
    let told = bound.as_ref().map(nfs::told);
    let run = run_up(arguments, cluster, &asked, usual.memory, bound);
    let Ran { cluster, mounted, nfs } = match run {
        Ok(running) => running,
        Err(error) => {
            // Files made for a start that was refused would stand in the way of the next one, made differently.
            made.map_or(Ok(()), |made| made.remove()).map_err(|left| {
                ServeError::Refused(format!(
                    "{error}; and what was made for it could not be removed: {left}"
                ))
            })?;
            return Err(error);
        }
    };
    let (dir, servers) = (cluster.cluster().dir().display(), cluster.cluster().servers());
    let managers = match cluster.cluster().managers() {
        1 => "a manager".to_string(),
        managers => format!("{managers} managers"),
    };
    println!("cluster of {managers} and {servers} I/O servers, data in {dir}");
    println!("{}", copies_text(cluster.cluster().copies()));
    told.into_iter().for_each(|text| println!("{text}"));
    match &arguments.mount {
        Some(path) => println!("{READY} mounted at {}; stop with Ctrl-C", path.display()),
        None => println!("{READY} mount it with: trapeze mount {dir} PATH"),
    }
    let nfs_ended = || nfs.as_ref().is_some_and(NfsServer::has_ended);
    let mount_ended = || mounted.as_ref().is_some_and(Mounted::has_ended);
    let has_ended = || cluster.has_ended() || mount_ended() || nfs_ended();
    while !signals::asked() && !has_ended() {
        std::thread::sleep(SIGNAL_PAUSE);
    }
    println!("stopping");
    let served = nfs.map_or(Ok(()), NfsServer::stop);
    let unmounted = mounted.map_or(Ok(()), Mounted::unmount).and(served);
    let stopped = cluster.stop();
    // A machine that has ended is why the mount cannot write back.
    if let (Err(unsaved), Err(_)) = (&unmounted, &stopped) {
        eprintln!("trapeze: {unsaved}");
    }
    stopped.and(unmounted)
}

/// The parts that `up` runs.
struct Ran {
    cluster: Embedded,
    mounted: Option<Mounted>,
    nfs: Option<NfsServer>,
}

/// Starts the machines, mounts, and serves NFS.
fn run_up(
    arguments: &cli::Up,
    cluster: LocalCluster,
    asked: &ClusterOptions,
    memory: Memory,
    bound: Option<Bound>,
) -> Result<Ran, ServeError> {
    cluster.check(asked)?;
    let lending = arguments.lending;
    let lenders = cluster.servers() + usize::from(arguments.mount.is_some());
    check_lending(&lending, memory.pool, lenders as u64)?;
    output::log_to(&cluster.log_of("up"))?;
    let cluster = Embedded::of_cluster(cluster.lending(lending).scrubbing(arguments.scrubbing))?;
    let mount = |path: &PathBuf| cluster.mount_lending(path, lending);
    let mounted = arguments.mount.as_ref().map(mount).transpose()?;
    let nfs = bound.map(|bound| cluster.serve_nfs(bound)).transpose()?;
    Ok(Ran { cluster, mounted, nfs })
}

/// The part of the machine's memory that all of `up` may have, one in so many.
const MEMORY_PART: u64 = 8;
/// Least memory of an I/O server: some requests of the largest size, and a cache.
const SERVER_POOL_MIN: u64 = 64 << 20;

/// Memory of each of so many I/O servers on a machine with `total` bytes: with the manager and a mount an eighth of it
/// at most, and what a server has by default where that is less.
fn memory_for(servers: u16, total: u64) -> Memory {
    let usual = Memory::default();
    let shared = (total / MEMORY_PART).saturating_sub(MANAGER_POOL_BYTES + CLIENT_POOL_BYTES);
    let pool = (shared / u64::from(servers)).clamp(SERVER_POOL_MIN, usual.pool.0);
    let pool = pool - pool % (1 << 20);
    let cache = (pool - (32 << 20)).min(pool / 4 * 3);
    Memory { pool: Size(pool), cache: Size(cache), ..usual }
}

/// How often the main thread, which does nothing else, looks for a signal.
const SIGNAL_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_up_has_an_eighth_of_the_machine() {
        let all = |servers: u16, total: u64| {
            let memory = memory_for(servers, total);
            assert!(memory.cache.0 + (32 << 20) <= memory.pool.0, "{memory:?}");
            memory.pool.0 * u64::from(servers) + MANAGER_POOL_BYTES + CLIENT_POOL_BYTES
        };
        assert!((900 << 20..=1 << 30).contains(&all(4, 8 << 30)));
        assert!(all(2, 8 << 30) <= 1 << 30);
        assert_eq!(memory_for(4, 1 << 40), Memory::default());
        assert_eq!(memory_for(16, 1 << 30).pool, Size(SERVER_POOL_MIN));
    }
}
