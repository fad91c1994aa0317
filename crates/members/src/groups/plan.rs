//! The planner of groups: which are made, and which disks they move to, so that each has its copies on distinct
//! machines and each disk its share.
//!
//! Plain arithmetic over what is known now; it remembers nothing. A move is two steps, a replica more and, once that is
//! in sync, one less, so that a plan can be given up and made anew at any time. Every step brings the groups nearer to
//! where none is left: the sum over disks of replicas squared by weight falls with each move.

use super::{Change, Group, GroupId, REPLICAS_MAX, Replica, Table};
use crate::limits::GROUPS_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use wire::NodeId;

/// A disk that groups may be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The disk.
    pub replica: Replica,
    /// Its machine: no two replicas of a group are on one, as long as there are others. They are never on one server,
    /// which could not be waited for by itself.
    pub machine: u64,
    /// Its rack; the same of racks. 0 for all where none are known.
    pub rack: u64,
    /// Its share of the data, to those of others.
    pub weight: u32,
    /// Whether it can take replicas now.
    pub takes: bool,
    /// Whether its replicas are to go: it is to be taken out, or gone.
    pub leaves: bool,
}

/// What is wanted of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Copies of each group.
    pub copies: u8,
    /// Replicas on each disk: as many others take part when it is rebuilt.
    pub per_disk: u16,
    /// Groups that are moved at once.
    pub moves_max: usize,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A new group.
    Make(GroupId, Group),
    /// A change, decided by this epoch. [`Change::Lead`] is asked of the primary, the others are made.
    Change(GroupId, u32, Change),
}

/// Primaries that are asked to hand over, to each step that the planner makes itself. Those that do not answer hold up
/// none of the other steps.
pub const LEADS_EACH: usize = 4;

type DiskKey = (NodeId, u8);

fn place(replica: Replica) -> DiskKey {
    (replica.server, replica.disk)
}

/// Whether a replica is on the server of a disk.
fn is_with(replica: Replica, disk: &Disk) -> bool {
    replica.server == disk.replica.server
}

/// A plan over copies of disks and groups, in which its steps are made.
#[derive(Debug)]
pub struct Plan {
    shape: Shape,
    disks: BTreeMap<DiskKey, Disk>,
    groups: BTreeMap<GroupId, Group>,
    next_id: GroupId,
    /// Groups with a replica on each disk.
    on: BTreeMap<DiskKey, BTreeSet<GroupId>>,
    /// Groups that each disk has the primary of.
    led: BTreeMap<DiskKey, u32>,
    /// Groups that two disks are both in.
    shared: BTreeMap<(DiskKey, DiskKey), u32>,
    /// Groups with a replica that is being filled.
    filling: usize,
    /// Disks that take replicas, their servers and racks.
    taking: usize,
    servers: usize,
    racks: usize,
    steps: Vec<Step>,
    /// Steps that may follow, and those that are asked of primaries.
    room: usize,
    room_asked: usize,
}

impl Plan {
    /// Begins with what is there.
    pub fn new(shape: Shape, disks: &[Disk], table: &Table) -> Plan {
        let taking = disks.iter().filter(|disk| disk.takes && !disk.leaves);
        let racks: BTreeSet<u64> = taking.clone().map(|disk| disk.rack).collect();
        let servers: BTreeSet<NodeId> = taking.clone().map(|disk| disk.replica.server).collect();
        let (taking, servers, racks) = (taking.count(), servers.len(), racks.len());
        let disks = disks.iter().map(|disk| (place(disk.replica), *disk)).collect();
        let mut plan = Plan {
            shape,
            disks,
            groups: BTreeMap::new(),
            next_id: table.next_id(),
            on: BTreeMap::new(),
            led: BTreeMap::new(),
            shared: BTreeMap::new(),
            filling: 0,
            taking,
            servers,
            racks,
            steps: Vec::new(),
            room: 0,
            room_asked: 0,
        };
        for (id, group) in table.iter() {
            plan.filling += usize::from(is_filling(group));
            plan.count(id, group, 1);
            plan.groups.insert(id, group.clone());
        }
        plan
    }

