//! Keeps runs of the pool free for long requests, beside everything else: a request that finds no memory for its data
//! never gets here, so it cannot make room itself.

use crate::limits::{CLEARED_PAUSE, CLEARED_STRETCHES_MAX, PRESSED_PAUSE};
use crate::server::Inner;
use std::rc::Rc;

impl Inner {
    /// To be called after memory was used.
    pub fn note_room(&self) {
        if !self.cache.borrow().has_free_stretches() {
            self.tight.notify_all();
        }
    }

    /// The task.
    pub async fn keep_room(self: Rc<Self>) {
        loop {
            let tight = self.tight.wait();
            if self.cache.borrow().has_free_stretches() {
                tight.await;
                continue;
            }
            if self.clear_stretches() {
                self.cx.sleep(CLEARED_PAUSE).await;
            } else {
                self.press_disks(true);
                self.cx.sleep(PRESSED_PAUSE).await;
                self.press_disks(false);
            }
        }
    }

    /// Whether a stretch could be cleared.
    fn clear_stretches(&self) -> bool {
        let mut cache = self.cache.borrow_mut();
        let cleared = (0..CLEARED_STRETCHES_MAX)
            .take_while(|_| !cache.has_free_stretches() && cache.clear_stretch());
        cleared.count() > 0 || cache.clear_lent_stretch()
    }

    /// Something is in use in every stretch: what is not committed, or in the log and not yet in place. Both can be
    /// helped.
    fn press_disks(&self, pressed: bool) {
        for disk in &self.disks {
            disk.pressed.set(pressed);
            disk.work.notify_all();
        }
    }
}
