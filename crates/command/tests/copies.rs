//! Two copies: files are there and can be written while any one I/O server is not, and nobody types a command.

use crate::common::{Cluster, Up, json_lines, pattern, program, refusal, said, text, trapeze};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use trapeze::children::Process;
use trapeze::config::Machine;
use trapeze::local::Shape;

const FILES: u64 = 12;
/// How long a test waits for copies to be whole. On a busy machine fills time out, and begin anew.
const PATIENCE: Duration = Duration::from_secs(300);

fn bytes_of(file: u64) -> Vec<u8> {
    pattern(file, 1_000 + (file as usize % 5) * 150_000)
}

pub fn status(cluster: &Cluster) -> String {
    let out = trapeze(&["status", "--all", "-c", &cluster.processes.target()]);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn is_whole(cluster: &Cluster) -> bool {
    status(cluster).contains("every file has two whole copies")
}

pub fn wait_until_whole(cluster: &Cluster) {
    wait_until(cluster, is_whole);
}

/// All files so far are as they were written.
fn check(cluster: &Cluster, count: u64) {
    for file in 0..count {
        let found = fs::read(cluster.at(&file.to_string())).unwrap();
        assert!(found == bytes_of(file), "file {file}");
    }
}

#[test]
fn every_io_server_dies_once_and_files_are_read_and_written_meanwhile() {
    let mut cluster = Cluster::shaped(&Shape { copies: 2, ..Shape::of(3) });
    wait_until_whole(&cluster);
    cluster.processes.mount().unwrap();
    let mut count = 0;
    for server in 1..=3 {
        for _ in 0..FILES {
            fs::write(cluster.at(&count.to_string()), bytes_of(count)).unwrap();
            count += 1;
        }
        let synced = fs::File::open(cluster.at(&(count - 1).to_string())).unwrap();
        synced.sync_all().unwrap();
        wait_until_whole(&cluster);
        cluster.processes.kill_server(server).unwrap();
        let target = cluster.processes.target();
        let out = cluster.beside(&format!("out{server}"));
        fs::create_dir(&out).unwrap();
        // Another client, which has nothing in memory.
        let copied = trapeze(&["cp", "-r", "-c", &target, ":/", text(&out)]);
        let why = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(copied.status.success(), "{why}{}", status(&cluster));
        check(&cluster, count);
        for _ in 0..FILES {
            fs::write(cluster.at(&count.to_string()), bytes_of(count)).unwrap();
            count += 1;
        }
        assert!(status(&cluster).contains("lack a copy"), "{}", status(&cluster));
        cluster.processes.start_server(server).unwrap();
        wait_until_whole(&cluster);
        check(&cluster, count);
    }
    for flags in [&["check"][..], &["check", "--deep"]] {
        let target = cluster.processes.target();
        let done = trapeze(&[flags, &["-c", &target]].concat());
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
        assert!(text.contains(&format!("{count} files")), "{text}");
        assert!(text.contains("0 damaged, 0 names unreadable, 0 objects without a file"), "{text}");
    }
}

#[test]
fn a_cluster_of_up_takes_files_when_it_is_ready() {
    let up = Up::keeping_two_copies("2");
    up.put("file", &pattern(1, 300_000));
    assert!(up.get("file") == pattern(1, 300_000));
    let why = up.refused(&["rebalance", "--widen"]);
    assert!(why.contains("this cluster keeps copies"), "{why}");
    let alone = refusal(&["up", "--copies", "2", "--servers", "1", "--dir", text(&up.at("alone"))]);
    assert!(alone.contains("--servers 2 or more"), "{alone}");
}

/// Flips a bit in each of some files, at a place that differs from file to file.
fn flip_bits(files: &[std::path::PathBuf]) {
    for (number, path) in files.iter().enumerate() {
        let mut bytes = fs::read(path).unwrap();
        let at = (number * 7_919 + 13) % bytes.len();
        bytes[at] ^= 1 << (number % 8);
        fs::write(path, bytes).unwrap();
    }
}

fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .collect();
    all.sort();
    all
}

/// Whether the first I/O server has read its whole disk twice, has repaired something, and knows of no damage.
fn is_repaired(cluster: &Cluster) -> bool {
    let rows = json_lines(&trapeze(&["status", "--json", "-c", &cluster.processes.target()]));
    let Some(row) = rows.into_iter().find(|row| row["name"] == "io1") else { return false };
    let (io, scrub) = (&row["report"]["io"], &row["report"]["disks"][0]["scrub"]);
    let is_clean = io["repaired_blocks"].as_u64() > Some(0) && io["damaged_objects"] == 0;
    is_clean && scrub["rounds"].as_u64() >= Some(2)
}

