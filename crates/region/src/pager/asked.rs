//! A program's requests about pages: to store them, to let them go, to keep them where they are.

use super::*;

impl Pager {
    /// Stores the page, if it differs from what the backing has.
    pub fn flush_page(&self, context: &mut Context, page: usize) -> Result<(), FaultError> {
        self.patiently(|| {
            let held = self.table.lock(page);
            let (source, buffer) = context.parts();
            let (stored, held) = match held.state {
                State::Staged => {
                    let (stored, held) = self.store_staged(source, page, held);
                    (stored.map(drop), held)
                }
                State::Resident if held.dirty || self.is_written(page) => {
                    self.store_mapped(source, buffer, page, held)
                }
                _ => (Ok(()), held),
            };
            self.table.unlock(page, held);
            stored.map_err(|StoreError(errno)| FaultError::Unavailable(errno))
        })
    }

    /// Protects first: what is written while the bytes are copied is noted, and stored next time.
    pub(super) fn store_mapped(
        &self,
        source: &mut dyn Source,
        buffer: &mut [u8],
        page: usize,
        held: Page,
    ) -> (Result<(), StoreError>, Page) {
        let range = self.range(page);
        let copied = self
            .uffd
            .protect(&range, true)
            .map_err(|_| StoreError(libc::EAGAIN))
            .and_then(|()| read_own(range.start, buffer));
        match copied.and_then(|()| self.store(source, page, buffer)) {
            Ok(()) => (Ok(()), is_stored(held)),
            Err(error) => (Err(error), Page { dirty: true, ..held }),
        }
    }

    /// Stores all pages of `pages` that differ from what the backing has.
    pub fn flush(&self, context: &mut Context, pages: Range<usize>) -> Result<(), FaultError> {
        let (mut at, end) = (self.address(pages.start), self.address(pages.end));
        while at < end {
            let mut found = [PageRange::default(); 64];
            let (count, next) = self
                .pagemap
                .scan(&(at..end), Is::WRITTEN, Is::ZERO, &mut found)
                .map_err(|error| FaultError::Unavailable(error.raw_os_error().unwrap_or(0)))?;
            for run in &found[..count] {
                let first = (run.start as usize - self.base) / self.page_bytes;
                let last = (run.end as usize - self.base).div_ceil(self.page_bytes);
                (first..last).try_for_each(|page| self.flush_page(context, page))?;
            }
            at = next.max(at + 1);
        }
        let hidden = |page: Page| page.dirty || page.state == State::Staged;
        let mut rest = pages.filter(|page| self.table.peek(*page).is_none_or(hidden));
        rest.try_for_each(|page| self.flush_page(context, page))
    }

    /// Has the page leave soon, if it is there.
    pub fn cool(&self, context: &mut Context, page: usize) -> Result<(), FaultError> {
        let mut slot = None;
        let left = self.leave(context, page, &mut slot, Entry::Queued);
        slot.into_iter().for_each(|slot| self.staging.give_back(slot));
        left.map(drop)
    }

    /// Has the page leave now, and be stored where that is necessary.
    pub fn page_out(&self, context: &mut Context, page: usize) -> Result<(), FaultError> {
        self.cool(context, page)?;
        self.patiently(|| match self.table.peek(page) {
            Some(Page { state: State::Staged, number, .. }) => {
                // Its slot stays in the queue, empty.
                let settled = self.settle(context.parts().0, number, page);
                settled.map(drop).map_err(|StoreError(errno)| FaultError::Unavailable(errno))
            }
            _ => Ok(()),
        })
    }

    /// The page's content is not needed any more: it reads as zeros from now on. A pinned or a lost one stays as it is.
    pub fn empty(&self, context: &mut Context, page: usize) {
        let held = self.table.lock(page);
        if held.state == State::Lost || held.state == State::Resident && held.number > 0 {
            return self.table.unlock(page, held);
        }
        if held.state == State::Resident {
            let at = self.address(page) as *mut _;
            // SAFETY: the page is held, and its owner has said that its bytes may go.
            while unsafe { madvise(at, self.page_bytes, Madvice::LinuxDontNeed) }.is_err() {
                std::thread::yield_now();
            }
        }
        let version = self.table.version(page);
        if held.stored || held.dirty && version > 0 {
            context.parts().0.forget(page as u64, version); // also what only some have taken
        }
        self.table.unlock(page, Page { framed: held.framed, ..Page::default() });
    }

    /// Maps the page and keeps it mapped.
    pub fn pin(&self, context: &mut Context, page: usize) -> Result<(), FaultError> {
        loop {
            self.bring(context, page, Access::Write, false)?;
            let resident = |held: Page| held.state == State::Resident;
            let Some(held) = self.table.try_lock(page, resident) else { continue };
            let first = held.number == 0;
            let full = first && self.pins.fetch_add(1, Ordering::Relaxed) >= self.pins_max();
            if full {
                self.pins.fetch_sub(1, Ordering::Relaxed);
            }
            let number = held.number + u32::from(!full);
            self.table.unlock(page, Page { number, ..held });
            return if full { Err(FaultError::Full) } else { Ok(()) };
        }
    }

    fn pins_max(&self) -> usize {
        self.frames * PIN_QUARTERS / 4
    }

    /// Undoes one [`Pager::pin`].
    pub fn unpin(&self, page: usize) {
        let held = self.table.lock(page);
        let pinned = held.state == State::Resident && held.number > 0;
        if pinned && held.number == 1 {
            self.pins.fetch_sub(1, Ordering::Relaxed);
        }
        let number = if pinned { held.number - 1 } else { held.number };
        self.table.unlock(page, Page { number, ..held });
    }
}

/// Copies mapped memory of this process by the kernel: a thread of the program may be writing it, and where the page
/// has vanished that is an error, not a fault.
fn read_own(address: usize, into: &mut [u8]) -> Result<(), StoreError> {
    let (target, source) = (into.as_mut_ptr().cast(), address as *mut libc::c_void);
    let local = libc::iovec { iov_base: target, iov_len: into.len() };
    let remote = libc::iovec { iov_base: source, iov_len: into.len() };
    // SAFETY: the kernel writes `into` alone, and checks the other address.
    match unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) } {
        got if got == into.len() as isize => Ok(()),
        -1 if errno() != libc::EFAULT => {
            // A filter forbids the call. SAFETY: the page is held and mapped; what is torn is noted as written.
            unsafe { std::ptr::copy_nonoverlapping(source.cast(), into.as_mut_ptr(), into.len()) };
            Ok(())
        }
        _ => Err(StoreError(libc::EAGAIN)),
    }
}