    /// The next steps, at most so many, and [`LEADS_EACH`] times as many that are asked of primaries; none where all is
    /// well, or where all that can be done is under way. Each group is looked at once for each kind of step: what one
    /// step makes possible for another group is in the next plan.
    pub fn steps(mut self, most: usize) -> Vec<Step> {
        (self.room, self.room_asked) = (most, most * LEADS_EACH);
        self.repeat(Plan::make);
        self.each(Plan::keep);
        self.each(Plan::surplus);
        self.each(Plan::lacking);
        self.each(Plan::together);
        self.repeat(Plan::balance);
        self.each(Plan::lead);
        self.steps
    }

    fn repeat(&mut self, next: fn(&Plan) -> Option<Step>) {
        while self.room > 0 {
            let Some(step) = next(self) else { return };
            self.take(step);
        }
    }

    fn each(&mut self, next: fn(&Plan, &Group) -> Option<Change>) {
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            // A replica that hands over leaves with the next step, before another kind of step makes it lead again.
            while let Some(change) = next(self, &self.groups[&id]) {
                let is_asked = matches!(change, Change::Lead(_));
                if self.room == 0 {
                    return;
                }
                if is_asked && self.room_asked == 0 {
                    break;
                }
                self.take(Step::Change(id, self.groups[&id].epoch(), change));
            }
        }
    }

    /// Makes a step in the plan's own copy.
    fn take(&mut self, step: Step) {
        let (id, group) = match &step {
            Step::Make(id, group) => (*id, group.clone()),
            Step::Change(id, epoch, change) => {
                let before = self.groups.remove(id).expect("it is planned for");
                self.count(*id, &before, -1);
                self.filling -= usize::from(is_filling(&before));
                let by = matches!(change, Change::Lead(_)).then(|| before.primary());
                (*id, before.after(by, *epoch, *change).expect("a plan's steps can be made"))
            }
        };
        match &step {
            Step::Change(_, _, Change::Lead(_)) => self.room_asked -= 1,
            _ => self.room -= 1,
        }
        self.next_id = self.next_id.max(id.next());
        self.filling += usize::from(is_filling(&group));
        self.count(id, &group, 1);
        self.groups.insert(id, group);
        self.steps.push(step);
    }

    fn count(&mut self, id: GroupId, group: &Group, by: i32) {
        let places: Vec<DiskKey> = group.replicas().iter().map(|replica| place(*replica)).collect();
        for one in &places {
            let groups = self.on.entry(*one).or_default();
            let _ = if by > 0 { groups.insert(id) } else { groups.remove(&id) };
        }
        add(self.led.entry(place(group.primary())).or_default(), by);
        for one in &places {
            for other in places.iter().filter(|other| *other != one) {
                add(self.shared.entry((*one, *other)).or_default(), by);
            }
        }
    }

    fn taking(&self) -> impl Iterator<Item = &Disk> + Clone {
        self.disks.values().filter(|disk| disk.takes && !disk.leaves)
    }

    fn disk(&self, replica: Replica) -> Option<&Disk> {
        self.disks.get(&place(replica)).filter(|disk| disk.replica.id == replica.id)
    }

    /// Whether a replica is to stay where it is. A disk that is not known any more is one that has left.
    fn stays(&self, replica: Replica) -> bool {
        self.disk(replica).is_some_and(|disk| !disk.leaves)
    }

    /// How full a disk would be with so many more replicas, to compare.
    fn load(&self, disk: &Disk, more: u64) -> u64 {
        let held = self.on.get(&place(disk.replica)).map_or(0, BTreeSet::len);
        share(held as u64 + more, disk)
    }

    /// Copies that there are servers for.
    fn copies(&self) -> usize {
        self.servers.min(self.shape.copies.into())
    }

    // The steps.

    fn make(&self) -> Option<Step> {
        let copies = self.copies();
        let wanted = self.taking * usize::from(self.shape.per_disk);
        let is_full = self.groups.len() >= GROUPS_MAX;
        if copies == 0 || is_full || self.groups.len() * copies >= wanted {
            return None;
        }
        let mut replicas = Vec::new();
        for _ in 0..copies {
            replicas.push(self.best(&replicas)?.replica);
        }
        let group = Group::new(self.shape.copies, &replicas).expect("distinct disks");
        Some(Step::Make(self.next_id, group))
    }

    /// One that was made when another number of copies was wanted.
    fn keep(&self, group: &Group) -> Option<Change> {
        let is_other = group.copies() != self.shape.copies;
        is_other.then_some(Change::Keep(self.shape.copies))
    }

    /// The disk for one more replica beside these: on another machine, in another rack, with the most room, and with
    /// the fewest groups in common with theirs.
    fn best(&self, beside: &[Replica]) -> Option<&Disk> {
        let is_free = |disk: &&Disk| beside.iter().all(|other| !is_with(*other, disk));
        let shared = |disk: &Disk| -> u32 {
            let with = |other: &Replica| self.shared.get(&(place(disk.replica), place(*other)));
            beside.iter().filter_map(with).sum()
        };
        self.taking()
            .filter(is_free)
            .min_by_key(|disk| (self.nearness(disk, beside), self.load(disk, 1), shared(disk)))
    }

    /// Whether no disk is farther from the others of its group than one with this nearness.
    fn is_farthest(&self, (machine, rack): (usize, usize)) -> bool {
        machine == 0 && (rack == 0 || self.racks < 2)
    }

    /// Replicas on its machine, and in its rack.
    fn nearness(&self, disk: &Disk, beside: &[Replica]) -> (usize, usize) {
        let others = || beside.iter().filter_map(|other| self.disk(*other));
        let machine = others().filter(|other| other.machine == disk.machine).count();
        (machine, others().filter(|other| other.rack == disk.rack).count())
    }

    fn staying(&self, group: &Group) -> Vec<Replica> {
        group.replicas().iter().copied().filter(|replica| self.stays(*replica)).collect()
    }

    /// One that has fewer replicas than it is to have.
    fn lacking(&self, group: &Group) -> Option<Change> {
        let staying = self.staying(group);
        let room = group.replicas().len() < REPLICAS_MAX && self.filling < self.shape.moves_max;
        if staying.len() >= self.copies() || !room || is_filling(group) {
            return None;
        }
        self.best(group.replicas()).map(|disk| Change::Add(disk.replica))
    }

    /// One that has more than it is to have: a replica on a disk that leaves, else the [spare](Plan::spare) one.
    fn surplus(&self, group: &Group) -> Option<Change> {
        let mut leaving = group.replicas().iter().filter(|replica| !self.stays(**replica));
        if let Some(unfilled) = leaving.clone().find(|replica| !group.is_in_sync(**replica)) {
            return Some(Change::Drop(*unfilled));
        }
        if group.in_sync().count() <= usize::from(group.copies()) || is_filling(group) {
            return None;
        }
        let synced: Vec<Replica> = group.in_sync().collect();
        let goes = leaving.next().copied().or_else(|| self.spare(&synced))?;
        if goes != group.primary() {
            return Some(Change::Drop(goes));
        }
        let next = group.in_sync().find(|replica| *replica != goes && self.stays(*replica));
        next.map(Change::Lead)
    }

    /// Of replicas, of which the first is the primary, the one that goes when there are more than are to be: one beside
    /// another on its machine, else the one on the fullest disk. Of those beside each other rather not the primary,
    /// which must be asked.
    fn spare(&self, synced: &[Replica]) -> Option<Replica> {
        let fullest = |replica: &Replica| {
            let others: Vec<Replica> =
                synced.iter().copied().filter(|other| other != replica).collect();
            let disk = self.disk(*replica).expect("it stays");
            let near = self.nearness(disk, &others);
            let yields = near.0 > 0 && *replica != synced[0];
            (near, yields, self.load(disk, 0), Reverse(place(*replica)))
        };
        synced.iter().copied().filter(|replica| self.stays(*replica)).max_by_key(fullest)
    }

    /// One with two replicas on a machine, or in a rack, that need not be.
    fn together(&self, group: &Group) -> Option<Change> {
        if self.filling >= self.shape.moves_max || is_filling(group) {
            return None;
        }
        let staying = self.staying(group);
        let without = |replica: &Replica| -> Vec<Replica> {
            staying.iter().copied().filter(|other| other != replica).collect()
        };
        staying.iter().find_map(|replica| {
            let others = without(replica);
            let now = self.nearness(self.disk(*replica)?, &others);
            if self.is_farthest(now) {
                return None;
            }
            let better = self.best(&staying)?;
            let is_better = self.nearness(better, &others) < now;
            is_better.then_some(Change::Add(better.replica))
        })
    }

    /// Moves a group from a disk that has more than its share to one that has less.
    fn balance(&self) -> Option<Step> {
        if self.filling >= self.shape.moves_max {
            return None;
        }
        // Each with what it would compare by, so that no disk is looked at in vain behind the first that gains nothing.
        let by_load = |more: u64| {
            let loads = self.taking().map(|disk| (self.load(disk, more), place(disk.replica)));
            let mut all: Vec<(u64, DiskKey)> = loads.collect();
            all.sort_unstable();
            all
        };
        let (full, free) = (by_load(0), by_load(1));
        full.iter().rev().find_map(|(has, from)| {
            let gains = free.iter().take_while(|(would_have, _)| has > would_have);
            gains.clone().find_map(|(_, to)| self.move_between(&self.disks[from], &self.disks[to]))
        })
    }

    fn move_between(&self, from: &Disk, to: &Disk) -> Option<Step> {
        let fits = |group: &Group| {
            let has = |disk: &Disk| group.replicas().iter().any(|it| is_with(*it, disk));
            let others: Vec<Replica> =
                group.replicas().iter().copied().filter(|it| *it != from.replica).collect();
            let is_whole = !is_filling(group) && group.lacks() == 0;
            let is_at_rest = is_whole && group.replicas().len() <= group.copies().into();
            let is_as_far = self.nearness(to, &others) <= self.nearness(from, &others);
            // Else it would go back and forth.
            let moved: Vec<Replica> = group.in_sync().chain([to.replica]).collect();
            let goes = || self.spare(&moved) == Some(from.replica);
            is_at_rest && group.is_in_sync(from.replica) && !has(to) && is_as_far && goes()
        };
        let there = self.on.get(&place(from.replica))?;
        let id = there.iter().find(|id| fits(&self.groups[id]))?;
        Some(Step::Change(*id, self.groups[id].epoch(), Change::Add(to.replica)))
    }

    /// Primaries are spread as replicas are.
    fn lead(&self, group: &Group) -> Option<Change> {
        let leads = |disk: &Disk, more: u64| {
            let count = self.led.get(&place(disk.replica)).copied().unwrap_or(0);
            share(u64::from(count) + more, disk)
        };
        let now = self.disk(group.primary())?;
        let mut others = group.in_sync().skip(1).filter_map(|replica| self.disk(replica));
        let better =
            others.find(|other| other.takes && !other.leaves && leads(now, 0) > leads(other, 1));
        better.map(|other| Change::Lead(other.replica))
    }
}

