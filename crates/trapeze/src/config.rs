//! The configuration file of one machine of a cluster, and the key that its machines share.
//!
//! ```toml
//! cluster = "9f0c6a1b2d3e4f50"        # 16 hexadecimal digits, the same on every machine
//! volume = 1
//! name = "io1"                        # unique in the cluster, for people
//! node = 2                            # unique in the cluster, given by `init` and `join`
//! roles = ["io"]                      # "manager", "io"
//! listen = ["unix:/srv/t/io1.sock", "tcp:10.0.0.2:7400"]
//! listen_mode = "660"                 # optional: permissions of the UNIX sockets, else 600; all may do everything who may
//! listen_group = "storage"            # optional: their group                              # connect
//! manager = { node = 1, addresses = ["tcp:10.0.0.1:7400"] }
//! key = "/srv/t/key"                  # 64 hexadecimal digits, mode 0600
//! store = "/srv/t/store"              # of a manager: its logs and checkpoint
//! pulses = "adaptive:64K"             # optional: how payloads move through links; "adaptive" measures what is best
//! xdp = "eth0"                        # optional: messages go as Ethernet frames, past the kernel (AF_XDP); IFACE or IFACE:QUEUE
//! scrub = 7                           # optional: in so many days everything is read once; "off" for never
//! [nfs]                               # optional: the machine serves the volume to clients of NFS too
//! listen = "10.0.0.2"                 # HOST, or HOST:PORT for another port than 2049
//! portmap = true                      # optional: answers port 111 too, where no rpcbind does
//! mount_udp = true                    # optional: MOUNT over UDP too
//! [[export]]                          # with [nfs]; without any, / to this machine
//! path = "/home"
//! clients = ["10.0.0.0/24(rw)"]       # as in exports(5)
//! [[disk]]                            # of an I/O server: at least one
//! path = "/srv/t/disk0"
//! limit = "rate=30M,delay=1ms"        # optional: slows the disk down, for experiments
//! [memory]
//! pool = "512M"                       # all payload frames
//! cache = "256M"                      # of it, an I/O server's cache
//! prefault = true                     # optional: the pool is taken from the system at the start, not when it is used
//! lend = "4G"                         # optional, beside the pool: what network memory has on this machine
//! keep = "1G"                         # optional: of `lend`, what this machine's own pages can always have; a quarter
//! reserve = "512M"                    # optional: with less memory left on this machine, it lends less; a 32nd of all
//! ```
//!
//! A path that does not begin with `/` is meant from the file's own directory, those of sockets too. Paths inside that
//! directory are written so, and the whole can be moved or copied: a copy names nothing of the original.

mod sections;

use crate::output;
use crate::pulses::PulsePolicy;
use crate::scrubbing::Period;
use crate::socket_access::ListenAccess;
use crate::xdp::XdpQueue;
use live::link::Address;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub use sections::{Disk, ExportConfig, ManagerAddress, Memory, NfsConfig, Role};

/// Node id of the only manager.
pub const MANAGER_NODE: u16 = 1;
/// Memory of a client that no flag says otherwise about.
pub const CLIENT_POOL_BYTES: u64 = 128 << 20;

/// The file. See the module's text for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // described in the module's text
pub struct Machine {
    pub cluster: String,
    pub volume: u32,
    pub name: String,
    pub node: u16,
    pub roles: Vec<Role>,
    pub listen: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_group: Option<String>,
    pub manager: ManagerAddress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    #[serde(default)]
    pub insecure: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Period>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pulses: PulsePolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpQueue>,
    /// Of the first manager: copies of each byte of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsConfig>,
    #[serde(default, rename = "export", skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ExportConfig>,
    #[serde(default, rename = "disk", skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    #[serde(default)]
    pub memory: Memory,
}

fn is_default(pulses: &PulsePolicy) -> bool {
    *pulses == PulsePolicy::default()
}

/// Copies that a cluster may keep of each byte of files.
pub const COPIES: std::ops::RangeInclusive<u8> = 1..=2;
/// Most disks of one machine: the most columns of a file, and the bits by which it tells them.
pub const DISKS_MAX: usize = wire::layout::WIDTH_MAX;

/// Why a configuration cannot be used. The text says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not readable or not writable.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Not TOML, or with a field that is unknown, missing or of the wrong kind.
    #[error("{path}: {text}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        text: String,
    },
    /// A value that cannot be.
    #[error("{path}: {text}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The problem and its remedy.
        text: String,
    },
}

