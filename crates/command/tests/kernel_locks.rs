//! Two guests that lock ranges of one file with fcntl(2) over NFS, of which one is killed.

use crate::common::{Up, soaks, text};
use crate::filter::summed;
use crate::guests::{CLIENTS, Guest, Network, READY, guest_file, lacks_a_guest};
use crate::kernel_client::told;
use std::path::Path;

fn mount_and_open(guest: &mut Guest) {
    guest.told("chroot /host /bin/mount /home");
    let job = guest_file("locks.py");
    guest.say(&format!("chroot /host /usr/bin/python3 {} /home/file", text(&job)));
    assert_eq!(guest.answer(), "locks");
}

/// An act of the owner of locks in a guest, and its end.
fn act(guest: &mut Guest, what: &str, end: &str) {
    guest.say(what);
    assert_eq!(guest.answer(), end, "{what}");
}

/// Both add to two numbers at the same time, each under its lock.
fn count(one: &mut Guest, two: &mut Guest, turns: u32) {
    let total = format!("numbers {0} {0}", 2 * turns);
    for guest in [&mut *one, &mut *two] {
        mount_and_open(guest);
    }
    for guest in [&mut *one, &mut *two] {
        guest.say(&format!("count {turns}"));
    }
    for guest in [&mut *one, &mut *two] {
        assert_eq!(guest.answer(), "counted");
    }
    for guest in [one, two] {
        act(guest, "read", &total);
    }
}

/// Clients with locks on the first 8 bytes, as the servers tell.
fn holders(dir: &Path) -> Vec<String> {
    let status = told(dir, &["status", "--json"]);
    let rows = status.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let holders = rows.filter_map(|row| row["report"]["nfs"]["holders"].as_array().cloned());
    let locks = holders.flatten().filter(|it| it["first"] == 0 && it["waits"] == false);
    locks.map(|it| it["client"].as_str().unwrap().to_string()).collect()
}

/// A lock of a dead guest stays its own until it has restarted and says so (NSM).
#[test]
fn two_guests_count_in_a_file_under_locks_and_one_that_was_killed_frees_its_own_by_restarting() {
    if lacks_a_guest() {
        return;
    }
    let mut up = Up::new("2");
    let dir = up.at("data");
    told(&dir, &["mkdir", "/home"]);
    let network = Network::new("locks", dir.parent().unwrap());
    let server = network.serve("nfs", &dir, &dir.with_file_name("nfs.log"));
    let [mut one, mut two] = [0, 1].map(|number| network.start(number));
    one.until(READY);
    two.until(READY);
    count(&mut one, &mut two, if soaks() { 200 } else { 20 });
    assert!(
        summed(&told(&dir, &["status", "--json"]), "granted_locks") > 0,
        "no lock was waited for"
    );

    act(&mut two, "take 0 8", "took");
    act(&mut one, "try 8 8", "took");
    drop(two);
    act(&mut one, "try 0 8", "refused");
    assert_eq!(holders(&dir), [CLIENTS[1]]);
    one.say("take 0 8");
    let two = network.boot(1);
    assert_eq!(one.answer(), "took");
    assert_eq!(holders(&dir), [CLIENTS[0]]);
    assert_eq!(summed(&told(&dir, &["status", "--json"]), "restarted_clients"), 1);
    act(&mut one, "free 0 16", "freed");
    one.say("end");
    assert_eq!(one.answer(), "done 0");
    one.told("umount /host/home");
    drop((one, two));
    server.stop().unwrap();
    up.stop();
}
