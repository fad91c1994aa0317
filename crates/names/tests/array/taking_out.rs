//! A manager that is taken out leaves nothing behind.

use crate::common::ROOT;
use crate::common::array::{Array, FIRST};
use crate::common::cluster::WHO;
use names::{How, WRITE};
use node::rings::{Lock, LockKind};
use wire::{Errno, NodeId};

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
