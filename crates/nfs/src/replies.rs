//! The duplicate-request cache (RFC 1813 section 4.5): a call that a client sends again is not executed again.
//!
//! A client that lost its connection sends what it had under way over the next one, from another port: the key has the
//! address without the port. Numbers are used again some day, so it has a checksum of the head too; the data of a WRITE
//! is not in it, since its place and length are.
//!
//! An entry exists from the moment that its call begins. Replies that are older make room for newer ones; calls in
//! progress are never forgotten, so that at most [`REPLIES_MAX`] of them are begun. Managers keep the outcomes of
//! changes of names over restarts of the server, by [`Key::call_id`].

use crate::limits::{REPLIES_BYTES_MAX, REPLIES_MAX, REPLY_BYTES_MAX};
use crate::rpc::Call;
use crate::{nlm, v3};
use core::net::{IpAddr, Ipv4Addr};
use node::bugs::{Bug, Bugs};
use std::collections::BTreeMap;
use wire::CallId;

/// Identity of a call: duplicates have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The client's address, without its port.
    pub client: IpAddr,
    /// The client's number of the call.
    pub xid: u32,
    /// Program, version, procedure.
    pub procedure: [u32; 3],
    /// CRC-32C of the head, and its length.
    pub head: (u32, u32),
}

impl Key {
    /// The key of a call whose record has this head.
    pub fn of(client: IpAddr, call: &Call<'_>, head: &[u8]) -> Key {
        let Call { xid, program, version, procedure, .. } = *call;
        let sum = (wire::checksum::crc32c(head), head.len() as u32);
        Key {
            client: client.to_canonical(),
            xid,
            procedure: [program, version, procedure],
            head: sum,
        }
    }

    /// The same, of which a planted bug leaves nothing but the number.
    pub(crate) fn with_bugs(client: IpAddr, call: &Call<'_>, head: &[u8], bugs: Bugs) -> Key {
        match bugs.has(Bug::CallsMistaken) {
            true => Key::of(Ipv4Addr::UNSPECIFIED.into(), call, &[]),
            false => Key::of(client, call, head),
        }
    }

    /// The call, as managers know it over restarts.
    pub fn call_id(&self) -> CallId {
        let client = match self.client {
            IpAddr::V4(client) => client.to_ipv6_mapped(),
            IpAddr::V6(client) => client,
        };
        let [_, _, procedure] = self.procedure;
        CallId { client: client.to_bits(), xid: self.xid, procedure, head: self.head }
    }

    /// Whether calls like this are kept.
    pub fn is_kept(&self) -> bool {
        let [program, version, procedure] = self.procedure;
        match (program, version) {
            (v3::PROGRAM, v3::VERSION) => {
                v3::Procedure::of(procedure).is_some_and(v3::Procedure::keeps_reply)
            }
            (nlm::PROGRAM, nlm::VERSION) => {
                nlm::Procedure::of(procedure).is_some_and(nlm::Procedure::keeps_reply)
            }
            _ => false,
        }
    }
}

/// The decision on a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Execute it, then [`complete`](Replies::complete) or [`forget`](Replies::forget) it.
    Execute,
    /// The same one is being executed: drop this one, the client gets the first one's reply or asks again.
    InProgress,
    /// It was executed: this is the reply, as the record's head.
    Done(&'a [u8]),
    /// Too many calls are in progress: drop it, and the client asks again.
    Full,
}

#[derive(Debug)]
enum Entry {
    InProgress,
    Done(Box<[u8]>),
}

/// The cache.
#[derive(Debug)]
pub struct Replies {
    entries: BTreeMap<Key, Entry>,
    order: BTreeMap<u64, Key>,
    next: u64,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl Default for Replies {
    fn default() -> Replies {
        Replies::new(REPLIES_MAX, REPLIES_BYTES_MAX)
    }
}

impl Replies {
    /// An empty one with these limits.
    pub fn new(entries_max: usize, bytes_max: usize) -> Replies {
        assert!(entries_max > 0);
        let (entries, order) = (BTreeMap::new(), BTreeMap::new());
        Replies { entries, order, next: 0, bytes: 0, entries_max, bytes_max }
    }

