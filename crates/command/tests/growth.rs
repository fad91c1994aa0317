//! A cluster that grows and shrinks while it is used: disks and servers come, columns move, servers go.

use crate::common::{Cluster, pattern, program, refusal, shell, text, trapeze};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trapeze::children::Process;
use trapeze::config::{Disk, Machine};
use trapeze::local::Shape;

const FILES: u64 = 24;

fn json_lines(out: &[u8]) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(out);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Bytes that each server holds by `status`, by name.
fn held(target: &str) -> Vec<(String, u64)> {
    let out = trapeze(&["status", "-c", target, "--json"]);
    let of = |row: &serde_json::Value| {
        let disks = row["report"]["disks"].as_array()?;
        let bytes = disks.iter().map(|disk| disk["held_bytes"].as_u64().unwrap()).sum();
        Some((row["name"].as_str()?.to_string(), bytes))
    };
    json_lines(&out.stdout).iter().filter_map(of).collect()
}

/// Starts a server that is not in the cluster's directory, with two disks.
fn join(cluster: &Cluster, name: &str, node: u16) -> Process {
    let like = Machine::load(&cluster.beside("cluster/io1.toml")).unwrap();
    let disk = |number: u16| {
        let path = cluster.beside(&format!("{name}-disk{number}"));
        trapeze::new_disk::allow(&path).unwrap();
        Disk { path, limit: None }
    };
    let listen = vec![format!("unix:{}", cluster.beside(&format!("{name}.sock")).display())];
    let disks = (0..2).map(disk).collect();
    let machine = Machine { name: name.to_string(), node, listen, disks, ..like };
    let path = cluster.beside(&format!("{name}.toml"));
    machine.save(&path).unwrap();
    let arguments = ["serve".to_string(), "--config".to_string(), path.display().to_string()];
    let log = cluster.beside(&format!("{name}.log"));
    Process::start_program(program(), name, &arguments, &log).unwrap()
}

fn name_of(file: u64) -> String {
    format!(":/data/{file}")
}

fn content(file: u64) -> Vec<u8> {
    pattern(file, 200_000 + file as usize * 40_000)
}

/// Reads every file again and again, until told to stop; how often, and that each time it was what was written.
fn read_all(target: &str, stop: &AtomicBool) -> u64 {
    let mut reads = 0;
    for file in (0..FILES).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let out = trapeze(&["cat", "-c", target, name_of(file).trim_start_matches(':')]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(out.stdout == content(file), "file {file}");
        reads += 1;
    }
    reads
}

fn rebalance(target: &str, more: &[&str]) -> Vec<serde_json::Value> {
    let arguments = [&["rebalance", "-c", target, "--json"], more].concat();
    let out = trapeze(&arguments);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    json_lines(&out.stdout)
}

/// Two servers with two disks each, and all files on them; where programs find it.
fn filled() -> (Cluster, String) {
    let cluster = Cluster::shaped(&Shape { stores: 2, ..Shape::of(2) });
    let target = cluster.processes.target();
    let local = cluster.beside("data");
    fs::create_dir(&local).unwrap();
    (0..FILES).for_each(|file| fs::write(local.join(file.to_string()), content(file)).unwrap());
    assert!(trapeze(&["cp", "-r", "-c", &target, text(&local), ":/data"]).status.success());
    (cluster, target)
}

#[test]
fn a_server_comes_takes_its_share_and_another_goes() {
    let (mut cluster, target) = filled();
    let layout = json_lines(&trapeze(&["stat", "-c", &target, "/data/3", "--json"]).stdout);
    assert_eq!(layout[0]["layout"]["width"], 4, "a column on every disk");
    let new = join(&cluster, "io3", 9);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&target, &stop));
        let stops = rig::SetOnDrop(&stop);
        // The first run is killed in the middle, slowed so that there is one.
        let mut command = Command::new(program());
        command.args(["rebalance", "-c", &target, "--rate", "2M"]).stdout(Stdio::null());
        let mut first = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        first.kill().unwrap();
        first.wait().unwrap();
        let done = rebalance(&target, &[]);
        let summary = done.last().unwrap();
        assert_eq!(summary["skipped"], 0, "{summary}");
        let held: Vec<u64> = summary["held"]
            .as_array()
            .unwrap()
            .iter()
            .map(|disk| disk["bytes"].as_u64().unwrap())
            .collect();
        let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
        assert!(held.len() == 6 && most - least < 3 << 20, "{held:?}");
        assert_eq!(rebalance(&target, &[]).last().unwrap()["moves"], 0);
        // The empty objects that moved columns leave are no problem.
        let checked = trapeze(&["check", "-c", &target]);
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
        drop(stops);
        assert!(reader.join().unwrap() > 0);
    });
    let told = held(&target);
    let new_bytes = told.iter().find(|(name, _)| name == "io3").unwrap().1;
    assert!(new_bytes > 2 << 20, "{told:?}");
    // Columns on it move away, also from a server that files are striped over everywhere.
    let done = rebalance(&target, &["--off", "io1"]);
    assert_eq!(done.last().unwrap()["skipped"], 0);
    let said = refusal(&["rebalance", "-c", &target, "--off", "io7"]);
    assert!(said.contains("io7") && said.contains("io2"), "{said}");
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    assert_eq!(read_some(&target), FILES);
    let one = cluster.beside("data/5");
    assert!(trapeze(&["cp", "-c", &target, text(&one), ":/new"]).status.success());
    let out = trapeze(&["cat", "-c", &target, "/new"]);
    assert!(out.stdout == content(5));
    new.stop().unwrap();
    cluster.stop();
}

