//! What a running cluster shows: `trapeze top` and the numbers for Prometheus.

mod common;

use common::{Cluster, cannot_mount, ended_by_signals, program, refusal, text, trapeze};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use trapeze::children::Process;
use trapeze::config::{Machine, Memory};
use trapeze::local::Shape;

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    told
}

/// The sum over all servers.
fn sum(told: &str, metric: &str) -> f64 {
    let of = |line: &str| {
        let rest = line.strip_prefix(metric)?.strip_prefix('{')?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    told.lines().filter_map(of).sum()
}

#[test]
fn what_was_written_shows_and_who_died_is_down() {
    let mut cluster = Cluster::bare(2);
    let target = cluster.processes.target();
    let mut command = ended_by_signals(program());
    command.args(["metrics", "-c", &target, "--listen", "127.0.0.1:0"]);
    let mut exporter = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(exporter.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.split("http://").nth(1).unwrap().split('/').next().unwrap().to_string();

    let before = scrape(&address);
    let file = cluster.beside("file");
    fs::write(&file, vec![7; 3 << 20]).unwrap();
    assert!(trapeze(&["cp", "-c", &target, text(&file), ":/file"]).status.success());
    let after = scrape(&address);
    let written = |told: &str| sum(told, "trapeze_written_bytes_total");
    assert!(written(&after) - written(&before) >= (3 << 20) as f64, "{after}");
    assert_eq!(sum(&after, "trapeze_disk_serving"), 2.0, "{after}");

    cluster.processes.kill_server(1).unwrap();
    let up = |told: &str| {
        let io = told.lines().filter(|line| line.starts_with("trapeze_up{") && line.contains("io"));
        io.filter(|line| line.ends_with(" 1")).count()
    };
    assert_eq!((up(&after), up(&scrape(&address))), (2, 1));
    kill_process(Pid::from_child(&exporter), Signal::TERM).unwrap();
    assert!(exporter.wait().unwrap().success(), "it ends when it is asked to");
    cluster.processes.start_server(1).unwrap();
    cluster.stop();
}

#[test]
fn top_ends_after_so_many_pictures() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let done = trapeze(&["top", "-c", &target, "--count", "2", "--json"]);
    let told = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success());
    assert_eq!(told.lines().filter(|line| line.contains("\"name\":\"io1\"")).count(), 2, "{told}");
    let done = trapeze(&["top", "-c", &target, "--count", "1"]);
    let told = String::from_utf8(done.stdout).unwrap();
    assert!(told.contains("reads/s") && told.contains("\nio1 "), "{told}");
    cluster.stop();
}

/// Asks until `done` of the picture of `top`, for half a minute at most.
fn until_top(target: &str, done: impl Fn(&[serde_json::Value]) -> bool) {
    for _ in 0..30 {
        let told = trapeze(&["top", "-c", target, "--count", "1", "--json"]).stdout;
        let told = String::from_utf8(told).unwrap();
        let rows: Vec<serde_json::Value> =
            told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if done(&rows) {
            return;
        }
    }
    panic!("not seen in time");
}

fn lending(servers: u16) -> Cluster {
    let shape = Shape::of(servers);
    let lend = Some("32M".parse().unwrap());
    let memory = Memory { lend, ..shape.memory };
    Cluster::shaped(&Shape { memory, ..shape })
}

fn members(row: &serde_json::Value) -> Option<u64> {
    row["memory"]["members"].as_u64().filter(|_| row["memory"]["settled"] == true)
}

#[test]
fn who_lends_memory_is_seen_by_all_and_missed_when_it_ends() {
    let mut cluster = lending(3);
    let target = cluster.processes.target();
    let all_see = |count: u64, lenders: usize| {
        move |rows: &[serde_json::Value]| {
            let seen: Vec<u64> = rows.iter().filter_map(members).collect();
            seen.len() == lenders && seen.iter().all(|members| *members == count)
        }
    };
    until_top(&target, all_see(3, 3));
    let told = String::from_utf8(trapeze(&["top", "-c", &target, "--count", "1"]).stdout).unwrap();
    assert!(told.contains("lent by") && told.contains("hosted"), "{told}");
    let told = String::from_utf8(trapeze(&["status", "-c", &target]).stdout).unwrap();
    assert!(told.contains("io,memory") && told.contains("lent by"), "{told}");
    cluster.processes.kill_server(1).unwrap();
    until_top(&target, all_see(2, 2));
    cluster.processes.start_server(1).unwrap();
    until_top(&target, all_see(3, 3));
    cluster.stop();
}

