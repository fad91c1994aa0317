//! Number of files with columns on disks that were declared gone for good, for operators.
//!
//! A count of every file of the store: when the set of gone disks changes, then from time to time, as files are removed
//! or made whole. It is as of the last walk, and decides nothing.

use super::Service;
use crate::limits::{GONE_INTERVAL, GONE_PAUSE, GONE_SLICE};
use node::{Cx, Notify};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{Home, NodeId};

/// The gone disks, and the count.
pub(super) struct Gone {
    disks: RefCell<BTreeMap<NodeId, u32>>,
    changed: Notify,
    files: Cell<u64>,
}

impl Gone {
    pub fn new(cx: &Cx) -> Gone {
        Gone { disks: RefCell::default(), changed: Notify::new(cx), files: Cell::default() }
    }

    /// These are gone now, one bit for each disk.
    pub fn set(&self, disks: &[(NodeId, u32)]) {
        let disks = disks.iter().copied().collect();
        if self.disks.replace(disks) != *self.disks.borrow() {
            self.changed.notify_all();
        }
    }

    /// Whether this disk is gone.
    pub fn has(&self, home: Home) -> bool {
        let disks = self.disks.borrow();
        disks.get(&home.server).is_some_and(|disks| disks >> home.disk & 1 == 1)
    }

    /// Files with a column there at the last walk.
    pub fn files(&self) -> u64 {
        self.files.get()
    }
}

impl<O> Service<O> {
    pub(super) async fn count_gone(self: Rc<Self>) {
        loop {
            let changed = self.gone.changed.wait();
            if self.gone.disks.borrow().is_empty() {
                self.gone.files.set(0);
                changed.await;
                continue;
            }
            let count = self.files_on_gone().await;
            self.gone.files.set(count);
            let _ = self.cx.with_deadline(GONE_INTERVAL, changed).await;
        }
    }

    async fn files_on_gone(&self) -> u64 {
        let mut count = 0;
        for site in 0..=u8::MAX {
            let mut after = None;
            loop {
                let slice = {
                    let (manager, disks) = (self.manager.borrow(), self.gone.disks.borrow());
                    manager.files_on(&disks, site, after.as_deref(), GONE_SLICE)
                };
                // A part of the store that cannot be read is told by who reads it.
                let Ok((found, last)) = slice else { break };
                count += found;
                match last {
                    Some(last) => after = Some(last),
                    None => break,
                }
                self.cx.sleep(GONE_PAUSE).await;
            }
        }
        count
    }
}
