//! How far a disk's log is, noted in a second place: in the disk's label, behind the server's incarnations.
//!
//! The log's own chain tells damage in front of what it still holds; the mark tells that its end, a whole log or all of
//! them are missing, damaged or older than they were. It is written by every checkpoint before it drops logs, by a
//! stop, and a second after a commit; never on the way of one. So what the mark does not cover is at most the last
//! second before the server or its machine died.
//!
//! Both slots say the same: the one that is due is written durably, then the other one, which is the next that is due.
//! A power cut tears one of them at most, and damage to one costs nothing.

use crate::disk::Disk;
use crate::index::LABEL_BLOCKS;
use crate::limits::MARK_SPAN;
use crate::log::Generation;
use crate::order::Lives;
use crate::server::Inner;
use endpoint::FrameMut;
use node::rings::{DiskError, DiskFile};
use std::rc::Rc;
use wire::Errno;
use wire::codec::{Decoder, Encoder, Short};
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a disk's label says of its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Every record up to this one is in place, and says nothing any more.
    pub applied: u64,
    /// Every record up to this one was durable.
    pub durable: u64,
    /// The latest log that may have been written to, or the one before it.
    pub generation: u32,
    /// The salt of that log.
    pub salt: u64,
    /// The salt of the next one: known before anything is written to it.
    pub next_salt: u64,
}

impl Mark {
    /// Appends the mark.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.u64(self.applied).u64(self.durable).u32(self.generation);
        out.u64(self.salt).u64(self.next_salt);
    }

    /// Reads what [`encode`](Mark::encode) wrote.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Mark, Short> {
        Ok(Mark {
            applied: input.u64()?,
            durable: input.u64()?,
            generation: input.u32()?,
            salt: input.u64()?,
            next_salt: input.u64()?,
        })
    }

    /// The salt of the log with this number, as far as it is known.
    pub fn salt_of(&self, generation: u32) -> Option<u64> {
        match generation.checked_sub(self.generation)? {
            0 => Some(self.salt),
            1 => Some(self.next_salt),
            _ => None,
        }
    }

    /// Whether the log with this number cannot have been written to yet.
    pub fn is_ahead(&self, generation: u32) -> bool {
        generation > self.generation + 1
    }

    fn enter(&mut self, log: Generation, next_salt: u64) {
        if self.generation != log.number || self.salt != log.salt {
            (self.generation, self.salt, self.next_salt) = (log.number, log.salt, next_salt);
        }
    }
}

/// Another number for every number (splitmix64).
fn next_of(salt: u64) -> u64 {
    let mixed = salt.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Disk {
    /// What the label says of the log.
    pub fn mark(&self) -> Mark {
        self.lives.borrow().mark()
    }

    /// Writes what the label says beside the disk's name.
    pub async fn note(&self, change: impl FnOnce(&mut Lives)) -> Result<(), DiskError> {
        let _one = self.noting.acquire(1).await;
        let mut lives = self.lives.borrow().clone();
        change(&mut lives);
        lives.turn();
        let mut block = self.frame(BLOCK_BYTES).await;
        lives.encode(&mut block);
        let (block, slot) = (block.freeze(), lives.sequence() % 2);
        self.write(DiskFile::Label, BLOCK + slot * BLOCK, block.clone(), true).await?;
        // Where this fails the other slot is the older one, as if power had gone.
        let other = BLOCK + (1 - slot) * BLOCK;
        let _ = self.write(DiskFile::Label, other, block, false).await;
        *self.lives.borrow_mut() = lives;
        Ok(())
    }

    async fn note_mark(&self, change: impl FnOnce(&mut Mark)) -> Result<(), DiskError> {
        self.note(|lives| {
            let mut mark = lives.mark();
            change(&mut mark);
            lives.set_mark(mark);
        })
        .await
    }

    /// Notes that everything up to this record is in place, before its logs are dropped.
    pub async fn note_applied(&self, last: u64) -> Result<(), DiskError> {
        if last <= self.mark().applied {
            return Ok(());
        }
        let (log, durable) = (self.journal.generation(), self.journal.durable());
        let salt = self.cx.random();
        self.note_mark(|mark| {
            mark.applied = last;
            mark.durable = mark.durable.max(durable).max(last);
            mark.enter(log, salt);
        })
        .await
    }

    /// Notes how far the log is durable.
    pub async fn note_durable(&self) -> Result<(), DiskError> {
        let durable = self.journal.durable();
        if durable <= self.mark().durable {
            return Ok(());
        }
        self.note_mark(|mark| mark.durable = durable).await
    }

    /// Makes sure that the label knows a log before anything is written to it. It nearly always does.
    pub async fn admit_log(&self, log: Generation) -> Result<(), DiskError> {
        if self.mark().salt_of(log.number) == Some(log.salt) {
            return Ok(());
        }
        self.enter_log().await
    }

    async fn enter_log(&self) -> Result<(), DiskError> {
        let (log, durable) = (self.journal.generation(), self.journal.durable());
        // As secret as the one that it is made of.
        let salt = next_of(log.salt);
        self.note_mark(|mark| {
            // The label forgets the salts of older logs, so it must know how much is in them.
            mark.durable = mark.durable.max(durable);
            mark.enter(log, salt);
        })
        .await
    }

    /// The salt of the log after the present one, as the label knows it.
    pub async fn next_salt(&self) -> Result<u64, DiskError> {
        if self.mark().generation != self.journal.generation().number {
            self.enter_log().await?;
        }
        Ok(self.mark().next_salt)
    }

    /// All of the label, with zeros for blocks that cannot be read, and whether there is one.
    pub async fn read_label(&self) -> Result<(FrameMut, bool), DiskError> {
        let into = self.frame(LABEL_BLOCKS * BLOCK_BYTES).await;
        match self.read(DiskFile::Label, 0, into).await {
            Err(DiskError::Failed(Errno::EIO)) => {}
            read => return read,
        }
        let mut label = self.zeros(LABEL_BLOCKS * BLOCK_BYTES).await;
        for (block, offset) in label.chunks_exact_mut(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
            let read = self.read_patiently(DiskFile::Label, offset, BLOCK_BYTES).await?;
            if let Some((bytes, _)) = read {
                block.copy_from_slice(&bytes);
            }
        }
        Ok((label, true))
    }

    /// What the label says beside the disk's name; `None` when neither slot can be understood.
    pub async fn find_lives(&self) -> Result<Option<Lives>, DiskError> {
        let (label, _) = self.read_label().await?;
        Ok(Lives::later_of(&label[BLOCK_BYTES..]))
    }
}

impl Inner {
    /// Notes how far a disk's log is durable, a second later at most, also while commits go on. Neither a log that is
    /// missing nor one that is truncated tells by itself how far it was.
    pub async fn note_progress(self: Rc<Self>, disk: usize) {
        let disk = &self.disks[disk];
        while !disk.is_refused() {
            let written = disk.journal.written();
            if disk.journal.durable() <= disk.mark().durable {
                written.await;
                continue;
            }
            self.cx.sleep(MARK_SPAN).await;
            if let Err(error) = disk.note_durable().await {
                self.report(format!(
                    "disk {}: how far its log is cannot be noted in its label: {error}",
                    disk.id.0
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_knows_the_salts_of_two_logs() {
        let mark = Mark { generation: 4, salt: 11, next_salt: 12, ..Mark::default() };
        assert_eq!([3, 4, 5, 6].map(|log| mark.salt_of(log)), [None, Some(11), Some(12), None]);
        assert!(!mark.is_ahead(5) && mark.is_ahead(6));
    }
}
