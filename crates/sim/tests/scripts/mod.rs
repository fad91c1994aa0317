//! The nodes of a scripted race, their pages and messages, and what a scene has of them.

use netmem::{PageId, Role, SpaceId};
use sim::faults::{Messages, Nodes};
use sim::memory::scene::{Actor, Scene};
use sim::memory::spaces::{private, shared};
use wire::{Channel, Kind, NodeId};

pub const A: NodeId = NodeId(1);
pub const B: NodeId = NodeId(2);
pub const C: NodeId = NodeId(3);
pub const D: NodeId = NodeId(4);
pub const E: NodeId = NodeId(5);
pub const FRAMES: u32 = 64;
/// As many pages as a node has frames.
pub const FULL: u64 = FRAMES as u64;

pub fn page(space: SpaceId, index: u64) -> PageId {
    PageId { space, index }
}

/// A page of a space of A, in mirrors.
pub fn own(index: u64) -> PageId {
    page(private(A, 4), index)
}

/// A page of a space of a node, on stable storage: clean once it is written, so that it may move to other nodes.
pub fn saved(owner: NodeId, index: u64) -> PageId {
    page(private(owner, 5), index)
}

/// A page of a shared space on stable storage.
pub fn stored(index: u64) -> PageId {
    let space = (0..4).map(shared).find(|space| space.0 % 2 == 0);
    page(space.expect("every other one is"), index)
}

/// A page of a shared space in mirrors.
pub fn mirrored(index: u64) -> PageId {
    let space = (0..4).map(shared).find(|space| space.0 % 2 == 1);
    page(space.expect("every other one is"), index)
}

pub fn requests(op: u16) -> Messages {
    Messages::Of(Kind::Request, Channel::MEMORY, op)
}

pub fn answers(op: u16) -> Messages {
    Messages::Of(Kind::Reply, Channel::MEMORY, op)
}

pub fn only(node: NodeId) -> Nodes {
    Nodes::These(vec![node])
}

/// Writes pages of A's own until its memory is full of them, and one more: another one leaves for another node.
pub fn fill_and_one_more(scene: &mut Scene) {
    scene.run(A, async |actor| write_saved(&actor, 0..FULL + 1).await);
}

pub async fn write_saved(actor: &Actor, indices: std::ops::Range<u64>) {
    for index in indices {
        actor.write(saved(actor.cx.id(), index), 1).await;
    }
}

/// The page of A's own that is not in its memory.
pub fn left(scene: &Scene) -> PageId {
    let mut gone =
        (0..=FULL).map(|index| saved(A, index)).filter(|id| scene.page(A, *id).is_none());
    let id = gone.next().expect("one has left");
    assert_eq!(gone.next(), None, "and no other");
    id
}

/// The holder of that page: one other node, as one that is not its own.
pub fn host(scene: &Scene, id: PageId) -> NodeId {
    let holders = scene.holders(id);
    let &[(node, Role::Hosted, 1)] = &holders[..] else { panic!("{holders:?}") };
    node
}

/// Every page of A's own that a node has is in A's directory.
pub fn assert_known(scene: &Scene) {
    for id in (0..=FULL).map(|index| saved(A, index)) {
        let others = scene.holders(id).into_iter().filter(|(node, ..)| *node != A);
        let entry = scene.entry(A, id);
        for (node, _, version) in others {
            let known =
                entry.as_ref().is_some_and(|(v, nodes)| *v == version && nodes.contains(&node));
            assert!(known, "{node} has {id} version {version}, known is {entry:?}");
        }
    }
}

/// Whether a page of A's is being made durable, and is not yet.
pub fn is_under_way(scene: &Scene, id: PageId) -> bool {
    scene.page(A, id).is_some_and(|page| page.busy && !page.is_durable())
}

/// Requests that came a second time, at all nodes.
pub fn repeated(scene: &Scene, nodes: u16) -> u64 {
    let nodes = (1..=nodes).map(NodeId);
    nodes.map(|node| scene.actor(node).cx.rpc_counters().duplicates).sum()
}
