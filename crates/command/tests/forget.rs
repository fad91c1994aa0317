//! A machine or a disk that is gone for good: what users meet before and after it is declared so.

use crate::common::{Cluster, json_lines, pattern, refusal, text, trapeze};
use std::fs;
use std::path::Path;
use std::process::Output;
use std::thread::sleep;
use std::time::Duration;
use trapeze::config::Machine;
use trapeze::local::Shape;

const FILES: u64 = 12;

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A tree in the cluster, half of whose files are small enough for one column.
fn fill(cluster: &Cluster) -> String {
    let local = cluster.beside("data");
    fs::create_dir(&local).unwrap();
    for file in 0..FILES {
        let bytes = if file.is_multiple_of(2) { 1000 } else { 400_000 };
        fs::write(local.join(file.to_string()), pattern(file, bytes)).unwrap();
    }
    let target = cluster.processes.target();
    assert!(trapeze(&["cp", "-r", "-c", &target, text(&local), ":/data"]).status.success());
    target
}

/// Copies everything out; how many files came, each whole, and what was said.
fn copy_out(target: &str, to: &Path) -> (u64, Output) {
    let out = trapeze(&["cp", "-r", "-c", target, ":/data", text(to), "--json"]);
    let whole = |file: &u64| {
        let bytes = if file.is_multiple_of(2) { 1000 } else { 400_000 };
        fs::read(to.join(file.to_string())).is_ok_and(|data| data == pattern(*file, bytes))
    };
    ((0..FILES).filter(whole).count() as u64, out)
}

/// Declares it gone as soon as its lease has ended; until then it counts as up, and that is said.
fn forget(target: &str, arguments: &[&str]) {
    loop {
        let out = trapeze(&[&["forget", "-c", target], arguments].concat());
        if out.status.success() {
            return;
        }
        assert!(said(&out).contains("is up, or was until a few seconds ago"), "{}", said(&out));
        sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_dead_server_costs_its_files_and_one_that_is_forgotten_no_time() {
    let mut cluster = Cluster::bare(3);
    let target = fill(&cluster);
    assert!(refusal(&["forget", "-c", &target, "io2"]).contains("io2 is up"));
    assert!(refusal(&["forget", "-c", &target, "manager"]).contains("is a file manager"));
    let unknown = refusal(&["forget", "-c", &target, "io9"]);
    assert!(unknown.contains("no server named io9; it has manager, io1"), "{unknown}");
    cluster.processes.kill_server(2).unwrap();

    let (whole, out) = copy_out(&target, &cluster.beside("first"));
    assert!(!out.status.success() && whole < FILES);
    let told = said(&out);
    assert!(told.contains("trapeze: waiting for io2: "), "{told}");
    let left_out = told.lines().filter(|line| line.contains("/data/")).count() as u64;
    assert_eq!(whole + left_out, FILES, "all others are copied, each that is not is named: {told}");
    let away = refusal(&["rebalance", "-c", &target, "--off", "io2"]);
    assert!(away.contains("io2 is down") && away.contains("trapeze forget io2"), "{away}");

    forget(&target, &["io2"]);
    let status = trapeze(&["status", "-c", &target, "--all"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("gone for good"));
    let counted = format!("({left_out} files have a part there: trapeze forget --files NAME)");
    let status_counts = || {
        sleep(Duration::from_millis(100));
        let status = trapeze(&["status", "-c", &target]);
        String::from_utf8_lossy(&status.stdout).contains(&counted)
    };
    assert!((0..50).any(|_| status_counts()), "{counted}");
    let (still, out) = copy_out(&target, &cluster.beside("second"));
    assert!(still == whole && !out.status.success() && !said(&out).contains("waiting"));
    let listed = json_lines(&trapeze(&["forget", "-c", &target, "io2", "--files", "--json"]));
    let summary = listed.last().unwrap();
    assert_eq!((&summary["files"], &summary["concerned"]), (&FILES.into(), &left_out.into()));
    assert!(trapeze(&["rm", "-r", "-c", &target, ":/data"]).status.success());
    fs::remove_dir_all(cluster.beside("first")).unwrap();
    let anew = cluster.beside("data");
    assert!(trapeze(&["cp", "-r", "-c", &target, text(&anew), ":/data"]).status.success());
    assert_eq!(copy_out(&target, &cluster.beside("first")).0, FILES, "on the others");
    cluster.stop();
}

#[test]
fn what_was_declared_gone_and_comes_back_is_refused_by_name() {
    let mut cluster = Cluster::shaped(&Shape { stores: 2, ..Shape::of(2) });
    let target = fill(&cluster);
    cluster.processes.kill_server(2).unwrap();
    fs::rename(cluster.beside("cluster/io2/disk1"), cluster.beside("lost")).unwrap();
    cluster.processes.start_server(2).unwrap();
    let none = refusal(&["forget", "-c", &target, "io2", "--disk", "7"]);
    assert!(none.contains("has no disk 7; it has 2"), "{none}");
    assert!(refusal(&["forget", "-c", &target, "io2", "--disk", "0"]).contains("in use"));
    forget(&target, &["io2", "--disk", "1"]);
    let status = json_lines(&trapeze(&["status", "-c", &target, "--json"]));
    assert!(status.iter().any(|row| row["gone_disks"] == 2), "{status:?}");

    cluster.processes.take_server(2).unwrap().kill().unwrap();
    fs::rename(cluster.beside("lost"), cluster.beside("cluster/io2/disk1")).unwrap();
    let config = cluster.beside("cluster/io2.toml");
    let back = refusal(&["serve", "--config", text(&config)]);
    assert!(back.contains("disk 1 of io2 was declared gone"), "{back}");
    forget(&target, &["io2"]);
    let back = refusal(&["serve", "--config", text(&config)]);
    assert!(back.contains("io2 was declared gone with `trapeze forget`"), "{back}");

    let old = Machine::load(&config).unwrap();
    let mut new = Machine { node: 9, ..old };
    for disk in &mut new.disks {
        disk.path.as_mut_os_string().push("-new");
        trapeze::new_disk::allow(&disk.path).unwrap();
    }
    new.save(&config).unwrap();
    cluster.processes.start_server(2).unwrap();
    let rows = json_lines(&trapeze(&["status", "-c", &target, "--json"]));
    let alive = |row: &&serde_json::Value| row["name"] == "io2" && row["alive"] == true;
    assert_eq!(rows.iter().filter(alive).count(), 1, "another machine has the name: {rows:?}");
    cluster.stop();
}