    /// Calls in progress and replies.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of replies.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A call came.
    pub fn begin(&mut self, key: Key) -> Verdict<'_> {
        if !self.entries.contains_key(&key) {
            if !self.make_room(0) {
                return Verdict::Full;
            }
            self.entries.insert(key, Entry::InProgress);
            return Verdict::Execute;
        }
        match &self.entries[&key] {
            Entry::InProgress => Verdict::InProgress,
            Entry::Done(reply) => Verdict::Done(reply),
        }
    }

    /// The call was executed, with this reply. Panics when it was not begun.
    pub fn complete(&mut self, key: Key, reply: &[u8]) {
        let begun = self.entries.remove(&key);
        assert!(matches!(begun, Some(Entry::InProgress)), "a call that was begun, once");
        self.insert(key, reply);
    }

    /// The call was not executed, and may be when it comes again: it was answered JUKEBOX, or not at all.
    pub fn forget(&mut self, key: Key) {
        let begun = self.entries.remove(&key);
        assert!(matches!(begun, Some(Entry::InProgress)), "a call that was begun, once");
    }

    fn insert(&mut self, key: Key, reply: &[u8]) {
        // a reply that is too long for any kept procedure is ours to have kept short
        assert!(reply.len() <= REPLY_BYTES_MAX, "a reply of {} bytes", reply.len());
        if !self.make_room(reply.len()) {
            return;
        }
        self.bytes += reply.len();
        self.entries.insert(key, Entry::Done(reply.into()));
        self.order.insert(self.next, key);
        self.next += 1;
    }

