//! Answers that are kept for calls that come again, under the same name or as duplicates under another.

use crate::duplicates::Kept;
use crate::keys::{self, Table};
use crate::manager::Manager;
use crate::open_error::{OpenError, damaged};
use crate::record::{Answered, Duplicate};
use crate::transaction::{CallName, Changes, Effect};
use wire::field::encoded;
use wire::{Errno, Wall};

impl Manager {
    /// The answer of a call that changes only what is in memory is kept there.
    pub(crate) fn keep_recent(
        &mut self,
        client: u64,
        call: CallName,
        reply: &[u8],
        changes: &Changes,
    ) {
        if changes.writes.is_empty() && !changes.effects.is_empty() {
            let kept = Answered { sequence: call.sequence, reply: reply.into() };
            self.recent.insert((client, call.site, call.slot), kept);
        }
    }

    pub(crate) fn forget_answers(&mut self, client: u64) {
        self.recent.retain(|(of, ..), _| *of != client);
    }

    /// Loads where a site's answers for duplicates are.
    pub(crate) fn load_duplicates(&mut self, site: u8) -> Result<(), OpenError> {
        for (key, value) in self.table(site, Table::Duplicate)? {
            let duplicate: Duplicate = damaged(&key, &value)?;
            let number = keys::number_at(&key, 2).ok_or(OpenError::Damaged { key })?;
            self.duplicates.insert(duplicate.key, Kept { site, number });
        }
        Ok(())
    }

    /// The answer to a duplicate of the call that came under another name.
    pub(crate) fn answer_of_duplicate(&self, call: &CallName) -> Result<Option<Box<[u8]>>, Errno> {
        let Some(key) = &call.duplicates else { return Ok(None) };
        let Some(Kept { site, number }) = self.duplicates.get(key) else { return Ok(None) };
        let record = self.read(0, |t| t.record::<Duplicate>(&keys::duplicate(site, number)))?;
        let record = record.ok_or(Errno::EIO)?;
        assert_eq!(record.key, *key, "the record and its place in memory agree");
        Ok(Some(record.reply))
    }

    /// Keeps the answer with the change for duplicates of the call.
    pub(crate) fn answer_duplicates(
        &self,
        changes: &mut Changes,
        call: &CallName,
        now: Wall,
        reply: &[u8],
    ) {
        let Some(key) = call.duplicates else { return };
        for Kept { site, number } in self.duplicates.oldest() {
            changes.writes.insert(keys::duplicate(site, number), None);
        }
        let kept = Kept { number: self.duplicates.next(now), site: call.site };
        let record = encoded(&Duplicate { key, reply: reply.into() });
        changes.writes.insert(keys::duplicate(kept.site, kept.number), Some(record));
        changes.effects.push(Effect::Answered(key, kept));
    }
}
