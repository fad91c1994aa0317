//! Races of network memory, scripted: r1 to r18. Each is a few nodes, what they do, and which message is late or lost.
//! Bytes and versions are checked with every page that comes (`sim::memory::model`). Each says that its race happened:
//! a counter or a state that nothing else leaves. Where that is a matter of microseconds the script is repeated with
//! other times, and some of them have to hit.

use crate::scripts::*;
use netmem::protocol::{No, op};
use netmem::service::{GetError, Hint, Source};
use netmem::{Durability, EpochConfig, PageId, Role};
use sim::experiment::MemoryShape;
use sim::faults::{Fault, Nodes, Rule};
use sim::memory::scene::{EPOCHS, Scene};
use sim::queue::Picos;
use wire::NodeId;

/// All its messages arrive 5 ms late, when the page is back.
#[test]
fn r1_a_page_is_used_again_while_it_leaves() {
    let mut scene = Scene::new(1, 8, FRAMES);
    scene.strike(Rule::of(Fault::Overtake(Picos::millis(5)), requests(op::PUT)));
    fill_and_one_more(&mut scene);
    let id = left(&scene);
    assert_eq!(scene.holders(id), [], "it is on its way");
    let got = scene.run(A, async move |actor| actor.find(id, 1).await);
    assert_eq!(got, Ok((1, Source::Local)));
    let counters = scene.counters(A);
    assert_eq!((counters.taken_back, counters.puts_sent, counters.puts_stored), (1, 2, 0));
    scene.pass(Picos::millis(10));
    assert_eq!(scene.counters(A).puts_stored, 2, "it arrived all the same");
    let holders = scene.holders(id);
    assert!(matches!(holders[..], [(A, _, 1), (_, Role::Hosted, 1)]), "{holders:?}");
    scene.run(A, async |actor| {
        for index in 0..=FULL {
            assert_eq!(actor.get(saved(A, index), 1).await, Ok(1));
        }
    });
    scene.check();
}

/// We have no CANCEL: the sender uses the page again, writes to it, and hears afterwards that it was taken.
#[test]
fn r2_a_page_that_was_taken_is_written_again_before_that_is_told() {
    let mut scene = Scene::new(2, 8, FRAMES);
    let first = Rule { most: 1, ..Rule::of(Fault::Drop, answers(op::PUT)) };
    let lost = scene.strike(first);
    fill_and_one_more(&mut scene);
    let id = left(&scene);
    let host = host(&scene, id);
    assert_eq!((scene.struck(lost), scene.entry(A, id)), (1, None), "A does not know it");
    scene.run(A, async move |actor| {
        assert_eq!(actor.find(id, 1).await, Ok((1, Source::Local)));
        actor.write(id, 2).await;
    });
    // another page has left for it
    let counters = scene.counters(A);
    assert_eq!((counters.taken_back, counters.puts_sent, counters.puts_stored), (1, 2, 1));
    scene.pass(Picos::seconds(1));
    let executed = scene.total(|counters| counters.accepted);
    assert_eq!((executed, repeated(&scene, 8)), (2, 1), "asked again, taken once");
    assert_eq!(scene.counters(A).puts_stored, 2);
    assert_eq!(scene.holders(id), [(A, Role::Local, 2)], "{host} has dropped it");
    assert_eq!(scene.entry(A, id), None);
    scene.actor(A).service.hint(id, Hint::DontNeed);
    assert_eq!(scene.run(A, async move |actor| actor.find(id, 0).await), Ok((2, Source::Backing)));
    scene.check();
}

#[test]
fn r2_a_mirror_is_made_and_that_is_not_told() {
    let mut scene = Scene::new(2, 8, FRAMES);
    let first = Rule { most: 3, ..Rule::of(Fault::Drop, answers(op::PUT)) };
    let lost = scene.strike(first);
    scene.run(A, async |actor| actor.write(own(1), 1).await);
    assert_eq!((scene.struck(lost), repeated(&scene, 8)), (3, 3));
    let made = (scene.counters(A).mirrors_made, scene.total(|counters| counters.accepted));
    assert_eq!(made, (2, 2), "each was made once");
    let mirrors = scene.holders(own(1)).into_iter().filter(|(_, role, _)| *role == Role::Mirror);
    assert_eq!(mirrors.count(), 2);
    scene.check();
}

