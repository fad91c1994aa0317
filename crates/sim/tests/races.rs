//! Races of network memory, scripted: r1 to r17. Each is a few nodes, what they do, and which message is late or lost.
//! Bytes and versions are checked with every page that comes (`sim::memory::model`).

use netmem::service::GetError;
use netmem::{PageId, SpaceId};
use sim::faults::{Fault, Rule};
use sim::memory::scene::{Actor, Scene};
use sim::memory::spaces::{private, shared};
use sim::queue::Picos;
use wire::NodeId;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const FRAMES: u32 = 64;

fn page(space: SpaceId, index: u64) -> PageId {
    PageId { space, index }
}

/// A page of a space of A, in mirrors.
fn own(index: u64) -> PageId {
    page(private(A, 4), index)
}

/// A page of a shared space on stable storage.
fn stored(index: u64) -> PageId {
    let space = (0..4).map(shared).find(|space| space.0 % 2 == 0);
    page(space.expect("every other one is"), index)
}

/// A page of a shared space in mirrors.
fn mirrored(index: u64) -> PageId {
    let space = (0..4).map(shared).find(|space| space.0 % 2 == 1);
    page(space.expect("every other one is"), index)
}

/// More pages than a node has frames; seven others have room for two mirrors of each.
const MANY: u64 = FRAMES as u64 * 3 / 2;

async fn write_many(actor: &Actor, id: fn(u64) -> PageId) {
    for index in 0..MANY {
        actor.write(id(index), 1).await;
    }
}

async fn read_many(actor: &Actor, id: fn(u64) -> PageId) {
    for index in 0..MANY {
        assert_eq!(actor.get(id(index), 1).await, Ok(1), "page {index}");
    }
}

#[test]
fn r1_a_page_is_used_again_while_it_leaves() {
    let mut scene = Scene::new(1, 8, FRAMES);
    let slow = Rule::new(Fault::Delay(Picos::millis(5)), 300_000);
    scene.world.network_mut().rules_mut().push(slow);
    scene.run(A, async |actor| {
        for index in 0..MANY {
            actor.write(own(index), 1).await;
            assert_eq!(actor.get(own(index.saturating_sub(u64::from(FRAMES))), 1).await, Ok(1));
        }
    });
    scene.check();
}

#[test]
fn r2_what_was_stored_is_not_told() {
    let mut scene = Scene::new(2, 8, FRAMES);
    let later = scene.begin(A, async |actor| write_many(&actor, own).await);
    for round in 0..20 {
        scene.silence(if round % 2 == 0 { B } else { C }, A, Picos::millis(20));
        scene.pass(Picos::millis(50));
    }
    scene.end(&later);
    scene.run(A, async |actor| read_many(&actor, own).await);
    scene.check();
}

#[test]
fn r3_two_nodes_fetch_a_page_while_its_holder_gives_it_up() {
    for wait_us in 0..20 {
        let mut scene = Scene::new(3, 4, FRAMES);
        scene.run(A, async |actor| actor.write(stored(1), 1).await);
        let both =
            [B, C].map(|node| scene.begin(node, async |actor| actor.get(stored(1), 1).await));
        scene.pass(Picos::micros(wait_us * 5));
        scene.actor(A).service.hint(stored(1), netmem::service::Hint::DontNeed);
        scene.world.wake(A);
        for got in both {
            assert_eq!(scene.end(&got), Ok(1));
        }
        scene.check();
    }
}

/// Evicted pages of A are at others; what these send is lost for a while.
#[test]
fn r4_a_page_that_moves_is_lost_on_the_way() {
    let mut scene = Scene::new(4, 8, FRAMES);
    scene.run(A, async |actor| write_many(&actor, own).await);
    for from in (2..=8).map(NodeId) {
        scene.silence(from, A, Picos::millis(200));
    }
    scene.run(A, async |actor| read_many(&actor, own).await);
    scene.check();
}

#[test]
fn r5_what_was_received_is_not_told() {
    let mut scene = Scene::new(5, 8, FRAMES);
    scene.run(A, async |actor| write_many(&actor, own).await);
    let later = scene.begin(A, async |actor| read_many(&actor, own).await);
    for to in (2..=8).map(NodeId) {
        scene.pass(Picos::micros(500));
        scene.silence(A, to, Picos::millis(200));
    }
    scene.end(&later);
    scene.run(A, async |actor| read_many(&actor, own).await);
    scene.check();
}

#[test]
fn r6_the_view_changes_between_registration_and_answer() {
    for wait_us in (0..400).step_by(20) {
        let mut scene = Scene::new(6, 5, FRAMES);
        let later = scene.begin(A, async |actor| actor.write(mirrored(1), 1).await);
        scene.pass(Picos::micros(wait_us));
        scene.tell_view();
        scene.end(&later);
        assert_eq!(scene.run(B, async |actor| actor.get(mirrored(1), 1).await), Ok(1));
        scene.check();
    }
}

