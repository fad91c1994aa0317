//! A cluster whose machines lend each other memory, and what uses it: files of a mount, keys of two front ends and the
//! large memory of a program.

use super::super::common::{
    Cluster, cannot_mount, detach, free_ports, is_mounted, json_lines, pause, program, seen,
    shape_of, shell, text, trapeze, until_top,
};
use super::{Files, Keys, change_an_array, end, part};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;
use trapeze::children::Process;
use trapeze::config::Memory;
use trapeze::local::Shape;

pub const SERVERS: u16 = 3;
/// The servers, two front ends, the mount.
pub const LENDERS: u64 = SERVERS as u64 + 3;
/// An array that is many times as large as what its program may have here.
const ARRAY: usize = 16 << 20;

/// The programs that can suffer.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// The manager is machine 0, the I/O servers follow.
    Machine(usize),
    Front(usize),
    Mount,
}

pub use Who::{Front, Machine, Mount};

/// All processes.
pub const ALL: [Who; 7] =
    [Machine(1), Front(0), Mount, Machine(2), Front(1), Machine(3), Machine(0)];

/// A cluster all of whose processes but the manager lend memory.
pub struct Lending {
    fronts: [Option<Process>; 2],
    mount: Option<Process>,
    /// Where the front ends are.
    pub ports: [u16; 2],
    /// Where the manager listens for other machines; the other processes follow.
    listen: Option<u16>,
    /// Where it is mounted.
    pub point: PathBuf,
    pub cluster: Cluster,
}

fn lenders_at(listen: Option<u16>) -> Cluster {
    let size = |text: &str| text.parse().unwrap();
    let memory = Memory { pool: size("48M"), cache: size("4M"), ..Memory::default() };
    let listen = listen.map(|port| format!("127.0.0.1:{port}"));
    Cluster::shaped(&Shape { listen, ..shape_of(SERVERS, memory) })
}

impl Lending {
    /// As [`start_at`](Lending::start_at), for this machine only.
    pub fn start() -> Option<Lending> {
        Lending::start_at(None)
    }

    /// Its servers' caches are so small that what is written leaves them. It listens for other machines at `listen` and
    /// the ports after it, one for each process. `None` where nothing can be mounted.
    pub fn start_at(listen: Option<u16>) -> Option<Lending> {
        if cannot_mount() {
            return None;
        }
        let cluster = lenders_at(listen);
        let (point, port) = (cluster.beside("point"), free_ports(2));
        fs::create_dir(&point).unwrap();
        let ports = [port, port + 1];
        let (fronts, mount) = ([None, None], None);
        let mut lending = Lending { fronts, mount, ports, listen, point, cluster };
        [Front(0), Front(1), Mount].into_iter().for_each(|who| lending.begin(who));
        lending.settle();
        Some(lending)
    }

    /// The output of `trapeze status --all`, its words with one space between them.
    pub fn status(&self) -> String {
        let told = trapeze(&["status", "--all", "-c", &self.cluster.processes.target()]);
        let told = String::from_utf8(told.stdout).unwrap();
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// All lenders are there and see each other.
    pub fn settle(&self) {
        until_top(&self.cluster.processes.target(), |rows| {
            seen(rows) == vec![LENDERS; LENDERS as usize]
        });
    }

    pub fn process(&mut self, who: Who) -> Process {
        match who {
            Machine(number) => self.cluster.processes.take_server(number).unwrap(),
            Front(number) => self.fronts[number].take().unwrap(),
            Mount => self.mount.take().unwrap(),
        }
    }

    pub fn put(&mut self, who: Who, process: Process) {
        match who {
            Machine(number) => self.cluster.processes.put_server(number, process),
            Front(number) => self.fronts[number] = Some(process),
            Mount => self.mount = Some(process),
        }
    }

    pub fn begin(&mut self, who: Who) {
        let (target, point) = (self.cluster.processes.target(), text(&self.point));
        let (arguments, place) = match who {
            Machine(number) => return self.cluster.processes.start_server(number).unwrap(),
            Front(number) => (self.front_arguments(number), 1 + number as u16),
            Mount => (format!("mount {target} {point} --pool 48M --lend 16M"), 3),
        };
        let listen =
            self.listen.map(|port| format!("--listen 127.0.0.1:{}", port + SERVERS + place));
        let arguments = arguments + " " + &listen.unwrap_or_default();
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_string).collect();
        let log = self.cluster.beside(&format!("{who:?}.log"));
        let process = Process::start_program(program(), &arguments[0], &arguments, &log).unwrap();
        self.put(who, process);
    }

