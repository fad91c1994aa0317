//! The NFS client of Linux's kernel, in a guest (QEMU with software emulation), on a mounted export of ours.
//!
//! `guest/` has how the guest is made of what Debian installs, and what runs in it.

use crate::common::{Up, ended_by_signals, lacks, program, soaks, text, trapeze};
use crate::filter::{summed, three_managers};
use rig::{lacking, skip};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use trapeze::children::Process;

const SERVER: &str = "192.168.77.1";
const CLIENT: &str = "192.168.77.2";
const PORT: &str = "2049";
/// Programs that the guest is made of.
const PROGRAMS: [&str; 10] = [
    "qemu-system-x86_64",
    "busybox",
    "modprobe",
    "cpio",
    "python3",
    "ip",
    "nsenter",
    "unshare",
    "rpcbind",
    "rpc.statd",
];

pub fn lacks_a_guest() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("only root may make a network namespace");
        return true;
    }
    let names = std::fs::read_dir("/boot").into_iter().flatten().flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let kernel = names.any(|name| name.starts_with("vmlinuz-") && name.ends_with("-amd64"));
    if !kernel {
        lacking("there is no kernel in /boot (Debian: linux-image-amd64)");
    }
    !kernel || PROGRAMS.into_iter().any(lacks)
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network for a server and a guest.
struct Network {
    name: String,
}

impl Network {
    fn new(kind: &str) -> Network {
        let network = Network { name: format!("guest-{kind}-{}", std::process::id()) };
        run(Command::new("ip").args(["netns", "add", &network.name]));
        for line in [
            "link set lo up",
            "tuntap add dev tap mode tap",
            &format!("addr add {SERVER}/24 dev tap"),
            "link set tap up",
        ] {
            run(network.command("ip").args(line.split(' ')));
        }
        network
    }

    /// A program in it.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = ended_by_signals("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program);
        command
    }

    fn serve(&self, kind: &str, dir: &Path, log: &Path) -> Process {
        // with a /run of its own: rpcbind of this machine is not one of that network
        let mut command = self.command("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c"]);
        command.arg("mount -t tmpfs none /run && exec \"$@\"").args(["sh", text(program())]);
        command.arg(kind).arg(dir).args(["--portmap", "--listen", &format!("{SERVER}:{PORT}")]);
        command.args(["--export", &format!("/:{CLIENT}(rw,no_root_squash)")]);
        Process::start_command(kind, command, log).unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Emulated guests side by side would be too slow.
pub fn one_guest() -> MutexGuard<'static, ()> {
    static ONE_GUEST: Mutex<()> = Mutex::new(());
    ONE_GUEST.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn guest_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest")
}

/// Runs these tests of the suite in a guest; what it printed. `under_load` is called when the server may be killed and
/// started, `holding` when that is over and a lock from before is held still.
fn suite(
    network: &Network,
    guest: &Path,
    tests: &str,
    mut under_load: impl FnMut(),
    mut holding: impl FnMut(),
) -> Vec<String> {
    let job = guest_dir().join("suite.py");
    let mut command = network.command(guest_dir().join("boot.sh"));
    let share = if soaks() { 1 } else { 2 };
    let argument = format!("7:{tests}:{share}");
    command.args([text(guest), "tap", CLIENT, SERVER, PORT, "/", text(&job), &argument]);
    let mut qemu = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(qemu.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8_lossy(&line.unwrap()).trim_end().to_string();
        println!("{line}");
        if line == "GUEST under load" {
            under_load();
        }
        if line == "GUEST holds a lock" {
            holding();
        }
        lines.push(line);
    }
    qemu.wait().unwrap();
    lines
}

/// Whether a server of NFS has the guest's lock of 100 bytes, and had it from the guest again.
fn has_reclaimed(status: &str) -> bool {
    let holder = format!(r#""client":"{CLIENT}""#);
    let status: String = status.split_whitespace().collect();
    let reclaimed = !status.contains(r#""reclaimed_locks":0"#);
    status.contains(&holder) && status.contains(r#""last":99"#) && reclaimed
}

/// A command for the cluster in a directory; what it printed.
fn told(dir: &Path, arguments: &[&str]) -> String {
    let output = trapeze(&[arguments, &["--cluster", text(dir)]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The guest's tests pass on what this kind of server serves of the cluster, while the server is killed and started;
/// the status after that.
fn passes(kind: &str, dir: &Path, tests: &str) -> String {
    let _one = one_guest();
    let guest = dir.with_file_name("guest");
    run(Command::new("bash").arg(guest_dir().join("build.sh")).arg(&guest));
    let network = Network::new(kind);
    let log = |number: usize| dir.with_file_name(format!("{kind}-{number}.log"));
    let mut server = Some(network.serve(kind, dir, &log(0)));
    let mut held = String::new();
    let under_load = || {
        for number in 1..3 {
            std::thread::sleep(Duration::from_secs(2));
            server.take().unwrap().kill().unwrap();
            std::thread::sleep(Duration::from_secs(1));
            server = Some(network.serve(kind, dir, &log(number)));
        }
    };
    let holding = || {
        held = told(dir, &["status", "--json"]);
        told(dir, &["mkdir", "/suite/go-on"]);
    };
    let lines = suite(&network, &guest, tests, under_load, holding);
    // within the guest its kernel excludes; that the server knows the lock again is seen here
    assert!(has_reclaimed(&held), "{held}");
    let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("FAILED")).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(lines.iter().any(|line| line.ends_with("GUEST job 0")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("GUEST unmounted")), "{lines:#?}");
    let listed = told(dir, &["ls", "/suite"]);
    assert!(listed.contains("load-synced"), "what it wrote is not there: {listed}");
    server.unwrap().stop().unwrap();
    held
}

#[test]
fn the_kernels_client_works_over_a_restart_of_the_server_too() {
    if lacks_a_guest() {
        return;
    }
    let up = Up::new("2");
    passes("nfs", &up.at("data"), "all");
}

/// Three managers behind the filter, which a guest does not tell from one server.
#[test]
fn the_kernels_client_works_over_a_filter_that_is_killed() {
    if lacks_a_guest() {
        return;
    }
    let (mut cluster, dir) = three_managers();
    let status = passes("filter", &dir, "basic_trees,basic_names,general_programs,restarts");
    assert!(summed(&status, "forwarded") > 0, "managers executed what the guest called");
    cluster.stop();
}
