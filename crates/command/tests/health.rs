//! Whether all is well, as people and monitors are told.

use crate::common::{Cluster, json_lines, trapeze};
use std::process::Output;

fn told(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn the_first_line_and_the_exit_code_say_whether_all_is_well() {
    let mut cluster = Cluster::bare(2);
    let target = cluster.processes.target();
    let ask = |command: &[&str]| trapeze(&[command, &["-c", &target]].concat());
    let status = ask(&["status"]);
    let text = told(&status);
    assert!(status.status.success() && text.starts_with("all is well: 3 servers, 0 clients"));
    assert!(!text.contains("link of") && told(&ask(&["status", "--all"])).contains("link of"));
    let health = ask(&["health"]);
    assert!(health.status.success() && health.stdout.is_empty() && health.stderr.is_empty());
    cluster.processes.kill_server(2).unwrap();
    let status = ask(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    let text = told(&status);
    assert!(text.starts_with("NOT WELL: io2 is "), "{text}");
    assert!(status.stderr.is_empty(), "it was said: {status:?}");
    let health = ask(&["health"]);
    assert_eq!((health.status.code(), told(&health).lines().count()), (Some(1), 1), "{health:?}");
    let row = json_lines(&ask(&["health", "--json"])).remove(0);
    assert_eq!(row["well"], false);
    assert!(row["troubles"][0].as_str().unwrap().starts_with("io2 is "), "{row}");
    cluster.processes.start_server(2).unwrap();
    cluster.stop();
}

#[test]
fn several_servers_on_one_real_disk_have_its_room_once() {
    let mut cluster = Cluster::bare(3);
    let target = cluster.processes.target();
    let row = json_lines(&trapeze(&["df", "--json", "-c", &target])).remove(0);
    let real = rustix::fs::statvfs(cluster.beside("cluster")).unwrap();
    assert_eq!(row["total_bytes"].as_u64().unwrap(), real.f_blocks * real.f_frsize, "{row}");
    cluster.stop();
}
