//! Truncation of an object: TRUNCATE to a shorter length, VACATE.
//!
//! The block that a cut goes through is written anew, with zeros behind the cut. One that cannot be read stops no cut:
//! a bad sector at the wrong place would otherwise leave a file that can be neither truncated nor written any more. The
//! rest of such a block is *given up*: it gets a checksum that nothing on the disk fits. So it reads as EIO, as before,
//! until it is written over; and should the disk bring it back after all, the part that was cut off does not come back
//! with it. Nor does it with a commit over the block that a crash breaks off, after which the block is summed anew:
//! there are zeros.

use crate::disk::errno;
use crate::limits::{UNREADABLE_PAUSE, UNREADABLE_SPAN};
use crate::log::{Kind, Record, Run};
use crate::object::{GROUP_BLOCKS, Head, data_offset, file_bytes, group_of, lost_sum};
use crate::objects::Object;
use crate::server::Inner;
use endpoint::Frame;
use node::Bug;
use node::rings::{DiskError, DiskOp};
use std::rc::Rc;
use wire::Errno;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The treatment of the block that a cut goes through.
enum Edge {
    /// The cut goes between two blocks.
    None,
    /// It is written anew.
    Anew(Frame),
    /// It cannot be read, and is lost.
    GivenUp,
}

impl Inner {
    /// Makes the object shorter: durably in the log, then in memory, then in place. The caller holds both gates, and
    /// everything that was written is stable.
    pub async fn cut(self: &Rc<Self>, object: &Rc<Object>, head: Head) -> Result<(), Errno> {
        let (whole, within) = (head.length / BLOCK, (head.length % BLOCK) as usize);
        let kept = head.length.div_ceil(BLOCK);
        let edge = match within {
            0 => Edge::None,
            _ => self.cut_edge(object, whole, within).await?,
        };
        self.need_kept_sums(object, head.length).await?;
        let mut record = Record::bare(Kind::Cut, object.id, head);
        let mut data = Vec::new();
        if let Edge::Anew(frame) = &edge {
            record.runs.push(Run { first: whole, count: 1 });
            record.sums.push(block_crc(frame));
            data.push(frame.clone());
        }
        let disk = self.disk(object);
        disk.unapplied.borrow_mut().insert(object.id, object.clone());
        let written = disk.journal.append(record, data).await.map_err(errno)?;
        self.need_kept_sums(object, head.length).await?;
        {
            let mut state = object.state.borrow_mut();
            let mut cache = self.cache.borrow_mut();
            if is_between_groups(head.length) {
                cache.set_group(object.key, group_of(whole), Vec::new());
            }
            // The cut block too: the next reader finds it in the log.
            cache.cut(object.key, whole);
            state.pending.split_off(&whole);
            state.note_changed();
            match (edge, written) {
                (Edge::Anew(copy), Some(frame)) => {
                    let sum = block_crc(&copy);
                    cache.set_committed_sum(object.key, whole, sum);
                    state.pending.insert(whole, (frame, sum));
                }
                (Edge::GivenUp, _) => cache.set_committed_sum(object.key, whole, lost_sum()),
                _ => {}
            }
            state.head.length = head.length;
            if state.in_place {
                state.uncut = Some(state.uncut.map_or(kept, |before| before.min(kept)));
            }
        }
        disk.room.notify_all();
        self.cut_file(object).await
    }

    /// Cuts an object's file, and punches holes, as far as that is still to be done: before anything is put behind the
    /// cut or into a hole, and before the log forgets it. The caller holds a gate.
    pub async fn cut_file(&self, object: &Object) -> Result<(), Errno> {
        self.cut_behind(object).await?;
        self.punch_file(object).await
    }

    async fn cut_behind(&self, object: &Object) -> Result<(), Errno> {
        let Some(kept) = object.state.borrow().uncut else { return Ok(()) };
        let (file, bytes) = (object.file(), file_bytes(kept * BLOCK));
        match self.disk(object).simple(|| DiskOp::Truncate { file, bytes }).await {
            // The disk was too full for it to be made.
            Err(DiskError::NotFound) if object.state.borrow().header_sequence == 0 => {}
            result => result.map_err(errno)?,
        }
        let mut state = object.state.borrow_mut();
        state.uncut = None;
        state.file_blocks = state.file_blocks.min(kept);
        state.note_changed();
        Ok(())
    }

