//! Unmodified programs whose memory is a region: what they print is what they print without.

use rig::{lacks, skip};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Cargo puts the library beside the programs that test it.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libpreload.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

fn preloaded(program: &str, memory: usize, spill: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("TRAPEZE_RUN_MEMORY", memory.to_string());
    command.env("TRAPEZE_RUN_SPILL", spill).env("TRAPEZE_RUN_REPORT", "1");
    command
}

/// Its output; `None` where regions are not allowed.
fn finished(output: Output) -> Option<(Vec<u8>, String)> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("userfaultfd is not allowed") {
        skip(said);
        return None;
    }
    let (code, signal) = (output.status.code(), output.status.signal());
    assert!(output.status.success(), "{code:?} {signal:?} {said}");
    Some((output.stdout, said))
}

/// Pages that came back from the file, as the report says.
fn fetched(said: &str) -> u64 {
    let before = said.split(" fetched,").next().filter(|before| before.len() < said.len());
    let count = before.and_then(|before| before.rsplit(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("no report: {said}"))
}

const PIECE: usize = 1 << 20;

/// Not a test: a program that takes all that it may have, and more.
#[test]
#[ignore = "run by the test below, with the library before it"]
fn greedy() {
    let Ok(room) = std::env::var("TRAPEZE_RUN_ROOM") else { return }; // a soak runs what is ignored too
    let room: usize = room.parse().unwrap();
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which nothing else uses.
    let map = || unsafe { libc::mmap(std::ptr::null_mut(), PIECE, access, flags, -1, 0) };
    // SAFETY: as above. That it is looked at keeps the compiler from leaving it out.
    let malloc = |bytes| std::hint::black_box(unsafe { libc::malloc(bytes) });
    let out_of_memory = || std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM);
    let mut maps = Vec::new();
    loop {
        let at = map();
        if at == libc::MAP_FAILED {
            break;
        }
        // SAFETY: as above.
        unsafe { at.cast::<u8>().write(7) };
        maps.push(at);
        assert!(maps.len() * PIECE <= room, "{} pieces in {room} bytes", maps.len());
    }
    assert!(out_of_memory());
    assert_eq!(maps.len() * PIECE, room, "all of it was to be had");
    assert!(malloc(PIECE).is_null() && out_of_memory());
    assert!(!malloc(PIECE / 8).is_null(), "what is small is not in the region");
    // SAFETY: it is a whole mapping, which is not used any more.
    assert_eq!(unsafe { libc::munmap(maps.pop().unwrap(), PIECE) }, 0);
    assert!(!malloc(PIECE).is_null(), "what was given back is there again");
    println!("greedy to the end");
}

#[test]
fn more_than_the_room_is_refused_by_mmap_as_by_malloc() {
    let directory = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let mut command = preloaded(own.to_str().unwrap(), 1 << 20, directory.path());
    command.args(["--exact", "greedy", "--ignored", "--nocapture"]);
    command.env("TRAPEZE_RUN_ROOM", (6 * PIECE).to_string()).env_remove(rig::SKIPS);
    command.env("RUST_BACKTRACE", "0"); // which would need memory that is not to be had then
    let Some((told, said)) = finished(command.output().unwrap()) else { return };
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("greedy to the end"), "{told}");
    assert!(said.contains("; 2 requests found no room (--room)"), "{said}");
}

/// Lines of numbers that look random, 3 MiB.
fn lines() -> String {
    let mut state = 1u64;
    let mut text = String::new();
    for _ in 0..180_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:016}\n", state >> 11));
    }
    text
}

#[test]
fn sort_sorts_in_a_fraction_of_its_memory() {
    if lacks("sort") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("input");
    std::fs::write(&input, lines()).unwrap();
    let arguments = ["--parallel=2", "-S", "16M"];
    let plain = Command::new("sort").args(arguments).arg(&input).env("LC_ALL", "C").output();
    let mut command = preloaded("sort", 1 << 20, directory.path());
    let output = command.args(arguments).arg(&input).env("LC_ALL", "C").output().unwrap();
    let Some((sorted, said)) = finished(output) else { return };
    assert!(sorted == plain.unwrap().stdout);
    assert!(fetched(&said) > 0, "{said}");
}

