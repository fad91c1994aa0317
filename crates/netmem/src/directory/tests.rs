//! The directory against a map of lists.

use super::*;
use crate::page::SpaceId;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ROOM: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Register {
        page: u64,
        version: u64,
        holder: Holder,
    },
    Unregister {
        page: u64,
        version: u64,
        holder: Holder,
    },
    DropNode {
        node: u16,
        last: u64,
    },
    /// Pages with an index that this divides move elsewhere.
    Move(u64),
}

fn page(index: u64) -> PageId {
    PageId { space: SpaceId(3), index }
}

fn holder(node: u16, incarnation: u64, role: Role) -> Holder {
    Holder { node: NodeId(node), incarnation, role }
}

fn op() -> impl Strategy<Value = Op> {
    let role = prop_oneof![6 => Just(Role::Clean), 3 => Just(Role::Mirror)];
    let named = (1u16..8, 1u64..4, role)
        .prop_map(|(node, incarnation, role)| holder(node, incarnation, role));
    prop_oneof![
        10 => (0u64..9, 1u64..5, named.clone())
            .prop_map(|(page, version, holder)| Op::Register { page, version, holder }),
        3 => (0u64..9, 1u64..5, named)
            .prop_map(|(page, version, holder)| Op::Unregister { page, version, holder }),
        1 => (1u16..8, 1u64..4).prop_map(|(node, last)| Op::DropNode { node, last }),
        1 => (3u64..6).prop_map(Op::Move),
    ]
}

#[derive(Clone, Debug, Default)]
struct Known {
    version: u64,
    holders: Vec<Holder>,
    lost: bool,
    crowded: bool,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.holders.is_empty() && !self.lost && !self.crowded
    }

    fn is_hard(&self) -> bool {
        self.lost || self.holders.iter().any(|holder| holder.role.is_hard())
    }
}

type Model = BTreeMap<u64, Known>;

fn sorted(mut holders: Vec<Holder>) -> Vec<Holder> {
    holders.sort_unstable_by_key(|holder| holder.node);
    holders
}

fn register(
    model: &mut Model,
    index: u64,
    version: u64,
    new: Holder,
    said: Result<Outcome, Refusal>,
) {
    let outcome = match said {
        Ok(outcome) => outcome,
        Err(Refusal::Stale(known)) => {
            return assert!(model[&index].version == known.0 && version < known.0);
        }
        Err(Refusal::Outlived) => {
            let later = |old: &Holder| old.node == new.node && old.incarnation > new.incarnation;
            return assert!(model[&index].holders.iter().any(later));
        }
        Err(Refusal::Enough) => {
            let known = model.get_mut(&index).unwrap();
            let full = known.holders.len() == HOLDERS_MAX;
            let useful =
                new.role.is_hard() && known.holders.iter().any(|old| old.role == Role::Clean);
            known.crowded = true;
            return assert!(full && !useful);
        }
        Err(Refusal::Full) => {
            let hard = model.values().all(Known::is_hard);
            return assert!(model.len() == ROOM && hard && !model.contains_key(&index));
        }
    };
    if let Some(forgotten) = &outcome.forgotten {
        assert!(model.len() == ROOM && !model.contains_key(&index));
        assert!(!model.remove(&forgotten.id.index).unwrap().is_hard(), "hard state was forgotten");
    }
    let known = model.entry(index).or_default();
    assert!(version >= known.version, "a version went back");
    let mut gone: Vec<Holder> = outcome.dropped.to_vec();
    if version > known.version {
        let mut old = std::mem::take(&mut known.holders);
        old.retain(|old| old.node != new.node);
        assert_eq!(sorted(gone), sorted(old));
        gone = Vec::new();
        known.crowded = false;
    }
    known.crowded |= !gone.is_empty();
    let mirror = Holder { role: Role::Mirror, ..new };
    let is_clean = new.role == Role::Clean;
    let stays = is_clean && version == known.version && known.holders.contains(&mirror);
    known.holders.retain(|old| old.node != new.node && !gone.contains(old));
    known.holders.push(if stays { mirror } else { new });
    (known.version, known.lost) = (version, false);
    assert!(known.holders.len() <= HOLDERS_MAX);
}

fn drop_node(model: &mut Model, node: u16, last: u64) -> Vec<(u64, bool)> {
    let mut hurt = Vec::new();
    for (index, known) in model.iter_mut() {
        let gone = |old: &Holder| old.node == NodeId(node) && old.incarnation <= last;
        let hard = known.holders.iter().any(|old| gone(old) && old.role.is_hard());
        known.holders.retain(|old| !gone(old));
        if hard {
            known.lost = known.holders.is_empty();
            hurt.push((*index, known.lost));
        }
    }
    model.retain(|_, known| !known.is_empty());
    hurt
}