/// D's copy goes at the moment that others are sent there, and no word of it reaches the directory.
#[test]
fn r3_two_nodes_fetch_a_page_while_its_holder_gives_it_up() {
    let (mut came, mut missed) = (0, 0);
    for wait_us in (0..100).step_by(5) {
        let mut scene = Scene::new(3, 4, FRAMES);
        let at_a = |id: &PageId| scene.homes_with(*id, &[A, B, C, D]).primary == A;
        let id = (0..).map(stored).find(at_a).expect("some are");
        scene.store(id);
        assert_eq!(scene.run(D, async move |actor| actor.get(id, 1).await), Ok(1));
        let both = [B, C].map(|node| scene.begin(node, async move |actor| actor.get(id, 1).await));
        scene.pass(Picos::micros(wait_us));
        let word = Rule::of(Fault::Drop, requests(op::UNREGISTER));
        scene.strike(Rule { from: only(D), ..word });
        scene.actor(D).service.hint(id, Hint::DontNeed);
        scene.world.wake(D);
        for got in both {
            assert_eq!(scene.end(&got), Ok(1));
        }
        came += scene.counters(D).served;
        for node in [B, C] {
            let in_vain = scene.counters(node).misses.not_here;
            assert!(in_vain <= 1, "{node} was sent there {in_vain} times");
            missed += in_vain;
        }
        scene.check();
    }
    assert!(came > 0 && missed > 0, "{came} came from there, {missed} were sent there in vain");
}

/// The holder of the page gives it up with its answer, which is lost.
#[test]
fn r4_a_page_that_moves_is_lost_on_the_way() {
    let mut scene = Scene::new(4, 8, FRAMES);
    fill_and_one_more(&mut scene);
    let id = left(&scene);
    let from = host(&scene, id);
    let first = Rule { most: 1, ..Rule::of(Fault::Drop, answers(op::TAKE)) };
    let lost = scene.strike(first);
    // stable storage, which is asked as well after a while, is slower than a message that is retransmitted
    scene.slow_storage(20_000);
    let getting = scene.begin(A, async move |actor| actor.find(id, 1).await);
    scene.pass(Picos::millis(10));
    assert_eq!((scene.struck(lost), scene.holders(id)), (1, vec![]), "nobody has it");
    assert_eq!(scene.end(&getting), Ok((1, Source::Peer)));
    scene.slow_storage(1);
    assert_eq!(scene.holders(id), [(A, Role::Local, 1)]);
    assert_eq!((scene.counters(from).served, repeated(&scene, 8)), (1, 1), "given away once");
    assert_eq!(scene.entry(A, id), None);
    scene.pass(Picos::seconds(1));
    assert_known(&scene);
    scene.check();
}

/// As r4, and the answer never comes: stable storage has the page.
#[test]
fn r4_a_page_that_moves_never_arrives() {
    let mut scene = Scene::new(4, 8, FRAMES);
    fill_and_one_more(&mut scene);
    let id = left(&scene);
    let lost = scene.strike(Rule::of(Fault::Drop, answers(op::TAKE)));
    let got = scene.run(A, async move |actor| actor.find(id, 1).await);
    assert_eq!(got, Ok((1, Source::Backing)));
    assert_eq!((scene.struck(lost), scene.holders(id)), (1, vec![(A, Role::Local, 1)]));
    scene.pass(Picos::seconds(2));
    assert_known(&scene);
    scene.check();
}

/// A node has taken a page in, and its sender hears of it so late that it offers it to another one.
#[test]
fn r5_what_was_received_is_not_told() {
    let mut scene = Scene::new(5, 8, FRAMES);
    scene.run(A, async |actor| write_saved(&actor, 0..FULL).await);
    let end = scene.world.now() + Picos::millis(1_050);
    let lost = scene.strike(Rule { end, ..Rule::of(Fault::Drop, answers(op::PUT)) });
    scene.run(A, async |actor| write_saved(&actor, FULL..FULL + 1).await);
    let id = left(&scene);
    let first = host(&scene, id);
    scene.pass(Picos::millis(900));
    assert!(scene.struck(lost) >= 3);
    assert_eq!((scene.counters(A).puts_sent, scene.entry(A, id)), (1, None), "A waits");
    scene.pass(Picos::seconds(2));
    let counters = scene.counters(A);
    assert_eq!((counters.puts_sent, counters.puts_stored), (2, 1));
    assert_eq!(scene.total(|counters| counters.accepted), 2, "two nodes had it");
    let second = host(&scene, id);
    assert_ne!(first, second);
    assert_eq!(scene.entry(A, id), Some((1, vec![second])), "one has it, whom A knows");
    scene.run(A, async move |actor| actor.write(id, 2).await);
    scene.actor(A).service.hint(id, Hint::DontNeed);
    // all nodes report their copies
    scene.view();
    assert_eq!(scene.run(A, async move |actor| actor.get(id, 0).await), Ok(2));
    scene.check();
}

