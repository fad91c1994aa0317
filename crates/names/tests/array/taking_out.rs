//! A manager that is taken out leaves nothing behind.

use crate::common::ROOT;
use crate::common::array::{Array, FIRST, directories, directory_elsewhere};
use crate::common::cluster::WHO;
use names::{How, WRITE, Who};
use node::rings::{Lock, LockKind};
use std::collections::BTreeSet;
use wire::{Errno, NodeId, ObjectId, VolumeId};

/// Files without a name, opens and locks of a manager that is taken out are at the others when its machine is no more.
#[test]
fn a_manager_is_taken_out_with_what_is_open_and_locked_there() {
    let mut array = Array::spread(3, 2);
    let (one, two) = (array.client(0), array.client(1));
    let lock = Lock { start: 5, end: 9, kind: LockKind::Write, pid: 1 };
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let holder = one.clone();
    let (d, f, orphan) = array.run_client(0, async move {
        holder.keep_alive().await.unwrap();
        let mut i = 0;
        let d = loop {
            i += 1;
            let name = format!("d{i}");
            let d = holder.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            if sites.manager_of(d.attr.file) == NodeId(3) {
                break d.attr.file;
            }
        };
        let open = async |name| {
            let made = holder.create(&WHO, d, name, 0o644, How::Guarded, Some(WRITE)).await;
            made.unwrap().0.attr.file
        };
        let (f, orphan) = (open(b"f").await, open(b"orphan").await);
        holder.unlink(&WHO, d, b"orphan").await.unwrap();
        holder.lock(f, 3, false, lock).await.unwrap();
        (d, f, orphan)
    });
    // No sync comes before: what was acknowledged is at the others all the same.
    let keeper = one.clone();
    let cx = array.net.nodes[3].cx().clone();
    let keeping = array.begin(3, async move {
        loop {
            let _ = keeper.keep_alive().await;
            cx.sleep(names::limits::KEEP_ALIVE_INTERVAL).await;
        }
    });
    array.take_out(2);
    let holder = one.clone();
    array.run_client(0, async move { holder.sync().await }).unwrap();
    for at in 0..2 {
        array.cut(at);
        array.start_again(at);
    }
    // Each knows what it owns itself, and hears the rest.
    array.turns(12_000);
    for seat in &array.seats[..2] {
        assert_eq!(seat.handle.as_ref().unwrap().sites().of(NodeId(3)).count(), 0);
    }
    array.run_client(1, async move {
        assert_eq!(two.lookup(&WHO, d, b"f").await.unwrap().attr.file, f);
        assert_eq!(two.lock(f, 4, false, lock).await, Err(Errno::EAGAIN));
    });
    let holder = one.clone();
    array.run_client(0, async move {
        assert_eq!(holder.get_attr(orphan).await.unwrap().attr.links, 0, "it is open");
        holder.unlock(f, 3, false).await.unwrap();
        for file in [f, orphan] {
            holder.close(file, Some(names::Final::default())).await.unwrap();
        }
        holder.sync().await.unwrap();
    });
    array.turns(70_000);
    let holder = one.clone();
    array.run_client(0, async move {
        assert_eq!(holder.get_attr(orphan).await, Err(Errno::ESTALE));
        holder.unlink(&WHO, d, b"f").await.unwrap();
    });
    drop(keeping);
}

/// The first manager has the root, and one to which a peer may still give something has not drained.
#[test]
fn a_manager_drains_when_it_owns_nothing_and_all_others_know() {
    let mut array = Array::spread(3, 1);
    for site in (0..=u8::MAX).filter(|site| site % 3 == 2) {
        array.give(2, site, FIRST).unwrap();
    }
    array.kill(1);
    array.turns(6_000);
    let silent = [Errno::EHOSTDOWN, Errno::ETIMEDOUT, Errno::ENODEV];
    let drained = array.drain(2);
    assert!(drained.is_err_and(|errno| silent.contains(&errno)), "{drained:?}");
    assert_eq!(array.give(0, 3, NodeId(3)), Err(Errno::EPERM), "it is taken out");
    array.start_again(1);
    array.take_out(2);
    assert_eq!(array.give(1, 4, NodeId(3)), Err(Errno::EPERM));
    assert_eq!(array.give(1, 4, FIRST), Ok(()));
    assert_eq!(array.drain(0), Err(Errno::EBUSY), "the root stays");
}

