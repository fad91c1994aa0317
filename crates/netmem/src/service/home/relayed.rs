//! Mirrors that a directory knows from a former home only.
//!
//! A page's former home hands its entry over while the mirror's holder may just give the mirror up: the holder tells
//! the present homes, the former home tells what it knew, and the one overtakes the other. A holder's report in a view
//! is complete, so a mirror that is not in it is none.

use super::Home;
use crate::directory::{Holder, Role};
use crate::page::{PageId, Version};
use crate::protocol::{Record, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use wire::NodeId;

/// By holder, the mirrors that it has not told itself.
#[derive(Debug, Default)]
pub struct Relayed {
    mirrors: BTreeMap<NodeId, BTreeSet<(PageId, Version)>>,
}

impl Relayed {
    /// A former home has told of a mirror.
    pub fn insert(&mut self, record: &Record) {
        self.mirrors.entry(record.holder.node).or_default().insert((record.id, record.version));
    }

    /// The holder has told of it too.
    pub fn confirm(&mut self, record: &Record) {
        if let Some(mirrors) = self.mirrors.get_mut(&record.holder.node) {
            mirrors.remove(&(record.id, record.version));
        }
    }

    /// A holder has reported all that it has: what of it was only relayed.
    pub fn take(&mut self, holder: NodeId) -> BTreeSet<(PageId, Version)> {
        self.mirrors.remove(&holder).unwrap_or_default()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.mirrors.clear();
    }
}

impl Home {
    /// As [`register`](Home::register), told by `source`. A mirror of another node counts until that one's report.
    pub fn register_from(&mut self, source: NodeId, record: &Record) -> Verdict {
        let known = self.names(record);
        let verdict = self.register(record);
        if source == record.holder.node {
            self.relayed.confirm(record);
        } else if !known && record.holder.role == Role::Mirror && self.names(record) {
            self.relayed.insert(record);
            self.end_relayed(record.holder.node);
        }
        verdict
    }

    /// Whether the directory names just this holder of this version.
    fn names(&self, record: &Record) -> bool {
        let entry = self.directory.entry(record.id).filter(|entry| entry.version == record.version);
        entry.is_some_and(|entry| entry.holders.contains(&record.holder))
    }

    /// A node has reported all that it has in the view of this number: mirrors of it that former homes alone have told
    /// of are none.
    pub fn handle_report(&mut self, source: NodeId, view: u64) {
        self.members.handle_report(source, view);
        self.end_relayed(source);
    }

    fn end_relayed(&mut self, source: NodeId) {
        let incarnation = self.view().incarnation(source);
        let Some(incarnation) = incarnation.filter(|_| self.members.has_reported(source)) else {
            return;
        };
        let holder = Holder { node: source, incarnation, role: Role::Mirror };
        for (id, version) in self.relayed.take(source) {
            self.directory.unregister(id, version, holder);
            self.note_lack(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{home, mirror, pages, view};
    use super::*;
    use wire::Time;

    /// The holder gave it up while the former home's word was under way.
    #[test]
    fn a_mirror_that_only_a_former_home_told_of_ends_with_its_holders_report() {
        for (confirmed, late) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut home = home();
            home.handle_view(Time(0), view(1, &[1, 2, 3])).unwrap();
            let id = pages(&home).next().unwrap();
            let record = mirror(id, 2);
            let report = |home: &mut Home| {
                if confirmed {
                    home.register_from(NodeId(2), &record);
                }
                home.handle_report(NodeId(2), 1);
            };
            if late {
                report(&mut home);
            }
            assert_eq!(home.register_from(NodeId(3), &record), Verdict::Done);
            if !late {
                assert!(home.names(&record), "it counts until then");
                report(&mut home);
            }
            assert_eq!(home.names(&record), confirmed, "confirmed {confirmed}, late {late}");
        }
    }
}
