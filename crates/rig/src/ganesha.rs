//! nfs-ganesha as a foreign NFS server, in network and mount namespaces of its own.

use crate::skips::{lacking, skip};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// Set in the process that runs in namespaces of its own.
const INSIDE: &str = "TRAPEZE_TEST_INSIDE";
/// Attempts at reaching a server that starts, and the pause between them: a minute.
const ATTEMPTS: u32 = 3_000;
const PAUSE: Duration = Duration::from_millis(20);

/// Whether no directory of programs has this one.
pub fn is_missing(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|found| !found.status.success())
}

fn shell(line: &str) {
    assert!(Command::new("sh").args(["-c", line]).status().unwrap().success(), "{line}");
}

/// Whether this is the process that is to run the test of this name: it is alone in its namespaces. Otherwise the test
/// has run in such a process, or cannot run here, which it says.
pub fn is_apart(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if ["ganesha.nfsd", "rpcbind", "unshare", "ip"].into_iter().any(is_missing) {
        lacking("nfs-ganesha, rpcbind, unshare or ip is not installed");
        return false;
    }
    let apart = |program: &Path| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--mount", "--"]).arg(program);
        unshare
    };
    if !apart(Path::new("true")).output().unwrap().status.success() {
        skip("namespaces of a network may not be made");
        return false;
    }
    let mut inside = apart(&std::env::current_exe().unwrap());
    let output = inside.args([name, "--exact", "--nocapture"]).env(INSIDE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complained}");
    false
}

/// A process that ends with this.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Starts a server and waits until it listens at `port`.
fn start(command: &mut Command, port: u16) -> Ended {
    let mut child = Ended(command.spawn().unwrap());
    for _ in 0..ATTEMPTS {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return child;
        }
        assert!(child.0.try_wait().unwrap().is_none(), "{command:?} has ended");
        std::thread::sleep(PAUSE);
    }
    panic!("{command:?} does not listen");
}

/// The text of a configuration with one export; `core` is added to the parameters of the server.
pub fn settings(dir: &Path, export: &Path, core: &str) -> String {
    let (dir, path) = (dir.display(), export.display());
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; {core}Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         DIRECTORY_SERVICES {{ UseGetpwnam = true; }}\n\
         NFSV4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{dir}\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /1; Access_Type = RW; Squash = None; \
         Attr_Expiration_Time = 0; SecType = sys; Protocols = 3; Transports = TCP; \
         FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; }}\n"
    )
}

/// A server with one export, whose ports rpcbind knows.
pub struct Ganesha {
    dir: PathBuf,
    server: Option<Ended>,
    _rpcbind: Ended,
}

impl Ganesha {
    /// In the namespaces of a test that [is apart](is_apart); its files are in a directory of `dir`.
    pub fn start(dir: &Path) -> Ganesha {
        shell("mount -t tmpfs tmpfs /run && ip link set lo up");
        shell("ip link add here type veth peer name there && ip addr add 192.0.2.1/24 dev here");
        shell("ip link set here up && ip link set there up");
        let rpcbind = start(Command::new("rpcbind").arg("-f"), 111);
        let mut ganesha = Ganesha { dir: dir.to_path_buf(), server: None, _rpcbind: rpcbind };
        let export = ganesha.export();
        std::fs::create_dir(&export).unwrap();
        let text = settings(dir, &export, "");
        std::fs::write(ganesha.dir.join("ganesha.conf"), text).unwrap();
        ganesha.serve();
        ganesha
    }

    /// The directory that it exports, by its path here.
    pub fn export(&self) -> PathBuf {
        self.dir.join("export")
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it, after it was killed.
    pub fn serve(&mut self) {
        let mut server = Command::new("ganesha.nfsd");
        server.args(["-F", "-L", "STDOUT", "-f"]).arg(self.dir.join("ganesha.conf"));
        server.arg("-p").arg(self.dir.join("ganesha.pid"));
        self.server = Some(start(&mut server, 2049));
    }
}
