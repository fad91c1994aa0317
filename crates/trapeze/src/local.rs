//! A whole cluster in one directory of this machine.
//!
//! ```text
//! DIR/cluster.toml   format, cluster id, number of servers
//! DIR/key            the cluster key
//! DIR/lock           held by the process that runs the cluster
//! DIR/manager.toml   the machines' configurations
//! DIR/io1.toml ..
//! DIR/manager/       the name space
//! DIR/io1/ ..        disks
//! DIR/run/*.sock     where the machines listen
//! DIR/log/*.log      what they say
//! ```

use crate::beginning;
use crate::config::{
    ClusterKey, ConfigError, Disk, MANAGER_NODE, Machine, ManagerAddress, Memory, Role,
    check_socket, own_address, replace,
};
use crate::lending::Lending;
use crate::machine_stat::available_memory;
use crate::new_disk;
use crate::pulses::PulsePolicy;
use crate::random;
use crate::scrubbing::Scrubbing;
use crate::socket_access::ListenAccess;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The format of the directory that this program writes.
const FORMAT: u32 = 3;
/// Memory of a manager that is nothing else.
pub const MANAGER_POOL_BYTES: u64 = 96 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    format: u32,
    cluster: String,
    servers: u16,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    managers: u16,
    insecure: bool,
}

fn one() -> u16 {
    1
}

fn is_one(number: &u16) -> bool {
    *number == 1
}

/// Why a directory cannot be used for a cluster.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A file in it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system says no.
    #[error("{0}: {1}")]
    System(PathBuf, std::io::Error),
    /// It holds something else.
    #[error(
        "{0} is not empty and holds no Trapeze cluster, or one whose making was broken off: choose another directory"
    )]
    Foreign(PathBuf),
    /// It was made by another release.
    #[error(
        "{path} has format {found}, this program knows format {FORMAT}: run the release that made it, and copy the files over"
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Fewer servers than copies.
    #[error(
        "--copies {0} needs as many I/O servers, --servers {0} or more: no server has two copies of anything"
    )]
    Copies(u8),
    /// The users of its sockets.
    #[error("{0}")]
    Access(String),
    /// The address for other machines.
    #[error(
        "--listen {0}: {2}write HOST:PORT, an address that other machines reach this one by; the ports after it are its I/O \
         servers' and its mount's, so PORT is from 1 to {1}"
    )]
    Listen(String, u16, String),
    /// A configuration in it names another place, as those of older releases did when they were copied.
    #[error(
        "{file} names {path}, which is not in {dir}: the directory was moved or copied, and this would use the files of another \
         one. If {dir} is to be used, make the paths relative to it: sed -i 's|OLD/||' {dir}/*.toml, with the directory that \
         they name now in place of OLD"
    )]
    Elsewhere {
        /// The configuration.
        file: String,
        /// The path in it.
        path: PathBuf,
        /// The directory.
        dir: String,
    },
    /// Another process runs it.
    #[error("{0} is in use by another trapeze process: stop that one, or choose another directory")]
    InUse(PathBuf),
    /// Asked for another shape than it was made with.
    #[error(
        "{path} was made {made}, which {flag} does not change: leave {flag} out, or choose another directory"
    )]
    Made {
        /// The directory.
        path: PathBuf,
        /// Its shape.
        made: String,
        /// The flag that asked for another.
        flag: &'static str,
    },
}

/// How processes of one machine are linked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LocalLink {
    /// Shared memory
    #[default]
    Shm,
    /// Adapters over shared memory: payloads go through adapter memory on both sides
    Adapter,
}

impl LocalLink {
    /// The scheme of its addresses.
    pub fn scheme(self) -> &'static str {
        match self {
            LocalLink::Shm => "unix:",
            LocalLink::Adapter => "adapter:",
        }
    }
}

