//! What a running cluster shows: `trapeze top` and the numbers for Prometheus.

mod common;

use common::{Cluster, ended_by_signals, program, text, trapeze};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

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
