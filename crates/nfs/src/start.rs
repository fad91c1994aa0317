//! The start of a server: the key of the volume's handles, and the clients that had locks in its last incarnation, both
//! attributes of the volume's root. It is no task: its driver asks the node for each operation, and tells the result.
//!
//! ```text
//!   the key ── none ──► a fresh one is written, unless another server was quicker ──► the key
//!      │
//!   the clients ── some ──► they are written with this incarnation's number ──► sync
//! ```
//!
//! Invariant: the key, and that this is another incarnation, are on stable storage before any client hears of them.

use crate::handle::{KEY_ATTRIBUTE, Key};
use crate::locks::{Beginning, Kept};
use node::rings::{FileOp, FileReply};
use wire::{Errno, FileId};

/// Flag of an attribute that is not to be there yet (Linux `XATTR_CREATE`).
const CREATE: u32 = 1;

/// A step could not be made. The text says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be {done}: {errno}")]
pub struct Refused {
    what: &'static str,
    done: &'static str,
    errno: Errno,
}

/// The records that a server begins with.
#[derive(Clone, Debug)]
pub struct Started {
    /// Of the volume's handles.
    pub key: Key,
    /// Clients with locks.
    pub locks: Beginning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    ReadKey,
    /// There was none.
    WriteKey,
    /// It was written, by this server or another one.
    ReadWrittenKey,
    ReadClients,
    WriteClients,
    Sync,
}

/// A start under way.
#[derive(Debug)]
pub struct Start {
    step: Step,
    fresh: Key,
    /// The volume's, once it is known.
    key: Key,
    attribute: Option<Box<[u8]>>,
    kept: Kept,
}

impl Start {
    /// Of a server whose clients with locks are kept in `attribute`, if there is one. The first server of the volume
    /// gives it the key `fresh`.
    pub fn new(fresh: Key, attribute: Option<Box<[u8]>>) -> Start {
        let kept = Kept::default().restarted();
        Start { step: Step::ReadKey, fresh, key: fresh, attribute, kept }
    }

    /// The operation to be asked of the node next.
    pub fn op(&self) -> FileOp {
        let file = FileId::ROOT;
        let attribute = || self.attribute.clone().expect("a step of a server with an attribute");
        match self.step {
            Step::ReadKey | Step::ReadWrittenKey => {
                FileOp::GetXattr { file, name: KEY_ATTRIBUTE.into() }
            }
            Step::WriteKey => {
                let (name, value) = (KEY_ATTRIBUTE.into(), self.fresh.0.into());
                FileOp::SetXattr { file, name, value, flags: CREATE }
            }
            Step::ReadClients => FileOp::GetXattr { file, name: attribute() },
            Step::WriteClients => {
                let value = self.kept.encode().into();
                FileOp::SetXattr { file, name: attribute(), value, flags: 0 }
            }
            Step::Sync => FileOp::FsyncDirectory { file },
        }
    }

    /// That operation has ended; the records, when all are there. After an error the driver may go on: what has failed
    /// is then asked for again, and after a sync that failed everything, since what was written may be lost.
    pub fn done(&mut self, result: Result<FileReply, Errno>) -> Result<Option<Started>, Refused> {
        let (what, done) = self.describe();
        match self.go_on(result) {
            Ok(Some(step)) => self.step = step,
            Ok(None) => {
                let locks = Beginning { attribute: self.attribute.take(), kept: self.kept.clone() };
                return Ok(Some(Started { key: self.key, locks }));
            }
            Err(errno) => {
                if matches!(self.step, Step::ReadWrittenKey | Step::Sync) {
                    self.step = Step::ReadKey;
                }
                return Err(Refused { what, done, errno });
            }
        }
        Ok(None)
    }

    /// The step after this one, if there is one.
    fn go_on(&mut self, result: Result<FileReply, Errno>) -> Result<Option<Step>, Errno> {
        let next = match (self.step, result) {
            (Step::ReadKey, Err(Errno::ENODATA)) => Step::WriteKey,
            (Step::ReadKey | Step::ReadWrittenKey, Ok(FileReply::Bytes(bytes))) => {
                self.key = Key(bytes.try_into().map_err(|_| Errno::EINVAL)?);
                if self.attribute.is_some() { Step::ReadClients } else { Step::Sync }
            }
            (Step::WriteKey, Ok(_) | Err(Errno::EEXIST)) => Step::ReadWrittenKey,
            (Step::ReadClients, Err(Errno::ENODATA)) => Step::Sync,
            (Step::ReadClients, Ok(FileReply::Bytes(bytes))) => match Kept::decode(&bytes) {
                Ok(kept) => {
                    self.kept = kept.restarted();
                    Step::WriteClients
                }
                Err(_) => Step::Sync,
            },
            (Step::WriteClients, Ok(_)) => Step::Sync,
            (Step::Sync, Ok(_)) => return Ok(None),
            (_, Err(errno)) => return Err(errno),
            (_, Ok(_)) => return Err(Errno::EPROTO),
        };
        Ok(Some(next))
    }