/// A node joins between the moment that a page's directory knows of its mirrors and the one that its writer does, and
/// is the page's directory from then on.
#[test]
fn r6_the_view_changes_between_registration_and_answer() {
    let mut between = 0;
    for wait_us in (0..400).step_by(20) {
        let mut scene = Scene::new(6, 5, FRAMES);
        scene.crash(E);
        scene.view();
        let moves = |id: &PageId| scene.homes_with(*id, &[A, B, C, D, E]).primary == E;
        let id = (0..).map(mirrored).find(moves).expect("some do");
        let before = scene.homes_with(id, &[A, B, C, D]).primary;
        scene.world.start(E);
        scene.pass(Picos::millis(10));
        let late = Fault::Overtake(Picos::micros(100));
        scene.strike(Rule::of(late, answers(op::PUT)));
        let later = scene.begin(A, async move |actor| actor.write(id, 1).await);
        scene.pass(Picos::micros(wait_us));
        let known = scene.entry(before, id).is_some();
        between += u32::from(known && is_under_way(&scene, id));
        scene.tell_view();
        scene.end(&later);
        scene.pass(Picos::seconds(1));
        assert!(scene.entry(E, id).is_some_and(|(version, _)| version == 1), "{before} told {E}");
        assert_eq!(scene.run(B, async move |actor| actor.get(id, 1).await), Ok(1));
        scene.check();
    }
    assert!(between >= 3, "{between} times");
}

/// Any node dies at any time while a page is made durable; that is acknowledged, and the page is there.
#[test]
fn r7_a_directory_or_mirror_dies_between_the_two_mirrors() {
    let (mut homes, mut mirrors) = (0, 0);
    for victim in (2..=5).map(NodeId) {
        for wait_us in (0..300).step_by(30) {
            let mut scene = Scene::new(7 + wait_us, 5, FRAMES);
            // whichever two are chosen, one has its mirror a while before the other
            let slow = Rule::of(Fault::Overtake(Picos::micros(150)), requests(op::PUT));
            scene.strike(Rule { to: Nodes::These(vec![B, C]), ..slow });
            let later = scene.begin(A, async |actor| actor.write(mirrored(1), 1).await);
            scene.pass(Picos::micros(wait_us));
            let have: Vec<NodeId> =
                scene.holders(mirrored(1)).iter().skip(1).map(|(node, ..)| *node).collect();
            let home = scene.homes_with(mirrored(1), &[A, B, C, D, E]).primary;
            homes += u32::from(have.len() == 1 && home == victim);
            mirrors += u32::from(have == [victim]);
            scene.crash(victim);
            scene.pass(Picos::millis(100));
            scene.view();
            scene.end(&later);
            scene.pass(Picos::seconds(1));
            let holders = scene.holders(mirrored(1));
            let count = holders.iter().filter(|(_, role, _)| *role == Role::Mirror).count();
            assert!(count >= 2, "{holders:?}");
            let reader = if victim == B { C } else { B };
            assert_eq!(scene.run(reader, async |actor| actor.get(mirrored(1), 1).await), Ok(1));
            scene.check();
        }
    }
    assert!(homes > 0 && mirrors > 0, "{homes} homes and {mirrors} mirrors between the two");
}

#[test]
fn r8_a_page_is_written_again_while_it_is_made_durable() {
    let mut under_way = 0;
    for wait_us in (0..300).step_by(10) {
        let mut scene = Scene::new(8, 4, FRAMES);
        let first = scene.begin(A, async |actor| {
            actor.put(mirrored(1), 1).await.unwrap();
            actor.flush(mirrored(1)).await.unwrap();
        });
        scene.pass(Picos::micros(wait_us));
        under_way += u32::from(is_under_way(&scene, mirrored(1)));
        let second = scene.begin(A, async |actor| {
            actor.service.get(wanted(mirrored(1))).await.ok();
            actor.write(mirrored(1), 2).await;
        });
        scene.end(&first);
        scene.end(&second);
        scene.pass(Picos::seconds(1));
        let holders = scene.holders(mirrored(1));
        assert!(holders.iter().all(|(.., version)| *version == 2), "{holders:?}");
        assert_eq!(scene.run(B, async |actor| actor.get(mirrored(1), 2).await), Ok(2));
        scene.check();
    }
    assert!(under_way >= 3, "{under_way} times");
}