/// A count of a disk by its weight, to compare.
fn share(count: u64, disk: &Disk) -> u64 {
    count * (1 << 20) / u64::from(disk.weight.max(1))
}

fn is_filling(group: &Group) -> bool {
    group.in_sync().count() < group.replicas().len()
}

fn add(count: &mut u32, by: i32) {
    *count = count.checked_add_signed(by).expect("it was counted");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each is a server of its own on its machine.
    fn disk(machine: u16, number: u8) -> Disk {
        let id = u64::from(machine) << 8 | u64::from(number);
        let replica = Replica { server: NodeId(id as u16), disk: 0, id };
        let machine = machine.into();
        Disk { replica, machine, rack: 0, weight: 100, takes: true, leaves: false }
    }

    fn disks(machines: u16, each: u8) -> Vec<Disk> {
        (1..=machines)
            .flat_map(|machine| (0..each).map(move |number| disk(machine, number)))
            .collect()
    }

    const SHAPE: Shape = Shape { copies: 2, per_disk: 32, moves_max: 8 };

    /// Makes steps until there are none; what is added is filled in between. How many steps it took.
    fn settle(shape: Shape, disks: &[Disk], table: &mut Table) -> usize {
        settle_at_most(shape, disks, table, usize::MAX)
    }

    /// The same, up to so many steps.
    fn settle_at_most(shape: Shape, disks: &[Disk], table: &mut Table, most: usize) -> usize {
        let mut count = 0;
        loop {
            fill(disks, table);
            let steps = Plan::new(shape, disks, table).steps(most.min(128));
            if steps.is_empty() || count >= most {
                return count;
            }
            count += steps.len();
            assert!(count < 20_000, "it comes to an end");
            for step in steps {
                make(table, step);
            }
        }
    }

    fn make(table: &mut Table, step: Step) {
        match step {
            Step::Make(id, group) => table.insert(id, group),
            Step::Change(id, epoch, change) => {
                let primary = table.get(id).unwrap().primary();
                let by = matches!(change, Change::Lead(_)).then_some(primary);
                table.change(id, by, epoch, change).unwrap();
            }
        }
    }

    /// What is on disks that are there gets in sync.
    fn fill(disks: &[Disk], table: &mut Table) {
        let all: Vec<(GroupId, Group)> =
            table.iter().map(|(id, group)| (id, group.clone())).collect();
        let is_there = |replica: &Replica| disks.iter().any(|disk| disk.replica == *replica);
        for (id, group) in all {
            let unfilled = group.replicas().iter().filter(|replica| !group.is_in_sync(**replica));
            for replica in unfilled.filter(|replica| is_there(replica)) {
                let now = table.get(id).unwrap();
                let (by, epoch) = (Some(now.primary()), now.epoch());
                table.change(id, by, epoch, Change::Admit(*replica)).unwrap();
            }
        }
    }

    fn counts(table: &Table, of: impl Fn(&Group) -> Vec<Replica>) -> BTreeMap<Replica, usize> {
        let mut counts = BTreeMap::new();
        let all = table.iter().flat_map(|(_, group)| of(group));
        all.for_each(|replica| *counts.entry(replica).or_default() += 1);
        counts
    }

    fn all_of(group: &Group) -> Vec<Replica> {
        group.replicas().to_vec()
    }

    fn is_apart(disks: &[Disk], group: &Group) -> bool {
        let machine =
            |replica: &Replica| disks.iter().find(|it| it.replica == *replica).unwrap().machine;
        let machines: BTreeSet<u64> = group.replicas().iter().map(machine).collect();
        machines.len() == group.replicas().len()
    }

    #[test]
    fn a_new_cluster_has_its_groups_on_distinct_machines_and_widely_spread() {
        let (disks, mut table) = (disks(10, 2), Table::default());
        settle(SHAPE, &disks, &mut table);
        assert_eq!(table.iter().count(), 320);
        assert!(table.iter().all(|(_, group)| group.lacks() == 0 && is_apart(&disks, group)));
        let held = counts(&table, all_of);
        assert!(held.values().all(|count| *count == 32), "{held:?}");
        let primaries = counts(&table, |group| vec![group.primary()]);
        assert!(primaries.values().all(|count| (15..=17).contains(count)), "{primaries:?}");
        for disk in &disks {
            let with = |(_, group): &(GroupId, &Group)| group.replicas().contains(&disk.replica);
            let others = table.iter().filter(with).flat_map(|(_, group)| group.replicas().to_vec());
            let others: BTreeSet<Replica> = others.collect();
            assert!(
                others.len() >= 15,
                "a rebuild of {disk:?} reads from {} disks",
                others.len() - 1
            );
        }
    }

    #[test]
    fn a_machine_alone_keeps_what_it_can_and_moves_apart_when_another_comes() {
        let (one, mut table) = (disks(1, 1), Table::default());
        settle(SHAPE, &one, &mut table);
        assert!(table.iter().all(|(_, group)| group.lacks() == 1));
        let two = disks(1, 2);
        settle(SHAPE, &two, &mut table);
        assert!(table.iter().all(|(_, group)| group.lacks() == 0 && !is_apart(&two, group)));
        let apart = disks(2, 2);
        settle(SHAPE, &apart, &mut table);
        assert!(table.iter().all(|(_, group)| group.lacks() == 0 && is_apart(&apart, group)));
    }

    #[test]
    fn new_disks_get_their_share_by_few_moves() {
        let (before, after, mut table) = (disks(6, 1), disks(8, 1), Table::default());
        settle(SHAPE, &before, &mut table);
        let old: BTreeMap<GroupId, Group> = table.iter().map(|(id, it)| (id, it.clone())).collect();
        settle(SHAPE, &after, &mut table);
        let held = counts(&table, all_of);
        assert!(
            held.len() == 8 && held.values().all(|count| (31..=33).contains(count)),
            "{held:?}"
        );
        let left = |(id, before): (&GroupId, &Group)| {
            let now = table.get(*id).unwrap().replicas();
            before.replicas().iter().filter(|replica| !now.contains(replica)).count()
        };
        assert_eq!(old.iter().map(left).sum::<usize>(), 0, "new groups are made for them");
    }

    #[test]
    fn copies_that_are_wanted_later_are_added_and_taken_away() {
        let (disks, mut table) = (disks(5, 1), Table::default());
        settle(SHAPE, &disks, &mut table);
        for copies in [3, 2] {
            settle(Shape { copies, ..SHAPE }, &disks, &mut table);
            let is_so = |group: &Group| {
                group.copies() == copies && group.replicas().len() == usize::from(copies)
            };
            assert!(table.iter().all(|(_, group)| is_so(group) && is_apart(&disks, group)));
        }
    }

    #[test]
    fn a_disk_of_twice_the_size_gets_twice_as_much() {
        let mut disks = disks(5, 1);
        disks[0].weight = 200;
        let mut table = Table::default();
        settle(SHAPE, &disks, &mut table);
        let held = counts(&table, all_of);
        assert!((52..=55).contains(&held[&disks[0].replica]), "{held:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Servers, some of them of one machine, tell their disks one after the other.
        #[test]
        fn copies_are_on_distinct_machines_and_servers_as_soon_as_there_are_some(
            servers in proptest::collection::vec((1..4u64, 1..4u8, any::<bool>()), 2..7),
        ) {
            let shape = Shape { copies: 2, per_disk: 4, moves_max: 4 };
            let (mut all, mut table) = (Vec::new(), Table::default());
            for (id, (machine, each, waits)) in (1..).zip(&servers) {
                let machine = *machine;
                all.extend((0..*each).map(|number| {
                    let it = Disk { machine, ..disk(id, 0) };
                    let id = it.replica.id + u64::from(number);
                    Disk { replica: Replica { disk: number, id, ..it.replica }, ..it }
                }));
                let most = if *waits { usize::MAX } else { 3 };
                settle_at_most(shape, &all, &mut table, most);
                for (_, group) in table.iter() {
                    let servers: BTreeSet<NodeId> = group.replicas().iter().map(|it| it.server).collect();
                    prop_assert_eq!(servers.len(), group.replicas().len(), "{:?}", group);
                }
            }
            settle(shape, &all, &mut table);
            let machines: BTreeSet<u64> = all.iter().map(|it| it.machine).collect();
            for (_, group) in table.iter() {
                prop_assert_eq!((group.replicas().len(), group.lacks()), (2, 0), "{:?}", group);
                prop_assert!(machines.len() < 2 || is_apart(&all, group), "{:?}", group);
            }
        }

        /// Machines come, leave, and are lost, in any order, the next one when all is done or not.
        #[test]
        fn groups_follow_the_disks(
            copies in 1..4u8,
            events in proptest::collection::vec((0..3u8, 1..9u16, 1..4u8, 40..200u32, any::<bool>()), 1..8),
        ) {
            let shape = Shape { copies, per_disk: 8, moves_max: 4 };
            let mut disks = disks(4, 1);
            let mut table = Table::default();
            settle(shape, &disks, &mut table);
            let mut next = 100;
            for (kind, machine, each, weight, waits) in events {
                match kind {
                    0 => {
                        next += 1;
                        disks.extend((0..each).map(|number| Disk { weight, ..disk(next, number) }));
                    }
                    1 => {
                        let at = usize::from(machine) % disks.len();
                        let leaves = disks[at].machine;
                        let others = disks.iter().filter(|it| it.machine != leaves && !it.leaves);
                        if others.count() > 0 {
                            disks.iter_mut().filter(|it| it.machine == leaves).for_each(|it| it.leaves = true);
                        }
                    }
                    _ if waits => {
                        // A machine dies: those that go on without it remove it.
                        let at = usize::from(machine) % disks.len();
                        let dead = disks[at].machine;
                        let all: Vec<(GroupId, Group)> = table.iter().map(|(id, group)| (id, group.clone())).collect();
                        let is_dead = |replica: &Replica| disks.iter().any(|it| it.replica == *replica && it.machine == dead);
                        let survives = all.iter().all(|(_, group)| group.in_sync().any(|replica| !is_dead(&replica)));
                        let others = disks.iter().filter(|it| it.machine != dead && !it.leaves).count();
                        if survives && others > 0 {
                            for (id, group) in all {
                                let by = group.in_sync().find(|replica| !is_dead(replica));
                                for replica in group.in_sync().filter(is_dead).collect::<Vec<_>>() {
                                    let epoch = table.get(id).unwrap().epoch();
                                    table.change(id, by, epoch, Change::Remove(replica)).unwrap();
                                }
                            }
                            disks.retain(|it| it.machine != dead);
                        }
                    }
                    _ => {}
                }
                if waits {
                    settle(shape, &disks, &mut table);
                } else {
                    let steps = Plan::new(shape, &disks, &table).steps(3);
                    steps.into_iter().for_each(|step| make(&mut table, step));
                }
            }
            settle(shape, &disks, &mut table);
            let staying: Vec<Disk> = disks.iter().filter(|it| !it.leaves).copied().collect();
            let machines: BTreeSet<u64> = staying.iter().map(|it| it.machine).collect();
            for (id, group) in table.iter() {
                prop_assert_eq!(group.in_sync().count(), group.replicas().len(), "{:?} {:?}", id, group);
                if staying.len() < usize::from(copies) {
                    // what is to leave stays until there is another disk for it
                    prop_assert!(staying.iter().all(|it| group.is_in_sync(it.replica)));
                    continue;
                }
                prop_assert_eq!(group.replicas().len(), usize::from(copies), "{:?} {:?}", id, group);
                let is_there = |it: &Replica| staying.iter().any(|disk| disk.replica == *it);
                prop_assert!(group.replicas().iter().all(is_there), "{:?} {:?}", id, group);
                prop_assert!(machines.len() < usize::from(copies) || is_apart(&staying, group), "{:?}", group);
            }
            let held = counts(&table, all_of);
            let load = |it: &Disk, more| (held.get(&it.replica).copied().unwrap_or(0) + more) as f64 / f64::from(it.weight);
            let is_free = machines.len() == staying.len() && staying.len() >= usize::from(copies);
            for (from, to) in staying.iter().flat_map(|from| staying.iter().map(move |to| (from, to))) {
                let mut groups = table.iter().map(|(_, group)| group.replicas());
                let moves = groups.any(|group| group.contains(&from.replica) && !group.contains(&to.replica));
                prop_assert!(!is_free || !moves || load(from, 0) <= load(to, 1) + 1e-6, "{:?}", held);
            }
        }
    }
}