/// How a new cluster is made.
#[derive(Clone, Debug)]
pub struct Shape {
    /// I/O servers.
    pub servers: u16,
    /// File managers.
    pub managers: u16,
    /// Disks of each I/O server.
    pub stores: u16,
    /// Copies of each byte of files, on disks of distinct I/O servers.
    pub copies: u8,
    /// Slows every disk down.
    pub limit: Option<String>,
    /// Memory of each I/O server.
    pub memory: Memory,
    /// An address for other machines: the manager's; the I/O servers have the ports after it.
    pub listen: Option<String>,
    /// Without encryption.
    pub insecure: bool,
    /// How its processes are linked.
    pub link: LocalLink,
    /// Permissions of its UNIX sockets.
    pub access: ListenAccess,
}

impl Shape {
    /// `servers` servers with a disk each.
    pub fn of(servers: u16) -> Shape {
        let (memory, link, access) = (Memory::default(), LocalLink::Shm, ListenAccess::default());
        let (managers, stores, limit, listen, insecure) = (1, 1, None, None, false);
        let copies = 1;
        Shape { servers, managers, stores, copies, limit, memory, listen, insecure, link, access }
    }

    /// The same for measurements: the first use of memory is not to be measured. Where memory is short, as usual.
    pub fn prefaulted(servers: u16) -> Shape {
        let shape = Shape::of(servers);
        let bytes = shape.memory.pool.0.saturating_mul(servers.into());
        let prefault = bytes <= available_memory() as u64 / 2;
        Shape { memory: Memory { prefault, ..shape.memory }, ..shape }
    }
}

/// Options of a cluster, by name; `None` and false ask for nothing.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// I/O servers.
    pub servers: Option<u16>,
    /// File managers.
    pub managers: Option<u16>,
    /// Disks of each I/O server.
    pub disks: Option<u16>,
    /// Copies of each byte of files.
    pub copies: Option<u8>,
    /// An address for other machines.
    pub listen: Option<String>,
    /// Without encryption.
    pub insecure: bool,
    /// Users of the UNIX sockets.
    pub access: ListenAccess,
}

/// A cluster's directory, held by this process.
#[derive(Debug)]
pub struct LocalCluster {
    dir: PathBuf,
    made: Option<Made>,
    /// The first manager, then the I/O servers, then the other managers.
    pub machines: Vec<Machine>,
    _lock: File,
}

impl LocalCluster {
    /// Opens the cluster in `dir`, or makes one of this shape when the directory is empty or not there.
    pub fn open_or_create(dir: &Path, shape: &Shape) -> Result<LocalCluster, LocalError> {
        check(dir, shape.managers)?;
        // Where there is a directory already, what is in it is made, not itself.
        let had_dir = dir.is_dir();
        fs::create_dir_all(dir).map_err(|error| LocalError::System(dir.into(), error))?;
        let dir = dir.canonicalize().map_err(|error| LocalError::System(dir.into(), error))?;
        let is_known = || dir.join("cluster.toml").exists();
        // Before the lock, which is a file in it.
        if !is_known() && !is_empty(&dir)? {
            return Err(LocalError::Foreign(dir));
        }
        let lock = lock(&dir)?;
        let made = (!is_known()).then(|| Made { dir: dir.clone(), had_dir });
        if let Some(made) = &made {
            // A refused start leaves nothing behind.
            create(&dir, shape).inspect_err(|_| drop(made.remove()))?;
        }
        let machines = load(&dir)?;
        Ok(LocalCluster { dir, made, machines, _lock: lock })
    }

    /// The parts that this start has made, if it is the directory's first.
    pub fn made(&self) -> Option<Made> {
        self.made.clone()
    }

