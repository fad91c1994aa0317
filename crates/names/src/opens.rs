//! Open files by client: the part of the manager's state that is in memory, and how much of it is durable.
//!
//! Write sessions are records. That a client has a file open for reading is only remembered here, until the file loses
//! its last name: then the orphan record names its readers, and a restart finds them there.

use crate::closes::Closes;
use crate::record::Session;
use std::collections::{BTreeMap, BTreeSet};
use wire::FileId;

/// Opens of one file by one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// How often it has it open for reading only.
    pub readers: u32,
    /// Its write session.
    pub session: Session,
    /// The write session has ended but its outcome must still be read from the objects.
    pub settling: bool,
    /// The write session is of an earlier incarnation of the manager: a power cut may have taken its end, with the
    /// length.
    pub restored: bool,
}

impl Holder {
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.readers == 0 && self.session.writers == 0
    }
}

/// All opens, by file and by client.
#[derive(Debug, Default)]
pub struct Opens {
    files: BTreeMap<FileId, BTreeMap<u64, Holder>>,
    clients: BTreeMap<u64, BTreeSet<FileId>>,
    settling: BTreeSet<(FileId, u64)>,
    /// Number of write sessions that have ended so far.
    ended: u64,
    /// The last one of each file that has sessions to be settled.
    ends: BTreeMap<FileId, u64>,
    /// The closes of each client that take place no more, as it numbers them.
    closes: BTreeMap<u64, Closes>,
}

impl Opens {
    /// The opens of `file` by `client`.
    pub fn get(&self, file: FileId, client: u64) -> Holder {
        self.files.get(&file).and_then(|holders| holders.get(&client)).copied().unwrap_or_default()
    }

    /// Whether anybody has it open.
    pub fn is_held(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// All opens of `file`.
    pub fn holders(&self, file: FileId) -> impl Iterator<Item = (u64, Holder)> + '_ {
        self.files.get(&file).into_iter().flatten().map(|(client, holder)| (*client, *holder))
    }

    /// Whether anybody has a write session.
    pub fn is_written(&self, file: FileId) -> bool {
        self.holders(file).any(|(_, holder)| holder.session.writers > 0)
    }

    /// Whether another client may be changing the length of `file`, or did during the session of `client`: the inode's
    /// is then a hint.
    pub fn written_beside(&self, file: FileId, client: u64) -> bool {
        let writes = |(other, holder): (u64, Holder)| {
            let own = holder.settling || holder.session.shared;
            holder.session.writers > 0 && (other != client || own)
        };
        self.holders(file).any(writes)
    }

    /// The files that `client` holds.
    pub fn files_of(&self, client: u64) -> Vec<FileId> {
        self.clients.get(&client).into_iter().flatten().copied().collect()
    }

    /// Every client that holds anything.
    pub fn clients(&self) -> impl Iterator<Item = u64> + '_ {
        self.clients.keys().copied()
    }

    /// From now on `client` holds this.
    pub fn set(&mut self, file: FileId, client: u64, holder: Holder) {
        self.note_end(file, self.get(file, client), holder);
        match holder.settling && !holder.is_empty() {
            true => self.settling.insert((file, client)),
            false => self.settling.remove(&(file, client)),
        };
        if self.settling.range((file, 0)..=(file, u64::MAX)).next().is_none() {
            self.ends.remove(&file);
        }
        if !holder.is_empty() {
            self.files.entry(file).or_default().insert(client, holder);
            self.clients.entry(client).or_default().insert(file);
            return;
        }
        if let Some(holders) = self.files.get_mut(&file) {
            holders.remove(&client);
            if holders.is_empty() {
                self.files.remove(&file);
            }
        }
        if let Some(files) = self.clients.get_mut(&client) {
            files.remove(&file);
            if files.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    fn note_end(&mut self, file: FileId, before: Holder, now: Holder) {
        if now.session.writers < before.session.writers || now.settling && !before.settling {
            self.count_end(file);
        }
    }

    /// A write session of the file ended.
    pub fn count_end(&mut self, file: FileId) {
        self.ended += 1;
        self.ends.insert(file, self.ended);
    }

    /// The end of the last write session of a file that has sessions to be settled. Objects' replies from before it
    /// settle none.
    pub fn last_end(&self, file: FileId) -> Option<u64> {
        self.ends.get(&file).copied()
    }

    /// Whether the close that `client` calls so took place.
    pub fn has_closed(&self, client: u64, number: u64) -> bool {
        self.closes.get(&client).is_some_and(|closes| closes.has(number))
    }

    /// Whether it did not and never will, because the client has begun to say what it holds.
    pub fn has_ended_close(&self, client: u64, number: u64) -> bool {
        self.closes.get(&client).is_some_and(|closes| closes.has_ended(number))
    }

    /// It has taken place.
    pub fn closed(&mut self, client: u64, number: u64) {
        self.closes.entry(client).or_default().insert(number, number);
    }

    /// The client is about to say what it holds: none of its closes up to this one may take place after that.
    pub fn end_closes(&mut self, client: u64, last: u64) {
        self.closes.entry(client).or_default().end(last);
    }

    /// The client is dead.
    pub fn forget_closes(&mut self, client: u64) {
        self.closes.remove(&client);
    }

    /// The sessions that wait to be settled, by file and client.
    pub fn settling(&self) -> &BTreeSet<(FileId, u64)> {
        &self.settling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_views_agree_and_empty_holders_leave_nothing() {
        let mut opens = Opens::default();
        let session = Session { writers: 1, ..Session::default() };
        let holder = Holder { session, ..Holder::default() };
        opens.set(FileId(1), 7, holder);
        opens.set(FileId(1), 8, Holder { readers: 2, ..Holder::default() });
        assert!(opens.written_beside(FileId(1), 8));
        assert!(!opens.written_beside(FileId(1), 7));
        opens.set(FileId(1), 7, Holder { settling: true, ..holder });
        assert!(opens.written_beside(FileId(1), 7));
        assert!(opens.settling().contains(&(FileId(1), 7)));
        opens.set(FileId(1), 7, Holder::default());
        opens.set(FileId(1), 8, Holder::default());
        assert!(opens.files.is_empty() && opens.clients.is_empty() && opens.settling.is_empty());
    }
}
