//! A worker's requests about holes: that ranges become zeros, and where data and holes are.

use super::*;

/// fallocate(2)'s flags.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;
/// lseek(2)'s.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Result of a seek that finds nothing.
pub(super) const NOTHING: u64 = u64::MAX;

impl Worker {
    pub(super) fn choose_hole(
        &mut self,
        (file, handle): (FileId, Handle),
        model: &mut Model,
        now: Picos,
    ) -> (FileOp, InFlight) {
        if self.random.chance(600_000) {
            let offset = self.random.below(self.sizes.file);
            return self.seek(file, handle, offset);
        }
        let mut offset = self.random.below(self.sizes.file);
        let mut bytes = self.random.within(1, self.sizes.write);
        if self.random.chance(500_000) {
            (offset, bytes) = (offset & !4095, bytes.next_multiple_of(4096));
        }
        let modes = [PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE | KEEP_SIZE, ZERO_RANGE];
        let mode = *self.random.pick(&modes);
        let opened = self.open.as_ref().map_or(now, |open| open.opened);
        let (by, range) = ((self.mount, opened), offset..offset + bytes);
        let id = model.data.zeros_begin(by, file, range, mode & KEEP_SIZE == 0, now);
        model.data.goes_through(id, handle.0);
        (FileOp::Allocate { file, handle, offset, bytes, mode }, InFlight::Zero { id })
    }

    pub(super) fn sought(
        &self,
        sought: (Sought, u64),
        found: u64,
        begun: Picos,
        model: &mut Model,
    ) -> Result<(), String> {
        let Some(open) = &self.open else { return Ok(()) };
        let found = (found != NOTHING).then_some(found);
        model.data.check_seek(&self.reader(begun), open.file, sought, found)
    }

    pub(super) fn seek(&mut self, file: FileId, handle: Handle, offset: u64) -> (FileOp, InFlight) {
        let (what, whence) = match self.random.chance(500_000) {
            true => (Sought::Data, SEEK_DATA),
            false => (Sought::Hole, SEEK_HOLE),
        };
        (FileOp::Seek { file, handle, offset, whence }, InFlight::Seek((what, offset)))
    }
}

/// That nothing is there from some place on is an answer to a seek.
pub(super) fn found_nothing(
    asked: &InFlight,
    result: Result<FileReply, Errno>,
) -> Result<FileReply, Errno> {
    match (asked, result) {
        (InFlight::Seek(..), Err(Errno::ENXIO)) => Ok(FileReply::Offset(NOTHING)),
        (_, result) => result,
    }
}