    /// Refuses a shape that is asked for and is not the one that the cluster was made with.
    pub fn check(&self, asked: &ClusterOptions) -> Result<(), LocalError> {
        let (servers, managers) = (self.servers(), self.managers());
        let (manager, first) = (&self.machines[0], &self.machines[1]);
        let disks = first.disks.len();
        let listens = |address: &String| manager.listen.contains(&format!("tcp:{address}"));
        let differs = [
            (asked.servers.is_some_and(|n| usize::from(n) != servers), "--servers"),
            (asked.managers.is_some_and(|n| usize::from(n) != managers), "--managers"),
            (asked.disks.is_some_and(|n| usize::from(n) != disks), "--disks"),
            (asked.copies.is_some_and(|n| n != self.copies()), "--copies"),
            (asked.listen.as_ref().is_some_and(|address| !listens(address)), "--listen"),
            (asked.insecure && !manager.insecure, "--insecure"),
            (
                asked.access.differs_from(&manager.listen_access()),
                "--listen-mode and --listen-group",
            ),
        ];
        let Some((_, flag)) = differs.into_iter().find(|(differs, _)| *differs) else {
            return Ok(());
        };
        let encryption = if manager.insecure { "without encryption" } else { "with encryption" };
        let made = format!(
            "with {servers} servers, {disks} disks each, {managers} manager{}, {encryption}, listening at {}",
            if managers == 1 { "" } else { "s" },
            manager.listen.join(" and ")
        );
        Err(LocalError::Made { path: self.dir.clone(), made, flag })
    }

    /// Copies that it keeps of each byte of files.
    pub fn copies(&self) -> u8 {
        self.machines[0].copies.unwrap_or(1)
    }

    /// How many I/O servers it has.
    pub fn servers(&self) -> usize {
        self.machines.iter().filter(|machine| machine.is(Role::Io)).count()
    }

    /// How many file managers it has.
    pub fn managers(&self) -> usize {
        self.machines.iter().filter(|machine| machine.is(Role::Manager)).count()
    }

    /// With I/O servers that lend this, where it says anything, whatever their configurations say.
    pub fn lending(mut self, lending: Lending) -> LocalCluster {
        for machine in self.machines.iter_mut().filter(|machine| machine.is(Role::Io)) {
            machine.memory = machine.memory.lend(lending.or(machine.memory.lending()));
        }
        self
    }

    /// With machines that read everything once in this time, where it says anything, whatever their configurations say.
    pub fn scrubbing(mut self, scrubbing: Scrubbing) -> LocalCluster {
        for machine in &mut self.machines {
            machine.scrub = scrubbing.scrub.or(machine.scrub);
        }
        self
    }

    /// Where other machines would reach a mount that this process makes, where they reach the others.
    pub fn listen_of_mount(&self) -> Option<String> {
        let mut addresses = self.machines[0].listen.iter();
        let manager = addresses.find_map(|address| address.strip_prefix("tcp:"))?;
        after(manager, self.machines.len() as u16)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The configuration file of a machine.
    pub fn config_of(&self, machine: &Machine) -> PathBuf {
        self.dir.join(format!("{}.toml", machine.name))
    }

    /// Where the output of a process goes.
    pub fn log_of(&self, name: &str) -> PathBuf {
        self.dir.join("log").join(format!("{name}.log"))
    }
}

/// A cluster's directory that this process made, not used yet.
#[derive(Clone, Debug)]
pub struct Made {
    dir: PathBuf,
    had_dir: bool,
}

impl Made {
    /// Removes what was made.
    pub fn remove(&self) -> std::io::Result<()> {
        if !self.had_dir {
            return fs::remove_dir_all(&self.dir);
        }
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}

/// Whether machines can listen in it, before it is made.
fn check(dir: &Path, managers: u16) -> Result<(), LocalError> {
    // Where it is, or will be; a manager has the longest name.
    let longest = if managers == 1 { "run/manager.sock" } else { "run/manager99.sock" };
    let full = dir.canonicalize().or_else(|_| std::path::absolute(dir));
    let full = full.map_err(|error| LocalError::System(dir.into(), error))?;
    Ok(check_socket(&full.join(longest))?)
}

/// The address `number` ports after this one.
fn after(listen: &str, number: u16) -> Option<String> {
    let (host, port) = listen.rsplit_once(':')?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?.checked_add(number)?;
    Some(format!("{host}:{port}"))
}

/// Whether the manager, the I/O servers and a mount have addresses for other machines.
fn check_listen(shape: &Shape) -> Result<(), LocalError> {
    let Some(listen) = &shape.listen else { return Ok(()) };
    let last = shape.servers + shape.managers;
    let wrong = |why| LocalError::Listen(listen.clone(), u16::MAX - last, why);
    own_address(listen).map_err(wrong)?;
    after(listen, last).map(drop).ok_or_else(|| wrong(String::new()))
}

/// Whether nothing is there but the lock of an earlier look.
fn is_empty(dir: &Path) -> Result<bool, LocalError> {
    let entries = fs::read_dir(dir).map_err(|error| LocalError::System(dir.into(), error))?;
    Ok(entries.flatten().all(|entry| entry.file_name() == "lock"))
}

fn lock(dir: &Path) -> Result<File, LocalError> {
    let path = dir.join("lock");
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(|error| LocalError::System(path.clone(), error))?;
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    match rustix::fs::flock(file.as_fd(), operation) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LocalError::InUse(dir.into())),
        Err(error) => Err(LocalError::System(path, error.into())),
    }
}

