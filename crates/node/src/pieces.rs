//! Lists of frames whose memory is used again.

use crate::limits::SPARE_LISTS;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Lists that wait to be used again.
pub(crate) type Spare<T> = Rc<RefCell<Vec<Vec<T>>>>;

/// A list that returns its memory to its node when it is dropped: after warm-up no list is allocated.
pub struct Pieces<T> {
    list: Vec<T>,
    home: Spare<T>,
}

impl<T> Pieces<T> {
    pub(crate) fn new(home: &Spare<T>) -> Pieces<T> {
        let list = home.borrow_mut().pop().unwrap_or_default();
        Pieces { list, home: home.clone() }
    }
}

impl<T: Deref<Target = [u8]>> Pieces<T> {
    /// The first `bytes` bytes of frames, or all when they have fewer, for a message that is decoded as a whole.
    pub fn copied(&self, bytes: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(bytes);
        for frame in &self.list {
            all.extend_from_slice(&frame[..frame.len().min(bytes - all.len())]);
        }
        all
    }
}

impl<T> Deref for Pieces<T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        &self.list
    }
}

impl<T> DerefMut for Pieces<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.list
    }
}

impl<T> Drop for Pieces<T> {
    fn drop(&mut self) {
        self.list.clear();
        let mut home = self.home.borrow_mut();
        if self.list.capacity() > 0 && home.len() < SPARE_LISTS {
            home.push(std::mem::take(&mut self.list));
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Pieces<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}
