//! Sites that move between managers: with all that is open and locked there, and whole.

use crate::common::Output;
use crate::common::array::{Array, FIRST, Seat, directory_elsewhere};
use crate::common::cluster::WHO;
use names::{Client, How, Plus, READ, WRITE};
use node::rings::{Lock, LockKind};
use wire::{Errno, FileId, NodeId};

const LOCK: Lock = Lock { start: 5, end: 9, kind: LockKind::Write, pid: 1 };

/// The client holds what is open and locked at every manager, over restarts and over a handover.
#[test]
fn a_site_moves_with_what_is_open_and_locked_in_it() {
    let mut array = Array::new(2, 2);
    let (one, two) = (array.client(0), array.client(1));
    let holder = one.clone();
    let (d, f) = array.run_client(0, async move {
        holder.keep_alive().await.unwrap();
        let d = directory_elsewhere(&holder).await;
        let f = holder.create(&WHO, d, b"f", 0o644, How::Guarded, Some(WRITE)).await.unwrap();
        let f = f.0.attr.file;
        holder.open(&WHO, f, READ).await.unwrap();
        holder.lock(f, 3, false, LOCK).await.unwrap();
        (d, f)
    });
    let keeping = keep(&array, 0, &one);
    array.give(0, d.site(), NodeId(2)).unwrap();
    array.run_client(1, async move {
        two.unlink(&WHO, d, b"f").await.unwrap();
        assert_eq!(two.lock(f, 4, false, LOCK).await, Err(Errno::EAGAIN));
        assert_eq!(two.get_attr(f).await.unwrap().attr.links, 0);
    });
    array.kill(1);
    array.start_again(1);
    array.turns(70_000);
    let holder = one.clone();
    array.run_client(0, async move {
        assert_eq!(holder.get_attr(f).await.unwrap().attr.links, 0, "it is open");
        holder.unlock(f, 3, false).await.unwrap();
        holder.close(f, None).await.unwrap();
        holder.close(f, Some(names::Final::default())).await.unwrap();
        assert_eq!(holder.get_attr(f).await, Err(Errno::ESTALE));
    });
    drop(keeping);
}

/// A client with a session has a lock on a file at the first manager.
fn locked(array: &mut Array) -> (Client, FileId) {
    let client = array.client(0);
    let holder = client.clone();
    let file = array.run_client(0, async move {
        holder.keep_alive().await.unwrap();
        let d = directory_elsewhere(&holder).await;
        let f = holder.create(&WHO, d, b"f", 0o644, How::Guarded, None).await.unwrap();
        holder.lock(f.0.attr.file, 3, false, LOCK).await.unwrap();
        f.0.attr.file
    });
    (client, file)
}

/// The client renews its session until the returned value is dropped.
fn keep(array: &Array, number: usize, client: &Client) -> Output<()> {
    let at = array.seats.len() + number;
    let (keeper, cx) = (client.clone(), array.net.nodes[at].cx().clone());
    array.begin(at, async move {
        loop {
            let _ = keeper.keep_alive().await;
            cx.sleep(names::limits::KEEP_ALIVE_INTERVAL).await;
        }
    })
}

/// Each manager that a site comes to waits for clients of the one that it comes from, but for none that is dead.
#[test]
fn sites_that_move_keep_no_dead_client_alive() {
    let mut array = Array::new(2, 2);
    let (dead, file) = locked(&mut array);
    drop(dead);
    let two = array.client(1);
    let _kept = keep(&array, 1, &two);
    let wants =
        array.begin(3, async move { while two.lock(file, 4, false, LOCK).await.is_err() {} });
    for round in 0..20 {
        array.turns(4_000);
        if wants.borrow().is_some() {
            assert!(round > 6, "within the lease of the other: {round}");
            return;
        }
        let owner = array.seats[0].handle.as_ref().unwrap().sites().manager_of(file);
        let from = usize::from(owner.0) - 1;
        let _ = array.give(from, file.site(), NodeId(2 - from as u16));
    }
    panic!("the dead client has it still");
}

/// A lock in a site that comes to a manager while the client says what it holds there from before.
#[test]
fn a_lock_stays_when_its_site_comes_during_claims() {
    const LATE: usize = 120;
    for after in (0..6_500).step_by(LATE / 2) {
        let mut array = Array::new(2, 2);
        let (one, file) = locked(&mut array);
        let two = array.client(1);
        let kept = [keep(&array, 0, &one), keep(&array, 1, &two)];
        array.give(0, file.site() ^ 1, NodeId(2)).unwrap();
        array.turns(6_000);
        array.kill(1);
        array.start_again(1);
        array.net.fate = Box::new(|_| (1, LATE));
        array.turns(after);
        let handle = array.seats[0].handle.clone().unwrap();
        let giving = array.begin(0, async move { handle.give(file.site(), NodeId(2)).await });
        array.turns(20 * LATE);
        array.net.fate = Box::new(|_| (1, 0));
        let got = array.run_client(1, async move {
            for _ in 0..20 {
                two.lock(file, 4, false, LOCK).await.err()?;
            }
            Some(())
        });
        assert_eq!(got, Some(()), "another one has the lock too: {after}");
        drop((giving, kept));
    }
}

