//! The copies that pages depend on, as far as this node answers for them: what is still owed to each of them.

use super::events::Event;
use crate::directory::{Holder, Role};
use crate::limits::{BARED_PAUSE, CLEANING_PAUSE};
use crate::page::Version;
use crate::protocol::Record;
use members::replicas::Repairs;
use std::time::Duration;
use wire::{NodeId, Time};

/// Kinds of duties towards a copy, with a task each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A mirror is here of which a directory has not heard.
    Register,
    /// A directory believes that a mirror is here which is not. It has none made in its place before it hears that.
    Unregister,
    /// All mirrors of a page of this node's own went down: directories replicate from mirrors only, so its writer does.
    Secure,
}

impl Kind {
    /// The event that says that there may be more.
    pub fn event(self) -> Event {
        match self {
            Kind::Register | Kind::Unregister => Event::RegistrationDue,
            Kind::Secure => Event::MirrorsLost,
        }
    }

    /// Pause after one that could not be done.
    fn pause(self) -> Duration {
        match self {
            Kind::Register | Kind::Unregister => CLEANING_PAUSE,
            Kind::Secure => BARED_PAUSE,
        }
    }

    /// Owed only once: of a page's mirrors the last one that was named is registered.
    fn key(self, record: &Record) -> Record {
        let nobody = Holder { node: NodeId(0), incarnation: 0, role: Role::Mirror };
        match self {
            Kind::Register | Kind::Secure => Record::new(record.id, Version(0), nobody),
            Kind::Unregister => *record,
        }
    }
}

/// The queues of duties.
pub struct Replicas {
    owed: [Repairs<Record, Record>; 3],
}

impl Default for Replicas {
    fn default() -> Replicas {
        let kinds = [Kind::Register, Kind::Unregister, Kind::Secure];
        Replicas { owed: kinds.map(|kind| Repairs::new(1, kind.pause())) }
    }
}

impl Replicas {
    /// Whether a directory is still to hear of a mirror of this page.
    pub fn is_unregistered(&self, record: &Record) -> bool {
        self.owed[Kind::Register as usize].has(Kind::Register.key(record))
    }

    /// When the next one of a kind may be done, if the last one failed.
    pub fn rests_until(&self, kind: Kind) -> Option<Time> {
        self.owed[kind as usize].rests_until()
    }

    /// Queues a duty.
    pub fn handle_owed(&mut self, kind: Kind, record: Record) {
        self.owed[kind as usize].insert(kind.key(&record), record);
    }

    /// It was done or is not needed any more, or failed and is to be done again.
    pub fn handle_end(&mut self, now: Time, kind: Kind, record: &Record, done: bool) {
        self.owed[kind as usize].handle_end(now, kind.key(record), done);
    }

    /// The next duty; it stays known until it [is done](Replicas::handle_end).
    pub fn poll_owed(&mut self, now: Time, kind: Kind) -> Option<Record> {
        self.owed[kind as usize].poll(now).map(|(_, record)| record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{PageId, SpaceId};

    const NOW: Time = Time(1_000);

    fn mirror(index: u64, version: u64) -> Record {
        let holder = Holder { node: NodeId(2), incarnation: 1, role: Role::Mirror };
        let (id, version) = (PageId { space: SpaceId::shared(7), index }, Version(version));
        Record { copies: 2, ..Record::new(id, version, holder) }
    }

    /// The next one, which fails.
    fn fail(replicas: &mut Replicas, now: Time, kind: Kind) -> Option<Record> {
        let next = replicas.poll_owed(now, kind)?;
        replicas.handle_end(now, kind, &next, false);
        Some(next)
    }

    #[test]
    fn what_is_owed_has_its_turn_until_it_is_done() {
        for kind in [Kind::Register, Kind::Unregister, Kind::Secure] {
            let mut replicas = Replicas::default();
            (1..=3).for_each(|index| replicas.handle_owed(kind, mirror(index, 5)));
            let mut now = NOW;
            for index in [1, 2, 3, 1] {
                assert_eq!(fail(&mut replicas, now, kind), Some(mirror(index, 5)));
                assert_eq!(replicas.poll_owed(now, kind), None, "it rests");
                now = replicas.rests_until(kind).unwrap();
            }
            for index in [2, 3, 1] {
                assert_eq!(replicas.poll_owed(now, kind), Some(mirror(index, 5)));
                replicas.handle_end(now, kind, &mirror(index, 5), true);
            }
            assert_eq!(replicas.poll_owed(now, kind), None);
        }
    }

    #[test]
    fn a_newer_mirror_is_registered_though_the_one_before_just_was() {
        let mut later = mirror(1, 5);
        later.holder.incarnation = 2;
        for newer in [mirror(1, 6), later] {
            let mut replicas = Replicas::default();
            replicas.handle_owed(Kind::Register, mirror(1, 5));
            let owed = replicas.poll_owed(NOW, Kind::Register).unwrap();
            replicas.handle_owed(Kind::Register, newer);
            replicas.handle_end(NOW, Kind::Register, &owed, true);
            assert!(replicas.is_unregistered(&mirror(1, 5)));
            assert_eq!(replicas.poll_owed(NOW, Kind::Register), Some(newer));
        }
    }
}