/// Reads every file once.
fn read_some(target: &str) -> u64 {
    let right = (0..FILES).filter(|file| {
        let path = name_of(*file);
        let out = trapeze(&["cat", "-c", target, path.trim_start_matches(':')]);
        out.stdout == content(*file)
    });
    right.count() as u64
}

#[test]
fn a_disk_comes_and_a_disk_is_lost() {
    let mut cluster = Cluster::shaped(&Shape { stores: 2, ..Shape::of(1) });
    let target = cluster.processes.target();
    let file = cluster.beside("file");
    fs::write(&file, pattern(1, 1_000_000)).unwrap();
    let put = |to: &str| trapeze(&["cp", "-c", &target, text(&file), to]);
    assert!(put(":/old").status.success());
    // A third disk in the configuration: what was written is found, new files are on it too.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    let config = cluster.beside("cluster/io1.toml");
    let mut machine = Machine::load(&config).unwrap();
    let path = cluster.beside("third");
    fs::create_dir(&path).unwrap();
    machine.disks.push(Disk { path: path.clone(), limit: None });
    machine.save(&config).unwrap();
    // An empty directory, maybe a mount point without its disk, is none before a command says so.
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("disk 2") && said.contains("`trapeze disk add`"), "{said}");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "it was not touched");
    let add = ["disk", "add", "--config", text(&config), text(&path)];
    assert!(trapeze(&add).status.success());
    cluster.processes.start_server(1).unwrap();
    assert!(!trapeze::new_disk::mark(&path).exists(), "it has begun");
    assert!(refusal(&add).contains("is not empty"));
    assert!(put(":/new").status.success());
    let width = |path: &str| {
        let rows = json_lines(&trapeze(&["stat", "-c", &target, path, "--json"]).stdout);
        rows[0]["layout"]["width"].as_u64().unwrap()
    };
    assert_eq!((width("/old"), width("/new")), (2, 3));
    for path in ["/old", "/new"] {
        assert!(trapeze(&["cat", "-c", &target, path]).stdout == pattern(1, 1_000_000));
    }
    // It is lost: the others serve, and the error says which.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    fs::rename(&path, cluster.beside("away")).unwrap();
    cluster.processes.start_server(1).unwrap();
    assert!(trapeze(&["cat", "-c", &target, "/old"]).stdout == pattern(1, 1_000_000));
    let said = refusal(&["cat", "-c", &target, "/new"]);
    assert!(said.contains("Input/output error") || said.contains("EIO"), "{said}");
    let said = String::from_utf8(trapeze(&["status", "-c", &target]).stdout).unwrap();
    assert!(said.contains("disk 2") && said.contains("missing"), "{said}");
    let log = fs::read_to_string(cluster.beside("cluster/log/io1.log")).unwrap();
    assert!(log.contains("serving without") && log.contains("third"), "{log}");
    assert!(put(":/newer").status.success());
    assert_eq!(width("/newer"), 2);
    // An empty mount point is not a new disk.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    fs::create_dir(&path).unwrap();
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("disk 2") && said.contains("is empty"), "{said}");
    fs::remove_dir_all(&path).unwrap();
    fs::rename(cluster.beside("away"), &path).unwrap();
    cluster.processes.start_server(1).unwrap();
    assert!(trapeze(&["cat", "-c", &target, "/new"]).stdout == pattern(1, 1_000_000));
    // Nor is what a command says of it: the server knows how many disks it has had.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    fs::rename(&path, cluster.beside("away")).unwrap();
    trapeze::new_disk::allow(&path).unwrap();
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("disk 2") && said.contains("has had 3 disks"), "{said}");
    fs::remove_dir_all(&path).unwrap();
    fs::rename(cluster.beside("away"), &path).unwrap();
    cluster.processes.start_server(1).unwrap();
    // A machine whose configuration forgets a disk is refused: numbers would be another's.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    machine.disks.swap(0, 1);
    machine.save(&config).unwrap();
    let said = refusal(&["serve", "--config", text(&config)]);
    assert!(said.contains("disk number"), "{said}");
    cluster.stop();
}

