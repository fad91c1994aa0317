//! The servers that are measured: ours in a cluster of its own, and nfs-ganesha over two plain directories.

use super::client::Client;
use super::load::Tree;
use crate::fetch::free_port;
use rustix::thread::CpuSet;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapeze::children::Process;
use trapeze::config::{ExportConfig, Machine, Memory, NfsConfig};
use trapeze::local::Shape;
use trapeze::machine_stat::threads_time_exact;
use trapeze::scratch::Processes;

/// Clients that may do all.
const CLIENTS: &str = "127.0.0.1(rw,no_root_squash)";

/// A server with a connection to it and the tree that it serves.
pub struct Side {
    /// For people.
    pub name: &'static str,
    /// To call it by.
    pub client: Client,
    /// The tree that it serves.
    pub tree: Tree,
    ids: Vec<u32>,
}

impl Side {
    /// Of processes that serve NFS and MOUNT on these ports, with a tree in a directory of the side's name. RENAME has
    /// two directories beside.
    pub fn new(
        name: &'static str,
        ports: (u16, u16),
        export: &str,
        ids: Vec<u32>,
    ) -> io::Result<Side> {
        let renamed = ["from", "to"].map(|side| format!("{name}, {side}"));
        Side::renaming(name, ports, export, ids, [&renamed[0], &renamed[1]])
    }

    /// As [`new`](Side::new); RENAME has these directories.
    pub fn renaming(
        name: &'static str,
        (port, mount_port): (u16, u16),
        export: &str,
        ids: Vec<u32>,
        renamed: [&str; 2],
    ) -> io::Result<Side> {
        let root = Client::connect(mount_port)?.mount(export)?;
        let mut client = Client::connect(port)?;
        let tree = Tree::make(&mut client, &root, name, renamed)?;
        Ok(Side { name, client, tree, ids })
    }

    /// Processor time of all threads of all its processes.
    pub fn cpu(&self) -> Duration {
        processor_time(&self.ids)
    }

    /// Its threads run on these processors from now on.
    pub fn place(&self, set: &CpuSet) -> io::Result<()> {
        self.ids.iter().try_for_each(|id| crate::protocols::place(Some(*id), set))
    }
}

/// Processor time of all threads of these processes.
pub fn processor_time(ids: &[u32]) -> Duration {
    ids.iter().map(|id| threads_time_exact(*id)).sum()
}

/// Our server.
pub struct Ours {
    /// To measure it by.
    pub side: Side,
    _processes: (Option<Processes>, Process),
}

impl Ours {
    /// `trapeze serve` of one machine: manager, I/O server and NFS in a process.
    pub fn machine(dir: &Path) -> io::Result<Ours> {
        let (config, port) = make_machine(&dir.join("machine"))?;
        let flags = ["serve", "--config", &config].map(String::from);
        let process = Process::start("machine", &flags, &dir.join("machine.log"))?;
        let side = Side::new("trapeze", (port, port), "/", vec![process.id()])?;
        Ok(Ours { side, _processes: (None, process) })
    }

    /// `trapeze nfs` beside a manager and an I/O server, three processes linked by shared memory.
    pub fn node(dir: &Path) -> io::Result<Ours> {
        let shape = Shape::prefaulted(1);
        let cluster = Processes::start(dir, &shape, None).map_err(io::Error::other)?;
        let (node, port) = start_node("nfs", &cluster, dir)?;
        let ids = cluster.ids().into_iter().chain([node.id()]).collect();
        let side = Side::new("trapeze", (port, port), "/", ids)?;
        Ok(Ours { side, _processes: (Some(cluster), node) })
    }
}

/// A machine that is a cluster by itself and serves NFS: its configuration, and the port.
fn make_machine(dir: &Path) -> io::Result<(String, u16)> {
    let (path, disk) = (dir.join("machine.toml"), dir.join("disk"));
    let (listen, port) = (format!("127.0.0.1:{}", free_port()?), free_port()?);
    let mut init = Command::new(std::env::current_exe()?);
    init.args(["init", "--insecure", "--listen", &listen, "--dir"])
        .arg(dir)
        .arg("--disk")
        .arg(disk);
    succeed(init)?;
    let machine = Machine::load(&path).map_err(io::Error::other)?;
    let listen = format!("127.0.0.1:{port}");
    let nfs = NfsConfig { listen, portmap: false, mount_udp: false };
    let export = ExportConfig { path: "/".into(), clients: vec![CLIENTS.into()] };
    let memory = Memory { prefault: Shape::prefaulted(1).memory.prefault, ..machine.memory };
    let machine = Machine { nfs: Some(nfs), exports: vec![export], memory, ..machine };
    machine.save(&path).map_err(io::Error::other)?;
    Ok((path.display().to_string(), port))
}

