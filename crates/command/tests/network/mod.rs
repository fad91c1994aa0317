//! Machines for tests: network namespaces that reach each other over a bridge in one more namespace, each with a
//! directory of its own. Everything is named after this process and this network, and goes away with it.
#![allow(dead_code)] // every test file uses a part of it

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Longest a single command may take.
const COMMAND_SECONDS: &str = "60";
/// Longest a network may stand: then its processes are killed, so that nothing waits for them any more.
const NETWORK_SPAN: Duration = Duration::from_secs(240);
/// Longest until something long-lived says that it is ready.
const READY_SPAN: Duration = Duration::from_secs(30);

static NETWORKS: AtomicU32 = AtomicU32::new(0);
/// Why these tests cannot run here; `None` when they can. Found out once, for all tests.
pub static MISSING: LazyLock<Option<String>> = LazyLock::new(missing);

fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse".into());
    }
    let probe = format!("tzp{}", std::process::id());
    let made = run_plain("ip", &["netns", "add", &probe]);
    let _ = run_plain("ip", &["netns", "del", &probe]);
    made.err().map(|error| format!("no network namespaces: {error}"))
}

fn run_plain(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    let told = || io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_string());
    if output.status.success() { Ok(()) } else { Err(told()) }
}

fn ip(line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    run_plain("ip", &words).unwrap_or_else(|error| panic!("ip {line}: {error}"));
}

/// One machine.
pub struct Machine {
    namespace: String,
    /// Its directory.
    pub dir: PathBuf,
}

/// A command that goes on.
struct Started {
    machine: String,
    command: String,
    child: Child,
    log: PathBuf,
}

impl Started {
    /// All that it has said.
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// All of them. The first has address 10.0.0.1, and so on.
pub struct Network {
    prefix: String,
    machines: BTreeMap<String, Machine>,
    children: Vec<Started>,
    /// How many were started.
    count: usize,
    ids: Arc<Mutex<Vec<u32>>>,
    /// Parent of the machines' directories.
    pub dir: tempfile::TempDir,
}

impl Network {
    /// Machines of these names.
    pub fn new(names: &[&str]) -> Network {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("tz{}{}", std::process::id(), (b'a' + number as u8) as char);
        let dir = tempfile::tempdir().unwrap();
        let (machines, ids) = (BTreeMap::new(), Arc::default());
        let mut network = Network { prefix, machines, children: Vec::new(), count: 0, ids, dir };
        network.watch();
        let bridge = format!("{}s", network.prefix);
        ip(&format!("netns add {bridge}"));
        ip(&format!("-n {bridge} link add bridge up type bridge"));
        for (number, name) in (1..).zip(names) {
            network.add(&bridge, number, name);
        }
        network
    }

    fn add(&mut self, bridge: &str, number: usize, name: &str) {
        let namespace = format!("{}{number}", self.prefix);
        let dir = self.dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        ip(&format!("netns add {namespace}"));
        let machine = Machine { namespace: namespace.clone(), dir };
        self.machines.insert(name.to_string(), machine);
        ip(&format!(
            "-n {namespace} link add eth0 type veth peer name port{number} netns {bridge}"
        ));
        ip(&format!("-n {bridge} link set port{number} master bridge up"));
        ip(&format!("-n {namespace} addr add 10.0.0.{number}/24 dev eth0"));
        ip(&format!("-n {namespace} link set eth0 up"));
        ip(&format!("-n {namespace} link set lo up"));
    }

    /// Gives every machine a second interface, `eth1`, on an Ethernet of its own without addresses.
    pub fn add_ethernet(&self, mtu: usize) {
        let bridge = format!("{}s", self.prefix);
        ip(&format!("-n {bridge} link add bridge1 mtu {mtu} up type bridge"));
        for (number, machine) in self.machines.values().enumerate() {
            let (namespace, port) = (&machine.namespace, format!("second{number}"));
            ip(&format!(
                "-n {namespace} link add eth1 mtu {mtu} type veth peer name {port} mtu {mtu} netns {bridge}"
            ));
            ip(&format!("-n {bridge} link set {port} master bridge1 up"));
            ip(&format!("-n {namespace} link set eth1 up"));
        }
    }

    /// Takes an interface of a machine down, or up again.
    pub fn set_link(&self, machine: &str, interface: &str, state: &str) {
        let namespace = &self.machine(machine).namespace;
        ip(&format!("-n {namespace} link set {interface} {state}"));
    }