/// The server that a rebalance moves to and the manager are killed while it runs, again and again; it is repeated until
/// it has nothing to do, as the manual says.
#[test]
fn a_rebalance_survives_the_death_of_servers_and_of_the_manager() {
    let (mut cluster, target) = filled();
    // Moved columns land on server 2; machine 0 is the manager.
    for victim in [2, 0, 2, 0] {
        let arguments = ["rebalance", "-c", &target, "--off", "io1", "--rate", "4M"];
        let mut command = Command::new(program());
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        cluster.crash(victim, Duration::from_millis(300));
        std::thread::sleep(Duration::from_millis(500));
        run.kill().unwrap();
        run.wait().unwrap();
    }
    assert_eq!(read_some(&target), FILES);
    let done = rebalance(&target, &["--off", "io1"]);
    assert_eq!(done.last().unwrap()["skipped"], 0, "{done:?}");
    assert_eq!(read_some(&target), FILES);
    // Nothing of it is on the server that went.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    assert_eq!(read_some(&target), FILES);
    cluster.stop();
}

/// The output of `quarantine list`, once there is some: the walk begins a minute after the manager's start.
fn aside(target: &str) -> Vec<serde_json::Value> {
    let mut found = Vec::new();
    for _ in 0..150 {
        found = json_lines(&trapeze(&["quarantine", "list", "-c", target, "--json"]).stdout);
        if !found.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    found
}

#[test]
fn what_a_move_leaves_behind_goes_into_quarantine_and_back_and_away() {
    let mut cluster = Cluster::bare(2);
    let target = cluster.processes.target();
    let file = cluster.beside("file");
    fs::write(&file, content(1)).unwrap();
    assert!(trapeze(&["cp", "-c", &target, text(&file), ":/file"]).status.success());
    rebalance(&target, &["--off", "io1"]);
    // An object that the server has only in its log is no file that a walk finds.
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    cluster.processes.start_server(1).unwrap();
    let found = aside(&target);
    assert!(!found.is_empty(), "nothing in quarantine after two rounds of the walk");
    let name = found[0]["object"].as_str().unwrap_or_else(|| panic!("{found:?}")).to_string();
    let run = |verb: &str| trapeze(&["quarantine", verb, "-c", &target, &name]);
    let rows = || json_lines(&trapeze(&["quarantine", "list", "-c", &target, "--json"]).stdout);
    let objects = |cluster: &Cluster| {
        shell(&cluster.beside("cluster/io1"), 10, "find . -type f -path '*quarantine*' | wc -l")
    };
    assert_eq!(objects(&cluster).trim(), "1");
    assert!(run("restore").status.success());
    assert_eq!(objects(&cluster).trim(), "0", "it is an object again");
    assert!(rows().iter().any(|row| row["object"] == name.as_str()), "{:?}", rows());
    assert!(run("purge").status.success());
    assert!(rows().is_empty(), "{:?}", rows());
    assert!(refusal(&["quarantine", "restore", "-c", &target, &name]).contains(&name));
    assert!(trapeze(&["cat", "-c", &target, "/file"]).stdout == content(1));
    cluster.stop();
}

#[test]
fn the_quarantine_of_a_new_cluster_is_empty_and_unknown_names_are_refused() {
    let mut cluster = Cluster::bare(1);
    let target = cluster.processes.target();
    let out = trapeze(&["quarantine", "list", "-c", &target]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("nothing is in quarantine"));
    let said = refusal(&["quarantine", "restore", "-c", &target, "2.0.77.1"]);
    assert!(said.contains("2.0.77.1") && said.contains("quarantine list"), "{said}");
    assert!(trapeze(&["quarantine", "purge", "--all", "-c", &target]).status.success());
    cluster.stop();
}