/// Power fails at each moment of a handover, at the giver or the taker: the site is whole, at one of them.
#[test]
fn a_site_is_handed_over_whole_whenever_power_fails() {
    const FILES: usize = 240; // some parts
    let name = |i: usize| format!("{i:0>200}");
    let (mut given, mut kept) = (0, 0);
    for (at, after) in (0..2).flat_map(|at| (0..36).step_by(2).map(move |after| (at, after))) {
        let mut array = Array::new(2, 1);
        let one = array.client(0);
        let d = array.run_client(0, async move {
            let d = directory_elsewhere(&one).await;
            for i in 0..FILES {
                one.create(&WHO, d, name(i).as_bytes(), 0o644, How::Guarded, None).await.unwrap();
            }
            one.sync().await.unwrap();
            d
        });
        let handle = array.seats[0].handle.clone().unwrap();
        let giving = array.begin(0, async move { handle.give(d.site(), NodeId(2)).await });
        array.turns(after);
        let owner = |seat: &Seat| seat.handle.as_ref().unwrap().sites().manager_of(d);
        let told = array.seats.iter().any(|seat| owner(seat) != FIRST);
        array.cut(at);
        array.turns(20);
        array.start_again(at);
        array.turns(12_000);
        drop(giving);
        assert!(!told || owner(&array.seats[0]) != FIRST, "told, and taken back after {after}");
        let owners: Vec<NodeId> = array
            .seats
            .iter()
            .map(|seat| seat.handle.as_ref().unwrap().sites().manager_of(d))
            .collect();
        assert_eq!(owners[0], owners[1], "at {at} after {after}");
        let client = array.client(0);
        let listed = array.run_client(0, async move {
            let (mut cookie, mut names) = (0, 0);
            loop {
                let part =
                    client.read_directory(&WHO, d, cookie, 60_000, Plus::Entries).await.unwrap();
                names += part.entries.iter().filter(|entry| entry.entry.is_some()).count();
                cookie = part.entries.last().map_or(cookie, |entry| entry.cookie);
                if part.end {
                    return names;
                }
            }
        });
        // With `.`, and `..` where that is here.
        let dots = if owners[0] == FIRST { 2 } else { 1 };
        assert_eq!(listed, FILES + dots, "at {at} after {after}, now at {}", owners[0]);
        given += u32::from(owners[0] != FIRST);
        kept += u32::from(owners[0] == FIRST);
    }
    assert!(given > 0 && kept > 0, "{given} given, {kept} kept");
}

/// The next owner hands a site back while its last one, which was killed, still removes what was left of it.
#[test]
fn a_site_that_comes_back_at_once_is_whole() {
    const FILES: usize = 1_400; // more records than one batch removes
    let mut array = Array::new(2, 1);
    let one = array.client(0);
    let d = array.run_client(0, async move {
        let d = directory_elsewhere(&one).await;
        for i in 0..FILES {
            let name = format!("f{i}");
            one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
        }
        d
    });
    let owner =
        |array: &Array, at: usize| array.seats[at].handle.as_ref().unwrap().sites().manager_of(d);
    for round in 0..12 {
        // Packets overtake each other, in every round by other spans.
        array.net.fate = Box::new(move |n| (1, (n * (round + 3) % 61) as usize));
        while array.give(0, d.site(), NodeId(2)).is_err() {
            array.turns(100);
        }
        while owner(&array, 1) != NodeId(2) {
            array.turn();
        }
        array.kill(0);
        array.start_again(0);
        while array.give(1, d.site(), FIRST).is_err() {
            array.turns(100);
        }
        while owner(&array, 0) != FIRST {
            array.turn();
        }
        let client = array.client(0);
        let found = array.run_client(0, async move {
            let mut found = 0;
            for i in 0..FILES {
                let name = format!("f{i}");
                found += usize::from(client.lookup(&WHO, d, name.as_bytes()).await.is_ok());
            }
            found
        });
        assert_eq!(found, FILES);
    }
}

/// Two tables in which as many sites have moved, but others, are different tables: a client learns from each.
#[test]
fn a_client_learns_where_a_site_is_although_it_knows_of_as_many_moves() {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    let [first, second, _third] = array.one_of_each(0, &client);
    let (first, second) = (first.1, second.1);
    array.turns(6_000);
    let one = client.clone();
    array.run_client(0, async move { one.keep_alive().await.unwrap() });
    array.give(1, second.site(), NodeId(3)).unwrap();
    array.give(0, first.site(), NodeId(3)).unwrap();
    let one = client.clone();
    array.run_client(0, async move {
        one.get_attr(second).await.unwrap();
        one.keep_alive().await.unwrap();
    });
    // The first manager could say where the site is, if it were asked; later another one will.
    array.kill(0);
    let found = array.begin(3, async move { client.get_attr(first).await });
    array.turns(200);
    assert!(matches!(*found.borrow(), Some(Ok(_))), "{:?}", found.borrow());
}
