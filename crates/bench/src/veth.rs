//! A veth between this process's network and one of the servers' own, for measurements across a network interface.

use std::io;
use std::path::Path;
use std::process::Command;
use trapeze::children::Process;

/// This end's address; the servers' is the next.
const HERE: &str = "192.0.2.1";
/// The servers' end's.
pub const THERE: &str = "192.0.2.2";
/// The name of both ends.
pub const INTERFACE: &str = "tzbench0";
/// As long as frames of common adapters may be.
const MTU: &str = "9000";

/// Both ends. They go with it.
#[derive(Debug)]
pub struct Veth {
    /// Its network namespace has the servers.
    holder: Process,
}

fn run(program: &str, arguments: &str) -> io::Result<()> {
    let output = Command::new(program).args(arguments.split_whitespace()).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program} {arguments}: {}", told.trim()))),
    }
}

impl Veth {
    /// Makes it. Needs root, `ip`, `unshare` and `nsenter`.
    pub fn new(dir: &Path) -> io::Result<Veth> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo ready; exec sleep infinity"]);
        let holder = Process::start_command("a network", command, &dir.join("network.log"))?;
        let veth = Veth { holder };
        let id = veth.holder.id();
        run(
            "ip",
            &format!(
                "link add {INTERFACE} mtu {MTU} type veth peer name {INTERFACE} mtu {MTU} netns {id}"
            ),
        )?;
        run("ip", &format!("addr add {HERE}/24 dev {INTERFACE}"))?;
        run("ip", &format!("link set {INTERFACE} up"))?;
        for line in [
            "link set lo up".to_string(),
            format!("addr add {THERE}/24 dev {INTERFACE}"),
            format!("link set {INTERFACE} up"),
        ] {
            run("nsenter", &format!("-t {id} -n ip {line}"))?;
        }
        Ok(veth)
    }

    /// This program, in the servers' network.
    pub fn command(&self, arguments: &[String]) -> io::Result<Command> {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-n"]).arg(std::env::current_exe()?);
        command.args(arguments);
        Ok(command)
    }
}