/// Bytes of a socket's path that Linux takes, without the zero at its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Refuses a path that machines cannot have a socket at.
pub fn check_socket(path: &Path) -> Result<(), ConfigError> {
    let text = match path.to_str().map(str::len) {
        None => "it is not UTF-8, as a configuration is: choose another directory".to_string(),
        Some(bytes) if bytes > SOCKET_PATH_BYTES_MAX => format!(
            "the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes, this one has {bytes}: choose a directory with a shorter path"
        ),
        Some(_) => return Ok(()),
    };
    Err(ConfigError::Value { path: path.to_path_buf(), text })
}

impl Machine {
    /// Reads and checks the file.
    pub fn load(path: &Path) -> Result<Machine, ConfigError> {
        let text = read(path)?;
        let machine: Machine = toml::from_str(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_path_buf(),
            text: error.to_string().trim_end().to_string(),
        })?;
        let problem = machine.problem();
        let machine = machine.with_paths(|part| folder_of(path).join(part));
        machine.sockets().try_for_each(|socket| check_socket(Path::new(socket)))?;
        problem
            .map_or(Ok(machine), |text| Err(ConfigError::Value { path: path.to_path_buf(), text }))
    }

    /// Writes the file, to stable storage.
    pub fn save(&self, path: &Path) -> Result<(), ConfigError> {
        let folder = folder_of(path);
        let path = path.to_path_buf();
        let inside = |part: &Path| part.strip_prefix(&folder).unwrap_or(part).to_path_buf();
        match toml::to_string(&self.clone().with_paths(inside)) {
            Ok(text) => replace(&path, &text).map_err(|error| ConfigError::File { path, error }),
            // Only a path can be what a configuration does not hold.
            Err(error) => {
                Err(ConfigError::Value { path, text: format!("{error}: choose another") })
            }
        }
    }

    /// The same with every path, those of sockets too, as `of` makes it.
    fn with_paths(self, of: impl Fn(&Path) -> PathBuf) -> Machine {
        let address = |text: &String| match text.split_once(':') {
            Some((scheme @ ("unix" | "adapter"), path)) => {
                format!("{scheme}:{}", of(Path::new(path)).display())
            }
            _ => text.clone(),
        };
        let disk = |disk: &Disk| Disk { path: of(&disk.path), ..disk.clone() };
        let addresses = self.manager.addresses.iter().map(address).collect();
        Machine {
            listen: self.listen.iter().map(address).collect(),
            manager: ManagerAddress { addresses, ..self.manager },
            key: self.key.as_deref().map(&of),
            store: self.store.as_deref().map(&of),
            disks: self.disks.iter().map(disk).collect(),
            ..self
        }
    }

    /// Paths of the sockets that it listens at, or finds its manager at.
    pub fn sockets(&self) -> impl Iterator<Item = &str> {
        let all = self.listen.iter().chain(&self.manager.addresses);
        all.filter_map(|text| match text.split_once(':') {
            Some(("unix" | "adapter", path)) => Some(path),
            _ => None,
        })
    }

    /// Which users may connect to its UNIX sockets.
    pub fn listen_access(&self) -> ListenAccess {
        let (listen_mode, listen_group) = (self.listen_mode.clone(), self.listen_group.clone());
        ListenAccess { listen_mode, listen_group }
    }

    /// Whether it has this role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The cluster's number.
    pub fn cluster_id(&self) -> u64 {
        u64::from_str_radix(&self.cluster, 16).expect("checked when it was read")
    }

    fn problem(&self) -> Option<String> {
        if self.cluster.len() != 16 || u64::from_str_radix(&self.cluster, 16).is_err() {
            return Some("cluster: 16 hexadecimal digits are needed".to_string());
        }
        if self.node == 0 || self.volume == 0 {
            return Some("node and volume: numbers from 1 are needed".to_string());
        }
        if self.is(Role::Io) && self.disks.is_empty() {
            return Some("an I/O server needs at least one [[disk]] with a path".to_string());
        }
        if self.disks.len() > DISKS_MAX {
            return Some(format!("a machine has at most {DISKS_MAX} disks"));
        }
        if self.is(Role::Manager) && self.store.is_none() {
            return Some("a manager needs a directory: store = \"...\"".to_string());
        }
        if self.copies.is_some_and(|copies| !COPIES.contains(&copies)) {
            return Some("copies: 1 or 2, on disks of distinct machines".to_string());
        }
        if self.copies.is_some() && !self.is(Role::Manager) {
            return Some("copies: only in the configuration of the first manager".to_string());
        }
        if self.memory.cache.0 + (32 << 20) > self.memory.pool.0 {
            return Some(format!(
                "memory: the pool ({}) must be at least 32M larger than the cache ({})",
                self.memory.pool, self.memory.cache
            ));
        }
        if let Some(problem) = self.memory.lending().problem(self.memory.pool, 1) {
            return Some(format!("memory: {problem}"));
        }
        if self.nfs.is_none() && !self.exports.is_empty() {
            return Some("[[export]]: add [nfs] with listen, or nothing is exported".to_string());
        }
        if let Err(problem) = self.listen_access().resolve() {
            return Some(problem);
        }
        let mut own = self.listen.iter().filter_map(|text| text.strip_prefix("tcp:"));
        if let Some(problem) = own.find_map(|text| own_address(text).err()) {
            let next = "write the address that the other machines reach this one by";
            return Some(format!("listen: {problem}{next}, as tcp:HOST:PORT"));
        }
        let addresses = self.listen.iter().chain(&self.manager.addresses);
        addresses.filter_map(|text| text.parse::<Address>().err()).map(|e| e.to_string()).next()
    }
}