/// Any node dies at any time while a page is made durable; that is acknowledged, and the page is there.
#[test]
fn r7_a_directory_or_mirror_dies_between_the_two_mirrors() {
    for victim in 2..=5 {
        for wait_us in (0..300).step_by(30) {
            let mut scene = Scene::new(7, 5, FRAMES);
            let later = scene.begin(A, async |actor| actor.write(mirrored(1), 1).await);
            scene.pass(Picos::micros(wait_us));
            scene.crash(NodeId(victim));
            scene.pass(Picos::millis(100));
            scene.view();
            scene.end(&later);
            let reader = if victim == 2 { C } else { B };
            assert_eq!(scene.run(reader, async |actor| actor.get(mirrored(1), 1).await), Ok(1));
            scene.check();
        }
    }
}

#[test]
fn r8_a_page_is_written_again_while_it_is_made_durable() {
    for wait_us in (0..300).step_by(10) {
        let mut scene = Scene::new(8, 4, FRAMES);
        let first = scene.begin(A, async |actor| {
            actor.put(mirrored(1), 1).await.unwrap();
            actor.flush(mirrored(1)).await.unwrap();
        });
        scene.pass(Picos::micros(wait_us));
        let second = scene.begin(A, async |actor| {
            actor.service.get(wanted(mirrored(1))).await.ok();
            actor.write(mirrored(1), 2).await;
        });
        scene.end(&first);
        scene.end(&second);
        assert_eq!(scene.run(B, async |actor| actor.get(mirrored(1), 2).await), Ok(2));
        scene.check();
    }
}

fn wanted(id: PageId) -> netmem::Wanted {
    netmem::Wanted { id, at_least: netmem::Version(0), bytes: 4096 }
}

#[test]
fn r9_a_space_is_freed_while_its_pages_are_on_their_way() {
    for wait_us in (0..400).step_by(20) {
        let mut scene = Scene::new(9, 4, FRAMES);
        let late = Rule::new(Fault::Reorder(Picos::millis(5)), 200_000);
        scene.world.network_mut().rules_mut().push(late);
        let writing = scene.begin(A, async |actor| {
            let put = actor.put(own(1), 1).await;
            put.is_ok() && actor.flush(own(1)).await.is_ok()
        });
        scene.pass(Picos::micros(wait_us));
        scene.run(A, async |actor| actor.free(own(1)).await);
        scene.end(&writing);
        let got = scene.run(A, async |actor| actor.get(own(1), 0).await);
        assert_eq!(got, Err(GetError::Freed));
        scene.pass(Picos::seconds(2));
        for node in [A, B, C, NodeId(4)] {
            let left = scene.actor(node).service.counts();
            assert_eq!((left.mirror, left.hosted, left.own()), (0, 0, 0), "{node}");
        }
        scene.check();
    }
}

/// The holder is slow: stable storage is asked too, and both answer.
#[test]
fn r10_both_answers_of_a_hedged_read_arrive() {
    let mut scene = Scene::new(10, 4, FRAMES);
    scene.run(A, async |actor| actor.write(stored(1), 1).await);
    let slow = Rule {
        from: sim::faults::Nodes::These(vec![A]),
        ..Rule::new(Fault::Delay(Picos::millis(50)), 1_000_000)
    };
    scene.world.network_mut().rules_mut().push(slow);
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 1).await), Ok(1));
    scene.pass(Picos::millis(500));
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 1).await), Ok(1));
    let counters = scene.actor(B).service.counters();
    assert!(counters.hedges >= 1, "{counters:?}");
    scene.check();
}

/// All memories are full of pages in use: offers are refused, and nothing is lost by that.
#[test]
fn r11_pages_are_refused_everywhere() {
    let mut scene = Scene::new(11, 3, FRAMES);
    let writing = [A, B, C].map(|node| {
        scene.begin(node, async move |actor| {
            for index in 0..u64::from(FRAMES) * 2 {
                let id = stored(u64::from(node.0) * 1_000 + index);
                actor.write(id, 1).await;
            }
        })
    });
    writing.iter().for_each(|later| scene.end(later));
    let reading = [A, B, C].map(|node| {
        scene.begin(node, async move |actor| {
            for index in 0..u64::from(FRAMES) * 2 {
                let id = stored(u64::from(node.0) * 1_000 + index);
                assert_eq!(actor.get(id, 1).await, Ok(1));
            }
        })
    });
    reading.iter().for_each(|later| scene.end(later));
    scene.check();
}

