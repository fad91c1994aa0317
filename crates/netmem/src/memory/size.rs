//! Number of frames that a node may use: fewer while its machine is short of memory. A frame is a block of 4 KiB here:
//! a page has one of the table's frames and takes the room of up to sixteen.

use super::{FrameNo, Memory, Role};
use wire::Time;

impl Memory {
    /// Frames that pages may have now.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Pages may have so many frames from now on, at least one and at most what there was at the beginning. Pages stay
    /// where they are; a frame beyond the size is used no more once its page has left.
    pub fn resize(&mut self, frames: u32) {
        self.size = frames.clamp(1, self.config.frames);
        self.withhold();
        assert!(self.local_min() <= self.size, "no more is guaranteed than there is");
    }

    /// Blocks that the node's own pages may have whatever others want: the same part of the present size.
    pub(super) fn local_min(&self) -> u32 {
        let part = u64::from(self.config.local_min) * u64::from(self.size);
        (part / u64::from(self.config.frames)) as u32
    }

    /// Whether the node's own pages have what they are guaranteed without the one in this frame.
    pub(super) fn is_spare(&self, frame: u32) -> bool {
        self.blocks().own() >= self.local_min() + self.lists.blocks_in(frame)
    }

    fn has_spare(&self) -> bool {
        self.blocks().own() > self.local_min()
    }

    /// As many free frames are withheld as are to be, or as there are.
    pub(super) fn withhold(&mut self) {
        let wanted = self.config.frames - self.size;
        loop {
            let (from, to) = match self.lists.len(Role::Withheld) {
                now if now < wanted => (Role::Free, Role::Withheld),
                now if now > wanted => (Role::Withheld, Role::Free),
                _ => return,
            };
            let Some(frame) = self.lists.oldest(from) else { return };
            self.lists.put(frame, to);
        }
    }

    /// The page that leaves for good when the node has to use fewer frames: of other nodes' clean pages the oldest,
    /// then of its own as long as they are more than what it is guaranteed.
    pub fn poll_spare(&self, now: Time) -> Option<FrameNo> {
        let others = self.hosted(now).max_by_key(|other| other.counts_as);
        let own = || self.has_spare().then(|| self.poll_durable(now)).flatten();
        others.map(|other| FrameNo(other.frame)).or_else(own)
    }

    /// The page of the node's own that is to be made durable so that it can go, as long as they are more than what it
    /// is guaranteed.
    pub fn poll_spare_dirty(&self) -> Option<FrameNo> {
        self.poll_dirty().filter(|_| self.has_spare())
    }

    /// Up to `most` mirrors, those that came first or were [put off](Memory::put_off) longest ago.
    pub fn old_mirrors(&self, most: usize) -> impl Iterator<Item = FrameNo> + '_ {
        self.lists.old_end(Role::Mirror).take(most).map(FrameNo)
    }

    /// Others come before this mirror when mirrors are to go elsewhere.
    pub fn put_off(&mut self, frame: FrameNo) {
        if self.role(frame) == Role::Mirror {
            self.lists.put(frame.0, Role::Mirror);
        }
    }
}
