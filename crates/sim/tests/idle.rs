//! Worth of idle nodes' memory to real services on simulated nodes, and the speed at which a node that joins is trusted
//! with pages.

use netmem::limits::WEIGHT_PERCENT_MAX;
use netmem::service::Counters;
use netmem::{EpochConfig, PageId, SpaceId};
use sim::experiment::MemoryShape;
use sim::memory::scene::{Actor, EPOCHS, Later, Scene};
use sim::queue::Picos;
use sim::random::Random;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::NodeId;

const FRAMES: u64 = 96;
const BUSY: [NodeId; 2] = [NodeId(1), NodeId(2)];
/// How long a busy program does something else between two pages.
const PAUSE: Duration = Duration::from_micros(200);

/// Nodes whose faults show no trend that is followed: what is read is what is asked for.
fn scene(seed: u64, nodes: u16, epochs: EpochConfig) -> Scene {
    let shape = MemoryShape { nodes, frames: FRAMES as u32, trends: false, ..Default::default() };
    Scene::of(seed, shape, epochs)
}

/// A page on stable storage, of a space of the node's own.
fn page(node: NodeId, index: u64) -> PageId {
    PageId { space: SpaceId::private(node, 5), index }
}

fn store(scene: &mut Scene, pages: u64) {
    BUSY.iter().for_each(|node| (0..pages).for_each(|index| scene.store(page(*node, index))));
}

/// Half of the reads go through the pages in a loop, the others prefer the first ones. Answers with the pages that
/// were read.
async fn read(actor: Actor, pages: u64, reads: u64) -> BTreeSet<u64> {
    let (me, mut read) = (actor.cx.id(), BTreeSet::new());
    let mut random = Random::new(me.0.into(), "reads");
    for round in 0..reads {
        let skewed = random.below(pages).min(random.below(pages));
        let index = if round % 2 == 0 { round / 2 % pages } else { skewed };
        read.insert(index);
        assert_eq!(actor.get(page(me, index), 1).await, Ok(1));
        actor.cx.sleep(PAUSE).await;
    }
    read
}

fn begin(scene: &mut Scene, pages: u64, reads: u64) -> [Later<BTreeSet<u64>>; 2] {
    BUSY.map(|node| scene.begin(node, move |actor| read(actor, pages, reads)))
}

/// Pages that stable storage was asked for.
fn reads(counters: &Counters) -> u64 {
    counters.backing_hits + counters.hedges - counters.hedges_won
}

/// Two nodes whose programs have three times their memory, beside six that are idle: all pages fit, so that who knew
/// the future would read each of them from disk once. The services read 5 % more at most.
#[test]
fn two_busy_nodes_of_eight_read_each_page_from_disk_once() {
    for seed in 1..4 {
        let mut scene = scene(seed, 8, EPOCHS);
        store(&mut scene, 3 * FRAMES);
        let programs = begin(&mut scene, 3 * FRAMES, 16 * FRAMES);
        let oracle: u64 = programs.iter().map(|program| scene.end(program).len() as u64).sum();
        assert!(oracle > 5 * FRAMES, "{oracle}");
        let disk = scene.total(reads);
        println!("seed {seed}: {disk} reads of the disk, {oracle} of who knows the future");
        assert!(disk * 100 <= oracle * 105, "{disk} beside {oracle}");
        scene.check();
    }
}

/// A node that comes when others' memory is full, and programs read more than all memory holds: its part of what
/// leaves grows with the time that it has been a member, whatever number of epochs that is, and from the third
/// epoch on hardly a page is refused.
#[test]
fn a_node_that_joins_is_given_pages_slowly_and_few_are_refused() {
    const JOINER: NodeId = NodeId(6);
    let slow = Duration::from_secs(2);
    let mut scene = scene(1, 6, EpochConfig { slow_start: slow, ..EPOCHS });
    scene.crash(JOINER);
    scene.view();
    let pages = 4 * FRAMES;
    store(&mut scene, pages);
    let programs = begin(&mut scene, pages, 200 * FRAMES);
    scene.pass(Picos::seconds(2));
    scene.world.start(JOINER);
    scene.tell_view();

    let lendable = 6 * (FRAMES - FRAMES / 4);
    let most = lendable / EPOCHS.share * WEIGHT_PERCENT_MAX / 100;
    let (joined, first) = (scene.world.now(), scene.actor(BUSY[0]).service.epoch().number);
    let (mut last, mut granted, mut before) = (first, Vec::new(), None);
    while scene.world.now().since(joined).0 < Picos::from(slow * 3 / 2).0 {
        scene.pass(Picos::millis(5));
        let (since, epoch) =
            (scene.world.now().since(joined), scene.actor(BUSY[0]).service.epoch());
        if epoch.number == last {
            continue;
        }
        last = epoch.number;
        let weight = u64::from(epoch.weight(JOINER));
        granted.push(weight);
        assert!(
            u128::from(weight) * u128::from(Picos::from(slow).0)
                <= u128::from(most) * u128::from(since.0),
            "a weight of {weight} of {most} after {since} s"
        );
        if last == first + 3 {
            before = Some(offered(&scene));
        }
    }
    let ((stored, refused), (stored_before, refused_before)) =
        (offered(&scene), before.expect("three epochs"));
    let (stored, refused) = (stored - stored_before, refused - refused_before);
    println!("{granted:?}: {stored} pages were taken, {refused} refused");
    assert!(granted.len() > 10 && granted.iter().max() > Some(&(most / 2)), "{granted:?}");
    assert!(stored > 1_000 && refused * 5 < stored, "{refused} refused, {stored} taken");
    programs.iter().for_each(|program| _ = scene.end(program));
    scene.check();
}

/// Clean pages that other nodes took, for one of theirs or not, and that they did not.
fn offered(scene: &Scene) -> (u64, u64) {
    (scene.total(|c| c.puts_stored + c.swapped), scene.total(|c| c.refused.total()))
}