/// A node does not hear that a page was written again and a space freed, is given up, and comes back.
#[test]
fn r12_a_node_comes_back_that_had_old_pages() {
    let mut scene = Scene::new(12, 5, FRAMES);
    scene.run(A, async |actor| {
        actor.write(mirrored(1), 1).await;
        actor.write(own(1), 1).await;
    });
    assert_eq!(scene.run(B, async |actor| actor.get(mirrored(1), 1).await), Ok(1));
    scene.crash(B);
    scene.pass(Picos::millis(100));
    scene.view();
    scene.run(A, async |actor| {
        actor.write(mirrored(1), 2).await;
        actor.free(own(1)).await;
    });
    scene.world.start(B);
    scene.pass(Picos::millis(10));
    scene.view();
    assert_eq!(scene.run(B, async |actor| actor.get(mirrored(1), 1).await), Ok(2));
    assert_eq!(scene.run(A, async |actor| actor.get(own(1), 0).await), Err(GetError::Freed));
    scene.check();
}

/// What is on stable storage after both is the newer version.
#[test]
fn r13_a_page_is_written_again_while_storage_takes_the_last_version() {
    let mut scene = Scene::new(13, 4, FRAMES);
    scene.slow_storage(50);
    let first = scene.begin(A, async |actor| {
        actor.put(stored(1), 1).await.unwrap();
        actor.flush(stored(1)).await.unwrap();
    });
    scene.pass(Picos::millis(2));
    let second = scene.begin(A, async |actor| actor.write(stored(1), 2).await);
    scene.end(&first);
    scene.end(&second);
    scene.crash(A);
    scene.view();
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 2).await), Ok(2));
    scene.check();
}

/// Two programs of a node ask for a page at once, and a third later: one fetch.
#[test]
fn r14_a_page_arrives_twice() {
    let mut scene = Scene::new(14, 4, FRAMES);
    scene.run(A, async |actor| actor.write(stored(1), 1).await);
    let again = Rule::new(Fault::Duplicate(Picos::millis(3)), 1_000_000);
    scene.world.network_mut().rules_mut().push(again);
    let all = [0; 3].map(|_| scene.begin(B, async |actor| actor.get(stored(1), 1).await));
    for got in all {
        assert_eq!(scene.end(&got), Ok(1));
    }
    scene.pass(Picos::millis(100));
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 1).await), Ok(1));
    assert_eq!(scene.actor(B).service.counters().coalesced, 2);
    scene.check();
}

/// All of a node's frames are dirty and nobody takes mirrors for a while: who writes waits, who reads does not.
#[test]
fn r15_a_writer_waits_until_something_is_durable() {
    let mut scene = Scene::new(15, 4, FRAMES);
    for other in [B, C, NodeId(4)] {
        scene.silence(A, other, Picos::seconds(2));
    }
    let writing = scene.begin(A, async |actor| {
        for index in 0..u64::from(FRAMES) * 2 {
            actor.put(own(index), 1).await.unwrap();
        }
    });
    scene.pass(Picos::seconds(1));
    assert!(writing.borrow().is_none(), "nothing could be made durable yet");
    assert_eq!(scene.run(A, async |actor| actor.get(own(0), 1).await), Ok(1));
    scene.end(&writing);
    scene.run(A, async |actor| {
        for index in 0..u64::from(FRAMES) * 2 {
            assert_eq!(actor.get(own(index), 1).await, Ok(1));
        }
    });
    scene.check();
}

#[test]
fn r16_the_only_holder_of_a_page_is_paused() {
    let mut scene = Scene::new(16, 4, FRAMES);
    scene.run(A, async |actor| actor.write(stored(1), 1).await);
    scene.world.pause(A, Picos::seconds(5));
    let start = scene.world.now();
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 1).await), Ok(1));
    assert!(scene.world.now() - start < Picos::seconds(4), "it did not wait for who is paused");
    scene.pass(Picos::seconds(6));
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 1).await), Ok(1));
    scene.check();
}

#[test]
fn r17_a_writer_dies_with_what_it_has_not_made_durable() {
    let mut scene = Scene::new(17, 5, FRAMES);
    scene.run(A, async |actor| {
        actor.write(mirrored(1), 1).await;
        actor.put(mirrored(1), 2).await.unwrap();
    });
    scene.crash(A);
    scene.pass(Picos::millis(100));
    scene.view();
    assert_eq!(scene.run(B, async |actor| actor.get(mirrored(1), 1).await), Ok(1));
    scene.run(B, async |actor| actor.write(mirrored(1), 2).await);
    assert_eq!(scene.run(C, async |actor| actor.get(mirrored(1), 2).await), Ok(2));
    scene.check();
}
