//! The same commands for `trapeze memory` and for the memcached and redis-server that are installed here: the answers
//! are the same, but for the differences that are wanted, which are named with what each answers.

#[path = "../common/mod.rs"]
mod common;
mod memcached;
mod redis;

use common::{free_ports, lacks, program};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use trapeze::children::Process;

/// The versions whose answers these are.
const MEMCACHED: &str = "1.6.18";
const REDIS: &str = "7.0.15";
/// A value above both servers' limits, which are set to a mebibyte.
const LONG: usize = (1 << 20) + 1;

/// A request, with `|` for a line's end, and the answer when the two differ.
enum Step {
    Same(&'static str),
    /// Theirs, ours.
    Other(&'static str, &'static str, &'static str),
}
use Step::{Other, Same};

/// One of the others' servers, which ends with the test.
struct Peer {
    _process: Process,
    address: SocketAddr,
    _dir: TempDir,
}

impl Peer {
    fn start(name: &str, flags: &[&str]) -> Peer {
        let (dir, port) = (TempDir::new().unwrap(), free_ports(1));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = Command::new(name);
        let port_flag = if name == "memcached" { "-p" } else { "--port" };
        command.args([port_flag, &port.to_string()]).args(flags).current_dir(dir.path());
        let is_ready = || TcpStream::connect(address).is_ok();
        let log = dir.path().join("log");
        let process = Process::start_until(name, command, &log, is_ready).unwrap();
        Peer { _process: process, address, _dir: dir }
    }
}

/// Whether a server is missing here, or is of another version; told on the terminal.
fn lacks_version(name: &str, version: &str) -> bool {
    if lacks(name) {
        return true;
    }
    let told = Command::new(name).arg("--version").output().unwrap().stdout;
    let other = !String::from_utf8_lossy(&told).contains(version);
    if other {
        println!("skipped: the {name} that is installed is not {version}");
    }
    other
}

struct Ours {
    process: Process,
    _dir: TempDir,
}

impl Ours {
    fn start() -> Ours {
        let dir = TempDir::new().unwrap();
        let flags = ["memory", "--memcached", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
        let flags = flags.iter().chain(&["--memory", "64M", "--value-max", "1M"]);
        let flags: Vec<String> = flags.map(|flag| flag.to_string()).collect();
        let log = dir.path().join("log");
        let process = Process::start_program(program(), "memory", &flags, &log).unwrap();
        Ours { process, _dir: dir }
    }

    fn address(&self, protocol: &str) -> SocketAddr {
        let said = &self.process.said;
        let rest = said.split_once(&format!("{protocol} at ")).expect("it says where").1;
        rest.split(' ').next().unwrap().parse().unwrap()
    }
}

/// A connection to one server.
struct Talk {
    stream: TcpStream,
    /// Bytes read beyond the last answer.
    read: Vec<u8>,
    /// The last CAS unique that was answered: `{cas}` in what is sent.
    cas: String,
}

impl Talk {
    fn new(address: SocketAddr) -> Talk {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Talk { stream, read: Vec::new(), cas: String::new() }
    }

    /// Reads more; false at the end of the connection.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 1 << 16];
        let count = self.stream.read(&mut bytes).unwrap_or(0);
        self.read.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// All up to the answer to a last command.
    fn until(&mut self, end: &[u8]) -> Vec<u8> {
        while !self.read.ends_with(end) {
            if !self.more() {
                return [&std::mem::take(&mut self.read)[..], b"(closed)"].concat();
            }
        }
        let len = self.read.len() - end.len();
        self.read.truncate(len);
        std::mem::take(&mut self.read)
    }

    /// One answer of Redis's protocol.
    fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(len) = reply_len(&self.read) {
                return self.read.drain(..len).collect();
            }
            if !self.more() {
                return [&std::mem::take(&mut self.read)[..], b"(closed)"].concat();
            }
        }
    }

    fn memcached(&mut self, line: &str) -> String {
        let line = format!("{line}|mn|").replace("{cas}", &self.cas).replace('|', "\r\n");
        self.stream.write_all(line.as_bytes()).unwrap();
        let told = self.until(b"MN\r\n");
        let told = String::from_utf8_lossy(&told).replace("\r\n", "|");
        let words = told.split(' ').map(|word| self.note_cas(word)).collect::<Vec<_>>();
        words.join(" ")
    }

    /// CAS uniques are every server's own.
    fn note_cas(&mut self, word: &str) -> String {
        let digits = word.strip_prefix('c').map(|rest| rest.trim_end_matches('|'));
        match digits.filter(|digits| !digits.is_empty() && digits.parse::<u64>().is_ok()) {
            Some(digits) => {
                self.cas = digits.to_string();
                word.replace(digits, "#")
            }
            None => word.to_string(),
        }
    }

    fn redis(&mut self, line: &str) -> String {
        let text = match line.strip_prefix('>') {
            Some(bytes) => bytes.replace('|', "\r\n").replace("\\0", "\0").into_bytes(),
            None => command(line),
        };
        // one that is closed meanwhile says why
        let _ = self.stream.write_all(&text);
        String::from_utf8_lossy(&self.reply()).replace("\r\n", "|")
    }
}

/// A command as clients write it.
fn command(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(bulk).collect::<String>()).into_bytes()
}

