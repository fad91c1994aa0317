//! Placement of groups by the members: which disks take replicas, which are left, and when a group is made.
//!
//! A plain struct beside the registry, with a clock as argument. What it knows besides is since when each disk is away:
//! a machine that starts anew within [`REPLACE_AFTER`] finds its replicas as they were left, and only one that stays
//! away for longer is replaced. After a restart of the service all spans begin anew.

use crate::groups::{Change, Disk, GroupId, Plan, Replica, Shape, Step};
use crate::limits::{DISKS_MAX, MOVES_EACH, PLAN_STEPS, REPLACE_AFTER};
use crate::protocol::{Member, Roles};
use crate::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use wire::{NodeId, Time};

/// What a plan is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Basis {
    disks: Vec<Disk>,
    /// Machines with servers that are there and have told no disk yet.
    awaited: BTreeSet<u64>,
    /// Of the groups.
    version: u64,
}

/// The planner's view of the disks.
#[derive(Debug)]
pub(crate) struct Planner {
    copies: u8,
    per_disk: u16,
    /// Disks that serve nothing now and are not given up, and since when.
    away: BTreeMap<Replica, Time>,
    /// What the last plan was made of, if it had no steps: it would have none again.
    settled: Option<Basis>,
    wishes: Vec<(GroupId, u32, Replica)>,
}

impl Planner {
    pub fn new(copies: u8, per_disk: u16) -> Planner {
        let (away, settled, wishes) = (BTreeMap::new(), None, Vec::new());
        Planner { copies, per_disk, away, settled, wishes }
    }

    /// The primaries that had better be others, as the last plan saw it: only the present ones may propose that. The
    /// group, its epoch then, and the replica that is to lead.
    pub fn wishes(&self) -> &[(GroupId, u32, Replica)] {
        &self.wishes
    }

    /// When a disk that is away now is given up.
    pub fn poll_due(&self, now: Time) -> Option<Time> {
        let due = self.away.values().map(|since| *since + REPLACE_AFTER);
        due.filter(|at| *at > now).min()
    }

    /// The next steps that the planner makes itself; none where all is well, or under way.
    pub fn steps(&mut self, now: Time, registry: &Registry) -> Vec<Step> {
        let basis = self.basis(now, registry);
        let table = registry.decided_groups();
        if self.settled.as_ref() == Some(&basis) {
            return Vec::new();
        }
        let steps = Plan::new(self.shape(&basis), &basis.disks, table).steps(PLAN_STEPS);
        let steps = self.without_wishes(steps);
        self.settled = steps.is_empty().then_some(basis);
        steps
    }

    fn basis(&mut self, now: Time, registry: &Registry) -> Basis {
        let version = registry.decided_groups().version();
        Basis { disks: self.disks(now, registry), awaited: awaited(registry), version }
    }

    /// Whether the last plan had no steps, and the next one would have none.
    pub fn is_settled(&mut self, now: Time, registry: &Registry) -> bool {
        let basis = self.basis(now, registry);
        self.settled.as_ref() == Some(&basis)
    }

    /// Groups are made only with all their copies, on as many machines as there are.
    fn shape(&self, basis: &Basis) -> Shape {
        let disks = &basis.disks;
        let machines = |which: fn(&&Disk) -> bool| -> BTreeSet<u64> {
            disks.iter().filter(which).map(|disk| disk.machine).collect()
        };
        let takes = |disk: &&Disk| disk.takes && !disk.leaves;
        let (mut all, taking) = (machines(|disk| !disk.leaves), machines(takes));
        all.extend(&basis.awaited);
        let copies = usize::from(self.copies);
        let servers = disks.iter().filter(takes).map(|disk| disk.replica.server);
        let servers: BTreeSet<NodeId> = servers.collect();
        let makes = servers.len() >= copies && taking.len() >= all.len().min(copies);
        let per_disk = if makes { self.per_disk } else { 0 };
        let moves_max = disks.iter().filter(takes).count().max(1) * MOVES_EACH;
        Shape { copies: self.copies, per_disk, moves_max }
    }

