//! Backups of all managers at one moment, and managers that go on from them: all, or one that was lost.

use crate::common::ROOT;
use crate::common::array::{Array, back_up, directories};
use crate::common::cluster::WHO;
use names::{Client, How};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::{Errno, FileId, NodeId};

/// A directory at each of three managers.
fn one_each(array: &mut Array) -> [FileId; 3] {
    let one = array.client(0);
    let made = array.run_client(0, async move {
        let made = directories(&one).await;
        one.sync().await.unwrap();
        made
    });
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    [1, 2, 3].map(|at| made.iter().find(|(_, d)| sites.manager_of(*d) == NodeId(at)).unwrap().1)
}

/// Makes files one after the other, each at the next manager, and moves one from manager to manager.
async fn work(client: Client, at: [FileId; 3], round: u32, goes_on: Rc<Cell<bool>>) {
    let mut count = 0;
    while goes_on.get() {
        let (from, to) = (at[count % 3], at[(count + 1) % 3]);
        let name = format!("r{round}n{count}");
        let made = client.create(&WHO, to, name.as_bytes(), 0o644, How::Guarded, None).await;
        made.unwrap();
        client.rename(&WHO, from, b"moved", to, b"moved", 0).await.unwrap();
        count += 1;
    }
}

/// How many of the files are there: the first ones. And in how many of the directories the one that moves is.
async fn found(client: &Client, at: [FileId; 3], round: u32) -> (usize, usize) {
    let (mut there, mut moved, mut count) = (Vec::new(), 0, 0);
    while count < there.len() + 6 {
        let name = format!("r{round}n{count}");
        let found = client.lookup(&WHO, at[(count + 1) % 3], name.as_bytes()).await;
        assert!(found.is_ok() || found == Err(Errno::ENOENT), "{name}: {found:?}");
        if found.is_ok() {
            there.push(count);
        }
        count += 1;
    }
    for d in at {
        match client.lookup(&WHO, d, b"moved").await {
            Ok(entry) => {
                assert_eq!(entry.attr.links, 1);
                moved += 1;
            }
            Err(errno) => assert_eq!(errno, Errno::ENOENT),
        }
    }
    assert!(there.iter().copied().eq(0..there.len()), "not of one moment: {there:?}");
    (there.len(), moved)
}

#[test]
fn a_backup_of_an_array_is_of_one_moment_and_is_restored_to_that() {
    let mut array = Array::spread(3, 3);
    let at = one_each(&mut array);
    let one = array.client(0);
    array.run_client(0, async move {
        one.create(&WHO, at[0], b"moved", 0o644, How::Guarded, None).await.unwrap();
    });
    let mut most = 0;
    for round in 0..8 {
        let goes_on = Rc::new(Cell::new(true));
        let working = array.begin(3, work(array.client(0), at, round, goes_on.clone()));
        array.turns(150 + 37 * round as usize);
        let backup = array.back_up(1);
        let sites: BTreeSet<u8> = backup.iter().flat_map(|(one, _)| one.sites.clone()).collect();
        assert_eq!((backup.len(), sites.len()), (3, 256));
        array.turns(100);
        goes_on.set(false);
        array.finish(working);
        (0..3).for_each(|at| array.kill(at));
        (0..3).for_each(|at| array.restore_from(at, &backup));
        (0..3).for_each(|at| array.start_again(at));
        let one = array.client(2);
        let (there, moved) = array.run_client(2, async move { found(&one, at, round).await });
        assert_eq!(moved, 1, "a file that is renamed has one name");
        most = most.max(there);
        // The next round begins with it where it began before.
        let one = array.client(2);
        array.run_client(2, async move {
            for d in &at[1..] {
                let _not_there = one.rename(&WHO, *d, b"moved", at[0], b"moved", 0).await;
            }
        });
    }
    assert!(most > 3, "{most} files");
}

