//! A cluster whose machines lend each other memory, under load: files of a mount, keys of two front ends and the large
//! memory of a program, while its processes are killed, stopped for a while, and the manager's disk is full.

mod common;
mod load;

use common::{
    Cluster, cannot_mount, detach, free_ports, is_mounted, json_lines, pause, program, seen,
    shape_of, shell, soaks, text, trapeze, until_top,
};
use load::Keys;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trapeze::children::Process;
use trapeze::config::Memory;

const SERVERS: u16 = 3;
/// The servers, two front ends, the mount.
const LENDERS: u64 = SERVERS as u64 + 3;
/// The manager's, in the cluster.
const STORE: &str = "cluster/manager";
/// An array that is many times as large as what its program may have here.
const ARRAY: usize = 16 << 20;

/// Who can suffer.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// The manager is machine 0, the I/O servers follow.
    Machine(usize),
    Front(usize),
    Mount,
}

use Who::{Front, Machine, Mount};

/// Everybody.
const ALL: [Who; 7] = [Machine(1), Front(0), Mount, Machine(2), Front(1), Machine(3), Machine(0)];

/// A cluster all of whose processes but the manager lend memory.
struct Lending {
    fronts: [Option<Process>; 2],
    mount: Option<Process>,
    ports: [u16; 2],
    point: PathBuf,
    cluster: Cluster,
}

impl Lending {
    /// Its servers' caches are so small that what is written leaves them; `None` where nothing can be mounted.
    fn start() -> Option<Lending> {
        if cannot_mount() {
            return None;
        }
        let size = |text: &str| text.parse().unwrap();
        let memory = Memory { pool: size("48M"), cache: size("4M"), ..Memory::default() };
        let cluster = Cluster::shaped(&shape_of(SERVERS, memory));
        let (point, port) = (cluster.beside("point"), free_ports(2));
        fs::create_dir(&point).unwrap();
        let ports = [port, port + 1];
        let mut lending = Lending { fronts: [None, None], mount: None, ports, point, cluster };
        [Front(0), Front(1), Mount].into_iter().for_each(|who| lending.begin(who));
        lending.settle();
        Some(lending)
    }

    /// All lenders are there and see each other.
    fn settle(&self) {
        until_top(&self.cluster.processes.target(), |rows| {
            seen(rows) == vec![LENDERS; LENDERS as usize]
        });
    }

    fn process(&mut self, who: Who) -> Process {
        match who {
            Machine(number) => self.cluster.processes.take_server(number).unwrap(),
            Front(number) => self.fronts[number].take().unwrap(),
            Mount => self.mount.take().unwrap(),
        }
    }

    fn put(&mut self, who: Who, process: Process) {
        match who {
            Machine(number) => self.cluster.processes.put_server(number, process),
            Front(number) => self.fronts[number] = Some(process),
            Mount => self.mount = Some(process),
        }
    }

    fn begin(&mut self, who: Who) {
        let (target, point) = (self.cluster.processes.target(), text(&self.point).to_string());
        let arguments = match who {
            Machine(number) => return self.cluster.processes.start_server(number).unwrap(),
            Front(number) => {
                let at = format!("127.0.0.1:{}", self.ports[number]);
                format!(
                    "memory --cluster {target} --memcached {at} --memory 4M --lend 16M --away 32M --copies 2"
                )
            }
            Mount => format!("mount {target} {point} --pool 48M --lend 16M"),
        };
        let arguments: Vec<String> = arguments.split(' ').map(str::to_string).collect();
        let log = self.cluster.beside(&format!("{who:?}.log"));
        let process = Process::start_program(program(), &arguments[0], &arguments, &log).unwrap();
        self.put(who, process);
    }

    /// `kill -9`, and it starts again.
    fn kill(&mut self, who: Who) {
        self.process(who).kill().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        self.begin(who);
        self.settle();
    }

    /// It is stopped for longer than anybody waits, and goes on with what it had.
    fn stop_for_a_while(&mut self, who: Who) {
        let process = self.process(who);
        pause(&process, Duration::from_secs(5));
        self.put(who, process);
        self.settle();
    }

    /// Runs `suffer` when chunks leave the servers' caches, which are too small for all load, and ends it later.
    fn under_load(&mut self, suffer: impl FnOnce(&mut Lending)) {
        shell(&self.point, 30, "head -c 16M /dev/urandom > before; sync before");
        let load = Load::start(self);
        let mut waits = 0..120;
        while self.sent() == 0 {
            assert!(waits.next().is_some(), "nothing leaves the servers' caches");
            std::thread::sleep(Duration::from_millis(500));
        }
        suffer(self);
        std::thread::sleep(Duration::from_secs(1));
        load.end();
    }

