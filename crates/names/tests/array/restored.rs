//! A manager whose store comes back from a copy that is older than what it gave to others.

use crate::common::ROOT;
use crate::common::array::{Array, directories};
use crate::common::cluster::WHO;
use names::How;
use wire::{Errno, FileId, NodeId};

/// Sites that the first manager gave away after the copy was made are the others', from its first answer on.
#[test]
fn a_restored_manager_owns_nothing_that_it_gave_away_since() {
    let mut array = Array::new(3, 2);
    let client = array.client(0);
    let one = client.clone();
    let made: Vec<FileId> = array.run_client(0, async move {
        let made = directories(&one).await;
        one.sync().await.unwrap();
        made.into_iter().map(|(_, d)| d).collect()
    });
    let copy = array.copy(0);
    for site in 1..=u8::MAX {
        let to = u16::from(site) % 3;
        if to > 0 {
            array.give(0, site, NodeId(to + 1)).unwrap();
        }
    }
    let is_given = |d: &&FileId| !d.site().is_multiple_of(3);
    let given: Vec<FileId> = made.iter().filter(is_given).copied().collect();
    assert!(given.len() > 2, "{made:?}");
    let (one, all) = (client.clone(), given.clone());
    array.run_client(0, async move {
        for d in all {
            one.create(&WHO, d, b"since", 0o644, How::Guarded, None).await.unwrap();
        }
        one.sync().await.unwrap();
    });
    array.kill(0);
    array.restore(0, copy);
    // One of the others comes later than the first.
    array.kill(2);
    array.start_again(0);
    array.turns(8_000);
    array.start_again(2);
    let (fresh, all) = (array.client(1), given.clone());
    array.run_client(1, async move {
        for d in all {
            fresh.lookup(&WHO, d, b"since").await.unwrap();
            assert_eq!(fresh.lookup(&WHO, d, b"never").await, Err(Errno::ENOENT));
        }
        fresh.get_attr(ROOT).await.unwrap();
    });
    let owns = |array: &Array, site: u8| array.seats[0].handle.as_ref().unwrap().owns(site);
    assert!((0..=u8::MAX).all(|site| owns(&array, site) == site.is_multiple_of(3)));
    // It is in its own store by now.
    array.turns(2_000);
    array.kill(1);
    array.kill(2);
    array.kill(0);
    array.start_again(0);
    assert!((0..=u8::MAX).all(|site| owns(&array, site) == site.is_multiple_of(3)));
}