#[test]
fn a_backup_needs_all_managers_and_names_the_one_that_is_away() {
    let mut array = Array::spread(3, 2);
    array.kill(1);
    let one = array.client(0);
    let refused = array.run_client(0, async move { back_up(&one).await.unwrap_err() });
    assert_eq!(refused.manager, NodeId(2));
    array.start_again(1);
    assert_eq!(array.back_up(0).len(), 3);
}

/// Nothing stays held back by a backup that was begun and given up.
#[test]
fn a_backup_that_is_given_up_in_the_middle_holds_up_nothing_for_long() {
    for turns in [3, 10, 30, 60] {
        let mut array = Array::spread(3, 2);
        let at = one_each(&mut array);
        let one = array.client(1);
        let _given_up = array.begin(4, async move { back_up(&one).await });
        array.turns(turns);
        array.net.nodes[4] = rig::node(5, 2);
        let one = array.client(0);
        array.run_client(0, async move {
            one.create(&WHO, at[0], b"f", 0o644, How::Guarded, None).await.unwrap();
            one.rename(&WHO, at[0], b"f", at[1], b"f", 0).await.unwrap();
        });
        assert_eq!(array.back_up(0).len(), 3);
    }
}

async fn create(client: &Client, parent: FileId, name: &str) -> FileId {
    let made = client.create(&WHO, parent, name.as_bytes(), 0o644, How::Guarded, None).await;
    made.unwrap().0.attr.file
}

/// Its sites at the time of the backup, and those that came to it since, are as in the backup; those that went are the
/// others'. No number is given twice.
#[test]
fn a_lost_manager_of_an_array_is_restored_and_the_others_go_on() {
    let mut array = Array::spread(3, 2);
    let at = one_each(&mut array);
    let one = array.client(0);
    array.run_client(0, async move {
        for d in at {
            create(&one, d, "before").await;
        }
        one.sync().await.unwrap();
    });
    let backup = array.back_up(0);
    // One comes to the manager that will be lost, and one goes from it.
    array.give(0, at[0].site(), NodeId(2)).unwrap();
    let goes = backup[1].0.sites.iter().copied().find(|site| *site != at[1].site()).unwrap();
    array.give(1, goes, NodeId(3)).unwrap();
    array.turns(6_000);
    let one = array.client(0);
    let since: Vec<FileId> = array.run_client(0, async move {
        let mut since = Vec::new();
        for d in at {
            since.push(create(&one, d, "since").await);
        }
        one.sync().await.unwrap();
        since
    });
    array.kill(1);
    array.restore_from(1, &backup);
    array.start_again(1);
    let one = array.client(1);
    let anew = array.run_client(1, async move {
        for (number, d) in at.into_iter().enumerate() {
            one.lookup(&WHO, d, b"before").await.unwrap();
            let found = one.lookup(&WHO, d, b"since").await;
            assert_eq!(found.is_ok(), number == 2, "{found:?}");
        }
        let mut anew = Vec::new();
        for d in at {
            anew.push(create(&one, d, "anew").await);
        }
        anew
    });
    assert!(anew.iter().all(|file| !since.contains(file)), "{anew:?}");
    let owners = |array: &Array, site: u8| -> Vec<usize> {
        let owns = |at: &usize| array.seats[*at].handle.as_ref().unwrap().owns(site);
        (0..3).filter(owns).collect()
    };
    assert!((0..=u8::MAX).all(|site| owners(&array, site).len() == 1));
    assert_eq!((owners(&array, at[0].site()), owners(&array, goes)), (vec![1], vec![2]));
    // What it took over is in its own store by now, and is to be compared no more than once.
    array.turns(3_000);
    (0..3).for_each(|at| array.kill(at));
    (0..3).for_each(|at| array.start_again(at));
    array.turns(3_000);
    assert!((0..=u8::MAX).all(|site| owners(&array, site).len() == 1));
    let one = array.client(0);
    array.run_client(0, async move {
        for d in at {
            one.lookup(&WHO, d, b"anew").await.unwrap();
        }
        one.get_attr(ROOT).await.unwrap();
    });
}