fn create(dir: &Path, shape: &Shape) -> Result<(), LocalError> {
    check_listen(shape)?;
    if u16::from(shape.copies) > shape.servers {
        return Err(LocalError::Copies(shape.copies));
    }
    shape.access.resolve().map_err(LocalError::Access)?;
    let system = |path: &Path| {
        let path = path.to_path_buf();
        move |error| LocalError::System(path.clone(), error)
    };
    for folder in ["run", "log"] {
        let folder = dir.join(folder);
        fs::create_dir_all(&folder).map_err(system(&folder))?;
    }
    ClusterKey(random::bytes()).save(&dir.join("key"))?;
    let id: [u8; 8] = random::bytes();
    let cluster = format!("{:016x}", u64::from_le_bytes(id));
    for machine in machines(dir, &cluster, shape) {
        for disk in &machine.disks {
            new_disk::allow(&disk.path).map_err(system(&disk.path))?;
        }
        if let Some(store) = &machine.store {
            beginning::allow(store).map_err(system(store))?;
        }
        machine.save(&dir.join(format!("{}.toml", machine.name)))?;
    }
    let Shape { servers, managers, insecure, .. } = *shape;
    let description = Description { format: FORMAT, cluster, servers, managers, insecure };
    let text = toml::to_string(&description).expect("plain values");
    // All that was made so far, before the file that says that it is there.
    let synced = File::open(dir).and_then(|open| Ok(rustix::fs::syncfs(open)?));
    synced.map_err(system(dir))?;
    let path = dir.join("cluster.toml");
    replace(&path, &text).map_err(system(&path))
}

