//! A manager that is away holds up only the operations on its own sites.

use crate::common::array::{Array, FIRST};
use crate::common::cluster::WHO;
use crate::common::{Output, ROOT};
use names::How;
use names::limits::SLOTS;
use wire::{Errno, NodeId};

/// A manager that is away stops its own sites, and nothing else.
#[test]
fn a_manager_that_is_away_stops_its_own_sites_only() {
    let mut array = Array::spread(3, 2);
    let (client, other) = (array.client(0), array.client(1));
    let [here, there, away] = array.one_of_each(0, &client);
    array.kill(2);
    // More than there are tasks that serve.
    let stuck: Vec<_> = (0..100)
        .map(|_| {
            let (one, name) = (client.clone(), away.0.clone());
            array.begin(3, async move {
                one.remove_directory(&WHO, ROOT, name.as_bytes()).await.map(drop)
            })
        })
        .collect();
    array.turns(500);
    array.run_client(1, async move {
        other.create(&WHO, here.1, b"f", 0o644, How::Guarded, None).await.unwrap();
        other.rename(&WHO, here.1, b"f", there.1, b"g", 0).await.unwrap();
        let dots = other.rename(&WHO, here.1, b".", there.1, b"g", 0).await;
        assert_eq!(dots.map(drop), Err(Errno::EBUSY), "at once");
        other.unlink(&WHO, there.1, b"g").await.unwrap();
    });
    array.start_again(2);
    let results: Vec<_> = stuck.into_iter().map(|stuck| array.finish(stuck)).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let fits = |result: &Result<(), Errno>| matches!(result, Ok(()) | Err(Errno::ENOENT));
    assert!(results.iter().all(fits), "{results:?}");
    assert_eq!(FIRST, NodeId(1));
}

/// Calls of a client that wait for a manager that is away, more than a site has slots, delay none of its other calls.
#[test]
fn a_client_goes_on_while_many_of_its_calls_wait_for_one_manager() {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    let [here, there, away] = array.one_of_each(0, &client);
    let (here, there, away) = (here.1, there.1, away.1);
    array.kill(2);
    let create = |parent, i: usize| {
        let (one, name) = (client.clone(), format!("f{i}"));
        array.begin(3, async move {
            one.create(&WHO, parent, name.as_bytes(), 0o644, How::Guarded, None).await.map(drop)
        })
    };
    let stuck: Vec<_> = (0..2 * SLOTS).map(|i| create(away, i)).collect();
    let others: Vec<_> = [ROOT, here, there].map(|d| create(d, 0)).into();
    array.turns(500);
    let ended = |task: &Output<Result<(), Errno>>| task.borrow().is_some();
    assert!(others.iter().all(ended), "these wait for nothing");
    assert!(!stuck.iter().any(ended), "their manager is away");
    array.start_again(2);
    for task in others.into_iter().chain(stuck) {
        assert_eq!(array.finish(task), Ok(()));
    }
}
