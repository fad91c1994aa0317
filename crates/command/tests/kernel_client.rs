//! The NFS client of Linux's kernel, in a guest, on a mounted export of ours: mounted by the manual's line of fstab,
//! behind a firewall that lets the manual's ports pass.

use crate::common::{Up, soaks, text, trapeze};
use crate::filter::{managers, summed};
use crate::guests::{CLIENTS, Guest, Network, SERVER, guest_file, lacks_a_guest};
use std::path::Path;
use std::time::Duration;

/// Runs these tests of the suite in a guest. `under_load` is called when the server may be killed and started,
/// `holding` when that is over and a lock from before is held still.
fn suite(guest: &mut Guest, tests: &str, mut under_load: impl FnMut(), mut holding: impl FnMut()) {
    let job = guest_file("suite.py");
    let share = if soaks() { 1 } else { 2 };
    let command = format!("chroot /host /usr/bin/python3 {} /home 7:{tests}:{share}", text(&job));
    let (lines, failed) = guest.watched(&command, |line| match line {
        "GUEST under load" => under_load(),
        "GUEST holds a lock" => holding(),
        _ => (),
    });
    let failures: Vec<&String> = lines.iter().filter(|line| line.contains("FAILED")).collect();
    assert!(failed == 0 && failures.is_empty(), "{failed} failed: {failures:#?}");
}

/// Whether a server of NFS has the guest's lock of 100 bytes, and had it from the guest again.
fn has_reclaimed(status: &str) -> bool {
    let holder = format!(r#""client":"{}""#, CLIENTS[0]);
    let status: String = status.split_whitespace().collect();
    let reclaimed = !status.contains(r#""reclaimed_locks":0"#);
    status.contains(&holder) && status.contains(r#""last":99"#) && reclaimed
}

/// A command for the cluster in a directory; what it printed.
pub fn told(dir: &Path, arguments: &[&str]) -> String {
    let output = trapeze(&[arguments, &["--cluster", text(dir)]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The guest's tests pass on what this kind of server serves of the cluster, while the server is killed and started;
/// the status after that.
fn passes(kind: &str, dir: &Path, tests: &str) -> String {
    told(dir, &["mkdir", "/home"]);
    let network = Network::new(kind, dir.parent().unwrap());
    let log = |number: usize| dir.with_file_name(format!("{kind}-{number}.log"));
    let mut server = Some(network.serve(kind, dir, &log(0)));
    let mut guest = network.boot(0);
    let (_, silent) = guest.watched(&format!("ping -c 1 -W 1 {SERVER}"), |_| ());
    assert!(silent != 0, "the firewall lets pass what it does not name");
    guest.told("chroot /host /bin/mount /home");
    let mut held = String::new();
    let under_load = || {
        for number in 1..3 {
            std::thread::sleep(Duration::from_secs(2));
            server.take().unwrap().kill().unwrap();
            std::thread::sleep(Duration::from_secs(1));
            server = Some(network.serve(kind, dir, &log(number)));
        }
    };
    let holding = || {
        held = told(dir, &["status", "--json"]);
        told(dir, &["mkdir", "/home/suite/go-on"]);
    };
    suite(&mut guest, tests, under_load, holding);
    // within the guest its kernel excludes; that the server knows the lock again is seen here
    assert!(has_reclaimed(&held), "{held}");
    guest.told("umount /host/home");
    let listed = told(dir, &["ls", "/home/suite"]);
    assert!(listed.contains("load-synced"), "what it wrote is not there: {listed}");
    server.unwrap().stop().unwrap();
    held
}

#[test]
fn the_kernels_client_works_over_a_restart_of_the_server_too() {
    if lacks_a_guest() {
        return;
    }
    let up = Up::new("2");
    passes("nfs", &up.at("data"), "all");
}

/// Four managers behind the filter, which a guest does not tell from one server.
#[test]
fn the_kernels_client_works_over_a_filter_that_is_killed() {
    if lacks_a_guest() {
        return;
    }
    let (mut cluster, dir) = managers(4);
    let status = passes("filter", &dir, "basic_trees,basic_names,general_programs,restarts");
    assert!(summed(&status, "forwarded") > 0, "managers executed what the guest called");
    cluster.stop();
}