    /// Chunks that have left servers' caches for network memory.
    fn sent(&self) -> u64 {
        let target = self.cluster.processes.target();
        let told = json_lines(&trapeze(&["status", "-c", &target, "--json"]));
        told.iter().filter_map(|machine| machine["report"]["io"]["network_sent"].as_u64()).sum()
    }

    /// Everybody ends when asked to.
    fn end(mut self) {
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
        detach(&self.cluster.beside(STORE)); // where a test has mounted it
    }
}

/// Two processes and a thread that use the cluster's memory.
struct Load {
    files: Child,
    array: Child,
    keys: Keys,
}

impl Load {
    fn start(of: &Lending) -> Load {
        let tests = std::env::current_exe().unwrap();
        let mut files = Command::new(&tests);
        files.args(["--exact", "files_process", "--nocapture"]);
        // Not its root: while nothing is mounted that is a directory like any other.
        let dir = of.point.join("load");
        fs::create_dir(&dir).unwrap();
        files.env("TRAPEZE_FILES_IN", dir);
        let mut array = Command::new(program());
        let target = of.cluster.processes.target();
        array.args(["run", "--memory", "2M", "--from", "256K", "--room", "64M", "-q", "-c"]);
        array.args([&target, "--", text(&tests), "--exact", "array_process", "--nocapture"]);
        array.env("TRAPEZE_ARRAY", "1");
        let [files, array] = [files, array].map(|mut command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        });
        Load { files, array, keys: Keys::start(&of.ports) }
    }

    /// Ends all of it, which has found nothing wrong.
    fn end(self) {
        self.keys.end();
        for mut process in [self.files, self.array] {
            drop(process.stdin.take());
            let done = process.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&done.stdout).into_owned();
            let errors = String::from_utf8_lossy(&done.stderr).into_owned();
            let skipped = ["userfaultfd is not allowed", "was built without"];
            let skipped = skipped.iter().any(|reason| errors.contains(reason));
            assert!(done.status.success() || skipped, "{told}\n{errors}");
            let last = told.lines().find(|line| line.contains(" done, "));
            println!("{}", last.unwrap_or(&errors));
            assert!(skipped || !last.unwrap().contains(": 0 done"), "{told}");
        }
    }
}

/// Not a test of its own: started by the others, which must not have files of the mount open when they start machines.
#[test]
fn files_process() {
    if let Some(dir) = std::env::var_os("TRAPEZE_FILES_IN") {
        load::write_and_read_files(Path::new(&dir));
    }
}

/// Not a test of its own: a program whose large memory is in the cluster's.
#[test]
fn array_process() {
    if std::env::var_os("TRAPEZE_ARRAY").is_some() {
        load::change_an_array(ARRAY);
    }
}

/// Everybody a few times, or two now and then.
fn victims(few: [Who; 2]) -> Vec<Who> {
    if soaks() { ALL.repeat(4) } else { few.to_vec() }
}

#[test]
fn nothing_is_lost_or_wrong_when_who_lends_is_killed() {
    let Some(mut lending) = Lending::start() else { return };
    lending.under_load(|lending| {
        for who in victims([Machine(1), Mount]) {
            println!("{who:?} is killed");
            lending.kill(who);
        }
    });
    lending.end();
}

#[test]
fn nothing_is_lost_or_wrong_when_who_lends_is_stopped_for_a_while() {
    let Some(mut lending) = Lending::start() else { return };
    lending.under_load(|lending| {
        for who in victims([Machine(2), Front(0)]) {
            println!("{who:?} is stopped");
            lending.stop_for_a_while(who);
        }
    });
    lending.end();
}

/// Names are made until that is refused; who dies meanwhile comes back, and who was told of a name finds it.
#[test]
fn nothing_is_lost_or_wrong_when_the_managers_disk_is_full() {
    let Some(mut lending) = Lending::start() else { return };
    let store = lending.cluster.beside(STORE);
    lending.process(Machine(0)).stop().unwrap();
    shell(&store, 10, "cp -a . ../was; mount -t tmpfs -o size=24M none $PWD");
    shell(&store, 10, "cp -a ../was/. .");
    lending.begin(Machine(0));
    lending.settle();
    let (point, mut names) = (lending.point.clone(), 0);
    lending.under_load(|lending| {
        shell(&store, 20, "dd if=/dev/zero of=fill bs=4k 2>/dev/null || truncate -s -256K fill");
        let made = "n=0; while (($n < 20000)) && true 2>/dev/null > name$n; do n=$((n + 1)); done";
        names = shell(&point, 60, &format!("{made}; echo $n")).trim().parse().unwrap();
        lending.process(Machine(1)).kill().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        fs::remove_file(store.join("fill")).unwrap();
        lending.begin(Machine(1));
        lending.settle();
    });
    println!("{names} names were made on the full disk");
    assert!(names < 20_000 && (0..names).all(|n| point.join(format!("name{n}")).exists()));
    lending.end();
}