    /// Whether there is room for one more entry with so many bytes, after the oldest replies went.
    fn make_room(&mut self, bytes: usize) -> bool {
        let is_full = |cache: &Replies| {
            cache.entries.len() >= cache.entries_max || cache.bytes + bytes > cache.bytes_max
        };
        while is_full(self) {
            let Some((_, oldest)) = self.order.pop_first() else { return false };
            if let Some(Entry::Done(reply)) = self.entries.remove(&oldest) {
                self.bytes -= reply.len();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Credential;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn key(client: u8, xid: u32, procedure: v3::Procedure, head: &[u8]) -> Key {
        let (program, version) = (v3::PROGRAM, v3::VERSION);
        let procedure = procedure as u32;
        let credential = Credential::None;
        let call = Call { xid, program, version, procedure, credential, arguments: &[] };
        Key::of(Ipv4Addr::new(10, 0, 0, client).into(), &call, head)
    }

    fn create(xid: u32) -> Key {
        key(1, xid, v3::Procedure::Create, b"head")
    }

    #[test]
    fn a_duplicate_is_dropped_while_its_call_runs_and_answered_when_it_ran() {
        let mut replies = Replies::default();
        assert_eq!(replies.begin(create(1)), Verdict::Execute);
        assert_eq!(replies.begin(create(1)), Verdict::InProgress);
        replies.complete(create(1), b"reply");
        assert_eq!(replies.begin(create(1)), Verdict::Done(b"reply"));
        assert_eq!(replies.bytes(), 5);
    }

    #[test]
    fn a_call_that_was_not_executed_may_come_again() {
        let mut replies = Replies::default();
        assert_eq!(replies.begin(create(1)), Verdict::Execute);
        replies.forget(create(1));
        assert_eq!(replies.begin(create(1)), Verdict::Execute);
    }

    #[test]
    fn another_client_number_procedure_or_head_is_another_call() {
        let mut replies = Replies::default();
        let first = key(1, 1, v3::Procedure::Create, b"a");
        assert_eq!(replies.begin(first), Verdict::Execute);
        for other in [
            key(2, 1, v3::Procedure::Create, b"a"),
            key(1, 2, v3::Procedure::Create, b"a"),
            key(1, 1, v3::Procedure::Mkdir, b"a"),
            key(1, 1, v3::Procedure::Create, b"b"),
        ] {
            assert_eq!(replies.begin(other), Verdict::Execute);
        }
        let mapped: Ipv6Addr = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        assert_eq!(Key { client: IpAddr::from(mapped).to_canonical(), ..first }, first);
    }

    #[test]
    fn what_may_be_repeated_is_not_kept() {
        let kept = |procedure| key(1, 1, procedure, b"").is_kept();
        use v3::Procedure::*;
        for procedure in [Getattr, Lookup, Read, Readdir, Commit, Null, Access] {
            assert!(!kept(procedure));
        }
        for procedure in
            [Setattr, Write, Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link]
        {
            assert!(kept(procedure));
        }
    }

    #[test]
    fn calls_in_progress_are_not_forgotten_for_others() {
        let mut replies = Replies::new(2, 1000);
        assert_eq!(replies.begin(create(1)), Verdict::Execute);
        assert_eq!(replies.begin(create(2)), Verdict::Execute);
        assert_eq!(replies.begin(create(3)), Verdict::Full);
        replies.complete(create(1), b"one");
        assert_eq!(replies.begin(create(3)), Verdict::Execute);
        assert_eq!(replies.begin(create(2)), Verdict::InProgress);
    }

    #[test]
    fn managers_know_a_call_by_all_that_tells_it_from_others() {
        let first = key(1, 7, v3::Procedure::Remove, b"head").call_id();
        assert_eq!((first.xid, first.procedure, first.head.1), (7, 12, 4));
        for other in [
            key(2, 7, v3::Procedure::Remove, b"head"),
            key(1, 8, v3::Procedure::Remove, b"head"),
            key(1, 7, v3::Procedure::Rmdir, b"head"),
            key(1, 7, v3::Procedure::Remove, b"heaD"),
        ] {
            assert_ne!(other.call_id(), first);
        }
        assert_eq!(key(1, 7, v3::Procedure::Remove, b"head").call_id(), first);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Begin(u32),
        Complete(u32, usize),
        Forget(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (0u32..12, 0usize..40, 0u8..4).prop_map(|(xid, bytes, what)| match what {
            0 | 1 => Step::Begin(xid),
            2 => Step::Complete(xid, bytes),
            _ => Step::Forget(xid),
        });
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Beside a list of what happened, newest last: what the cache says of a call agrees with it, a reply that is
        /// gone was older than all that are there, and the limits hold.
        #[test]
        fn the_cache_agrees_with_a_list(steps in steps(), entries_max in 1usize..8, bytes_max in 40usize..200) {
            let mut cache = Replies::new(entries_max, bytes_max);
            let (mut running, mut done): (Vec<u32>, Vec<(u32, Vec<u8>)>) = Default::default();
            for step in steps {
                match step {
                    Step::Begin(xid) => match cache.begin(create(xid)) {
                        Verdict::InProgress => prop_assert!(running.contains(&xid)),
                        Verdict::Done(reply) => {
                            let newest = done.iter().rfind(|(its, _)| *its == xid).unwrap();
                            prop_assert_eq!(reply, &newest.1[..]);
                        }
                        Verdict::Execute => {
                            prop_assert!(!running.contains(&xid));
                            running.push(xid);
                            done.retain(|(its, _)| *its != xid);
                        }
                        Verdict::Full => prop_assert_eq!(running.len(), entries_max),
                    },
                    Step::Complete(xid, bytes) if running.contains(&xid) => {
                        running.retain(|its| *its != xid);
                        cache.complete(create(xid), &vec![xid as u8; bytes]);
                        done.push((xid, vec![xid as u8; bytes]));
                    }
                    Step::Forget(xid) if running.contains(&xid) => {
                        running.retain(|its| *its != xid);
                        cache.forget(create(xid));
                    }
                    _ => {}
                }
                prop_assert!(cache.len() <= entries_max);
                prop_assert!(cache.bytes() <= bytes_max);
                prop_assert!(cache.len() >= running.len());
                let kept = cache.len() - running.len();
                let newest: usize = done.iter().rev().take(kept).map(|(_, reply)| reply.len()).sum();
                prop_assert_eq!(cache.bytes(), newest);
            }
        }
    }
}