const TABLE: &str = "CREATE TABLE t(a INTEGER, b TEXT);\n\
    WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<60000)\n\
    INSERT INTO t SELECT (x*7919)%60013, printf('%080d', x) FROM n;\n";

/// The answers with the memory of a region and without are the same, and pages of it left and came back.
fn sqlite(arguments: &[&str], script: &str) {
    if lacks("sqlite3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let answer = |mut command: Command| {
        let command = command.args(arguments).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let plain = answer(Command::new("sqlite3"));
    let ours = answer(preloaded("sqlite3", 1 << 20, directory.path()));
    let Some((answers, said)) = finished(ours) else { return };
    assert_eq!(String::from_utf8_lossy(&answers), String::from_utf8_lossy(&plain.stdout));
    assert!(plain.status.success() && !plain.stdout.is_empty());
    assert!(fetched(&said) > 0, "{said}");
}

#[test]
fn sqlite_sorts_in_a_fraction_of_its_memory() {
    let sorts = "CREATE INDEX i ON t(a); SELECT sum(a), count(*), max(b) FROM t;\n\
        SELECT group_concat(length(z)) FROM (SELECT randomblob(3000000) AS z UNION ALL SELECT zeroblob(2000000));\n\
        SELECT a, b FROM t ORDER BY b DESC, a LIMIT 5; SELECT b FROM t GROUP BY b ORDER BY a LIMIT 5;\n";
    let cache = "PRAGMA cache_size=-20000; PRAGMA journal_mode=OFF;";
    sqlite(&[], &format!("{cache} {TABLE} {sorts}"));
}

/// SQLite takes memory for its tables page by page, unless it has one piece for all of them.
#[test]
fn sqlite_has_its_tables_in_a_fraction_of_their_memory() {
    let queries = "SELECT sum(a), count(*), max(b) FROM t WHERE a % 3 = 1; SELECT sum(a*a) FROM t;\n\
        UPDATE t SET a = a + 1 WHERE a % 5 = 2; SELECT sum(a), min(b) FROM t;\n";
    sqlite(&["-pagecache", "8192", "1500"], &format!("{TABLE} {queries}"));
}

/// Does not outlive a test that fails.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_keeps_its_values() {
    if lacks("redis-server") || lacks("redis-cli") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("redis.sock");
    let mut command = preloaded("redis-server", 1 << 20, directory.path());
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
    let output = directory.path().join("log");
    let log = std::fs::File::create(&output).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut server = Server(command.spawn().unwrap());
    let ask = |text: &str| {
        let mut client = Command::new("redis-cli");
        client.arg("-s").arg(&socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = client.stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    for _ in 0..100 {
        if server.0.try_wait().unwrap().is_some() || ask("PING\n").contains("PONG") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let said = || std::fs::read_to_string(&output).unwrap();
    if said().contains("userfaultfd is not allowed") {
        return skip(said());
    }
    let value = |n: usize| format!("{n:06}").repeat(500);
    let sets: String = (0..1_000).map(|n| format!("SET key{n} {}\n", value(n))).collect();
    assert_eq!(ask(&sets).matches("OK").count(), 1_000, "{}", said());
    let gets: String = (0..1_000).map(|n| format!("GET key{n}\n")).collect();
    let got = ask(&gets);
    for (n, line) in got.lines().enumerate() {
        assert_eq!(line, value(n), "key{n}");
    }
    assert_eq!(got.lines().count(), 1_000);
    ask("SHUTDOWN NOSAVE\n");
    assert!(server.0.wait().unwrap().success(), "{}", said());
    assert!(fetched(&said()) > 0, "{}", said());
}
