//! Guests of QEMU (software emulation) with Debian's kernel, whose consoles take commands, and a network for them.
//!
//! `guest/` has how they are made of what Debian installs.

use crate::common::{ended_by_signals, lacks, program, text};
use rig::{lacking, skip};
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;
use trapeze::children::Process;

/// The manual's page.
const PAGE: &str = include_str!("../../../docs/src/nfs.md");
/// The server of the page's line of fstab.
pub const SERVER: &str = "192.168.1.10";
pub const CLIENTS: [&str; 2] = ["192.168.1.2", "192.168.1.3"];
/// Its last line before it takes commands.
pub const READY: &str = "GUEST ready";
pub const PORT: &str = "2049";
/// Programs that guests are made of.
const PROGRAMS: [&str; 12] = [
    "qemu-system-x86_64",
    "busybox",
    "modprobe",
    "cpio",
    "python3",
    "ip",
    "tc",
    "nsenter",
    "unshare",
    "rpcbind",
    "rpc.statd",
    "sm-notify",
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

/// Emulated guests of several tests side by side are slower than one after the other. Tests may be processes of their
/// own, so a file keeps the others out, until it is closed.
pub fn one_guest() -> File {
    let file = File::create(std::env::temp_dir().join("trapeze-guest.lock")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}

pub fn guest_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest").join(name)
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes what a guest starts from, in a directory.
pub fn build(files: &Path, part: &str, modules: &[&str]) {
    run(Command::new("bash").arg(guest_file("build.sh")).arg(files).arg(part).args(modules));
}

/// A guest that is ready for commands, until this is dropped.
pub struct Guest {
    qemu: Child,
    console: BufReader<ChildStdout>,
    commands: ChildStdin,
    begun: Instant,
}

impl Guest {
    /// `boot` starts `boot.sh`, the first word perhaps after others; `state` is a directory that the guest writes.
    pub fn start(
        mut boot: Command,
        files: &Path,
        netdev: &str,
        state: &Path,
        words: &str,
    ) -> Guest {
        boot.args([text(files), netdev, text(state), words]);
        let piped = boot.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut qemu = piped.spawn().unwrap();
        let console = BufReader::new(qemu.stdout.take().unwrap());
        let commands = qemu.stdin.take().unwrap();
        Guest { qemu, console, commands, begun: Instant::now() }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let bytes = self.console.read_until(b'\n', &mut line).unwrap();
        assert!(bytes > 0, "the guest has ended");
        let line = String::from_utf8_lossy(&line).trim_end().to_string();
        println!("{:6.1} s {line}", self.begun.elapsed().as_secs_f64());
        line
    }

    /// Lines of the console until this one: its end, as the kernel may have begun the line.
    pub fn until(&mut self, end: &str) -> Vec<String> {
        let lines = std::iter::repeat_with(|| self.line());
        lines.take_while(|line| !line.ends_with(end)).collect()
    }

    /// The next line that is for the test, without its mark.
    pub fn answer(&mut self) -> String {
        loop {
            if let Some((_, answer)) = self.line().split_once("GUEST ") {
                return answer.to_string();
            }
        }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.commands, "{line}").unwrap();
    }

    /// Runs a command of its shell; what it printed, and its status. Each line is seen before the next one is read.
    pub fn watched(&mut self, command: &str, mut see: impl FnMut(&str)) -> (Vec<String>, u8) {
        self.say(command);
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            if let Some((_, status)) = line.split_once("GUEST done ") {
                return (lines, status.parse().unwrap());
            }
            see(&line);
            lines.push(line);
        }
    }

    /// Runs a command of its shell that must succeed; what it printed.
    pub fn told(&mut self, command: &str) -> Vec<String> {
        let (lines, status) = self.watched(command, |_| ());
        assert_eq!(status, 0, "{command}: {lines:#?}");
        lines
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// A network for servers and guests, with what guests start from. There is one at a time.
pub struct Network {
    name: String,
    files: PathBuf,
    _one: File,
}

impl Network {
    pub fn new(kind: &str, dir: &Path) -> Network {
        let name = format!("guest-{kind}-{}", std::process::id());
        let network = Network { name, files: dir.join("guest"), _one: one_guest() };
        build(&network.files, "mount", &["nfsv3", "sch_ingress", "cls_u32", "act_gact"]);
        run(Command::new("ip").args(["netns", "add", &network.name]));
        for address in ["127.0.0.1/8", SERVER] {
            network.ip(&format!("addr replace {address} dev lo"));
        }
        network.ip("link set lo up");
        for (number, client) in CLIENTS.into_iter().enumerate() {
            network.ip(&format!("tuntap add dev tap{number} mode tap"));
            network.ip(&format!("link set tap{number} up"));
            network.ip(&format!("route add {client} dev tap{number} src {SERVER}"));
        }
        network
    }

    fn ip(&self, line: &str) {
        run(self.command("ip").args(line.split(' ')));
    }

    /// A program in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = ended_by_signals("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program);
        command
    }

    /// A program in it that has a `/run` of its own: rpcbind of this machine is not one of that network.
    pub fn alone(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c"]);
        command.arg("mount -t tmpfs tmp /run && exec \"$@\"").arg("sh").arg(program);
        command
    }

    /// `trapeze nfs` or `filter` of the cluster in a directory, which exports `/home` and imports to all guests.
    pub fn serve(&self, kind: &str, dir: &Path, log: &Path) -> Process {
        let mut command = self.alone(program());
        command.arg(kind).arg(dir).args(["--portmap", "--listen", &format!("{SERVER}:{PORT}")]);
        for path in ["/home", "/imports"] {
            command.args(["--export", &format!("{path}:192.168.1.0/24(rw,no_root_squash)")]);
        }
        Process::start_command(kind, command, log).unwrap()
    }

    /// Starts a guest, the first or the second client, and waits until it is ready.
    pub fn boot(&self, number: usize) -> Guest {
        let mut guest = self.start(number);
        guest.until(READY);
        guest
    }

    /// Starts a guest, which says [`READY`]. Its state over a restart is in a directory of its own.
    pub fn start(&self, number: usize) -> Guest {
        let fstab = self.files.join("fstab");
        std::fs::write(&fstab, format!("{}\n", fstab_line())).unwrap();
        let state = self.files.join(format!("state{number}"));
        std::fs::create_dir_all(&state).unwrap();
        let address = format!("address={}/24", CLIENTS[number]);
        let (served, called) = (ports("clients"), ports("server"));
        let words = format!("{address} served={served} called={called} fstab={}", text(&fstab));
        let netdev = format!("tap,ifname=tap{number},script=no,downscript=no");
        let boot = self.command(guest_file("boot.sh"));
        Guest::start(boot, &self.files, &netdev, &state, &words)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// The page's line of fstab.
fn fstab_line() -> &'static str {
    let line = PAGE.lines().find(|line| line.ends_with("hard,_netdev  0 0")).unwrap();
    assert!(line.starts_with(&format!("{SERVER}:/home  /home  nfs ")), "{line}");
    line
}

/// Ports that the page's table has for what `from` calls, as in `tcp:2049,udp:111`.
fn ports(from: &str) -> String {
    let row = |line: &'static str| match line.split('|').map(str::trim).collect::<Vec<_>>()[..] {
        ["", caller, _, port, _, ""] if caller == from => port.split_once(' '),
        _ => None,
    };
    let mut ports = Vec::new();
    for (port, kinds) in PAGE.lines().filter_map(row) {
        let named = ["tcp", "udp"].into_iter().filter(|kind| kinds.contains(&kind.to_uppercase()));
        ports.extend(named.map(|kind| format!("{kind}:{port}")));
        if kinds.ends_with("the ports it names") {
            // those that mount.part fixes as the page says
            assert!(PAGE.contains("nlm_udpport=4001") && PAGE.contains("`port=4002`"));
            ports.extend(["udp:4001".to_string(), "udp:4002".to_string()]);
        }
    }
    assert!(!ports.is_empty(), "the page has no ports of {from}");
    ports.join(",")
}
