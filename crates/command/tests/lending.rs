//! A cluster whose machines lend each other memory, under load, while its processes are killed, stopped for a while,
//! and the manager's disk is full.

mod common;
mod load;

use common::{shell, soaks};
use load::lending::{ALL, Front, Lending, Machine, Mount, Who};
use std::fs;
use std::time::Duration;

/// Every process a few times, or two now and then.
fn victims(few: [Who; 2]) -> Vec<Who> {
    if soaks() { ALL.repeat(4) } else { few.to_vec() }
}

#[test]
fn nothing_is_lost_or_wrong_when_who_lends_is_killed() {
    let Some(mut lending) = Lending::start() else { return };
    lending.under_load(|lending| {
        for who in victims([Machine(1), Mount]) {
            println!("{who:?} is killed");
            lending.kill(who);
        }
    });
    lending.end();
}

#[test]
fn nothing_is_lost_or_wrong_when_who_lends_is_stopped_for_a_while() {
    let Some(mut lending) = Lending::start() else { return };
    lending.under_load(|lending| {
        for who in victims([Machine(2), Front(0)]) {
            println!("{who:?} is stopped");
            lending.stop_for_a_while(who);
        }
    });
    lending.end();
}

/// Names are made until that is refused; who dies meanwhile comes back, and who was told of a name finds it.
#[test]
fn nothing_is_lost_or_wrong_when_the_managers_disk_is_full() {
    let Some(mut lending) = Lending::start() else { return };
    let store = lending.limit_disk(Machine(0), "24M");
    let (point, mut names) = (lending.point.clone(), 0);
    lending.under_load(|lending| {
        // The store's reserve on the disk from before is more than a disk of this size has.
        let fill = "dd if=/dev/zero of=fill bs=4k 2>/dev/null || truncate -s -256K fill";
        shell(&store, 20, &format!("truncate -c -s 768K names.reserve; {fill}"));
        let made = "n=0; while (($n < 20000)) && true 2>/dev/null > name$n; do n=$((n + 1)); done";
        names = shell(&point, 60, &format!("{made}; echo $n")).trim().parse().unwrap();
        let said = lending.status();
        assert!(said.contains("changes of names are refused with ENOSPC"), "{said}");
        lending.process(Machine(1)).kill().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        fs::remove_file(store.join("fill")).unwrap();
        lending.begin(Machine(1));
        lending.settle();
    });
    println!("{names} names were made on the full disk");
    assert!(names < 20_000 && (0..names).all(|n| point.join(format!("name{n}")).exists()));
    lending.end();
}