fn wanted(id: PageId) -> netmem::Wanted {
    netmem::Wanted { id, at_least: netmem::Version(0), bytes: 4096 }
}

/// The page comes after the word that its space is freed.
#[test]
fn r9_a_space_is_freed_while_its_pages_are_on_their_way() {
    let (mut under_way, mut late) = (0, 0);
    for wait_us in (0..400).step_by(20) {
        let mut scene = Scene::new(9, 4, FRAMES);
        scene.strike(Rule::of(Fault::Overtake(Picos::micros(200)), requests(op::PUT)));
        let writing = scene.begin(A, async |actor| {
            let put = actor.put(own(1), 1).await;
            put.is_ok() && actor.flush(own(1)).await.is_ok()
        });
        scene.pass(Picos::micros(wait_us));
        under_way += u32::from(is_under_way(&scene, own(1)));
        scene.run(A, async |actor| actor.free(own(1)).await);
        scene.end(&writing);
        let got = scene.run(A, async |actor| actor.get(own(1), 0).await);
        assert_eq!(got, Err(GetError::Freed));
        scene.pass(Picos::seconds(2));
        for node in [A, B, C, D] {
            let left = scene.actor(node).service.counts();
            assert_eq!((left.mirror, left.hosted, left.own()), (0, 0, 0), "{node}");
        }
        late += scene.total(|counters| counters.refusals.get(No::Freed));
        scene.check();
    }
    assert!(under_way >= 3 && late >= 3, "{under_way} times, {late} came after it");
}

/// The holder is slow: stable storage is asked too, and both answer.
#[test]
fn r10_both_answers_of_a_hedged_read_arrive() {
    let mut scene = Scene::new(10, 4, FRAMES);
    scene.run(A, async |actor| actor.write(stored(1), 1).await);
    let slow = Rule::new(Fault::Delay(Picos::millis(50)), 1_000_000);
    scene.strike(Rule { from: only(A), ..slow });
    let got = scene.run(B, async |actor| actor.find(stored(1), 1).await);
    assert_eq!(got, Ok((1, Source::Backing)));
    assert_eq!(scene.actor(B).cx.rpc_counters().stale_replies, 0);
    scene.pass(Picos::millis(500));
    assert_eq!(scene.counters(A).served, 1);
    assert_eq!(scene.actor(B).cx.rpc_counters().stale_replies, 1, "it came, and nobody waited");
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 1).await), Ok(1));
    let counters = scene.counters(B);
    assert!(counters.hedges >= 1 && counters.hedges_won >= 1, "{counters:?}");
    scene.check();
}

/// All memories are full of pages in use, and the epoch says that there is room everywhere: offers are refused. A
/// refusal says how old a page would be welcome, so that there is no storm, and nothing is lost.
#[test]
fn r11_pages_are_refused_everywhere() {
    const NODES: u16 = 8;
    let shape = MemoryShape { nodes: NODES, frames: FRAMES, ..MemoryShape::default() };
    let epoch = EpochConfig { slow_start: EPOCHS.slow_start, ..EpochConfig::default() };
    let mut scene = Scene::of(11, shape, epoch);
    let nodes: Vec<NodeId> = (1..=NODES).map(NodeId).collect();
    let writing = nodes
        .iter()
        .map(|node| scene.begin(*node, async |actor| write_saved(&actor, 0..FULL * 2).await));
    let writing: Vec<_> = writing.collect();
    writing.iter().for_each(|later| scene.end(later));
    let refused = scene.total(|counters| counters.refused.get(No::Room));
    let offered = scene.total(|counters| counters.puts_sent);
    let dropped = scene.total(|counters| counters.dropped);
    let left = u64::from(NODES) * FULL;
    assert_eq!((refused, dropped), (offered, left), "no page found a place");
    let pairs = u64::from(NODES * (NODES - 1));
    assert!(refused > pairs / 2 && refused <= pairs, "{refused}: each is refused by each once");
    let epoch = scene.actor(A).service.epoch();
    assert!(nodes.iter().all(|node| epoch.weight(*node) > 0), "as far as the epoch knows");
    let reading = nodes.iter().map(|node| {
        let node = *node;
        scene.begin(node, async move |actor| {
            for index in 0..FULL * 2 {
                assert_eq!(actor.get(saved(node, index), 1).await, Ok(1));
            }
        })
    });
    let reading: Vec<_> = reading.collect();
    reading.iter().for_each(|later| scene.end(later));
    scene.check();
}

