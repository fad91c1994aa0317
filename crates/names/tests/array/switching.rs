//! Mkdir switching as a setting of the volume: all managers go by it.

use crate::common::ROOT;
use crate::common::array::{Array, directories};
use crate::common::cluster::WHO;
use names::{Client, SwitchingShare, Who};
use wire::{Errno, FileId};

/// Makes directories in one; at how many other sites they are.
fn switched(array: &mut Array, client: &Client, parent: FileId, prefix: &'static str) -> usize {
    let one = client.clone();
    array.run_client(0, async move {
        let mut switched = 0;
        for i in 0..50 {
            let name = format!("{prefix}{i}");
            let d = one.make_directory(&WHO, parent, name.as_bytes(), 0o755).await.unwrap();
            switched += usize::from(d.attr.file.site() != parent.site());
        }
        switched
    })
}

fn set(array: &mut Array, client: &Client, share: Option<u16>) -> SwitchingShare {
    let one = client.clone();
    array.run_client(0, async move {
        one.set_switching(&Who::ROOT, share).await.unwrap();
        one.sync().await.unwrap();
        one.switching().await.unwrap()
    })
}

/// The latest setting holds at every manager, also at one that was away, and after a power cut.
#[test]
fn every_manager_switches_new_directories_as_the_volume_says() {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    let one = client.clone();
    let made = array.run_client(0, async move { directories(&one).await });
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let at = |at: usize| {
        let is_there = |d: &FileId| usize::from(sites.manager_of(*d).0) == at + 1;
        made.iter().map(|(_, d)| *d).find(is_there).unwrap()
    };
    let parents = [0, 1, 2].map(at);
    array.kill(2);
    let share = set(&mut array, &client, Some(0));
    assert_eq!(share, SwitchingShare { set: Some(0), per_mille: 0 });
    array.turns(12_000);
    array.start_again(2);
    array.turns(12_000);
    for parent in parents {
        assert_eq!(switched(&mut array, &client, parent, "a"), 0);
    }
    let one = client.clone();
    array.run_client(0, async move { one.sync().await }).unwrap();
    (0..3).for_each(|at| array.cut(at));
    (0..3).for_each(|at| array.start_again(at));
    for parent in parents {
        assert_eq!(switched(&mut array, &client, parent, "b"), 0);
    }
    assert_eq!(set(&mut array, &client, Some(1000)).per_mille, 1000);
    array.turns(12_000);
    for parent in parents {
        // One in 256 is at its parent's site by its hash.
        assert!(switched(&mut array, &client, parent, "c") > 45);
    }
    // Made for 700, which is more than two in three.
    assert_eq!(set(&mut array, &client, None), SwitchingShare { set: None, per_mille: 700 });
    array.turns(12_000);
    let some = switched(&mut array, &client, parents[1], "d");
    assert!((20..48).contains(&some), "{some}");
}

#[test]
fn only_root_sets_the_part_of_new_directories_that_switch() {
    let mut array = Array::spread(2, 1);
    let client = array.client(0);
    array.run_client(0, async move {
        let user = Who::new(7, 7, &[]);
        assert_eq!(client.set_switching(&user, Some(3)).await, Err(Errno::EPERM));
        assert_eq!(client.set_switching(&Who::ROOT, Some(1001)).await, Err(Errno::EINVAL));
        assert_eq!(client.switching().await.unwrap().set, None);
        assert!(client.get_attr(ROOT).await.is_ok());
    });
}
