//! The copies that pages depend on, as far as this node answers for them: what is still owed to each of them, and what
//! the node's own log has.
//!
//! What is owed is done again and again until it is done or not needed any more, each page in its turn, so that one
//! that fails keeps no other waiting.

use super::circle::Circle;
use super::events::Event;
use super::logged::Logged;
use crate::directory::Role;
use crate::limits::{BARED_PAUSE, CLEANING_PAUSE};
use crate::page::PageId;
use crate::protocol::Record;
use std::time::Duration;

/// What a copy is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// A mirror is here, or in the log, of which a directory has not heard.
    Register(Record),
    /// A directory believes that a mirror is here which is not. It has none made in its place before it hears that.
    Unregister(Record),
    /// All mirrors of a page of this node's own went down: directories replicate from mirrors only, so its writer does.
    Secure(PageId),
}

/// The kinds of what is owed, each with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Register,
    Unregister,
    Secure,
}

impl Kind {
    /// What says that there may be more.
    pub fn event(self) -> Event {
        match self {
            Kind::Register | Kind::Unregister => Event::RegistrationDue,
            Kind::Secure => Event::MirrorsLost,
        }
    }

    /// Pause after one that could not be done.
    pub fn pause(self) -> Duration {
        match self {
            Kind::Register | Kind::Unregister => CLEANING_PAUSE,
            Kind::Secure => BARED_PAUSE,
        }
    }
}

/// What is owed, and the log.
#[derive(Default)]
pub struct Replicas {
    /// A node may have both a mirror of a page and a version of it in its log.
    register: Circle<(PageId, Role), Record>,
    unregister: Circle<Record, ()>,
    secure: Circle<PageId, ()>,
    /// This node's log.
    pub logged: Logged,
}

impl Replicas {
    /// Whether a directory is still to hear of a mirror of this page, or of what the log has of it.
    pub fn is_unregistered(&self, record: &Record) -> bool {
        self.register.has((record.id, record.holder.role))
    }

    /// Something is owed from now on. Of a page's mirrors the last one that was named is registered, as of what the log
    /// had of it.
    pub fn handle_owed(&mut self, owed: Owed) {
        match owed {
            Owed::Register(record) => self.register.insert((record.id, record.holder.role), record),
            Owed::Unregister(record) => self.unregister.insert(record, ()),
            Owed::Secure(id) => self.secure.insert(id, ()),
        }
    }

    /// It was done, or is not needed any more; what was owed meanwhile in its place still is.
    pub fn handle_done(&mut self, owed: &Owed) {
        match owed {
            Owed::Register(record) => {
                self.register.done((record.id, record.holder.role), |other| other == record);
            }
            Owed::Unregister(record) => self.unregister.done(*record, |()| true),
            Owed::Secure(id) => self.secure.done(*id, |()| true),
        }
    }

    /// What is to be done next; it stays until it [is done](Replicas::handle_done).
    pub fn poll_owed(&mut self, kind: Kind) -> Option<Owed> {
        match kind {
            Kind::Register => self.register.next().map(|(_, record)| Owed::Register(record)),
            Kind::Unregister => self.unregister.next().map(|(record, ())| Owed::Unregister(record)),
            Kind::Secure => self.secure.next().map(|(id, ())| Owed::Secure(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Holder;
    use crate::page::{SpaceId, Version};
    use wire::NodeId;

    fn mirror(index: u64, version: u64) -> Record {
        let holder = Holder { node: NodeId(2), incarnation: 1, role: Role::Mirror };
        let (id, version) = (PageId { space: SpaceId::shared(7), index }, Version(version));
        Record { copies: 2, ..Record::new(id, version, holder) }
    }

    #[test]
    fn what_is_owed_has_its_turn_until_it_is_done() {
        for kind in [Kind::Register, Kind::Unregister, Kind::Secure] {
            let mut replicas = Replicas::default();
            let owed = |index| match kind {
                Kind::Register => Owed::Register(mirror(index, 5)),
                Kind::Unregister => Owed::Unregister(mirror(index, 5)),
                Kind::Secure => Owed::Secure(mirror(index, 5).id),
            };
            (1..=3).for_each(|index| replicas.handle_owed(owed(index)));
            for index in [1, 2, 3, 1] {
                assert_eq!(replicas.poll_owed(kind), Some(owed(index)));
            }
            replicas.handle_done(&owed(2));
            assert_eq!(replicas.poll_owed(kind), Some(owed(3)));
            [1, 3].into_iter().for_each(|index| replicas.handle_done(&owed(index)));
            assert_eq!(replicas.poll_owed(kind), None);
        }
    }

    #[test]
    fn a_mirror_and_a_log_that_have_the_same_page_are_both_registered() {
        let mut replicas = Replicas::default();
        let mut logged = mirror(1, 5);
        logged.holder.role = Role::Log;
        let both = [Owed::Register(mirror(1, 6)), Owed::Register(logged)];
        both.into_iter().for_each(|owed| replicas.handle_owed(owed));
        assert_eq!(
            [(); 3].map(|()| replicas.poll_owed(Kind::Register).unwrap()),
            [both[0], both[1], both[0]]
        );
        replicas.handle_done(&both[0]);
        assert_eq!(replicas.poll_owed(Kind::Register), Some(both[1]));
        assert!(!replicas.is_unregistered(&mirror(1, 6)) && replicas.is_unregistered(&logged));
        replicas.handle_done(&both[1]);
        assert_eq!(replicas.poll_owed(Kind::Register), None);
    }

    #[test]
    fn a_newer_mirror_is_registered_though_the_one_before_just_was() {
        let mut later = mirror(1, 5);
        later.holder.incarnation = 2;
        for newer in [mirror(1, 6), later] {
            let mut replicas = Replicas::default();
            replicas.handle_owed(Owed::Register(mirror(1, 5)));
            let owed = replicas.poll_owed(Kind::Register).unwrap();
            replicas.handle_owed(Owed::Register(newer));
            replicas.handle_done(&owed);
            assert!(replicas.is_unregistered(&mirror(1, 5)));
            assert_eq!(replicas.poll_owed(Kind::Register), Some(Owed::Register(newer)));
        }
    }
}
