//! Files that operations over several managers hold at this one.
//!
//! An operation holds what it read of another manager, so that it is still so when it decides. An operation with a hold
//! never waits for another hold: it lets go, and begins again a random moment later. So no two wait for each other.

use crate::limits::HOLD_SPAN;
use std::collections::{BTreeMap, BTreeSet};
use wire::field::fields;
use wire::{FileId, NodeId, Time};

/// Names an attempt of an operation over several managers for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tx {
    /// The manager that coordinates it.
    pub manager: NodeId,
    /// Drawn at random.
    pub number: u64,
}
fields!(Tx { manager, number });

#[derive(Clone, Copy, Debug)]
struct Hold {
    tx: Tx,
    /// It will change unless the operation is given up: it is not shown before that is known.
    is_prepared: bool,
}

/// All files that are held.
#[derive(Debug, Default)]
pub struct Holds {
    files: BTreeMap<FileId, Hold>,
    operations: BTreeMap<Tx, (Time, BTreeSet<FileId>)>,
}

impl Holds {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether readers, or writers, of the file have to wait.
    pub fn blocks(&self, file: FileId, writes: bool) -> bool {
        self.files.get(&file).is_some_and(|hold| writes || hold.is_prepared)
    }

    /// The files that an operation holds.
    pub fn files(&self, tx: Tx) -> BTreeSet<FileId> {
        self.operations.get(&tx).map(|(_, files)| files.clone()).unwrap_or_default()
    }

    /// Whether anything of a site is held.
    pub fn has_site(&self, site: u8) -> bool {
        let all = FileId::new(site, 0)..=FileId::new(site, u64::MAX);
        self.files.range(all).next().is_some()
    }

    /// The operation holds the file from now on; the other one, if another one does.
    pub fn take(&mut self, file: FileId, tx: Tx, now: Time) -> Result<(), Tx> {
        match self.files.get(&file) {
            Some(hold) if hold.tx != tx => return Err(hold.tx),
            Some(_) => {}
            None => {
                self.files.insert(file, Hold { tx, is_prepared: false });
            }
        }
        let (since, files) = self.operations.entry(tx).or_insert((now, BTreeSet::new()));
        *since = now;
        files.insert(file);
        Ok(())
    }

    /// The operation holds these files as it did when its part was prepared. Each has one such record, so no other
    /// does.
    pub fn restore(&mut self, files: &[FileId], tx: Tx) {
        for file in files {
            let taken = self.take(*file, tx, Time(0));
            assert!(taken.is_ok(), "what is prepared is held by one");
        }
        self.prepare(tx);
    }

    /// The files that the operation holds will change, or were to be read only until it ends.
    pub fn prepare(&mut self, tx: Tx) {
        let Some((_, files)) = self.operations.get(&tx) else { return };
        for file in files {
            if let Some(hold) = self.files.get_mut(file) {
                hold.is_prepared = true;
            }
        }
    }

    /// It holds nothing any more.
    pub fn release(&mut self, tx: Tx) {
        let Some((_, files)) = self.operations.remove(&tx) else { return };
        self.files.retain(|file, _| !files.contains(file));
        assert!(self.operations.len() <= self.files.len(), "who holds nothing is not kept");
    }

    /// Operations that have held something for too long without being prepared: their manager is away.
    pub fn overdue(&self, now: Time) -> Vec<Tx> {
        let prepared = |file: &FileId| self.files.get(file).is_some_and(|hold| hold.is_prepared);
        let late = |(_, (since, files)): &(&Tx, &(Time, BTreeSet<FileId>))| {
            *since + HOLD_SPAN < now && !files.iter().any(prepared)
        };
        self.operations.iter().filter(late).map(|(tx, _)| *tx).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tx(number: u64) -> Tx {
        Tx { manager: NodeId(2), number }
    }

    #[test]
    fn one_holds_a_file_and_who_reads_waits_only_for_what_is_prepared() {
        let (mut holds, file) = (Holds::default(), FileId::new(3, 5));
        holds.take(file, tx(1), Time(0)).unwrap();
        holds.take(file, tx(1), Time(0)).unwrap();
        assert_eq!(holds.take(file, tx(2), Time(0)), Err(tx(1)));
        assert!(holds.blocks(file, true) && !holds.blocks(file, false));
        assert!(holds.has_site(3) && !holds.has_site(2) && !holds.has_site(4));
        assert_eq!(holds.overdue(Time(0) + HOLD_SPAN), []);
        let late = Time(1) + HOLD_SPAN;
        assert_eq!(holds.overdue(late), [tx(1)]);
        holds.prepare(tx(1));
        assert!(holds.blocks(file, false) && holds.overdue(late).is_empty());
        holds.release(tx(1));
        assert!(holds.is_empty() && !holds.blocks(file, true));
    }
}
