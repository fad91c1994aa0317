//! Views of a running cluster: `trapeze top` and the numbers for Prometheus.

use crate::common::{
    Cluster, cannot_mount, ended_by_signals, free_ports, json_lines, lending, members, program,
    refusal, seen, shape_of, text, trapeze, until_top,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use trapeze::children::Process;
use trapeze::config::{Machine, Memory};

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
    assert!(trapeze(&["cp", "-c", &target, ":/file", text(&file)]).status.success());
    let after = scrape(&address);
    let found = sum(&after, "trapeze_reads_found_total");
    assert!(found > 0.0 && found == sum(&after, "trapeze_reads_total"), "{after}");

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
    assert!(told.contains("local us") && !told.contains("storage"), "no node has any: {told}");
    let told = String::from_utf8(trapeze(&["status", "--all", "-c", &target]).stdout).unwrap();
    assert!(told.contains("io,memory") && told.contains("lent by"), "{told}");
    cluster.processes.kill_server(1).unwrap();
    until_top(&target, all_see(2, 2));
    cluster.processes.start_server(1).unwrap();
    until_top(&target, all_see(3, 3));
    cluster.stop();
}

/// Has a client of memcached's text protocol say something; what it is told.
fn say(to: &str, words: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    told
}

#[test]
fn the_keys_of_a_member_are_in_all_that_is_shown() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let flags = ["memory", "--memcached", "127.0.0.1:0/web", "-c", &target, "--lend", "16M"];
    let flags = flags.map(String::from);
    let log = cluster.beside("memory.log");
    let member = Process::start_program(program(), "memory", &flags, &log).unwrap();
    let at = member.said.split_once("memcached at ").unwrap().1.split(' ').next().unwrap();
    let told = say(at, "set a 0 0 2\r\nhi\r\nget a\r\nget a\r\nget b\r\n");
    assert!(told.starts_with("STORED") && told.ends_with("END\r\nEND\r\n"), "{told}");

    let told = trapeze(&["status", "-c", &target, "--json"]);
    let rows = json_lines(&told);
    let keys = rows.iter().find(|row| !row["report"]["keys"].is_null()).expect("it tells");
    let web = &keys["report"]["keys"]["tenants"][0];
    assert_eq!((&web["name"], &web["items"]), (&"web".into(), &1.into()), "{web}");
    assert_eq!([&web["hits"], &web["misses"], &web["stored"]], [2, 1, 1], "{web}");
    assert!(keys["name"].as_str().unwrap().starts_with("memory-"), "{keys}");
    let table = |command: &[&str]| {
        let told = trapeze(&[command, &["-c", &target]].concat());
        String::from_utf8(told.stdout).unwrap()
    };
    for told in [table(&["status", "--all"]), table(&["top", "--count", "1"])] {
        assert!(told.contains("keys of") && told.contains(" web "), "{told}");
    }
    let told = table(&["top", "--count", "1", "--json"]);
    assert!(told.contains("\"tenants\":[{\"name\":\"web\",\"items\":1,"), "{told}");

    let mut command = ended_by_signals(program());
    command.args(["metrics", "-c", &target, "--listen", "127.0.0.1:0"]);
    let exporter = Process::start_command("metrics", command, &cluster.beside("m.log")).unwrap();
    let told = scrape(exporter.said.split("http://").nth(1).unwrap().split('/').next().unwrap());
    assert_eq!(sum(&told, "trapeze_keys_hits_total"), 2.0, "{told}");
    assert!(told.contains("tenant=\"web\""), "{told}");
    exporter.stop().unwrap();
    member.stop().unwrap();
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

/// Bytes of network memory that are the only copies of others' pages.
fn mirrors(rows: &[serde_json::Value]) -> u64 {
    rows.iter().filter_map(|row| row["memory"]["mirror_bytes"].as_u64()).sum()
}