    /// Kills what runs when the time is over, so that a test that waits for it fails instead of waiting for ever.
    fn watch(&self) {
        let ids = Arc::downgrade(&self.ids);
        std::thread::spawn(move || {
            let start = Instant::now();
            while let Some(ids) = ids.upgrade() {
                if start.elapsed() > NETWORK_SPAN {
                    eprintln!("the network stands for {NETWORK_SPAN:?}: its processes are killed");
                    ids.lock()
                        .unwrap()
                        .iter()
                        .for_each(|id| kill(*id, rustix::process::Signal::KILL));
                    return;
                }
                drop(ids);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
    }

    /// The machine of this name.
    pub fn machine(&self, name: &str) -> &Machine {
        &self.machines[name]
    }

    /// A file of a machine.
    pub fn path(&self, name: &str, path: &str) -> PathBuf {
        self.machine(name).dir.join(path)
    }

    fn command(&self, machine: &str) -> Command {
        let Machine { namespace, dir } = self.machine(machine);
        let own = Path::new(env!("CARGO_BIN_EXE_trapeze")).parent().unwrap();
        let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap_or_default());
        // Only the network is another one: `ip netns exec` would hide the mounts from the test.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).current_dir(dir).env("PATH", path);
        command
    }

    /// Runs a shell script on a machine to its end.
    pub fn run(&self, machine: &str, script: &str) -> Output {
        let mut command = self.command(machine);
        command.args(["timeout", COMMAND_SECONDS, "sh", "-ec", script]);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The output of a script, which must succeed.
    pub fn print(&self, machine: &str, script: &str) -> String {
        let output = self.run(machine, script);
        let [out, error] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(output.status.success(), "{machine}: {script}: {}: {out}{error}", output.status);
        out.into_owned()
    }

    /// The message of a command, which must fail.
    pub fn complaint(&self, machine: &str, script: &str) -> String {
        let output = self.run(machine, script);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{machine}: {script}: {text}");
        text
    }

    /// Starts a command that goes on, and waits until it says that it is ready; what it has said.
    pub fn start(&mut self, machine: &str, command: &str) -> String {
        self.count += 1;
        let log = self.path(machine, &format!("log{}", self.count));
        let file = File::create(&log).unwrap();
        let mut process = self.command(machine);
        process.args(command.split_whitespace()).stdin(Stdio::null());
        let child = process.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        self.ids.lock().unwrap().push(child.id());
        let started = Started { machine: machine.into(), command: command.into(), child, log };
        let ready = until(READY_SPAN, || started.said().lines().any(|l| l.starts_with("ready ")));
        let said = started.said();
        self.children.push(started);
        assert!(ready, "{machine}: {command}: {said}");
        said
    }

    fn take(&mut self, machine: &str, word: &str) -> Started {
        let wanted = |one: &Started| one.machine == machine && one.command.contains(word);
        let at = self.children.iter().position(wanted).expect("it was started");
        let started = self.children.remove(at);
        self.ids.lock().unwrap().retain(|id| *id != started.child.id());
        started
    }

    /// Ends what was started with this word in its command, as a crash would.
    pub fn crash(&mut self, machine: &str, word: &str) {
        let Started { mut child, .. } = self.take(machine, word);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks it to stop; it must do so by itself and without an error.
    pub fn stop(&mut self, machine: &str, word: &str) {
        let mut started = self.take(machine, word);
        kill(started.child.id(), rustix::process::Signal::TERM);
        let mut status = None;
        until(READY_SPAN, || {
            status = started.child.try_wait().unwrap();
            status.is_some()
        });
        let _ = started.child.kill();
        let said = started.said();
        assert!(status.is_some_and(|it| it.success()), "{machine}: {word}: {status:?}: {said}");
    }

    /// Opens a file of a machine for writing, in a process of its own: a test that held it itself would hand it to
    /// every command that it starts, and those wait in their start until what was written is at the servers.
    pub fn pen(&self, machine: &str, file: &str) -> Pen {
        let script = format!(
            "exec 3>{file}; while read c; do head -c 300000 /dev/zero | tr '\\0' $c >&3; sync {file}; echo; done"
        );
        let mut command = self.command(machine);
        command.args(["sh", "-ec", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Pen { child, answers }
    }
}

/// A process that writes when it is told to.
pub struct Pen {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Pen {
    /// Has it write 300,000 of these letters and bring them to stable storage.
    pub fn begin(&mut self, letter: char) {
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{letter}").unwrap();
    }

    /// Waits until that is done.
    pub fn end(&mut self) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, "\n", "writing failed");
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(id: u32, signal: rustix::process::Signal) {
    if let Some(id) = rustix::process::Pid::from_raw(id as i32) {
        let _ = rustix::process::kill_process(id, signal);
    }
}

/// Whether `done` says so within the time.
pub fn until(span: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > span {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

impl Drop for Network {
    fn drop(&mut self) {
        for started in &mut self.children {
            let _ = started.child.kill();
            let _ = started.child.wait();
        }
        let inside = self.dir.path().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for point in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if point.starts_with(&inside) {
                let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
            }
        }
        let bridge = format!("{}s", self.prefix);
        let namespaces = self.machines.values().map(|machine| machine.namespace.clone());
        for namespace in namespaces.chain([bridge]) {
            let _ = run_plain("ip", &["netns", "del", &namespace]);
        }
    }
}