    fn front_arguments(&self, number: usize) -> String {
        let (target, at) = (self.cluster.processes.target(), self.ports[number]);
        format!(
            "memory --cluster {target} --memcached 127.0.0.1:{at} --memory 4M --lend 16M --away 32M --copies 2"
        )
    }

    /// `kill -9`, and it starts again.
    pub fn kill(&mut self, who: Who) {
        self.process(who).kill().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        self.begin(who);
        self.settle();
    }

    /// It is stopped for longer than anybody waits, and goes on with what it had.
    pub fn stop_for_a_while(&mut self, who: Who) {
        let process = self.process(who);
        pause(&process, Duration::from_secs(5));
        self.put(who, process);
        self.settle();
    }

    /// Puts what a machine stores on a disk of so many bytes; where that is.
    pub fn limit_disk(&mut self, who: Who, size: &str) -> PathBuf {
        let store = self.store(who);
        self.process(who).stop().unwrap();
        shell(&store, 10, &format!("cp -a . $PWD.was; mount -t tmpfs -o size={size} none $PWD"));
        shell(&store, 10, "cp -a $PWD.was/. .");
        self.begin(who);
        self.settle();
        store
    }

    fn store(&self, who: Who) -> PathBuf {
        self.cluster.beside(&match who {
            Machine(0) => "cluster/manager".to_string(),
            Machine(number) => format!("cluster/io{number}"),
            who => unreachable!("{who:?} stores nothing"),
        })
    }

    /// Runs `suffer` when chunks leave the servers' caches, which are too small for all load, and ends the load later.
    /// Answers with a line of each of its parts: what it has done.
    pub fn under_load(&mut self, suffer: impl FnOnce(&mut Lending)) -> Vec<String> {
        shell(&self.point, 30, "head -c 16M /dev/urandom > before; sync before");
        let load = Load::start(self);
        let mut waits = 0..120;
        while self.sent() == 0 {
            assert!(waits.next().is_some(), "nothing leaves the servers' caches");
            std::thread::sleep(Duration::from_millis(500));
        }
        suffer(self);
        std::thread::sleep(Duration::from_secs(1));
        load.end()
    }

    /// As [`under_load`](Lending::under_load), and no part may see an error.
    pub fn under_load_unnoticed(&mut self, suffer: impl FnOnce(&mut Lending)) {
        let told = self.under_load(suffer);
        assert!(told.iter().all(|line| line.contains(" 0 errors")), "{told:?}");
    }

    /// Chunks that have left servers' caches for network memory.
    fn sent(&self) -> u64 {
        let target = self.cluster.processes.target();
        let told = json_lines(&trapeze(&["status", "-c", &target, "--json"]));
        told.iter().filter_map(|machine| machine["report"]["io"]["network_sent"].as_u64()).sum()
    }

    /// Asks all processes to end.
    pub fn end(mut self) {
        for who in [Mount, Front(0), Front(1)] {
            self.process(who).stop().unwrap();
        }
        assert!(!is_mounted(&self.point));
        self.cluster.stop();
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        drop(self.mount.take());
        detach(&self.point);
        // where a test has limited its disk
        (0..=SERVERS).for_each(|number| detach(&self.store(Machine(number.into()))));
    }
}

/// Two processes and a thread that use the cluster's memory.
struct Load {
    files: Files,
    array: Child,
    keys: Keys,
}

impl Load {
    fn start(of: &Lending) -> Load {
        // Not its root: while nothing is mounted that is a directory like any other.
        let dir = of.point.join("load");
        fs::create_dir(&dir).unwrap();
        let files = Files::start(&dir);
        Load { files, array: part(array(of)), keys: Keys::start(&of.ports) }
    }

    /// Ends all of it, which has found nothing wrong, and says how much it has done.
    fn end(self) -> Vec<String> {
        let lines = [self.keys.end(), self.files.end()];
        lines.into_iter().chain(end(self.array)).collect()
    }
}

fn array(of: &Lending) -> Command {
    let (target, tests) = (of.cluster.processes.target(), std::env::current_exe().unwrap());
    let mut array = Command::new(program());
    array.args(["run", "--memory", "2M", "--from", "256K", "--room", "64M", "-q", "-c", &target]);
    array.args(["--", text(&tests), "--exact", "load::lending::array_process", "--ignored"]);
    array.arg("--nocapture").env("TRAPEZE_ARRAY", "1");
    array
}

/// Not a test of its own: a program whose large memory is in the cluster's.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn array_process() {
    if std::env::var_os("TRAPEZE_ARRAY").is_some() {
        change_an_array(ARRAY);
    }
}