/// The address that others reach this machine by, from `HOST:PORT`. Why it is none, for in front of what to write.
pub fn own_address(listen: &str) -> Result<Address, String> {
    let none = || format!("{listen} is no address: ");
    let address = format!("tcp:{listen}").parse::<Address>().map_err(|_| none())?;
    let Address::Tcp(host, port) = &address else { return Err(none()) };
    let every = host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_unspecified());
    match (every || host == "0", port) {
        (true, _) => Err(format!(
            "{host} stands for every address of a machine, and from another machine leads to none of them (`ip address` shows this one's): "
        )),
        (false, 0) => {
            Err("port 0 is whichever is free, which no other machine knows: ".to_string())
        }
        (false, _) => Ok(address),
    }
}

/// Makes `text` the file's content, all of it or what was there before, on stable storage when this returns: after a
/// power cut everything that was synced is found by what stands here.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_name(path)
}

/// Has the name of a file or directory survive a power cut.
pub fn sync_name(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The directory of a file, from the root.
fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().unwrap_or(Path::new(""));
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    parent.canonicalize().or_else(|_| std::path::absolute(parent)).unwrap_or(parent.to_path_buf())
}

fn read(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|error| ConfigError::File { path: path.to_path_buf(), error })
}

/// The key that all machines of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(pub [u8; 32]);

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// Reads 64 hexadecimal digits.
    pub fn load(path: &Path) -> Result<ClusterKey, ConfigError> {
        let text = read(path)?;
        let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
        if mode & 0o007 != 0 {
            let path = path.display();
            output::tell_above(&format!(
                "trapeze: {path}: every user of this machine can read or write the cluster key: chmod 600 {path}"
            ));
        }
        ClusterKey::parse(text.trim()).ok_or_else(|| ConfigError::Value {
            path: path.to_path_buf(),
            text: "a cluster key is 64 hexadecimal digits; copy the file that `trapeze init` made"
                .to_string(),
        })
    }

    /// The key that these digits name.
    pub fn parse(digits: &str) -> Option<ClusterKey> {
        if digits.len() != 64 || !digits.is_ascii() {
            return None;
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(ClusterKey(key))
    }

    /// The key as digits.
    pub fn digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Writes the key, readable by its owner only, to stable storage.
    pub fn save(&self, path: &Path) -> Result<(), ConfigError> {
        let write = || -> io::Result<()> {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            writeln!(file, "{}", self.digits())?;
            file.sync_all()?;
            sync_name(path)
        };
        write().map_err(|error| ConfigError::File { path: path.to_path_buf(), error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        cluster = "00000000000000ab"
        volume = 1
        name = "io1"
        node = 2
        roles = ["io"]
        listen = ["unix:/tmp/x.sock"]
        manager = { node = 1, addresses = ["tcp:localhost:7400"] }
        [[disk]]
        path = "/tmp/disk"
    "#;

    fn load(text: &str) -> Result<Machine, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Machine::load(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_file_survives_saving() {
        let machine = load(&format!("pulses = \"fixed:64K\"\nxdp = \"eth0:2\"\n{GOOD}")).unwrap();
        assert_eq!(machine.pulses.to_string(), "fixed:64K");
        assert_eq!(machine.xdp.as_ref().unwrap().0.number, 2);
        let file = tempfile::NamedTempFile::new().unwrap();
        machine.save(file.path()).unwrap();
        assert_eq!(Machine::load(file.path()).unwrap(), machine);
        assert!(!file.path().with_extension("new").exists(), "nothing is left beside it");
        assert_eq!(machine.cluster_id(), 0xab);
    }

    #[test]
    fn a_directory_that_was_moved_names_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap().join("a");
        fs::create_dir(&dir).unwrap();
        let path = |name: &str| dir.join(name);
        let plain = load(GOOD).unwrap();
        let machine = Machine {
            listen: vec![format!("unix:{}", path("run/io1.sock").display()), "tcp:h:1".into()],
            key: Some(path("key")),
            disks: vec![
                Disk { path: path("io1/disk0"), limit: None },
                Disk { path: "/elsewhere/disk".into(), limit: None },
            ],
            ..plain
        };
        machine.save(&path("io1.toml")).unwrap();
        let text = fs::read_to_string(path("io1.toml")).unwrap();
        assert!(!text.contains(dir.to_str().unwrap()), "{text}");
        assert_eq!(Machine::load(&path("io1.toml")).unwrap(), machine);
        let moved = dir.with_file_name("b");
        fs::rename(&dir, &moved).unwrap();
        let there = Machine::load(&moved.join("io1.toml")).unwrap();
        assert_eq!(there.disks[0].path, moved.join("io1/disk0"));
        assert_eq!(there.disks[1].path, Path::new("/elsewhere/disk"));
        assert_eq!(there.listen[0], format!("unix:{}", moved.join("run/io1.sock").display()));
        let long = moved.join("d".repeat(90));
        fs::create_dir(&long).unwrap();
        fs::copy(moved.join("io1.toml"), long.join("io1.toml")).unwrap();
        let error = Machine::load(&long.join("io1.toml")).unwrap_err().to_string();
        assert!(error.contains("at most 107 bytes"), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        let memory = |text: &str| format!("{GOOD}\n[memory]\n{text}");
        let with = |text: &str| memory(&format!("pool = \"64M\"\ncache = \"8M\"\n{text}"));
        let cases = [
            (GOOD.replace("volume", "volumes"), "unknown field `volumes`"),
            (GOOD.replace("node = 2", "node = 0"), "numbers from 1"),
            (
                GOOD.replace("[[disk]]", "").replace("path = \"/tmp/disk\"", ""),
                "at least one [[disk]]",
            ),
            (GOOD.replace("unix:", "udp:"), "is no address"),
            (
                GOOD.replace("unix:/tmp/x.sock", "tcp:0.0.0.0:7401"),
                "listen: 0.0.0.0 stands for every",
            ),
            (GOOD.replace("unix:/tmp/x.sock", "tcp:10.0.0.2:0"), "listen: port 0"),
            (format!("listen_mode = \"rw\"\n{GOOD}"), "listen_mode \"rw\": write three octal"),
            (
                format!("listen_group = \"no-one\"\n{GOOD}"),
                "listen_group \"no-one\": there is no such",
            ),
            (format!("pulses = \"eager\"\n{GOOD}"), "no policy of pulses: write sf"),
            (format!("xdp = \"eth0:x\"\n{GOOD}"), "is no queue of an interface"),
            (GOOD.replace("\"io\"]", "\"manager\"]"), "needs a directory"),
            (GOOD.replace("00ab", "zz"), "16 hexadecimal digits"),
            (memory("pool = \"1M\"\ncache = \"1M\""), "32M larger"),
            (with("lend = \"0\""), "`lend` is 0: lend 16M or more"),
            (with("lend = \"much\""), "\"much\" is no size"),
            (with("lend = \"900T\""), "more than this machine's memory"),
            (with("lend = \"99999999T\""), "is no size"),
            (with("keep = \"1M\""), "say `lend` as well"),
            (with("lend = \"20M\"\nkeep = \"21M\""), "`keep` (21M) is more than `lend` (20M)"),
        ];
        for (text, expected) in cases {
            let error = load(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let missing = Machine::load(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(missing.contains("/no/such/file"), "{missing}");
    }

    #[test]
    fn keys_are_private_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = ClusterKey([0xa7; 32]);
        key.save(&path).unwrap();
        assert_eq!(ClusterKey::load(&path).unwrap(), key);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(key.save(&path).is_err(), "an existing key is never replaced");
        fs::write(&path, "short").unwrap();
        assert!(ClusterKey::load(&path).unwrap_err().to_string().contains("64 hexadecimal digits"));
    }
    #[test]
    fn an_address_that_stands_for_all_or_for_none_is_no_machines_own() {
        for listen in ["0.0.0.0:7400", "[::]:7400", "[::ffff:0.0.0.0]:7400", "0:7400"] {
            let why = own_address(listen).unwrap_err();
            assert!(why.contains("every address") && why.contains("ip address"), "{listen}: {why}");
        }
        for listen in ["10.0.0.1:0", "alpha:0", "[::1]:0"] {
            assert!(own_address(listen).unwrap_err().contains("port 0"), "{listen}");
        }
        for listen in ["", "alpha", ":7400", "alpha:x"] {
            assert!(own_address(listen).unwrap_err().contains("no address"), "{listen}");
        }
        for listen in ["10.0.0.1:7400", "alpha:1", "[fe80::1]:65535", "127.0.0.1:7400"] {
            assert_eq!(own_address(listen).unwrap().to_string(), format!("tcp:{listen}"));
        }
    }
}