    /// Makes the checksums known that a cut to `length` keeps a part of. Those of a group that it keeps nothing of are
    /// not asked for: they may be what cannot be read.
    async fn need_kept_sums(&self, object: &Object, length: u64) -> Result<(), Errno> {
        match is_between_groups(length) {
            true => Ok(()),
            false => self.need_group(object, group_of(length / BLOCK)).await,
        }
    }

    /// The block that a cut goes through. A read that fails is repeated for a while: a disk that fails for a moment
    /// must not cost its data.
    async fn cut_edge(
        self: &Rc<Self>,
        object: &Rc<Object>,
        block: u64,
        within: usize,
    ) -> Result<Edge, Errno> {
        // That these cannot be read is another matter: nothing is known of a thousand blocks.
        self.need_group(object, group_of(block)).await?;
        let until = self.cx.now() + UNREADABLE_SPAN;
        loop {
            match self.cut_block(object, block, within).await {
                Err(Errno::EIO) if self.cx.now() >= until => break,
                Err(Errno::EIO) => self.cx.sleep(UNREADABLE_PAUSE).await,
                result => return result.map(Edge::Anew),
            }
        }
        self.give_up(object, block).await?;
        self.report(format!(
            "disk {}, object {}: block {block} cannot be read: what a truncation leaves of it is lost",
            object.disk, object.id
        ));
        Ok(Edge::GivenUp)
    }

    /// A copy of the block that a cut goes through, with zeros behind it.
    async fn cut_block(
        self: &Rc<Self>,
        object: &Rc<Object>,
        block: u64,
        within: usize,
    ) -> Result<Frame, Errno> {
        let mut copy = self.disk(object).frame(BLOCK_BYTES).await;
        copy.copy_from_slice(&self.bring_in_block(object, block).await?.bytes);
        if !self.cx.has_bug(Bug::CutBlockKept) {
            copy[within..].fill(0);
        }
        Ok(copy.freeze())
    }

    /// Gives a block that cannot be read another checksum, durably. It is neither that of the bytes it should have nor,
    /// but for the chance that every checksum leaves, that of what the disk brings instead.
    pub async fn give_up(&self, object: &Rc<Object>, block: u64) -> Result<(), Errno> {
        let (disk, file) = (self.disk(object), object.file());
        // A record of what is in place says that earlier cuts are, too.
        self.cut_file(object).await?;
        disk.simple(|| DiskOp::Sync { file }).await.map_err(errno)?;
        self.need_group(object, group_of(block)).await?;
        let before = self.cache.borrow().committed_sum(object.key, block).ok_or(Errno::EAGAIN)?;
        let stable = object.state.borrow().stable.ok_or(Errno::EIO)?;
        let mut record = Record::bare(Kind::Placed, object.id, stable);
        record.runs.push(Run { first: block, count: 1 });
        record.sums.push(lost_sum());
        // Known from now on, so that it is in memory when it is in the log.
        self.set_sum(object, block, lost_sum());
        let written = self.put_record(object, record).await;
        written.inspect_err(|_| self.set_sum(object, block, before))?;
        // A disk puts a sector that it cannot read elsewhere when it is written. One that cannot do that either has
        // nothing to bring back.
        let zeros = disk.zeros(BLOCK_BYTES).await;
        let _ = disk.write(file, data_offset(block), zeros.freeze(), true).await;
        Ok(())
    }

    fn set_sum(&self, object: &Object, block: u64, sum: u32) {
        self.cache.borrow_mut().set_committed_sum(object.key, block, sum);
        object.state.borrow_mut().note_changed();
    }
}

/// Whether a cut to this length keeps whole groups only.
fn is_between_groups(length: u64) -> bool {
    length.is_multiple_of(GROUP_BLOCKS * BLOCK)
}