/// A node does not hear that it was given up, that a page was written again and a space freed. It comes back with the
/// pages that it had, and hears that it was away or not.
#[test]
fn r12_a_node_comes_back_that_had_old_pages() {
    let mut scene = Scene::new(12, 5, FRAMES);
    scene.run(A, async |actor| {
        for index in 0..8 {
            actor.write(mirrored(index), 1).await;
            actor.write(own(index), 1).await;
        }
    });
    let has = |scene: &Scene, id| scene.page(B, id).is_some();
    let shared = (0..8).map(mirrored).find(|id| has(&scene, *id)).expect("a mirror");
    let freed = (0..8).map(own).find(|id| has(&scene, *id)).expect("another one");
    scene.cut_off(B, Picos::seconds(2));
    scene.give_up(B);
    scene.run(A, async move |actor| {
        actor.write(shared, 2).await;
        actor.free(freed).await;
    });
    let unsure = scene.run(B, async move |actor| actor.get(shared, 0).await);
    assert!(matches!(unsure, Ok(2) | Err(GetError::Unavailable)), "{unsure:?}: its lease is over");
    let holders = scene.holders(shared);
    assert!(holders.contains(&(B, Role::Mirror, 1)), "{holders:?}: the version before");
    assert!(has(&scene, freed), "of a space that is no more");
    scene.come_back(B);
    let holders = scene.holders(shared);
    assert!(holders.iter().all(|(.., version)| *version == 2), "{holders:?}: not for a moment");
    assert!(!has(&scene, freed));
    scene.pass(Picos::seconds(1));
    assert_eq!(scene.run(B, async move |actor| actor.get(shared, 0).await), Ok(2));
    assert_eq!(scene.run(A, async move |actor| actor.get(freed, 0).await), Err(GetError::Freed));
    assert_eq!(scene.counters(B).incarnations_lost, 1);
    scene.check();
}

/// Stable storage has the newer version after both.
#[test]
fn r13_a_page_is_written_again_while_storage_takes_the_last_version() {
    let mut scene = Scene::new(13, 4, FRAMES);
    scene.slow_storage(50);
    let first = scene.begin(A, async |actor| {
        actor.put(stored(1), 1).await.unwrap();
        actor.flush(stored(1)).await.unwrap();
    });
    scene.pass(Picos::millis(2));
    assert!(is_under_way(&scene, stored(1)) && scene.counters(A).written_back == 0);
    let second = scene.begin(A, async |actor| actor.write(stored(1), 2).await);
    scene.end(&first);
    scene.end(&second);
    assert_eq!(scene.counters(A).written_back, 2, "both versions");
    scene.crash(A);
    scene.view();
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 2).await), Ok(2));
    scene.check();
}

/// A page is prefetched, its data is late, a request fetches it itself, and it is written again before the data comes.
#[test]
fn r14_a_prefetched_page_arrives_after_it_was_asked_for() {
    let mut scene = Scene::new(14, 4, FRAMES);
    scene.store(stored(1));
    assert_eq!(scene.run(C, async |actor| actor.get(stored(1), 1).await), Ok(1));
    let late = scene.strike(Rule::of(Fault::Overtake(Picos::millis(200)), answers(op::GET_MULTI)));
    scene.actor(B).service.hint(stored(1), Hint::WillNeed { bytes: 4096 });
    scene.world.wake(B);
    scene.pass(Picos::millis(1));
    assert_eq!((scene.struck(late), scene.counters(C).served), (1, 1), "it is on its way");
    let all = [0; 3].map(|_| scene.begin(B, async |actor| actor.find(stored(1), 1).await));
    for got in all {
        assert_eq!(scene.end(&got), Ok((1, Source::Peer)));
    }
    let counters = scene.counters(B);
    assert_eq!((counters.prefetched_late, scene.counters(C).served), (3, 2), "and was overtaken");
    scene.run(A, async |actor| actor.write(stored(1), 2).await);
    assert_eq!(scene.holders(stored(1)), [(A, Role::Local, 2)]);
    for _ in 0..200 {
        scene.pass(Picos::millis(1));
        assert_eq!(scene.page(B, stored(1)), None, "the version before does not come back");
    }
    let calls = scene.actor(B).cx.rpc_counters();
    assert_eq!((calls.retries, calls.stale_replies), (0, 0), "it came, and somebody waited");
    assert_eq!(scene.counters(B).prefetched, 0);
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 0).await), Ok(2));
    scene.check();
}