    fn without_wishes(&mut self, steps: Vec<Step>) -> Vec<Step> {
        self.wishes.clear();
        let mut asked = BTreeSet::new();
        let mut own = Vec::new();
        for step in steps {
            match step {
                // The steps behind it are for the group after that.
                Step::Change(id, ..) if asked.contains(&id) => {}
                Step::Change(id, epoch, Change::Lead(replica)) => {
                    asked.insert(id);
                    self.wishes.push((id, epoch, replica));
                }
                step => own.push(step),
            }
        }
        own
    }

    fn disks(&mut self, now: Time, registry: &Registry) -> Vec<Disk> {
        let mut disks = Vec::new();
        for (server, number, label, incarnation) in registry.told_disks() {
            let member = registry.member(server).filter(|it| it.roles.contains(Roles::IO));
            let Some(member) = member.filter(|_| usize::from(number) < DISKS_MAX) else { continue };
            let (replica, bit) = (Replica::of_label(server, number, label), 1u32 << number);
            let is_gone = member.lost_disks() & bit != 0;
            let serves = member.alive && member.disks & bit != 0;
            let takes = serves && incarnation == member.incarnation && !is_gone;
            let is_given_up = is_gone || self.is_given_up(now, replica, takes);
            let machine = registry.machine(server);
            let leaves = is_given_up && !takes || registry.is_emptied(server, number);
            disks.push(Disk { replica, machine, rack: 0, weight: 1, takes, leaves });
        }
        self.away
            .retain(|replica, _| disks.iter().any(|disk| disk.replica == *replica && !disk.takes));
        disks
    }

    /// Whether a disk is away for too long.
    fn is_given_up(&mut self, now: Time, replica: Replica, takes: bool) -> bool {
        if takes {
            self.away.remove(&replica);
            return false;
        }
        now.since(*self.away.entry(replica).or_insert(now)) >= REPLACE_AFTER
    }
}

