//! Copying one column's object to another server. For managers.

use super::*;
use crate::protocol::op;
use endpoint::FrameMut;

impl Client {
    /// Makes the object of `column` on `to`'s server what it is on `from`'s, on stable storage. Only what differs is
    /// written, so a second copy is a comparison. What clients still hold of what they wrote to `from` is judged by
    /// `to` from then on. At most `rate` bytes a second, 0 is as fast as it goes. Whether `from` stands still meanwhile
    /// is the caller's business.
    pub async fn copy_column(
        &self,
        from: &FileRef,
        to: &FileRef,
        column: u16,
        rate: u64,
    ) -> Result<(), Errno> {
        let (source, target) = (from.layout.server(column), to.layout.server(column));
        let (whole, heir) = (self.request(from, column), self.request(to, column));
        self.ask(target, op::SET_LAYOUT, true, &heir).await?;
        // Everything that this tells of is stable before it is read. An object that does not exist is empty.
        let history = self.ask_with(source, op::HISTORY, true, &whole, &[]).await?;
        let ObjectReply { length, mtime, .. } = decoded(&history)?;
        // Shorter than an earlier copy it can only be when it was truncated since; else this changes nothing.
        let cut = ObjectRequest { offset: length, mtime, ..heir };
        self.ask(target, op::TRUNCATE, true, &cut).await?;
        let mut written = None;
        for offset in (0..length).step_by(COPY_BYTES) {
            let bytes = (length - offset).min(COPY_BYTES as u64) as usize;
            let begun = self.cx().now();
            let wanted = self.read_column(from, column, offset, self.copy_frame(bytes)?).await?;
            let there = self.read_column(to, column, offset, self.copy_frame(bytes)?).await?;
            let end = offset + bytes as u64 == length;
            if wanted[..] != there[..] || end {
                let (frame, before) = (wanted.freeze(), written);
                let verifier = self.write_column(to, column, offset, frame, mtime).await?;
                written = Some(verifier);
                if before.is_some_and(|before| before != verifier) {
                    return Err(Errno::EAGAIN);
                }
            }
            if let Some(nanos) = (bytes as u64 * 1_000_000_000).checked_div(rate) {
                self.cx().sleep_until(begun + Duration::from_nanos(nanos)).await;
            }
        }
        let stable = self.ask_with(target, op::INHERIT, true, &heir, history.trailer()).await?;
        let verifier = decoded(&stable)?.verifier;
        let kept = written.is_none_or(|before| before == verifier);
        if kept { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    fn copy_frame(&self, bytes: usize) -> Result<FrameMut, Errno> {
        self.cx().frames().alloc_exact(bytes).ok_or(Errno::ENOMEM)
    }

    /// Empties the object of a column that is kept elsewhere from now on. What stays tells clients that go by an older
    /// layout. For managers.
    pub async fn vacate_column(&self, file: &FileRef, column: u16) -> Result<(), Errno> {
        let request = self.request(file, column);
        self.ask(file.layout.server(column), op::VACATE, true, &request).await.map(drop)
    }
}