fn machines(dir: &Path, cluster: &str, shape: &Shape) -> Vec<Machine> {
    let scheme = shape.link.scheme();
    let socket = |name: &str| format!("{scheme}{}", dir.join("run").join(name).display());
    let mut manager_addresses = vec![socket("manager.sock")];
    manager_addresses.extend(shape.listen.iter().map(|address| format!("tcp:{address}")));
    let common = |name: String, node: u16| Machine {
        cluster: cluster.to_string(),
        volume: 1,
        node,
        roles: Vec::new(),
        listen: vec![socket(&format!("{name}.sock"))],
        listen_mode: shape.access.listen_mode.clone(),
        listen_group: shape.access.listen_group.clone(),
        manager: ManagerAddress { node: MANAGER_NODE, addresses: manager_addresses.clone() },
        key: Some(dir.join("key")),
        insecure: shape.insecure,
        store: None,
        scrub: None,
        pulses: PulsePolicy::default(),
        xdp: None,
        copies: None,
        nfs: None,
        exports: Vec::new(),
        disks: Vec::new(),
        memory: shape.memory,
        name,
    };
    let (pool, cache) = (crate::size::Size(MANAGER_POOL_BYTES), crate::size::Size(0));
    let small = Memory { pool, cache, ..Memory::default() };
    let manager = |name: String, node| Machine {
        roles: vec![Role::Manager],
        store: Some(dir.join(&name)),
        memory: small,
        ..common(name, node)
    };
    let listening = |machine: Machine, number: u16| {
        let elsewhere = shape.listen.as_ref().and_then(|listen| after(listen, number));
        let elsewhere = elsewhere.map(|address| format!("tcp:{address}"));
        let listen = machine.listen.iter().cloned().chain(elsewhere).collect();
        Machine { listen, ..machine }
    };
    let first = manager("manager".to_string(), MANAGER_NODE);
    let copies = (shape.copies > 1).then_some(shape.copies);
    let first = Machine { listen: manager_addresses.clone(), copies, ..first };
    let servers = (1..=shape.servers).map(|number| {
        let machine = common(format!("io{number}"), MANAGER_NODE + number);
        let disk = |store| Disk {
            path: dir.join(&machine.name).join(format!("disk{store}")),
            limit: shape.limit.clone(),
        };
        let disks = (0..shape.stores).map(disk).collect();
        listening(Machine { roles: vec![Role::Io], disks, ..machine }, number)
    });
    let others = (2..=shape.managers).map(|number| {
        let behind = shape.servers + number - 1;
        listening(manager(format!("manager{number}"), MANAGER_NODE + behind), behind)
    });
    std::iter::once(first).chain(servers).chain(others).collect()
}

fn load(dir: &Path) -> Result<Vec<Machine>, LocalError> {
    let path = dir.join("cluster.toml");
    let text = fs::read_to_string(&path).map_err(|e| LocalError::System(path.clone(), e))?;
    let syntax = |error: toml::de::Error| ConfigError::Syntax {
        path: path.clone(),
        text: error.to_string().trim_end().to_string(),
    };
    let table: toml::Table = toml::from_str(&text).map_err(syntax)?;
    let found = table.get("format").and_then(toml::Value::as_integer).unwrap_or(0) as u32;
    if found != FORMAT {
        return Err(LocalError::Format { path: dir.into(), found });
    }
    let description: Description = toml::from_str(&text).map_err(syntax)?;
    let servers = (1..=description.servers).map(|number| format!("io{number}"));
    let others = (2..=description.managers).map(|number| format!("manager{number}"));
    let names = std::iter::once("manager".to_string()).chain(servers).chain(others);
    let load = |name: String| {
        let path = dir.join(format!("{name}.toml"));
        let machine = Machine::load(&path)?;
        check_inside(dir, &path, &machine)?;
        Ok(machine)
    };
    names.map(load).collect()
}

