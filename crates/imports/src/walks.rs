//! How far along each directory of the origin's its attributes were asked for.
//!
//! Invariant: of one directory one part is remembered, and one task asks for the next.

use crate::limits::WALKS_MAX;
use crate::origin::Position;
use nfs::v3::Fattr;
use node::{Cx, Semaphore};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{FileId, Time};

/// The directories that are walked along.
#[derive(Default)]
pub(crate) struct Walks {
    walks: BTreeMap<FileId, Rc<Walk>>,
}

impl Walks {
    /// The directory's walk. With too many, those that no task uses are forgotten.
    pub fn of(&mut self, directory: FileId, new: impl FnOnce() -> Walk) -> Rc<Walk> {
        if self.walks.len() >= WALKS_MAX && !self.walks.contains_key(&directory) {
            self.walks.retain(|_, walk| Rc::strong_count(walk) > 1);
        }
        self.walks.entry(directory).or_insert_with(|| Rc::new(new())).clone()
    }

    /// The directory is gone.
    pub fn forget(&mut self, directory: FileId) {
        self.walks.remove(&directory);
    }
}

/// How far along a directory the origin was asked.
pub(crate) struct Walk {
    /// One task walks at a time.
    pub turn: Semaphore,
    pub part: RefCell<Seen>,
}

/// A part of a directory of the origin's.
#[derive(Default)]
pub(crate) struct Seen {
    /// When it was asked for.
    pub asked: Option<Time>,
    /// By handle, with the position before it.
    pub entries: BTreeMap<Vec<u8>, (Fattr, Position)>,
    /// Where the next part begins.
    pub next: Position,
}

impl Walk {
    pub fn new(cx: &Cx) -> Walk {
        Walk { turn: Semaphore::new(cx, 1), part: RefCell::default() }
    }
}