fn wait_until(cluster: &Cluster, done: impl Fn(&Cluster) -> bool) {
    let begun = Instant::now();
    while !done(cluster) {
        assert!(begun.elapsed() < PATIENCE, "{}", status(cluster));
        sleep(Duration::from_millis(200));
    }
}

/// Copies of all files by another client, which has nothing in memory.
fn check_anew(cluster: &Cluster, name: &str, count: u64) {
    let out = cluster.beside(name);
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    let copied = trapeze(&["cp", "-r", "-c", &cluster.processes.target(), ":/", text(&out)]);
    let why = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(copied.status.success(), "{why}{}", status(cluster));
    for file in 0..count {
        assert!(fs::read(out.join(file.to_string())).unwrap() == bytes_of(file), "file {file}");
    }
}

#[test]
fn a_damaged_copy_is_repaired_from_the_other() {
    let mut cluster = Cluster::shaped(&Shape { copies: 2, ..Shape::of(3) });
    wait_until_whole(&cluster);
    cluster.processes.mount().unwrap();
    let count = 3 * FILES;
    for file in 0..count {
        fs::write(cluster.at(&file.to_string()), bytes_of(file)).unwrap();
    }
    cluster.processes.unmount().unwrap();
    // New groups are filled once; then a clean stop puts all of it in place.
    wait_until_whole(&cluster);
    cluster.processes.take_server(1).unwrap().stop().unwrap();
    let objects = files_below(&cluster.beside("cluster/io1/disk0/objects"));
    assert!(objects.len() > 20, "{objects:?}");
    flip_bits(&objects);
    let config = cluster.beside("cluster/io1.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("scrub = 0.00002\n{text}")).unwrap();
    cluster.processes.start_server(1).unwrap();
    wait_until(&cluster, |cluster| is_repaired(cluster) && is_whole(cluster));
    // Each file, with the damaged server alone having its copy.
    for other in [2, 3] {
        cluster.processes.kill_server(other).unwrap();
        check_anew(&cluster, &format!("without{other}"), count);
        cluster.processes.start_server(other).unwrap();
        wait_until_whole(&cluster);
    }
}

/// A cluster of three servers with files, and the number of these.
fn filled() -> (Cluster, u64) {
    let mut cluster = Cluster::shaped(&Shape { copies: 2, ..Shape::of(3) });
    wait_until_whole(&cluster);
    cluster.processes.mount().unwrap();
    for file in 0..3 * FILES {
        fs::write(cluster.at(&file.to_string()), bytes_of(file)).unwrap();
    }
    for file in 0..3 * FILES {
        fs::File::open(cluster.at(&file.to_string())).unwrap().sync_all().unwrap();
    }
    cluster.processes.unmount().unwrap();
    wait_until_whole(&cluster);
    (cluster, 3 * FILES)
}

/// All files, with each of the servers but one killed in turn.
fn check_without_each_of(cluster: &mut Cluster, others: &[usize], count: u64) {
    for other in others {
        kill(cluster, *other);
        check_anew(cluster, &format!("without{other}"), count);
        cluster.processes.start_server(*other).unwrap();
        wait_until_whole(cluster);
    }
}

/// Kills a server, and waits until the others go on without it.
fn kill(cluster: &mut Cluster, number: usize) {
    cluster.processes.kill_server(number).unwrap();
    wait_until(cluster, |cluster| status(cluster).contains("lack a copy"));
}

/// Of one that is down. Its directory is empty, and what it had comes from the others.
fn replace_machine(cluster: &mut Cluster, number: usize) {
    wait_until(cluster, |cluster| status(cluster).contains("lack a copy"));
    fs::remove_dir_all(cluster.beside(&format!("cluster/io{number}"))).unwrap();
    let config = cluster.beside(&format!("cluster/io{number}.toml"));
    let replaced = trapeze(&["disk", "replace", "--config", text(&config)]);
    assert!(replaced.status.success(), "{}", said(&replaced));
    cluster.processes.start_server(number).unwrap();
    wait_until_whole(cluster);
}

/// Groups that a server has a copy of, once the manager has spread them: all were whole without it, too.
fn groups_at(cluster: &Cluster, server: &str) -> u64 {
    let target = cluster.processes.target();
    let spread = trapeze(&["rebalance", "--json", "-c", &target]);
    assert!(spread.status.success(), "{}", said(&spread));
    let rows = json_lines(&spread).into_iter().filter(|row| row["server"] == server);
    rows.filter_map(|row| row["groups"].as_u64()).sum()
}

#[test]
fn a_machine_whose_directory_is_gone_is_replaced_by_an_empty_one_that_is_filled() {
    let (mut cluster, count) = filled();
    for _ in 0..2 {
        kill(&mut cluster, 2);
        replace_machine(&mut cluster, 2);
    }
    assert!(groups_at(&cluster, "io2") > 0, "it has taken its share");
    let config = cluster.beside("cluster/io2.toml");
    let full = refusal(&["disk", "replace", "--config", text(&config)]);
    assert!(full.contains("has something in its directory"), "{full}");
    check_without_each_of(&mut cluster, &[1, 3], count);
}

#[test]
fn an_older_backup_of_a_machine_beside_its_replacement_never_serves() {
    let (mut cluster, count) = filled();
    cluster.processes.take_server(2).unwrap().stop().unwrap();
    let (home, backup) = (cluster.beside("cluster/io2"), cluster.beside("backup"));
    let copied = std::process::Command::new("cp").arg("-a").args([&home, &backup]).status();
    assert!(copied.unwrap().success());
    replace_machine(&mut cluster, 2);
    // The backup is old from now on.
    cluster.processes.mount().unwrap();
    for file in 0..count {
        fs::remove_file(cluster.at(&file.to_string())).unwrap();
        fs::write(cluster.at(&file.to_string()), bytes_of(file)).unwrap();
    }
    cluster.processes.unmount().unwrap();
    let mut older = Machine::load(&cluster.beside("cluster/io2.toml")).unwrap();
    older.disks[0].path = backup.join("disk0");
    older.listen[0] = older.listen[0].replace("io2.sock", "older.sock");
    let path = cluster.beside("cluster/older.toml");
    older.save(&path).unwrap();
    let beside = refusal(&["serve", "--config", text(&path)]);
    assert!(beside.contains("runs as node"), "{beside}");
    kill(&mut cluster, 2);
    let arguments = ["serve", "--config", text(&path)].map(String::from);
    let log = cluster.beside("older.log");
    let older = Process::start_program(program(), "older", &arguments, &log).unwrap();
    wait_until(&cluster, |cluster| status(cluster).contains("the cluster knows another disk here"));
    check_anew(&cluster, "beside_older", count);
    older.stop().unwrap();
    cluster.processes.start_server(2).unwrap();
    wait_until_whole(&cluster);
    check_without_each_of(&mut cluster, &[1, 3], count);
}

/// Whether every group goes on without a server that had a copy of each.
fn goes_on_without_it(cluster: &Cluster) -> bool {
    let rows = json_lines(&trapeze(&["status", "--json", "-c", &cluster.processes.target()]));
    let Some(row) = rows.into_iter().find(|row| row["name"] == "manager") else { return false };
    let report = &row["report"];
    report["groups"].as_u64() > Some(0) && report["groups_lacking"] == report["groups"]
}

/// Starts `rebalance` of the cluster with these arguments.
fn rebalance(cluster: &Cluster, arguments: &[&str]) -> std::process::Child {
    let mut command = std::process::Command::new(program());
    command.args(["rebalance", "-c", &cluster.processes.target()]).args(arguments);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().unwrap()
}

fn ended(run: std::process::Child) -> String {
    let out = run.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_server_is_emptied_while_commands_and_the_manager_die_and_is_forgotten() {
    let (mut cluster, count) = filled();
    let target = cluster.processes.target();
    let spread = ended(rebalance(&cluster, &[]));
    assert!(spread.contains("io3"), "{spread}");
    let mut run = rebalance(&cluster, &["--off", "io3"]);
    sleep(Duration::from_secs(2));
    run.kill().unwrap();
    run.wait().unwrap();
    cluster.processes.kill_server(0).unwrap();
    cluster.processes.start_server(0).unwrap();
    let empty = ended(rebalance(&cluster, &["--off", "io3"]));
    assert!(empty.contains("empty: may go"), "{empty}");
    let more = refusal(&["rebalance", "-c", &target, "--off", "io2:0"]);
    assert!(more.contains("add a server"), "{more}");
    ended(rebalance(&cluster, &["--back", "io2:0"]));
    cluster.processes.kill_server(3).unwrap();
    assert!(!status(&cluster).contains("lack a copy"), "it had nothing");
    check_anew(&cluster, "without_it", count);
    let begun = Instant::now();
    while !trapeze(&["forget", "-c", &target, "io3"]).status.success() {
        assert!(begun.elapsed() < PATIENCE, "{}", refusal(&["forget", "-c", &target, "io3"]));
        sleep(Duration::from_secs(1));
    }
    // One of the two that are left has the only whole copies.
    cluster.processes.kill_server(1).unwrap();
    wait_until(&cluster, goes_on_without_it);
    cluster.processes.kill_server(2).unwrap();
    wait_until(&cluster, |_| {
        let out = trapeze(&["forget", "-c", &target, "io2"]);
        assert!(!out.status.success());
        said(&out).contains("the only whole copy of some files")
    });
    cluster.processes.start_server(1).unwrap();
    cluster.processes.start_server(2).unwrap();
    wait_until_whole(&cluster);
    check_without_each_of(&mut cluster, &[1, 2], count);
}
