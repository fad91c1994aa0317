//! Changes that a power cut took at one manager of several: exactly one sync of each client that made some tells it.

use crate::common::Output;
use crate::common::array::{Array, FIRST, directories};
use crate::common::cluster::WHO;
use names::{Client, How};
use std::cell::RefCell;
use std::rc::Rc;
use wire::{Errno, FileId, NodeId};

/// A directory at each of three managers, on stable storage.
fn one_each(array: &mut Array, client: &Client) -> [FileId; 3] {
    let one = client.clone();
    let made = array.run_client(0, async move {
        let made = directories(&one).await;
        one.sync().await.unwrap();
        made
    });
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    [1, 2, 3].map(|at| made.iter().find(|(_, d)| sites.manager_of(*d) == NodeId(at)).unwrap().1)
}

fn create(array: &mut Array, client: &Client, parent: FileId, name: &'static [u8]) {
    let one = client.clone();
    array.run_client(0, async move {
        one.create(&WHO, parent, name, 0o644, How::Guarded, None).await.unwrap();
    });
}

fn sync(array: &Array, client: &Client) -> Output<Result<(), Errno>> {
    let one = client.clone();
    array.begin(array.seats.len(), async move { one.sync().await })
}

fn is_there(array: &mut Array, client: &Client, parent: FileId, name: &'static [u8]) -> bool {
    let one = client.clone();
    array.run_client(0, async move { one.lookup(&WHO, parent, name).await.is_ok() })
}

/// Manager 2 has lost a file that client 0 made, and the client has changed something at manager 3, which is off.
fn lost_with_one_away() -> (Array, Client, [FileId; 3]) {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    let at = one_each(&mut array, &client);
    create(&mut array, &client, at[1], b"lost");
    create(&mut array, &client, at[2], b"kept");
    array.cut(1);
    array.start_again(1);
    array.kill(2);
    assert!(!is_there(&mut array, &client, at[1], b"lost"), "the cut took it");
    (array, client, at)
}

/// Of two syncs at once the first that ends tells: the caller takes all that was changed before for safe then.
#[test]
fn of_two_syncs_at_once_the_first_to_end_tells_a_loss() {
    let (mut array, client, at) = lost_with_one_away();
    let ended = Rc::new(RefCell::new(Vec::new()));
    let syncs = [(); 2].map(|()| {
        let (one, ended) = (client.clone(), ended.clone());
        let sync = async move {
            let told = one.sync().await;
            ended.borrow_mut().push(told);
        };
        let sync = array.begin(array.seats.len(), sync);
        array.turns(300);
        sync
    });
    assert!(ended.borrow().is_empty(), "one manager has not answered");
    array.start_again(2);
    syncs.into_iter().for_each(|sync| array.finish(sync));
    assert_eq!(*ended.borrow(), [Err(Errno::ESTALE), Ok(())]);
    assert!(is_there(&mut array, &client, at[2], b"kept"));
}

#[test]
fn a_loss_is_told_after_a_sync_that_another_manager_did_not_answer() {
    let (mut array, client, _) = lost_with_one_away();
    let failed = sync(&array, &client);
    assert!(array.finish(failed).is_err_and(|errno| errno != Errno::ESTALE));
    array.start_again(2);
    let told = sync(&array, &client);
    assert_eq!(array.finish(told), Err(Errno::ESTALE));
    let clean = sync(&array, &client);
    assert_eq!(array.finish(clean), Ok(()), "it is told once");
}

/// Its servers have not answered yet what they know of its store: a site that it gave away meanwhile would be the first
/// change after the loss, and count as what was lost.
#[test]
fn a_loss_is_told_by_a_manager_that_is_to_give_a_site_while_it_begins() {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    let at = one_each(&mut array, &client);
    create(&mut array, &client, at[1], b"lost");
    array.cut(1);
    array.objects.0.down.set(true);
    array.start_again(1);
    let handle = array.seats[1].handle.clone().unwrap();
    let own: Vec<u8> = handle.sites().of(NodeId(2)).filter(|site| *site != at[1].site()).collect();
    let giving = array.begin(1, async move {
        for site in own.into_iter().take(8) {
            handle.give(site, FIRST).await.unwrap();
        }
    });
    array.turns(300);
    assert!(giving.borrow().is_none(), "nothing is changed before it serves");
    array.objects.0.down.set(false);
    array.finish(giving);
    assert!(!is_there(&mut array, &client, at[1], b"lost"), "the cut took it");
    let told = sync(&array, &client);
    assert_eq!(array.finish(told), Err(Errno::ESTALE));
}