/// Machines with servers that are there and have told no disk yet: they are about to.
fn awaited(registry: &Registry) -> BTreeSet<u64> {
    let told: BTreeSet<NodeId> = registry.told_disks().map(|(server, ..)| server).collect();
    let is_awaited =
        |member: &&Member| member.alive && member.roles.contains(Roles::IO) && member.disks != 0;
    let others = registry.members().filter(is_awaited).filter(|it| !told.contains(&it.id));
    others.map(|member| registry.machine(member.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::{ToldDisk, Verdict};
    use crate::groups::Group;
    use crate::protocol::{Empty, Forget, Identity, Join, Lends, Registration};
    use crate::registry::{STORE_KIND, STORE_VERSION};
    use std::time::Duration;
    use store::{Config, MemoryBackend, Store};
    use wire::Errno;

    const LEASE: Duration = Duration::from_secs(10);
    const PER_DISK: u16 = 4;

    struct World {
        registry: Registry,
        planner: Planner,
        now: Time,
        /// Primaries do what the planner wishes.
        hands_over: bool,
    }

    impl World {
        fn new(copies: u8) -> World {
            let config = Config::new(STORE_KIND, STORE_VERSION);
            let store = Store::open(MemoryBackend::new(), config, []).unwrap();
            let registry = Registry::open(store, LEASE).unwrap();
            World {
                registry,
                planner: Planner::new(copies, PER_DISK),
                now: Time(1),
                hands_over: true,
            }
        }

        /// An I/O server starts, and tells these disks.
        fn start(&mut self, id: u16, incarnation: u64, machine: u64, disks: &[u16]) {
            self.join(id, incarnation, machine, 0b1111);
            let label = |disk: u16| u128::from(id) << 64 | u128::from(disk);
            let told =
                |disk: &u16| ToldDisk { disk: *disk, id: label(*disk), found: [1, 0], now: [1, 0] };
            let told: Vec<ToldDisk> = disks.iter().map(told).collect();
            let registration = Registration { id: NodeId(id), incarnation };
            let _ = self.registry.handle_disks(self.now, registration, &told, 0).unwrap();
        }

        /// An I/O server starts with a disk that has been used.
        fn start_with(&mut self, id: u16, incarnation: u64, label: u128) {
            self.join(id, incarnation, 0, 1);
            let told = ToldDisk { disk: 0, id: label, found: [9, 9], now: [9, 9] };
            let registration = Registration { id: NodeId(id), incarnation };
            let _ = self.registry.handle_disks(self.now, registration, &[told], 0).unwrap();
        }

        /// Servers 1 to `count`, each with a disk and a machine of its own.
        fn start_all(&mut self, count: u16) {
            (1..=count).for_each(|id| self.start(id, 1, 0, &[0]));
        }

        fn join(&mut self, id: u16, incarnation: u64, machine: u64, disks: u32) {
            let identity = Identity {
                name: format!("server {id}"),
                roles: Roles::IO | Roles::MEMORY,
                disks,
                addresses: Vec::new(),
                wish: Some(NodeId(id)),
                lends: Lends { mib: 0, machine },
            };
            self.registry.handle_join(self.now, &Join { identity, incarnation }).unwrap();
        }

        /// Time passes, in which these servers renew their leases.
        fn pass(&mut self, span: Duration, alive: &[(u16, u64)]) {
            self.now = self.now + span;
            for (id, incarnation) in alive {
                let registration = Registration { id: NodeId(*id), incarnation: *incarnation };
                let _ = self.registry.handle_renew(self.now, registration).unwrap();
            }
            while self.registry.handle_timeout(self.now).unwrap().is_some() {}
        }

        /// Makes steps until there are none, as the service does; replicas that are added are admitted.
        fn settle(&mut self) -> usize {
            let mut count = 0;
            loop {
                let steps = self.planner.steps(self.now, &self.registry);
                let is_over = steps.is_empty();
                count += steps.len();
                assert!(count < 1_000, "it comes to an end: {steps:?}");
                steps.into_iter().for_each(|step| self.make(step));
                // All primaries are asked after each plan.
                if !self.hand_over() && is_over {
                    return count;
                }
                self.admit();
            }
        }

        fn make(&mut self, step: Step) {
            let made = match step {
                Step::Make(id, group) => self.registry.handle_make(id, group).is_ok(),
                Step::Change(id, epoch, change) => {
                    self.registry.handle_planned(id, epoch, change).is_ok()
                }
            };
            assert!(made, "the planner goes by what is decided");
        }

        fn propose(&mut self, group: GroupId, of: impl Fn(&Group) -> Option<(Replica, Change)>) {
            let now = self.registry.decided_groups().get(group).unwrap();
            let Some((by, change)) = of(now) else { return };
            let proposal = crate::groups::Proposal { group, by, epoch: now.epoch(), change };
            let _ = self.registry.handle_group(by.server, &proposal).unwrap();
        }

        /// Whether any primary had to.
        fn hand_over(&mut self) -> bool {
            let wishes = if self.hands_over { self.planner.wishes().to_vec() } else { Vec::new() };
            for (id, _, replica) in &wishes {
                self.propose(*id, |group| Some((group.primary(), Change::Lead(*replica))));
            }
            !wishes.is_empty()
        }

        /// Primaries admit what was added on servers that are there.
        fn admit(&mut self) {
            let alive = |it: &Replica| self.registry.member(it.server).is_some_and(|it| it.alive);
            let unfilled = |group: &Group| {
                let mut all = group.replicas().iter();
                all.find(|it| !group.is_in_sync(**it) && alive(it)).copied()
            };
            let all = self.registry.decided_groups().iter();
            let found: Vec<(GroupId, Replica)> =
                all.filter_map(|(id, group)| Some((id, unfilled(group)?))).collect();
            for (id, replica) in found {
                self.propose(id, |group| Some((group.primary(), Change::Admit(replica))));
            }
        }

        /// The others go on without this server.
        fn remove(&mut self, server: u16) {
            for id in self.ids() {
                self.propose(id, |group| {
                    let gone = group.in_sync().find(|it| it.server.0 == server)?;
                    let by = group.in_sync().find(|it| it.server.0 != server)?;
                    Some((by, Change::Remove(gone)))
                });
            }
        }

        fn ids(&self) -> Vec<GroupId> {
            self.registry.decided_groups().iter().map(|(id, _)| id).collect()
        }

        fn held_by(&self, server: u16) -> usize {
            let all = self.registry.decided_groups().iter();
            let replicas = all.flat_map(|(_, group)| group.replicas().to_vec());
            replicas.filter(|replica| replica.server.0 == server).count()
        }

        fn is_on_distinct_servers(&self) -> bool {
            let mut all = self.registry.decided_groups().iter();
            all.all(|(_, group)| {
                let servers: BTreeSet<NodeId> =
                    group.replicas().iter().map(|it| it.server).collect();
                servers.len() == group.replicas().len()
            })
        }

        /// Whether each group has its replicas on distinct machines.
        fn is_apart(&self) -> bool {
            let mut all = self.registry.decided_groups().iter();
            all.all(|(_, group)| {
                let machine = |it: &Replica| self.registry.machine(it.server);
                let machines: BTreeSet<u64> = group.replicas().iter().map(machine).collect();
                machines.len() == group.replicas().len()
            })
        }
    }

    /// A server's process dies more often than its machine does.
    #[test]
    fn servers_of_one_machine_keep_distinct_copies() {
        let mut world = World::new(2);
        (1..=3).for_each(|id| world.start(id, 1, 77, &[0, 1]));
        world.settle();
        assert!(world.is_on_distinct_servers());
        let mut world = World::new(2);
        world.start(1, 1, 77, &[0, 1]);
        world.settle();
        assert_eq!(world.ids(), [], "a server does not wait for itself");
        world.start(2, 1, 77, &[0, 1]);
        world.settle();
        assert!(!world.ids().is_empty() && world.is_on_distinct_servers());
        // Primaries are not asked for what goes without them.
        world.start(3, 1, 78, &[0, 1]);
        world.hands_over = false;
        world.settle();
        assert!(world.is_apart());
    }

    #[test]
    fn groups_are_made_when_as_many_disks_as_copies_are_told() {
        let mut world = World::new(2);
        world.start(1, 1, 0, &[0]);
        assert_eq!(world.settle(), 0, "one disk keeps no two copies");
        world.join(2, 1, 0, 0b1111);
        assert_eq!(world.settle(), 0, "it has told no disk");
        world.start(1, 2, 0, &[0, 1]);
        assert_eq!(world.settle(), 0, "a server does not wait for itself");
        world = World::new(2);
        world.start(1, 1, 7, &[0]);
        world.start(3, 1, 7, &[0]);
        world.join(2, 1, 0, 0b1111);
        assert_eq!(world.settle(), 0, "another machine is about to tell its disks");
        world.pass(LEASE * 2, &[(1, 1), (3, 1)]);
        assert!(world.settle() > 0, "it is down");
        world = World::new(2);
        world.start(1, 1, 0, &[0]);
        world.start(2, 1, 0, &[0]);
        world.settle();
        assert_eq!((world.held_by(1), world.held_by(2)), (4, 4));
        assert!(world.is_apart());
        let before = world.ids();
        world.join(2, 2, 0, 0b1111);
        world.start(1, 2, 0, &[0, 1, 2]);
        world.settle();
        assert_eq!(world.ids(), before, "its present incarnation has told none");
        world.start(2, 2, 0, &[0]);
        world.settle();
        assert!(world.ids().len() > before.len() && world.is_apart());
    }

    #[test]
    fn a_machine_alone_keeps_both_copies_and_parts_them_when_another_one_comes() {
        let mut world = World::new(2);
        world.start(1, 1, 7, &[0, 1]);
        assert_eq!(world.settle(), 0, "a server alone does not wait for itself");
        world.start(2, 1, 7, &[0]);
        world.settle();
        assert_eq!(world.held_by(1), world.held_by(2));
        assert!(world.held_by(1) > 0 && !world.is_apart(), "a server of the same machine");
        world.start(3, 1, 8, &[0, 1]);
        world.settle();
        assert!(world.is_apart());
    }

    /// It is back soon, and all that was made meanwhile would move.
    #[test]
    fn nothing_is_made_on_one_machine_while_the_other_one_is_down() {
        let mut world = World::new(2);
        world.start(1, 1, 0, &[0]);
        world.start(2, 1, 0, &[0]);
        world.settle();
        let before = world.ids();
        world.pass(LEASE, &[(1, 1)]);
        world.start(1, 2, 0, &[0, 1, 2]);
        world.settle();
        assert_eq!(world.ids(), before);
        world.start(2, 2, 0, &[0]);
        world.settle();
        assert!(world.is_apart() && world.ids().len() > before.len());
    }

    #[test]
    fn a_server_that_is_down_is_replaced_only_when_it_stays_away() {
        let mut world = World::new(2);
        world.start_all(3);
        world.settle();
        let others = [(1, 1), (2, 1)];
        world.pass(LEASE, &others);
        world.remove(3);
        let before = world.held_by(3);
        assert!(before > 0);
        assert_eq!(world.settle(), 0);
        let due = world.planner.poll_due(world.now).unwrap();
        assert_eq!(due, world.now + REPLACE_AFTER);
        world.pass(REPLACE_AFTER - Duration::from_secs(1), &others);
        assert_eq!(world.settle(), 0);
        world.start(3, 2, 0, &[]);
        assert_eq!(world.settle(), 0, "its disk is still not there");
        world.pass(Duration::from_secs(1), &[(1, 1), (2, 1), (3, 2)]);
        assert!(world.settle() > 0);
        assert_eq!(world.held_by(3), 0);
        assert_eq!(world.planner.poll_due(world.now), None);
        world.start(3, 3, 0, &[0]);
        world.settle();
        assert!(world.held_by(3) > 0, "the next groups come there");
    }

    #[test]
    fn a_server_that_is_back_in_time_begins_a_new_span() {
        let mut world = World::new(2);
        world.start_all(3);
        world.settle();
        for incarnation in 2..6 {
            world.pass(REPLACE_AFTER - Duration::from_secs(1), &[(1, 1), (2, 1)]);
            assert_eq!(world.settle(), 0);
            world.start(3, incarnation, 0, &[0]);
            assert_eq!(world.settle(), 0);
            assert_eq!(world.planner.poll_due(world.now), None);
        }
    }

    #[test]
    fn a_server_that_is_to_be_emptied_gives_all_away_and_gets_nothing_until_it_is_back() {
        let mut world = World::new(2);
        world.start_all(4);
        world.settle();
        let empty = |world: &mut World, emptied| {
            let asked = Empty { id: NodeId(2), disks: u32::MAX, emptied };
            let _ = world.registry.handle_empty(asked).unwrap();
            world.settle();
        };
        empty(&mut world, true);
        assert_eq!(world.held_by(2), 0);
        assert!(world.planner.is_settled(world.now, &world.registry));
        let lacking = world.registry.decided_groups().iter().filter(|(_, it)| it.lacks() > 0);
        assert_eq!(lacking.count(), 0);
        empty(&mut world, false);
        assert!(world.held_by(2) > 0, "its share");
    }

    #[test]
    fn no_mark_stays_of_a_server_that_was_to_be_emptied_and_is_forgotten() {
        let mut world = World::new(2);
        world.start_all(4);
        world.settle();
        let asked = Empty { id: NodeId(2), disks: u32::MAX, emptied: true };
        let _ = world.registry.handle_empty(asked).unwrap();
        world.settle();
        world.pass(LEASE, &[(1, 1), (3, 1), (4, 1)]);
        assert_eq!(world.registry.emptied().count(), 1);
        let forget = Forget { id: NodeId(2), disk: None };
        let _ = world.registry.handle_forget(world.now, forget).unwrap();
        assert_eq!(world.registry.emptied().count(), 0);
    }

    #[test]
    fn a_disk_that_is_declared_gone_is_replaced_at_once() {
        let mut world = World::new(2);
        world.start_all(3);
        world.settle();
        world.pass(LEASE, &[(1, 1), (2, 1)]);
        world.remove(3);
        assert_eq!(world.settle(), 0);
        let forget = Forget { id: NodeId(3), disk: None };
        let _ = world.registry.handle_forget(world.now, forget).unwrap();
        assert!(world.settle() > 0);
        assert_eq!(world.held_by(3), 0);
    }

    #[test]
    fn what_has_the_only_whole_copy_is_not_declared_gone() {
        let mut world = World::new(2);
        world.start_all(2);
        world.settle();
        world.remove(2);
        world.pass(LEASE, &[(2, 1)]);
        for disk in [None, Some(0)] {
            let forget = Forget { id: NodeId(1), disk };
            let refused = world.registry.handle_forget(world.now, forget).unwrap_err();
            assert_eq!(refused, Errno::ENOTEMPTY);
        }
    }

    /// Server 3 starts with an empty disk, as a person has said; whether it is refused.
    fn replace_disk(world: &mut World, incarnation: u64) -> Verdict {
        world.join(3, incarnation, 0, 0);
        let told = ToldDisk { disk: 0, id: 0xe << 64 | 5, found: [0, 0], now: [1, 0] };
        let registration = Registration { id: NodeId(3), incarnation };
        world.registry.handle_disks(world.now, registration, &[told], 1).unwrap().0
    }

    #[test]
    fn an_empty_disk_takes_the_place_of_a_lost_one_also_of_one_that_was_declared_gone() {
        for is_declared in [false, true] {
            let mut world = World::new(2);
            world.start_all(3);
            world.settle();
            world.pass(LEASE, &[(1, 1), (2, 1)]);
            world.remove(3);
            if is_declared {
                let forget = Forget { id: NodeId(3), disk: Some(0) };
                let _ = world.registry.handle_forget(world.now, forget).unwrap();
                world.settle();
                assert_eq!(world.held_by(3), 0);
            }
            assert_eq!(replace_disk(&mut world, 2), Verdict::default());
            let member = world.registry.member(NodeId(3)).unwrap();
            assert_eq!((member.disks, member.gone_disks), (1, 0));
            world.settle();
            let all = world.registry.decided_groups().iter();
            let replicas: Vec<Replica> =
                all.flat_map(|(_, group)| group.in_sync().collect::<Vec<_>>()).collect();
            let on_three = replicas.iter().filter(|it| it.server == NodeId(3));
            let new = Replica::of_label(NodeId(3), 0, 0xe << 64 | 5);
            assert!(is_declared || on_three.clone().count() > 0);
            assert!(on_three.copied().all(|replica| replica == new), "none is of the lost one");
            // Told twice, and by the next incarnation.
            assert_eq!(replace_disk(&mut world, 2), Verdict::default());
            world.start_with(3, 3, 0xe << 64 | 5);
            assert_eq!(world.registry.member(NodeId(3)).unwrap().disks, 1);
            // The lost one comes back.
            world.start_with(3, 4, u128::from(3u16) << 64);
            assert_eq!(world.registry.member(NodeId(3)).unwrap().disks, 0);
        }
    }

    #[test]
    fn no_empty_disk_takes_the_place_of_the_only_whole_copy() {
        let mut world = World::new(2);
        world.start_all(3);
        world.settle();
        world.pass(LEASE, &[(3, 1)]);
        world.remove(1);
        world.remove(2);
        let verdict = replace_disk(&mut world, 2);
        assert_eq!(verdict, Verdict { needed: 1, ..Verdict::default() });
        assert_eq!(world.registry.member(NodeId(3)).unwrap().disks, 0);
    }

    /// A primary on a disk that leaves hands over first; until it has, nothing else waits for it.
    #[test]
    fn primaries_that_should_hand_over_are_wishes_and_hold_nothing_up() {
        let mut world = World::new(2);
        world.start_all(4);
        world.settle();
        let others = [(1, 1), (2, 1), (3, 1)];
        world.pass(LEASE, &others);
        assert_eq!(world.settle(), 0);
        world.pass(REPLACE_AFTER, &others);
        world.hands_over = false;
        world.settle();
        let leads = |group: &Group| group.primary().server == NodeId(4);
        let led = world.registry.decided_groups().iter().filter(|(_, group)| leads(group)).count();
        assert!(led > 0, "it leads some");
        assert_eq!(world.held_by(4), led, "all others have moved");
        let wishes: Vec<GroupId> = world.planner.wishes().iter().map(|(id, ..)| *id).collect();
        for (id, _) in world.registry.decided_groups().iter().filter(|(_, group)| leads(group)) {
            assert!(wishes.contains(&id), "{id} is to be led by another");
        }
    }

    #[test]
    fn nothing_changed_is_no_plan() {
        let mut world = World::new(2);
        world.start_all(2);
        world.settle();
        let settled = world.planner.settled.clone();
        assert!(settled.is_some());
        world.pass(Duration::from_secs(1), &[(1, 1), (2, 1)]);
        assert_eq!(world.planner.steps(world.now, &world.registry), []);
        assert_eq!(world.planner.settled, settled);
    }
}