#[test]
fn a_mount_lends_memory_while_it_is_there() {
    if cannot_mount() {
        return;
    }
    let mut cluster = lending(1);
    let (target, point) = (cluster.processes.target(), cluster.beside("point"));
    fs::create_dir(&point).unwrap();
    let mut command = ended_by_signals(program());
    command.args(["mount", &target, text(&point), "--lend", "16M", "--keep", "0"]);
    let mut mount = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(mount.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    until_top(&target, |rows| {
        let is_mount = |row: &&serde_json::Value| row["memory"]["lent_bytes"] == 16 << 20;
        rows.iter().find(is_mount).is_some_and(|row| members(row) == Some(2))
    });
    let sockets = || fs::read_dir(cluster.beside("cluster/run")).unwrap().count();
    assert_eq!(sockets(), 3, "manager, io1, the mount");
    kill_process(Pid::from_child(&mount), Signal::TERM).unwrap();
    assert!(mount.wait().unwrap().success());
    assert_eq!(sockets(), 2);
    until_top(&target, |rows| rows.iter().filter_map(members).collect::<Vec<_>>() == [1]);
    cluster.stop();
}

#[test]
fn what_cannot_be_lent_is_refused() {
    let mut cluster = lending(1);
    let (target, config) = (cluster.processes.target(), cluster.beside("cluster/io1.toml"));
    let point = cluster.beside("point");
    fs::create_dir(&point).unwrap();
    for (flags, says) in [
        (&["--lend", "0"][..], "lend 16M or more"),
        (&["--lend", "800T"], "more than this machine's memory"),
        (&["--lend", "20M", "--keep", "1G"], "`keep` (1G) is more than `lend` (20M)"),
    ] {
        let mount = [&["mount", &target, text(&point)][..], flags].concat();
        let said = refusal(&mount);
        assert!(said.contains(says), "{said}");
    }
    for (flags, says) in [(["--lend", "lots"], "is no size"), (["--keep", "1M"], "--lend <SIZE>")] {
        let done = trapeze(&[&["mount", &target, text(&point)][..], &flags].concat());
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success() && said.contains(says), "{said}");
    }
    let said = refusal(&["mount", "tcp:127.0.0.1:9", text(&point), "--insecure", "--lend", "20M"]);
    assert!(said.contains("--listen HOST:PORT"), "{said}");
    let said = refusal(&["mount", &target, text(&point), "--lend", "20M", "--listen", "nowhere"]);
    assert!(said.contains("nowhere is no address"), "{said}");
    cluster.stop();
    let greedy = fs::read_to_string(&config).unwrap().replace("\"32M\"", "\"3000T\"");
    fs::write(&config, greedy).unwrap();
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("io1.toml") && said.contains("lend less"), "{said}");
}

/// A machine that was started from a copy of another's configuration: the later one is the member, the other is told
/// so, and there is one lender of that id.
#[test]
fn of_two_machines_with_one_id_the_later_one_lends() {
    let mut cluster = lending(2);
    let target = cluster.processes.target();
    let seen = |rows: &[serde_json::Value]| rows.iter().filter_map(members).collect::<Vec<_>>();
    until_top(&target, |rows| seen(rows) == [2, 2]);
    let mut copy = Machine::load(&cluster.beside("cluster/io1.toml")).unwrap();
    copy.listen = vec![format!("unix:{}", cluster.beside("copy.sock").display())];
    copy.disks[0].path = cluster.beside("copy");
    fs::create_dir(&copy.disks[0].path).unwrap();
    let (config, log) = (cluster.beside("copy.toml"), cluster.beside("copy.log"));
    copy.save(&config).unwrap();
    let mut command = ended_by_signals(program());
    command.args(["serve", "--config", text(&config)]);
    let copy = Process::start_command("copy", command, &log).unwrap();
    let told = || cluster.processes.server(1).unwrap().last_words().contains("the same id");
    until_top(&target, |rows| seen(rows) == [2, 2] && told());
    until_top(&target, |rows| seen(rows) == [2, 2]);
    copy.stop().unwrap();
    cluster.processes.take_server(1).unwrap().kill().unwrap();
    cluster.processes.start_server(1).unwrap();
    until_top(&target, |rows| seen(rows) == [2, 2]);
    cluster.stop();
}