    fn describe(&self) -> (&'static str, &'static str) {
        let (key, clients) =
            ("the key of the volume's NFS handles", "the list of NFS clients with locks");
        match self.step {
            Step::ReadKey | Step::ReadWrittenKey => (key, "read"),
            Step::WriteKey => (key, "written"),
            Step::ReadClients => (clients, "read"),
            Step::WriteClients => (clients, "written"),
            Step::Sync => ("what NFS servers keep in the volume", "synced"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const FRESH: Key = Key([1; 16]);
    const CLIENTS: &[u8] = b"trusted.nfs3.clients.here";

    /// The root's attributes, and as many of them as a power cut leaves.
    #[derive(Default)]
    struct Root {
        attributes: BTreeMap<Box<[u8]>, Vec<u8>>,
        synced: BTreeMap<Box<[u8]>, Vec<u8>>,
        /// Bytes written since the last sync are lost, and the sync says so.
        loses: bool,
    }

    impl Root {
        fn ask(&mut self, op: FileOp) -> Result<FileReply, Errno> {
            match op {
                FileOp::GetXattr { name, .. } => {
                    self.attributes.get(&name).cloned().map(FileReply::Bytes).ok_or(Errno::ENODATA)
                }
                FileOp::SetXattr { name, value, flags, .. } => {
                    if flags == CREATE && self.attributes.contains_key(&name) {
                        return Err(Errno::EEXIST);
                    }
                    self.attributes.insert(name, value.into());
                    Ok(FileReply::Done)
                }
                FileOp::FsyncDirectory { .. } if std::mem::take(&mut self.loses) => {
                    self.attributes = self.synced.clone();
                    Err(Errno::EIO)
                }
                FileOp::FsyncDirectory { .. } => {
                    self.synced = self.attributes.clone();
                    Ok(FileReply::Done)
                }
                other => panic!("{other:?}"),
            }
        }

        fn start(&mut self, fresh: Key) -> Started {
            let mut start = Start::new(fresh, Some(CLIENTS.into()));
            loop {
                let result = self.ask(start.op());
                if let Ok(Some(started)) = start.done(result) {
                    return started;
                }
            }
        }
    }

    #[test]
    fn all_servers_have_the_key_of_the_first() {
        let mut root = Root::default();
        assert_eq!(root.start(FRESH).key, FRESH);
        assert_eq!(root.start(Key([2; 16])).key, FRESH);
        assert_eq!(root.synced[KEY_ATTRIBUTE], FRESH.0, "on stable storage");
    }

    #[test]
    fn of_two_servers_that_make_the_key_at_once_one_does() {
        let mut root = Root::default();
        let mut start = Start::new(FRESH, None);
        assert_eq!(start.done(root.ask(start.op())).map(|it| it.is_some()), Ok(false));
        let other = Key([2; 16]);
        assert_eq!(root.start(other).key, other);
        let started = loop {
            if let Some(started) = start.done(root.ask(start.op())).unwrap() {
                break started;
            }
        };
        assert_eq!(started.key, other);
    }

    #[test]
    fn clients_with_locks_outlive_the_server_with_the_next_number() {
        let mut root = Root::default();
        assert_eq!(root.start(FRESH).locks.kept, Kept::default().restarted());
        let kept = Kept { state: 7, clients: Vec::new() };
        root.attributes.insert(CLIENTS.into(), kept.encode());
        assert_eq!(root.start(FRESH).locks.kept.state, 9);
        assert_eq!(Kept::decode(&root.synced[CLIENTS]).unwrap().state, 9, "before a client hears");
        assert_eq!(root.start(FRESH).locks.kept.state, 11);
    }

    #[test]
    fn what_a_power_cut_took_before_the_sync_is_written_again() {
        let mut root = Root { loses: true, ..Root::default() };
        assert_eq!(root.start(FRESH).key, FRESH);
        assert_eq!(root.synced[KEY_ATTRIBUTE], FRESH.0);
    }

    #[test]
    fn a_refusal_says_what_could_not_be_done() {
        let mut start = Start::new(FRESH, None);
        let refused = start.done(Err(Errno::EACCES)).map(drop).unwrap_err().to_string();
        let errno = Errno::EACCES;
        assert_eq!(refused, format!("the key of the volume's NFS handles cannot be read: {errno}"));
        assert!(matches!(start.op(), FileOp::GetXattr { .. }), "it is asked again");
    }
}
