//! How the label of a disk is written: the incarnations of its server, and how far the log and the manager are.

use super::{Disk, LABEL_BLOCKS};
use crate::log::Generation;
use crate::mark::Mark;
use crate::order::Incarnations;
use crate::witness::Witnesses;
use endpoint::FrameMut;
use node::rings::{DiskError, DiskFile};
use wire::Errno;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The label knows this log, and the salt of the next one.
fn enter(mark: &mut Mark, log: Generation, next_salt: u64) {
    if mark.generation != log.number || mark.salt != log.salt {
        (mark.generation, mark.salt, mark.next_salt) = (log.number, log.salt, next_salt);
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
    /// The log, as the label knows it.
    pub fn mark(&self) -> Mark {
        self.incarnations.borrow().mark()
    }

    /// Writes the label's content beside the disk's name.
    pub async fn note(&self, change: impl FnOnce(&mut Incarnations)) -> Result<(), DiskError> {
        let _one = self.noting.acquire(1).await;
        let mut incarnations = self.incarnations.borrow().clone();
        change(&mut incarnations);
        incarnations.turn();
        let mut block = self.frame(BLOCK_BYTES).await;
        incarnations.encode(&mut block);
        let (block, slot) = (block.freeze(), incarnations.sequence() % 2);
        self.write(DiskFile::Label, BLOCK + slot * BLOCK, block.clone(), true).await?;
        // If this fails the other slot is the older one, as if power had gone.
        let other = BLOCK + (1 - slot) * BLOCK;
        let _ = self.write(DiskFile::Label, other, block, false).await;
        *self.incarnations.borrow_mut() = incarnations;
        Ok(())
    }

    async fn note_mark(&self, change: impl FnOnce(&mut Mark)) -> Result<(), DiskError> {
        self.note(|incarnations| {
            let mut mark = incarnations.mark();
            change(&mut mark);
            incarnations.set_mark(mark);
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
            enter(mark, log, salt);
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
            enter(mark, log, salt);
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
        match self.read(DiskFile::Label, 0, LABEL_BLOCKS * BLOCK_BYTES).await {
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

    /// The label's content beside the disk's name; `None` when neither slot can be understood.
    pub async fn find_incarnations(&self) -> Result<Option<Incarnations>, DiskError> {
        let (label, _) = self.read_label().await?;
        Ok(Incarnations::later_of(&label[BLOCK_BYTES..]))
    }

    /// Notes how far the managers were heard to be.
    pub async fn note_witnesses(&self, told: &Witnesses) -> Result<(), DiskError> {
        self.note(|incarnations| incarnations.learn_witnesses(told)).await
    }
}