/// Its sites are its own again, without names.
#[test]
fn a_manager_that_lost_its_store_and_has_no_backup_owns_its_sites_again() {
    let mut array = Array::spread(3, 2);
    let at = one_each(&mut array);
    array.turns(6_000);
    array.kill(1);
    array.lose(1);
    array.start_again(1);
    array.turns(9_000);
    let owns = |at: usize, site: u8| array.seats[at].handle.as_ref().unwrap().owns(site);
    let owners = |site: u8| (0..3).filter(|at| owns(*at, site)).count();
    assert!((0..=u8::MAX).all(|site| owners(site) == 1 && owns(1, site) == (site % 3 == 1)));
    let one = array.client(1);
    array.run_client(1, async move {
        let found = one.lookup(&WHO, at[1], b"f").await;
        assert_eq!(found.map(drop), Err(Errno::ESTALE));
        create(&one, at[0], "f").await;
    });
}

/// A site is on its way to a manager, which is lost at each moment of that and restored from a backup of before: the
/// records come once more, or those of the backup are all that is left of what the manager had told it has.
#[test]
fn a_site_that_was_on_its_way_to_a_lost_manager_comes_again() {
    let mut comes_again = 0;
    for turns in (0..60).step_by(3) {
        let mut array = Array::spread(3, 2);
        let at = one_each(&mut array);
        let one = array.client(0);
        array.run_client(0, async move { create(&one, at[2], "before").await });
        let backup = array.back_up(0);
        let one = array.client(0);
        array.run_client(0, async move { create(&one, at[2], "since").await });
        let handle = array.seats[2].handle.clone().unwrap();
        let given = Rc::new(RefCell::new(None));
        let (site, told) = (at[2].site(), given.clone());
        array.begin(2, async move {
            *told.borrow_mut() = Some(handle.give(site, NodeId(2)).await);
        });
        array.turns(turns);
        array.kill(1);
        array.restore_from(1, &backup);
        array.start_again(1);
        array.turns(6_000);
        let owns = |at: usize| array.seats[at].handle.as_ref().unwrap().owns(site);
        let owner: Vec<usize> = (0..3).filter(|at| owns(*at)).collect();
        assert_eq!(owner.len(), 1, "after {turns}: {owner:?}, {:?}", given.borrow());
        let one = array.client(1);
        let is_new = array.run_client(1, async move {
            one.lookup(&WHO, at[2], b"before").await.unwrap();
            one.lookup(&WHO, at[2], b"since").await.is_ok()
        });
        comes_again += u32::from(owner == [1] && is_new);
        assert!(is_new || owner == [1], "after {turns} it is where it was");
    }
    assert!(comes_again > 0);
}

/// A manager is lost in the middle of giving a site away, at each moment of that, and restored from a backup of before.
/// The records at the next owner count, if others know that it was given.
#[test]
fn a_site_that_a_lost_manager_was_giving_away_has_an_owner() {
    let mut goes_on = 0;
    for turns in (0..60).step_by(3) {
        let mut array = Array::spread(3, 2);
        let at = one_each(&mut array);
        let one = array.client(0);
        array.run_client(0, async move {
            create(&one, at[1], "before").await;
            one.sync().await.unwrap();
        });
        let backup = array.back_up(0);
        let one = array.client(0);
        array.run_client(0, async move {
            create(&one, at[1], "since").await;
            one.sync().await.unwrap();
        });
        let (handle, site) = (array.seats[1].handle.clone().unwrap(), at[1].site());
        array.begin(1, async move { handle.give(site, NodeId(3)).await });
        array.turns(turns);
        // The next owner has the records, and is away when it is told; the other one hears of it.
        array.kill(2);
        array.turns(6_000);
        array.kill(1);
        array.restore_from(1, &backup);
        (1..3).for_each(|at| array.start_again(at));
        array.turns(12_000);
        let owns = |at: usize| array.seats[at].handle.as_ref().unwrap().owns(site);
        let owner: Vec<usize> = (0..3).filter(|at| owns(*at)).collect();
        assert_eq!(owner.len(), 1, "after {turns}: {owner:?}");
        let one = array.client(0);
        let is_new = array.run_client(0, async move {
            one.lookup(&WHO, at[1], b"before").await.unwrap();
            one.lookup(&WHO, at[1], b"since").await.is_ok()
        });
        assert_eq!(is_new, owner == [2], "after {turns}");
        goes_on += u32::from(is_new);
    }
    assert!(goes_on > 0, "it was never given");
}

