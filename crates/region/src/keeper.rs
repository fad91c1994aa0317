//! A region's thread for background work: written pages are stored before a fault has to wait for their room, the
//! backing's work is done, and pages of which copies were lost are mended.

use super::Quiet;
use super::backing::{FetchError, Upkeep};
use super::bell::Bell;
use super::contexts::Context;
use super::limits::{KEEPER_PAUSE, KEEPER_SPAN};
use super::pager::Pager;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread.
pub(super) struct Keeper {
    stop: Arc<AtomicBool>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's state.
pub(super) struct Work {
    pub pager: Arc<Pager>,
    pub context: Context,
    pub upkeep: Option<Box<dyn Upkeep>>,
    /// Whether it stores written pages.
    pub cleans: bool,
}

impl Keeper {
    /// Starts it. It is at work when this returns: what a thread allocates when it begins must not be in a region that
    /// is not served yet.
    pub fn start(work: Work) -> io::Result<Keeper> {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let bell = work.pager.bell.clone();
        let (stops, begins) = (stop.clone(), begun.clone());
        let builder = std::thread::Builder::new().name("trapeze-keeper".into());
        let thread = builder.spawn(move || {
            // A handler of the program that ran here and touched the region could wait for this very thread.
            let _quiet = Quiet::new();
            begins.store(true, Ordering::Release);
            work.keep(&stops);
        })?;
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(Keeper { stop, bell, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Work {
    fn keep(mut self, stop: &AtomicBool) {
        let mut cursor = 0;
        while !stop.load(Ordering::Acquire) {
            let due = self.upkeep.as_mut().map_or(KEEPER_SPAN, |upkeep| upkeep.turn());
            let mended = self.mend(stop);
            let pause = match self.cleans {
                true => self.pager.clean(&mut self.context, &mut cursor).map_or(KEEPER_PAUSE, rest),
                false => KEEPER_SPAN,
            };
            // After some weak pages there may be more.
            if !pause.is_zero() && !mended {
                self.pager.bell.wait(pause.min(due));
            }
        }
        if let Some(upkeep) = &mut self.upkeep {
            upkeep.end();
        }
    }

    /// The oldest first; what could not be mended comes again. Whether there was something weak.
    fn mend(&mut self, stop: &AtomicBool) -> bool {
        let Some(upkeep) = &mut self.upkeep else { return false };
        let weak = upkeep.weak();
        for page in &weak {
            if stop.load(Ordering::Acquire) {
                break;
            }
            match self.pager.mend(&mut self.context, *page as usize) {
                Ok(true) | Err(FetchError::Lost) => {}
                Ok(false) => upkeep.handle_unmended(),
                Err(FetchError::Unavailable(_)) => {
                    upkeep.handle_unmended();
                    break;
                }
            }
        }
        !weak.is_empty()
    }
}

/// How long to rest after so many pages were stored: where there were some there may be more.
fn rest(cleaned: usize) -> Duration {
    if cleaned > 0 { Duration::ZERO } else { KEEPER_SPAN }
}
