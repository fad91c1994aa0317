//! Unmodified programs whose memory is a region: what they print is what they print without.

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
    command.env("TRAPEZE_RUN_FROM", "262144");
    command
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: there is no {program}");
    }
    found
}

/// What it printed; `None` where regions are not allowed.
fn finished(output: Output) -> Option<(Vec<u8>, String)> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("userfaultfd is not allowed") {
        println!("skipped: {said}");
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
    if !is_there("sort") {
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

#[test]
fn sqlite_answers_as_it_does() {
    if !is_there("sqlite3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "PRAGMA cache_size=-20000; PRAGMA journal_mode=OFF; CREATE TABLE t(a INTEGER, b TEXT);\n\
        WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<60000)\n\
        INSERT INTO t SELECT (x*7919)%60013, printf('%080d', x) FROM n;\n\
        CREATE INDEX i ON t(a); SELECT sum(a), count(*), max(b) FROM t;\n\
        SELECT group_concat(length(z)) FROM (SELECT randomblob(3000000) AS z UNION ALL SELECT zeroblob(2000000));\n\
        SELECT a, b FROM t ORDER BY b DESC, a LIMIT 5;\n";
    let answer = |mut command: Command| {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let plain = answer(Command::new("sqlite3"));
    let ours = answer(preloaded("sqlite3", 1 << 20, directory.path()));
    let Some((answers, said)) = finished(ours) else { return };
    assert_eq!(String::from_utf8_lossy(&answers), String::from_utf8_lossy(&plain.stdout));
    println!("{said}");
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
    if !is_there("redis-server") || !is_there("redis-cli") {
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
        println!("skipped: {}", said());
        return;
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
    println!("{}", said().lines().last().unwrap());
}