/// A site went from a manager and came back to it after the backup: it is that manager's by the later epoch, and can go
/// on to others.
#[test]
fn a_site_that_went_and_came_back_since_goes_on_moving() {
    for is_known_by_all in [true, false] {
        let mut array = Array::spread(3, 2);
        let at = one_each(&mut array);
        let one = array.client(0);
        array.run_client(0, async move { create(&one, at[1], "before").await });
        let backup = array.back_up(0);
        let site = at[1].site();
        array.give(1, site, NodeId(3)).unwrap();
        array.turns(6_000);
        array.give(2, site, NodeId(2)).unwrap();
        array.turns(if is_known_by_all { 6_000 } else { 100 });
        array.kill(1);
        array.restore_from(1, &backup);
        array.start_again(1);
        array.turns(6_000);
        let one = array.client(0);
        array.run_client(0, async move {
            one.lookup(&WHO, at[1], b"before").await.unwrap();
            one.own_all(&WHO).await.unwrap();
        });
        array.turns(6_000);
        let mut tries = 0;
        while let Err(errno) = array.give(1, site, NodeId(1)) {
            tries += 1;
            assert!(tries < 10, "it is stuck: {errno}");
            array.turns(1_000);
        }
        array.turns(6_000);
        let owns = |at: usize| array.seats[at].handle.as_ref().unwrap().owns(site);
        assert_eq!((0..3).filter(|at| owns(*at)).collect::<Vec<_>>(), [0]);
        let one = array.client(1);
        array.run_client(1, async move {
            one.lookup(&WHO, at[1], b"before").await.unwrap();
            create(&one, at[1], "anew").await;
        });
    }
}

/// A site was on its way back to a manager that had it when the backup was taken: it comes with its newest names.
#[test]
fn a_site_that_was_on_its_way_back_comes_with_its_newest_names() {
    let mut comes = 0;
    // Both stop at once: what was told may not be written down. Or the giver goes on, and all hear of it.
    for (turns, goes_on) in (0..40).map(|turns| (turns, turns % 4 == 3)) {
        let mut array = Array::spread(3, 2);
        let at = one_each(&mut array);
        let backup = array.back_up(0);
        let site = at[1].site();
        array.give(1, site, NodeId(3)).unwrap();
        array.turns(6_000);
        let one = array.client(0);
        array.run_client(0, async move {
            create(&one, at[1], "since").await;
            one.sync().await.unwrap();
        });
        let handle = array.seats[2].handle.clone().unwrap();
        array.begin(2, async move { handle.give(site, NodeId(2)).await });
        array.turns(turns);
        array.kill(1);
        match goes_on {
            true => array.turns(6_000),
            false => array.kill(2),
        }
        array.restore_from(1, &backup);
        array.start_again(1);
        if !goes_on {
            array.start_again(2);
        }
        array.turns(8_000);
        let owns = |at: usize| array.seats[at].handle.as_ref().unwrap().owns(site);
        let owner: Vec<usize> = (0..3).filter(|at| owns(*at)).collect();
        assert_eq!(owner.len(), 1, "after {turns}: {owner:?}");
        let one = array.client(0);
        let is_new = array.run_client(0, async move {
            one.get_attr(at[1]).await.unwrap();
            one.lookup(&WHO, at[1], b"since").await.is_ok()
        });
        assert!(is_new || owner == [1], "after {turns}");
        comes += u32::from(is_new && owner == [1]);
        // Nothing is on its way any more.
        assert_eq!(array.back_up(1).len(), 3);
    }
    assert!(comes > 0);
}
