//! The same commands for `trapeze memory` and for the memcached and redis-server that are installed here: the answers
//! are the same, but for the differences that are wanted, which are named with what each answers.

mod common;

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

/// What is sent, with `|` for a line's end, and what is answered when that differs.
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
    /// What was read beyond the last answer.
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
    compare(both, Talk::memcached, "flush_all", MEMCACHED_SCRIPTS);
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
    compare(both, Talk::redis, "FLUSHALL", REDIS_SCRIPTS);
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

const MEMCACHED_SCRIPTS: &[&[Step]] = &[
    &[
        Same("get a"),
        Same("set a 5 0 3|abc"),
        Same("get a"),
        Same("add a 0 0 1|x"),
        Same("replace b 0 0 1|x"),
        Same("append a 0 0 2|34"),
        Same("prepend a 0 0 2|12"),
        Same("append b 0 0 1|x"),
        Same("get a b a"),
        Same("touch a 100"),
        Same("touch b 100"),
        Same("touch a"),
        Same("touch a x"),
        Same("gat 10 a"),
        Same("gat 10"),
        Same("gat"),
        Same("gat x a"),
        Same("delete a"),
        Same("delete a"),
        Same("delete"),
        Same("delete a b"),
        Same("delete a 0"),
        Same("cas a 0 0 1 1|1"),
        Same("set e 0 0 0|"),
        Same("get e"),
        Same("set a 0 -1 1|1"),
        Same("get a"),
        // a date beyond 32 bits is one, there it has passed
        Same("set a 0 99999999999 1|1"),
        Other("get a", "END|", "VALUE a 0 1|1|END|"),
        Same("delete nothing"),
        Same("set a 0 -1 1|1"),
        Same("set a\u{1}\tb 0 0 1|1"),
        Same("get a\u{1}\tb"),
        Same(" get a"),
        Same("GET a"),
    ],
    &[
        Same("set a 0 0 1 noreply|1"),
        Same("incr a 1 noreply"),
        Same("touch a 10 noreply"),
        Same("cas a 0 0 1 1 noreply|1"),
        Same("delete nothing noreply"),
        Same("get a"),
        Same("flush_all noreply"),
        Same("get a"),
        Same("flush_all -1"),
        Same("flush_all x"),
        Same("verbosity"),
        Same("verbosity 1"),
        Same("verbosity x"),
        Same("verbosity 1 2 3"),
        Same("stats reset"),
        Same("stats nosuch"),
        Same("nonsense"),
        Same(""),
    ],
    &[
        Same("incr n 1"),
        Same("set n 0 0 2|10"),
        Same("incr n 5"),
        Same("incr n +5"),
        Same("incr n 01"),
        Same("incr n -1"),
        Same("incr n x"),
        Same("incr n 18446744073709551616"),
        Same("set n 0 0 20|18446744073709551615"),
        Same("incr n 2"),
        Same("set n 0 0 3|10 "),
        Same("incr n 1"),
        Same("set n 0 0 3| 10"),
        Same("incr n 1"),
        Same("set n 0 0 6|10 abc"),
        Same("incr n 1"),
        Same("set n 0 0 3|007"),
        Same("decr n 1"),
        Same("set n 0 0 2|-5"),
        Same("incr n 1"),
        Same("set n 0 0 3|1.5"),
        Same("incr n 1"),
        // a number that becomes shorter is not filled up with spaces here
        Same("set n 0 0 2|10"),
        Same("decr n 1"),
        Other("get n", "VALUE n 0 2|9 |END|", "VALUE n 0 1|9|END|"),
    ],
    &[
        Same("set a 0 0 -1"),
        Same("set a 0 0 x"),
        Same("set a 0 0"),
        Same("set a 0 0 1|toolong"),
        Same("get a"),
        // the value of a line that is wrong is passed over here, whatever is wrong; theirs takes it for a command
        Other(
            "set a x 0 1|1",
            "CLIENT_ERROR bad command line format|ERROR|",
            "CLIENT_ERROR bad command line format|",
        ),
        Other("cas a 0 0 1|1", "ERROR|ERROR|", "CLIENT_ERROR bad command line format|"),
        // flags above 32 bits are refused, not cut
        Other("set a 4294967296 0 1|1", "STORED|", "CLIENT_ERROR bad command line format|"),
        Other("ms a 1 F4294967296|1", "HD|", "CLIENT_ERROR bad token in command line format|"),
        Other("stats detail on", "OK|", "ERROR|"),
        Other("stats cachedump 1 1", "END|", "ERROR|"),
        Other("incr a 1 2", "2|", "ERROR|"),
    ],
    &[
        Same("mg"),
        Same("mg a"),
        Same("mg a v k Oabc"),
        Same("mg a k s t Oabc v"),
        Same("mg a v q k Oabc"),
        Same("mg Yg== b v k Ox"),
        Same("set a 5 100 3|abc"),
        Same("mg a"),
        Same("mg a q"),
        Same("mg a v q k s f Ox"),
        // the key comes back in the form in which it was asked for, there in the form in which it was stored
        Other("mg YQ== b k v", "VA 3 ka|abc|", "VA 3 kYQ== b|abc|"),
        Same("ms YWI= 1 b|1"),
        Same("mg YWI= b k v"),
        Other("mg ab k v", "VA 1 kYWI= b|1|", "VA 1 kab|1|"),
        Same("mg a h"),
        Same("mg a O1234567890123456789012345678901"),
        Same("mg a O12345678901234567890123456789012"),
        Same("mg none N30 t"),
        Same("mg none h t"),
        Same("mg a T30 t"),
        Same("mg a u I L P C1 N1 R1 D1 F1 J1 MS"),
        Same("mg a !"),
        Same("mg a v v"),
        Same("mg a Tx"),
        Same("mg zzz Tx"),
        Same("mg zzz Rx"),
        Same("mg zzz R-1 T-1"),
        Same("mg !!! b"),
        Same("me"),
        Same("me zzz"),
    ],
    &[
        Same("ms a 2|hi"),
        Same("ms a 2 k Oq|hi"),
        Same("ms a 2 k Oq q|hi"),
        Same("ms a 2 ME|no"),
        Same("ms b 2 MR|no"),
        Same("ms b 2 MA|no"),
        Same("ms b 2 MZ|no"),
        Same("ms b 2 MS|ok"),
        Same("ms b 1 MA|!"),
        Same("ms b 1 MP|!"),
        Same("mg b v s"),
        Same("ms b 2 P L f h l t u v|ok"),
        Same("ms b 2 F9 T60|ok"),
        Same("mg b v f t"),
        Same("mg b c"),
        Same("ms b 1 C{cas}|1"),
        Same("ms b 1 C{cas}|2"),
        Same("ms none 1 C5 Oo k|1"),
        Same("ms b 1 C0|1"),
        Same("ms b 1 C5 ME|1"),
        Same("ms b 1 Cx|1"),
        Same("ms b 1 Tx|1"),
        Same("ms b 1 F-1|1"),
        Same("ms b"),
        Same("ms b -1"),
        Same("ms"),
        Same("ms b 1|toolong"),
        Same("ms AP8= 2 b|hi"),
        Same("mg AP8= b v k"),
        // of later versions
        Other("ms new 1 MA N0|1", "NS|", "HD|"),
        Other("ms a 2 s|hi", "HD|", "HD s2|"),
        Other("ms a 2 E1000|hi", "CLIENT_ERROR invalid flag|", "HD|"),
        Same("ms a 1 Mset|1"),
    ],
    &[
        Same("md a"),
        Same("md a q k"),
        Same("ms a 1|1"),
        Same("md a C9"),
        Same("md a C9 q"),
        Same("ma a"),
        Same("ma a v"),
        Same("ma a MD D2 v"),
        Same("ma a M+ D10 v t"),
        Same("ma a M- v"),
        Same("ma a q"),
        Same("ma a q v"),
        Same("ma a C9 q"),
        Same("ma a C0 v"),
        Same("ma n"),
        Same("ma n q"),
        Same("ma n N0 J13 v q"),
        Same("ma n N0 J13 v q"),
        Same("ma n N0 J13 v k Ox"),
        Same("ma m N30 T99 t"),
        Same("ma m T99 t"),
        Same("ma n MX"),
        Same("ma n Dx"),
        Same("ma n N"),
        Same("ma n M"),
        Same("ma n Mincr"),
        Same("md n F-1"),
        Same("md n k k"),
        Same("md n !"),
        Same("ms x 1|x"),
        Same("ma x q"),
        Same("md x q"),
        Same("mg x"),
        // of later versions
        Same("ms x 1|x"),
        Other("md x x", "CLIENT_ERROR invalid or duplicate flag|", "HD|"),
        Other("ma a Mi v", "CLIENT_ERROR invalid mode for ma M token|", "VA 2|14|"),
    ],
    &[
        Same("mg a v N30"),
        Same("mg a v N30"),
        Same("ms a 1 T100|1"),
        Same("mg a v R30"),
        Same("mg a v R200"),
        Same("mg a v R200"),
        Same("ms a 1 T100|1"),
        Same("mg a c"),
        Same("md a I T30"),
        Same("mg a v t"),
        Same("mg a v t"),
        Same("ms a 1 C{cas} I|2"),
        Same("mg a v"),
        Same("ms a 1 C0 I|3"),
        Same("ms a 1 C{cas} I MA|3"),
        Same("mg a v"),
        Same("ms a 1|3"),
        Same("mg a v t"),
        Same("md a I"),
        Same("ms a 1 C{cas} I|2"),
        Same("mg a v"),
        Same("mg a v"),
    ],
];