fn apply(directory: &mut Directory, model: &mut Model, op: Op) {
    match op {
        Op::Register { page: index, version, holder } => {
            let said = directory.register(page(index), Version(version), holder);
            register(model, index, version, holder, said);
        }
        Op::Unregister { page: index, version, holder: gone } => {
            let did = directory.unregister(page(index), Version(version), gone);
            let is_it = |old: &Holder| {
                old.node == gone.node
                    && old.incarnation == gone.incarnation
                    && (old.role == gone.role || gone.role == Role::Mirror)
            };
            let known = model.get_mut(&index).filter(|known| known.version == version);
            let place = known.as_ref().and_then(|known| known.holders.iter().position(is_it));
            assert_eq!(did, place.is_some());
            known.into_iter().zip(place).for_each(|(known, at)| {
                known.holders.remove(at);
            });
            model.retain(|_, known| !known.is_empty());
        }
        Op::DropNode { node, last } => {
            let mut hurt = Vec::new();
            directory
                .drop_node(NodeId(node), last, |entry| hurt.push((entry.id.index, entry.lost)));
            hurt.sort_unstable();
            assert_eq!(hurt, drop_node(model, node, last));
        }
        Op::Move(divisor) => {
            let mut gone = Vec::new();
            let keeps = |entry: &Entry| !entry.id.index.is_multiple_of(divisor);
            directory.retain(keeps, |entry| gone.push(entry.id.index));
            gone.sort_unstable();
            let moved = model.keys().copied().filter(|index| index.is_multiple_of(divisor));
            assert_eq!(gone, moved.collect::<Vec<_>>());
            model.retain(|index, _| !index.is_multiple_of(divisor));
        }
    }
}

fn compare(directory: &Directory, model: &Model) {
    assert_eq!(directory.len(), model.len());
    assert_eq!(directory.entries().count(), model.len());
    for index in 0..9 {
        let known = model.get(&index);
        let entry = directory.entry(page(index));
        assert_eq!(
            entry.map(|entry| (entry.version.0, entry.lost)),
            known.map(|k| (k.version, k.lost))
        );
        let holders = entry.map(|entry| sorted(entry.holders.to_vec()));
        assert_eq!(holders, known.map(|known| sorted(known.holders.clone())));
        let found = directory.look_up(page(index), Version(0));
        assert_eq!(
            (matches!(found, Lookup::Held(_)), matches!(found, Lookup::Lost(_))),
            known.map_or((false, false), |known| (!known.holders.is_empty(), known.lost))
        );
        let newer = Version(known.map_or(1, |known| known.version + 1));
        assert_eq!(directory.look_up(page(index), newer), Lookup::Unknown);
    }
}

proptest! {
    #[test]
    fn a_directory_is_a_map(ops in prop::collection::vec(op(), 1..300)) {
        let (mut directory, mut model) = (Directory::new(ROOM), Model::new());
        for op in ops {
            apply(&mut directory, &mut model, op);
            compare(&directory, &model);
        }
    }

    /// After a view change holders say again what they hold, to the old home or to an empty new one: both end up the
    /// same.
    #[test]
    fn registering_again_rebuilds_what_there_was(ops in prop::collection::vec(op(), 1..100)) {
        let (mut directory, mut model) = (Directory::new(ROOM), Model::new());
        ops.into_iter().for_each(|op| apply(&mut directory, &mut model, op));
        model.retain(|_, known| !known.holders.is_empty());
        let mut rebuilt = Directory::new(ROOM);
        for (index, known) in &model {
            for holder in &known.holders {
                let version = Version(known.version);
                prop_assert_eq!(directory.register(page(*index), version, *holder), Ok(Outcome::default()));
                prop_assert_eq!(rebuilt.register(page(*index), version, *holder), Ok(Outcome::default()));
            }
        }
        compare(&rebuilt, &model);
    }
}

#[test]
fn a_lost_version_is_said_to_be_lost_until_it_is_found_or_replaced() {
    let mut directory = Directory::new(4);
    let register = |directory: &mut Directory, version, node, incarnation| {
        directory.register(page(1), Version(version), holder(node, incarnation, Role::Mirror))
    };
    register(&mut directory, 5, 1, 1).unwrap();
    register(&mut directory, 5, 2, 1).unwrap();
    directory
        .drop_node(NodeId(1), 1, |entry| assert_eq!((entry.mirrors(), entry.lost), (1, false)));
    directory.drop_node(NodeId(2), 1, |entry| assert!(entry.lost));
    assert_eq!(directory.look_up(page(1), Version(1)), Lookup::Lost(Version(5)));
    assert_eq!(directory.look_up(page(1), Version(6)), Lookup::Unknown);
    assert_eq!(register(&mut directory, 4, 3, 1), Err(Refusal::Stale(Version(5))));
    register(&mut directory, 5, 2, 2).unwrap();
    assert!(
        matches!(directory.look_up(page(1), Version(5)), Lookup::Held(entry) if entry.mirrors() == 1)
    );
}

/// A node becomes a mirror of what it had a clean copy of, and what it said of that one arrives late.
#[test]
fn what_is_said_of_a_clean_copy_takes_no_mirror_away() {
    let mut directory = Directory::new(4);
    let (clean, mirror) = (holder(1, 1, Role::Clean), holder(1, 1, Role::Mirror));
    directory.register(page(1), Version(5), mirror).unwrap();
    directory.register(page(1), Version(5), clean).unwrap();
    assert_eq!(directory.entry(page(1)).unwrap().holders[..], [mirror]);
    assert!(!directory.unregister(page(1), Version(5), clean));
    assert!(directory.unregister(page(1), Version(5), mirror));
    assert!(directory.entry(page(1)).is_none());
}

/// The directory's memory is at most its share of the node's, all arrays included.
#[test]
fn the_directory_stays_in_its_share_of_memory() {
    let (memory, page) = (64 << 20, 4096);
    let entries = Directory::entries_in(memory);
    let bytes = entries * (size_of::<Entry>() + 4) + (entries * 2).next_power_of_two() * 4;
    assert!(bytes <= memory / 50, "{bytes}");
    // enough for six in ten pages of 4 KiB; those of private spaces need none until they leave
    assert!(
        entries >= memory / page * 6 / 10,
        "{entries} entries of {} bytes",
        Directory::ENTRY_BYTES
    );
}