/// An object that a manager set aside is known to the next manager of its site, which alone could remove it some day.
#[test]
fn what_was_set_aside_goes_with_its_site() {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    let one = client.clone();
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let files = array.run_client(0, async move {
        let mut files = Vec::new();
        for (_, d) in directories(&one).await {
            if sites.manager_of(d) == NodeId(3) {
                let f = one.create(&WHO, d, b"f", 0o644, How::Guarded, None).await.unwrap().0;
                one.unlink(&WHO, d, b"f").await.unwrap();
                files.push(f.attr.file);
            }
        }
        files
    });
    assert!(files.len() > 2);
    let object = |file| (NodeId(11), ObjectId { volume: VolumeId(5), file, column: 0 });
    array.objects.0.stored.borrow_mut().extend(files.iter().copied().map(object));
    while array.objects.0.aside.borrow().len() < files.len() {
        array.turns(1_000);
    }
    array.turns(1_000);
    let list = |array: &mut Array| {
        let one = client.clone();
        array.run_client(0, async move { one.quarantined(&Who::ROOT).await.unwrap() })
    };
    let before = list(&mut array);
    let of =
        |asides: &[names::Aside]| asides.iter().map(|aside| aside.file).collect::<BTreeSet<_>>();
    assert_eq!(of(&before), files.iter().copied().collect());
    array.take_out(2);
    array.turns(12_000);
    let after = list(&mut array);
    assert_eq!((of(&after), after.len()), (of(&before), before.len()));
    assert!(after.iter().all(|aside| aside.bytes == 77), "{after:?}");
    let (one, restored, purged) = (client.clone(), after[0], after[1]);
    array.run_client(0, async move {
        one.restore(&Who::ROOT, &restored).await.unwrap();
        one.purge(&Who::ROOT, &purged).await.unwrap();
    });
    assert_eq!(*array.objects.0.stored.borrow(), BTreeSet::from([object(after[0].file)]));
    assert_eq!(list(&mut array).len(), files.len() - 1);
}

/// A manager that was away when an I/O server was retired, or joins after it, gives that one nothing either.
#[test]
fn a_manager_that_joins_knows_which_servers_are_retired() {
    let mut array = Array::new(2, 1);
    let client = array.client(0);
    let one = client.clone();
    let d = array.run_client(0, async move { directory_elsewhere(&one).await });
    let retire = |array: &mut Array, retired| {
        let one = client.clone();
        array.run_client(
            0,
            async move { one.retire(&Who::ROOT, NodeId(12), retired).await.unwrap() },
        );
    };
    let servers = |array: &mut Array, name: &'static [u8]| {
        let one = client.clone();
        let made = array.run_client(0, async move {
            one.create(&WHO, d, name, 0o644, How::Guarded, None).await.unwrap().0
        });
        made.layout.unwrap().servers().iter().map(|id| id.0).collect::<BTreeSet<_>>()
    };
    array.kill(1);
    retire(&mut array, true);
    array.start_again(1);
    array.turns(6_000);
    array.give(0, d.site(), NodeId(2)).unwrap();
    assert_eq!(servers(&mut array, b"a"), BTreeSet::from([11, 13]));
    array.cut(1);
    array.start_again(1);
    assert_eq!(servers(&mut array, b"b"), BTreeSet::from([11, 13]));
    array.give(1, d.site(), FIRST).unwrap();
    array.kill(1);
    retire(&mut array, false);
    array.start_again(1);
    // The other one does not ask it at once.
    while array.give(0, d.site(), NodeId(2)) == Err(Errno::EHOSTDOWN) {
        array.turns(1_000);
    }
    array.turns(6_000);
    assert_eq!(servers(&mut array, b"c"), BTreeSet::from([11, 12, 13]));
}