/// A program that waits for more of its input for ever.
fn a_killed_programs_pages_are_forgotten_and_a_stopped_ones_kept(target: &str, lines: &str) {
    let run =
        ["run", "--memory", "1M", "--from", "256K", "--room", "24M", "-q", "-c", target, "--"];
    let mut command = Command::new(program());
    command.args(run).args(["sort", "--parallel=1", "-S", "6M"]).env("LC_ALL", "C");
    let mut sort = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = sort.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    until_top(target, |rows| mirrors(rows) > 0);
    kill_process(Pid::from_child(&sort), Signal::STOP).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    until_top(target, |rows| mirrors(rows) > 0);
    sort.kill().unwrap();
    sort.wait().unwrap();
    until_top(target, |rows| mirrors(rows) == 0);
    drop(input);
}

/// Three that lend, and all that they lend has chunks of a file that their caches had no room for.
fn full_of_chunks() -> Cluster {
    let size = |text: &str| text.parse().unwrap();
    let memory = Memory { pool: size("48M"), cache: size("4M"), ..Memory::default() };
    let cluster = Cluster::shaped(&shape_of(3, memory));
    let (target, file) = (cluster.processes.target(), cluster.beside("file"));
    until_top(&target, |rows| seen(rows) == [3, 3, 3]);
    fs::write(&file, vec![7; 192 << 20]).unwrap();
    assert!(trapeze(&["cp", "-c", &target, text(&file), ":/file"]).status.success());
    assert!(trapeze(&["cp", "-c", &target, ":/file", text(&file)]).status.success());
    let free = |row: &serde_json::Value| row["memory"]["free_bytes"].as_u64();
    until_top(&target, |rows| rows.iter().filter_map(free).all(|free| free < 1 << 20));
    cluster
}

/// The program that is run is a shell, and what it starts lists its descriptors.
fn nothing_of_the_key_is_open_in_what_a_program_starts(target: &str) {
    let run =
        ["run", "--memory", "1M", "--from", "256K", "--room", "24M", "-q", "-c", target, "--"];
    let mut command = Command::new(program());
    let shell = command.args(run).args(["sh", "-c", "ls -l /proc/self/fd; true"]).output().unwrap();
    let said = String::from_utf8_lossy(&shell.stdout);
    assert!(said.contains("/proc/") && !said.contains("key"), "{said}");
}