const REDIS_SCRIPTS: &[&[Step]] = &[
    &[
        Same("SET a 1"),
        Same("GET a"),
        Same("SET a 2 NX"),
        Same("SET b 2 XX"),
        Same("SET a 3 XX GET"),
        Same("SET c 4 NX GET"),
        Same("SET c 5 NX GET"),
        Same("GETSET a 10"),
        Same("GETDEL a"),
        Same("GETDEL a"),
        Same("MSET x 1 y 2 x 3"),
        Same("MSET x 1 y"),
        Same("MSETNX y 3 z 4"),
        Same("MSETNX z 4 w 5"),
        Same("MGET x y none z"),
        Same("EXISTS x y x none"),
        Same("TOUCH x none"),
        Same("DEL x y none"),
        Same("UNLINK z"),
        Same("TYPE w"),
        Same("TYPE z"),
        Same("DBSIZE"),
        Same("APPEND s hello"),
        Same("STRLEN s"),
        Same("GETRANGE s 1 -2"),
        Same("GETRANGE s -100 2"),
        Same("GETRANGE s -1 -3"),
        Same("GETRANGE s x 1"),
        Same("SUBSTR s 0 1"),
        Same("FLUSHALL FOO"),
        Same("FLUSHALL SYNC ASYNC"),
        Same("FLUSHDB ASYNC"),
        Same("DBSIZE"),
        Same("GET"),
        Same("NONSENSE a b"),
        Same("SCAN x"),
        Same("SCAN 0 COUNT 0"),
        Same("SCAN 0 FOO"),
        Same("KEYS *"),
        // a cursor is a number without a sign here
        Other("SCAN -1", "*2|$1|0|*0|", "-ERR invalid cursor|"),
    ],
    &[
        Same("SET n 10"),
        Same("INCRBY n 41"),
        Same("DECRBY n 50"),
        Same("SET n 007"),
        Same("INCR n"),
        Same("SET n -0"),
        Same("INCR n"),
        Same("SET n +5"),
        Same("DECR n"),
        Same("SET n 9223372036854775807"),
        Same("INCR n"),
        Same("INCRBY n 9223372036854775808"),
        Same("DECRBY n -9223372036854775808"),
        Same("INCRBY n 01"),
    ],
    &[
        Same("SET k v EX 9223372036854775807"),
        Same("SET k v PX 9223372036854775807"),
        Same("SET k v EX 9223372036854775"),
        Same("SETEX k 18000000000000000 v"),
        Same("PSETEX k 9223372036854775807 v"),
        Same("GET k"),
        Same("SET k v PXAT 9223372036854775807"),
        Same("PEXPIRETIME k"),
        Same("PEXPIRE k 9223372036854775807"),
        Same("EXPIRE k 9223372036854775"),
        Same("EXPIRE k -9223372036854775808"),
        Same("EXPIRE none 9223372036854775807"),
        Same("GETEX k PX 9223372036854775807"),
        Same("GET k"),
        Same("EXPIRE k 10 NX GT"),
        Same("EXPIRE k 10 GT LT"),
        Same("EXPIRE k x FOO"),
        Same("EXPIRE k 007"),
        Same("PERSIST k"),
        Same("EXPIRE k 10 XX LT"),
        Same("EXPIRE k 20 NX"),
        Same("EXPIRE k 10 xx lt"),
        Same("TTL k"),
        Same("SET k v EX 10 EX 20"),
        Same("TTL k"),
        Same("SET k v KEEPTTL KEEPTTL XX"),
        Same("TTL k"),
        Same("SET k v EX 10 KEEPTTL"),
        Same("SET k v EX x FOO"),
        Same("SET k v EX"),
        Same("SET k v EX 0"),
        Same("SET k v PXAT 1"),
        Same("GET k"),
        Same("SETEX k 0 v"),
        Same("SETEX k x v"),
        Same("SET k v"),
        Same("GETEX k EX 10 PERSIST"),
        Same("GETEX k EX 5 EX 6"),
        Same("GETEX k PERSIST"),
        Same("TTL k"),
        Same("EXPIRE k -1"),
        Same("TTL k"),
        Same("EXPIRETIME k"),
    ],
    &[
        Same("PING"),
        Same("PING x"),
        Same("PING x y"),
        Same("ECHO x"),
        Same("SELECT 0"),
        Same("SELECT 1"),
        Same("SELECT x"),
        Same("AUTH x"),
        Same("AUTH default x"),
        Same("AUTH foo x"),
        Same("AUTH a b c"),
        Same("HELLO abc"),
        Same("HELLO 1"),
        Same("HELLO 4"),
        Same("HELLO 3 AUTH foo x"),
        Same("HELLO 3 AUTH default"),
        Same("HELLO 3 SETNAME"),
        Same("HELLO 2 FOO"),
        Same("CLIENT SETNAME a b"),
        Same("CLIENT SETNAME me"),
        Same("CLIENT GETNAME"),
        Same("CLIENT FOO"),
        Same("RESET"),
        Same("CLIENT GETNAME"),
        Same("ROLE"),
        Same("CONFIG RESETSTAT"),
        Same("CONFIG FOO"),
        Same("CONFIG GET"),
        Same("CONFIG GET nothing"),
        Other("COMMAND COUNT", ":240|", ":0|"),
        Other(
            "CONFIG GET maxmemory-policy",
            "*2|$16|maxmemory-policy|$10|noeviction|",
            "*2|$16|maxmemory-policy|$11|allkeys-lfu|",
        ),
        // of a later version, for clients that introduce themselves
        Other(
            "CLIENT SETINFO lib-name x",
            "-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.|",
            "+OK|",
        ),
        Same("QUIT"),
    ],
    &[
        Same(">|   |PING|"),
        Same(r#">SET a "hello world"|"#),
        Same(">GET a|"),
        Same(r#">SET a "a\n\x41\q"|"#),
        Same(">GET a|"),
        Same(r">SET a 'it\'s'|"),
        Same(">GET a|"),
        Same(r#">"GET" a|"#),
        Same(r#">SET a x"y z"|"#),
        Same(">GET a|"),
        Same(r#">SET a ""|"#),
        Same(">STRLEN a|"),
        Same(">SET a b\u{b}c|"),
        Same(">GET a|"),
        Same(r#">GET "a|"#),
    ],
    &[Same(">GET 'a'b|")],
    &[Same(r#">GET a" "|"#)],
    &[Same(">*1|$-1|")],
    &[Same(">*x|")],
    &[Same(">*01|$4|PING|")],
    &[Same(">*1|+PING|")],
    &[Same(">*1|$536870913|")],
    &[Same(">*99999999999999999999|")],
    &[Same(">*0|*-1|*1|$4|ping|")],
    &[
        Same("EXEC"),
        Same("DISCARD"),
        Same("UNWATCH"),
        Same("WATCH"),
        Same("EXEC x"),
        Same("MULTI x"),
        Same("MULTI"),
        Same("MULTI"),
        Same("WATCH a"),
        Same("SET a abc"),
        Same("INCR a"),
        Same("MGET a b"),
        Same("SET b 1 FOO"),
        Same("UNWATCH"),
        Same("EXEC"),
        Same("MULTI"),
        Same("NONSENSE"),
        Same("SET a 2"),
        Same("EXEC"),
        Same("MULTI"),
        Same("GET"),
        Same("DISCARD x"),
        Same("EXEC"),
        Same("MULTI"),
        Same("EXEC x"),
        Same("EXEC"),
        Same("WATCH a"),
        Same("SET a 1"),
        Same("MULTI"),
        Same("GET a"),
        Same("EXEC"),
        Same("WATCH a"),
        Same("EXPIRE a 100"),
        Same("MULTI"),
        Same("GET a"),
        Same("EXEC"),
        Same("WATCH a"),
        Same("SET a 1"),
        Same("UNWATCH"),
        Same("MULTI"),
        Same("GET a"),
        Same("EXEC"),
        Same("MULTI"),
        Same("RESET"),
        Same("MULTI"),
        Same("EXEC"),
        Same("MULTI"),
        Same("QUIT"),
    ],
    &[
        // what was made and removed again is what it was, here
        Same("WATCH none"),
        Same("SET none 1"),
        Same("DEL none"),
        Same("MULTI"),
        Same("PING"),
        Other("EXEC", "*-1|", "*1|+PONG|"),
    ],
];