/// Bytes of the answer that is first, when all of it is there.
fn reply_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..end - 2]).unwrap().parse::<i64>().unwrap();
    let several =
        |count: i64| (0..count).try_fold(end, |at, _| Some(at + reply_len(&bytes[at..])?));
    match bytes[0] {
        b'$' | b'=' if number() >= 0 => {
            let len = end + number() as usize + 2;
            (bytes.len() >= len).then_some(len)
        }
        b'*' => several(number()),
        b'%' => several(2 * number()),
        _ => Some(end),
    }
}

/// Sends every script to both servers, each over a connection of its own.
fn compare(
    (theirs, ours): (SocketAddr, SocketAddr),
    ask: fn(&mut Talk, &str) -> String,
    clear: &str,
    scripts: &[&[Step]],
) {
    let mut wrong = Vec::new();
    for script in scripts {
        let (mut their, mut our) = (Talk::new(theirs), Talk::new(ours));
        ask(&mut their, clear);
        ask(&mut our, clear);
        for step in *script {
            let (Same(line) | Other(line, ..)) = step;
            let told = (ask(&mut their, line), ask(&mut our, line));
            let wanted = match step {
                Same(_) => (told.0.clone(), told.0.clone()),
                Other(_, theirs, ours) => (theirs.to_string(), ours.to_string()),
            };
            if told != wanted {
                wrong.push(format!("{line}\n  theirs: {}\n  ours:   {}", told.0, told.1));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn memcached_answers_the_same() {
    if lacks_version("memcached", MEMCACHED) {
        return;
    }
    let root = rustix::process::geteuid().is_root();
    let user = if root { &["-u", "root"][..] } else { &[] };
    let theirs = Peer::start("memcached", &[user, &["-l", "127.0.0.1", "-I", "1m"]].concat());
    let ours = Ours::start();
    let both = (theirs.address, ours.address("memcached"));
    compare(both, Talk::memcached, "flush_all", memcached::SCRIPTS);
    // what is too long goes with the old value, or leaves it
    for line in ["set a 0 0 LEN", "add a 0 0 LEN", "append a 0 0 LEN", "ms a LEN", "ms YQ== LEN b"]
    {
        let text = format!("{}|{}", line.replace("LEN", &LONG.to_string()), "x".repeat(LONG));
        let told = [both.0, both.1].map(|address| {
            let mut talk = Talk::new(address);
            talk.memcached("set a 0 0 1|1");
            (talk.memcached(&text), talk.memcached("get a"))
        });
        assert_eq!(told[0], told[1], "{line}");
    }
    ours.process.stop().unwrap();
}

#[test]
fn redis_server_answers_the_same() {
    if lacks_version("redis-server", REDIS) {
        return;
    }
    let quiet = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let flags = [&quiet[..], &["--proto-max-bulk-len", "1048576", "--databases", "1"]].concat();
    let theirs = Peer::start("redis-server", &flags);
    let ours = Ours::start();
    let both = (theirs.address, ours.address("resp"));
    compare(both, Talk::redis, "FLUSHALL", redis::SCRIPTS);
    // the old value stays; ours goes on with the connection
    let long = format!("SET a {}", "x".repeat(LONG));
    let told = [both.0, both.1].map(|address| {
        let mut talk = Talk::new(address);
        talk.redis("SET a old");
        (talk.redis(&long), Talk::new(address).redis("GET a"))
    });
    assert!(
        told[0].0.starts_with("-ERR Protocol error: invalid bulk length|")
            || told[0].0 == "(closed)"
    );
    assert_eq!(told[1].0, "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|");
    assert_eq!([&told[0].1, &told[1].1], ["$3|old|"; 2]);
    // as many arguments
    let many = |name: &str, count: usize, word: &str| format!("{name}{}", word.repeat(count));
    for line in [
        many("MSET", 8200, " key v"),
        many("MGET", 17_000, " key"),
        many("DEL", 20_000, &format!(" {}", "k".repeat(70))),
    ] {
        let told = [both.0, both.1].map(|address| Talk::new(address).redis(&line));
        assert_eq!(told[0], told[1], "{}", &line[..20]);
    }
    ours.process.stop().unwrap();
}