/// Refuses a machine that has its key, its sockets, its names or its first disks in the directory of another cluster,
/// from which this one was copied. A disk that was added may be anywhere.
fn check_inside(dir: &Path, file: &Path, machine: &Machine) -> Result<(), LocalError> {
    let of_another = |path: &Path| {
        let mut above = path.ancestors().skip(1);
        !path.starts_with(dir) && above.any(|folder| folder.join("cluster.toml").exists())
    };
    let own = machine.key.iter().chain(&machine.store).map(PathBuf::as_path);
    let mut own = own.chain(machine.sockets().map(Path::new));
    let outside = own.find(|path| !path.starts_with(dir));
    let disks = machine.disks.iter().map(|disk| disk.path.as_path());
    match outside.or_else(|| disks.into_iter().find(|path| of_another(path))) {
        None => Ok(()),
        Some(path) => Err(LocalError::Elsewhere {
            file: file.display().to_string(),
            path: path.to_path_buf(),
            dir: dir.display().to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("data");
        let first = LocalCluster::open_or_create(&dir, &Shape::of(3)).unwrap();
        assert_eq!(first.machines.len(), 4);
        assert!(first.machines[3].disks[0].path.is_dir());
        let made = first.machines.clone();
        assert!(matches!(
            LocalCluster::open_or_create(&dir, &Shape::of(3)),
            Err(LocalError::InUse(_))
        ));
        drop(first);
        let again = LocalCluster::open_or_create(&dir, &Shape::of(9)).unwrap();
        assert_eq!(again.machines, made);
        again
            .check(&ClusterOptions {
                servers: Some(3),
                disks: Some(1),
                ..ClusterOptions::default()
            })
            .unwrap();
        let listen = Some("10.0.0.1:7400".to_string());
        for asked in [
            ClusterOptions { servers: Some(9), ..ClusterOptions::default() },
            ClusterOptions { disks: Some(2), ..ClusterOptions::default() },
            ClusterOptions { insecure: true, ..ClusterOptions::default() },
            ClusterOptions { listen, ..ClusterOptions::default() },
        ] {
            let error = again.check(&asked).unwrap_err().to_string();
            assert!(error.contains("was made with 3 servers, 1 disks each"), "{error}");
        }
    }

    #[test]
    fn machines_elsewhere_reach_every_machine_and_the_mount_at_ports_in_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let shape = |listen: &str| Shape { listen: Some(listen.into()), ..Shape::of(2) };
        let made = LocalCluster::open_or_create(&folder.path().join("a"), &shape("[::1]:7400"));
        let made = made.unwrap();
        let tcp = made.machines.iter().map(|machine| machine.listen[1].clone());
        assert_eq!(tcp.collect::<Vec<_>>(), ["tcp:[::1]:7400", "tcp:[::1]:7401", "tcp:[::1]:7402"]);
        assert_eq!(made.listen_of_mount().unwrap(), "[::1]:7403");
        for wrong in ["here", "here:", ":7400", "here:0", "here:65533", "here:port"] {
            let dir = folder.path().join("b");
            let error = LocalCluster::open_or_create(&dir, &shape(wrong)).unwrap_err().to_string();
            let says = [wrong, "HOST:PORT", "from 1 to 65532"];
            assert!(says.iter().all(|text| error.contains(text)), "{error}");
        }
        LocalCluster::open_or_create(&folder.path().join("b"), &shape("here:65532")).unwrap();
        let local = LocalCluster::open_or_create(&folder.path().join("c"), &Shape::of(2)).unwrap();
        assert_eq!(local.listen_of_mount(), None);
    }

    #[test]
    fn a_directory_that_machines_cannot_listen_in_is_refused_before_it_is_made() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        for (name, why) in [(&[b'x'; 100][..], "shorter path"), (b"d\xff", "UTF-8")] {
            let dir = folder.path().join(std::ffi::OsStr::from_bytes(name));
            let error = LocalCluster::open_or_create(&dir, &Shape::of(1)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!dir.exists(), "{error}");
        }
    }

    #[test]
    fn a_lock_that_is_left_alone_is_no_cluster() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lock"), "").unwrap();
        LocalCluster::open_or_create(folder.path(), &Shape::of(1)).unwrap();
    }

    #[test]
    fn foreign_older_and_newer_directories_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("letter.txt"), "dear").unwrap();
        let error = LocalCluster::open_or_create(folder.path(), &Shape::of(1)).unwrap_err();
        assert!(matches!(error, LocalError::Foreign(_)), "{error}");
        for format in [1, 7] {
            let other = folder.path().join(format!("format{format}"));
            drop(LocalCluster::open_or_create(&other, &Shape::of(1)).unwrap());
            let path = other.join("cluster.toml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("format = 3", &format!("format = {format}"))).unwrap();
            let error = LocalCluster::open_or_create(&other, &Shape::of(1)).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&format!("has format {format}")), "{error}");
            assert!(error.contains("knows format 3"), "{error}");
        }
    }
}