#[test]
fn a_programs_pages_are_in_the_clusters_memory() {
    let mut cluster = full_of_chunks();
    let target = cluster.processes.target();
    let lines: String = (0..60_000u64).map(|n| format!("{:016x}\n", wire::mix(n))).collect();
    let (input, plain) = (cluster.beside("input"), cluster.beside("plain"));
    fs::write(&input, &lines).unwrap();
    let sort = ["sort", "--parallel=2", "-S", "6M", text(&input)];
    let sorted = Command::new("sort").args(&sort[1..]).env("LC_ALL", "C").output().unwrap().stdout;
    fs::write(&plain, &sorted).unwrap();
    let run = ["run", "--memory", "1M", "--from", "256K", "--room", "24M", "--report", "-q", "-c"];
    let mut command = Command::new(program());
    let done = command.args(run).arg(&target).arg("--").args(sort).env("LC_ALL", "C").output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if said.contains("userfaultfd is not allowed") {
        rig::skip(said);
        return cluster.stop();
    }
    assert!(done.status.success(), "{said}");
    assert!(done.stdout == sorted, "{said}");
    assert!(said.contains(" fetched, "), "{said}");
    nothing_of_the_key_is_open_in_what_a_program_starts(&target);
    until_top(&target, |rows| mirrors(rows) == 0); // long before the nodes would forget them by themselves
    a_killed_programs_pages_are_forgotten_and_a_stopped_ones_kept(&target, &lines);
    cluster.processes.kill_server(1).unwrap();
    cluster.processes.kill_server(2).unwrap();
    until_top(&target, |rows| rows.iter().filter_map(members).collect::<Vec<_>>() == [1]);
    let said = refusal(&["run", "--memory", "1M", "-q", "-c", &target, "true"]);
    assert!(said.contains("1 of the cluster's nodes lend memory"), "{said}");
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

/// A copy of the first I/O server, with a directory and a socket of its own.
fn copy_of_io1(cluster: &Cluster) -> PathBuf {
    let mut copy = Machine::load(&cluster.beside("cluster/io1.toml")).unwrap();
    copy.listen = vec![format!("unix:{}", cluster.beside("copy.sock").display())];
    copy.disks[0].path = cluster.beside("copy");
    trapeze::new_disk::allow(&copy.disks[0].path).unwrap();
    let config = cluster.beside("copy.toml");
    copy.save(&config).unwrap();
    config
}

fn start_copy(cluster: &Cluster, config: &Path) -> Process {
    let mut command = ended_by_signals(program());
    command.args(["serve", "--config", text(config)]);
    Process::start_command("copy", command, &cluster.beside("copy.log")).unwrap()
}

/// The one that is there stays, and the other is told where it is; after its death the other takes its place, and then
/// the first is told where that is.
#[test]
fn a_machine_with_the_id_of_one_that_is_up_does_not_start() {
    let mut cluster = lending(2);
    let target = cluster.processes.target();
    until_top(&target, |rows| seen(rows) == [2, 2]);
    let config = copy_of_io1(&cluster);
    let said = refusal(&["serve", "--config", text(&config)]);
    let says = |said: &str, at: &str| {
        let parts = ["runs as node 2, io1 at unix:", at, "stop that one first"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    };
    says(&said, "cluster/run/io1.sock");
    until_top(&target, |rows| seen(rows) == [2, 2]);
    cluster.processes.kill_server(1).unwrap();
    let copy = start_copy(&cluster, &config);
    until_top(&target, |rows| seen(rows) == [2, 2]);
    let first = cluster.beside("cluster/io1.toml");
    says(&refusal(&["serve", "--config", text(&first)]), "copy.sock");
    copy.stop().unwrap();
    cluster.processes.start_server(1).unwrap();
    until_top(&target, |rows| seen(rows) == [2, 2]);
    cluster.stop();
}

/// A copy with its directories, which know the first one's incarnation, is a restart to all members: it is the machine,
/// and the first one says so and ends.
#[test]
fn a_machine_whose_place_a_later_one_takes_ends() {
    let mut cluster = lending(2);
    let target = cluster.processes.target();
    until_top(&target, |rows| seen(rows) == [2, 2]);
    let config = copy_of_io1(&cluster);
    let note = "cluster/io1/disk0/incarnation";
    fs::copy(cluster.beside(note), cluster.beside("copy/incarnation")).unwrap();
    let copy = start_copy(&cluster, &config);
    let mut first = cluster.processes.take_server(1).unwrap();
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(100 * u64::from(first.runs())));
    }
    assert!(!first.runs());
    let said = first.last_words();
    assert!(said.contains("another machine that was started later"), "{said}");
    until_top(&target, |rows| seen(rows) == [2, 2]);
    copy.stop().unwrap();
    cluster.processes.start_server(1).unwrap();
    until_top(&target, |rows| seen(rows) == [2, 2]);
    cluster.stop();
}

#[test]
fn a_cluster_for_other_machines_lends_also_its_mounts_memory() {
    if cannot_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, point, port) = (dir.path().join("data"), dir.path().join("point"), free_ports(3));
    fs::create_dir(&point).unwrap();
    let mut command = ended_by_signals(program());
    command.args(["up", "--dir", text(&data), "--servers", "1", "--mount", text(&point)]);
    command.args(["--lend", "16M", "--listen", &format!("127.0.0.1:{port}")]);
    let up = Process::start_command("up", command, &dir.path().join("log")).unwrap();
    until_top(text(&data), |rows| seen(rows) == [2, 2]);
    let (manager, key) = (format!("tcp:127.0.0.1:{port}"), data.join("key"));
    let told = trapeze(&["status", "-c", &manager, "--key", text(&key), "--json"]);
    let told = String::from_utf8(told.stdout).unwrap();
    for port in port..port + 3 {
        assert!(told.contains(&format!("tcp:127.0.0.1:{port}")), "{told}");
    }
    up.stop().unwrap();
}
