//! Two copies: files are there and can be written while any one I/O server is not, and nobody types a command.

use crate::common::{Cluster, pattern, text, trapeze};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};
use trapeze::local::Shape;

const FILES: u64 = 12;
/// How long a test waits for copies to be whole.
const PATIENCE: Duration = Duration::from_secs(120);

fn bytes_of(file: u64) -> Vec<u8> {
    pattern(file, 1_000 + (file as usize % 5) * 150_000)
}

fn status(cluster: &Cluster) -> String {
    let out = trapeze(&["status", "--all", "-c", &cluster.processes.target()]);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn wait_until_whole(cluster: &Cluster) {
    let begun = Instant::now();
    while !status(cluster).contains("every file has two whole copies") {
        assert!(begun.elapsed() < PATIENCE, "{}", status(cluster));
        sleep(Duration::from_millis(200));
    }
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
}