/// Starts a node that serves a cluster by this command; its port.
pub fn start_node(command: &str, cluster: &Processes, dir: &Path) -> io::Result<(Process, u16)> {
    let target = cluster.target();
    let export = format!("/:{CLIENTS}");
    let flags = [command, &target, "--listen", "127.0.0.1:0", "--export", &export];
    let log = dir.join(format!("{command}.log"));
    let node = Process::start(command, &flags.map(String::from), &log)?;
    let port = node.said.split([':', ' ']).find_map(|word| word.parse().ok());
    let said = || io::Error::other(format!("trapeze {command} does not say where it is"));
    Ok((node, port.ok_or_else(said)?))
}

/// nfs-ganesha with two exports: one where changes of names and data are synced (`chattr +S +D`: what we promise), one
/// where they are not.
pub struct Ganesha {
    _rpcbind: Process,
    _server: Process,
    /// Its exports, for the comparison.
    pub sides: Vec<Side>,
}

/// Makes the network and mount namespaces that this process is in fit for servers: nfs-ganesha runs neither without
/// rpcbind, which has files in `/run`, nor with nothing but a loopback interface.
pub fn enter_network() -> io::Result<()> {
    run("mount -t tmpfs tmpfs /run && ip link set lo up")?;
    run("ip link add here type veth peer name there && ip addr add 192.0.2.1/24 dev here")?;
    run("ip link set here up && ip link set there up")
}

/// Programs that [`Ganesha`] needs.
pub const PROGRAMS: [&str; 5] = ["ganesha.nfsd", "rpcbind", "unshare", "ip", "chattr"];

impl Ganesha {
    /// Starts it, in a namespace of [`enter_network`].
    pub fn start(dir: &Path) -> io::Result<Ganesha> {
        let mut rpcbind = Command::new("rpcbind");
        rpcbind.arg("-f");
        let listens = || TcpStream::connect(("127.0.0.1", 111)).is_ok();
        let rpcbind = Process::start_until("rpcbind", rpcbind, &dir.join("rpcbind"), listens)?;
        let exports = [("synced", true), ("lazy", false)];
        let paths: Vec<PathBuf> = exports.iter().map(|(name, _)| dir.join(name)).collect();
        for (path, (_, synced)) in paths.iter().zip(exports) {
            fs::create_dir_all(path)?;
            if synced {
                run(&format!("chattr +S +D {}", path.display()))?;
            }
        }
        let port = free_port()?;
        let config = dir.join("ganesha.conf");
        let mount_port = free_port()?;
        fs::write(&config, config_text(port, mount_port, dir, &paths))?;
        let mut server = Command::new("ganesha.nfsd");
        server.args(["-F", "-L", "STDOUT", "-f"]).arg(&config).arg("-p").arg(dir.join("pid"));
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let server = Process::start_until("ganesha", server, &dir.join("ganesha.log"), listens)?;
        let names = ["ganesha, synced", "ganesha, not synced"];
        let sides = names.into_iter().zip(&paths).map(|(name, path)| {
            let ids = vec![server.id()];
            Side::new(name, (port, mount_port), &path.display().to_string(), ids)
        });
        let sides = sides.collect::<io::Result<Vec<Side>>>()?;
        Ok(Ganesha { _rpcbind: rpcbind, _server: server, sides })
    }
}

fn config_text(port: u16, mount_port: u16, dir: &Path, paths: &[PathBuf]) -> String {
    let exports: String = paths
        .iter()
        .zip(1..)
        .map(|(path, number)| {
            let path = path.display();
            format!(
                "EXPORT {{ Export_Id = {number}; Path = {path}; Pseudo = /{number}; Access_Type = RW; Squash = None; \
                 SecType = sys; Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}\n"
            )
        })
        .collect();
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false; \
         Enable_RQUOTA = false; }}\n\
         DIRECTORY_SERVICES {{ UseGetpwnam = true; }}\nNFSV4 {{ Graceless = true; RecoveryBackend = fs; \
         RecoveryRoot = \"{}\"; }}\n{exports}LOG {{ Default_Log_Level = WARN; }}\n",
        dir.display()
    )
}

/// Runs a line of shell.
fn run(line: &str) -> io::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]);
    succeed(shell)
}

fn succeed(mut command: Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            Err(io::Error::other(format!("{command:?}: {said}")))
        }
    }
}