/// Two programs of a node ask for a page at once, all messages come twice: one fetch.
#[test]
fn r14_a_page_arrives_twice() {
    let mut scene = Scene::new(14, 4, FRAMES);
    scene.run(A, async |actor| actor.write(stored(1), 1).await);
    let again = Rule::new(Fault::Duplicate(Picos::millis(3)), 1_000_000);
    scene.strike(again);
    let all = [0; 3].map(|_| scene.begin(B, async |actor| actor.get(stored(1), 1).await));
    for got in all {
        assert_eq!(scene.end(&got), Ok(1));
    }
    scene.pass(Picos::millis(100));
    assert_eq!(scene.run(B, async |actor| actor.get(stored(1), 1).await), Ok(1));
    assert_eq!(scene.counters(B).coalesced, 2);
    assert!(scene.actor(B).cx.rpc_counters().stale_replies > 0, "an answer came twice");
    scene.check();
}

/// All of a node's frames are dirty and no node takes mirrors for a while: writers wait, readers do not.
#[test]
fn r15_a_writer_waits_until_something_is_durable() {
    let mut scene = Scene::new(15, 4, FRAMES);
    for other in [B, C, D] {
        scene.silence(A, other, Picos::seconds(2));
    }
    let writing = scene.begin(A, async |actor| {
        for index in 0..FULL * 2 {
            actor.put(own(index), 1).await.unwrap();
        }
    });
    scene.pass(Picos::seconds(1));
    assert!(writing.borrow().is_none(), "nothing could be made durable yet");
    let dirty = |index| scene.page(A, own(index)).is_some_and(|page| !page.is_durable());
    assert!((0..FULL).all(dirty), "and no frame is free");
    assert_eq!(scene.run(A, async |actor| actor.get(own(0), 1).await), Ok(1));
    scene.end(&writing);
    scene.run(A, async |actor| {
        for index in 0..FULL * 2 {
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
    let got = scene.run(B, async |actor| actor.find(stored(1), 1).await);
    assert_eq!(got, Ok((1, Source::Backing)));
    assert!(scene.world.now() - start < Picos::seconds(4), "it did not wait for who is paused");
    assert_eq!(scene.counters(A).served, 0);
    scene.pass(Picos::seconds(6));
    assert!(scene.counters(A).served > 0, "it has answered when it went on");
    assert!(scene.actor(B).cx.rpc_counters().stale_replies > 0, "too late");
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
    let page = scene.page(A, mirrored(1)).expect("it has the lease, and has written");
    assert_eq!(page.durability, Durability::Dirty { copies: 0 });
    let holders = scene.holders(mirrored(1));
    assert!(matches!(holders[..], [(A, _, 2), (_, Role::Mirror, 1), (_, Role::Mirror, 1)]));
    scene.crash(A);
    scene.pass(Picos::millis(100));
    scene.view();
    assert_eq!(scene.run(B, async |actor| actor.get(mirrored(1), 1).await), Ok(1));
    scene.run(B, async |actor| actor.write(mirrored(1), 2).await);
    assert_eq!(scene.run(C, async |actor| actor.get(mirrored(1), 2).await), Ok(2));
    scene.check();
}

/// The answer that there is no page is late. Meanwhile the page is written, and then it is asked for again there.
#[test]
fn r18_a_page_is_put_between_an_answer_and_a_request_that_waits_for_the_same_one() {
    let mut scene = Scene::new(18, 4, FRAMES);
    let at_d = |id: &PageId| scene.homes_with(*id, &[A, B, C, D]).primary == D;
    let id = (0..).map(mirrored).find(at_d).expect("some are");
    let late = Rule { most: 1, ..Rule::of(Fault::Overtake(Picos::millis(50)), answers(op::GET)) };
    let late = scene.strike(Rule { to: only(B), ..late });
    let first = scene.begin(B, async move |actor| actor.get(id, 0).await);
    scene.pass(Picos::millis(1));
    scene.run(A, async move |actor| actor.write(id, 1).await);
    assert!(scene.struck(late) == 1 && first.borrow().is_none());
    let second = scene.begin(B, async move |actor| actor.get(id, 0).await);
    assert_eq!(scene.end(&first), Err(GetError::Unknown), "as it was when it was asked for");
    assert_eq!(scene.end(&second), Ok(1));
    assert!(scene.counters(B).coalesced > 0);
    scene.check();
}
