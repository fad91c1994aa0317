//! Read-ahead: detects a sequential reader of an object, and loads the windows in front of it.

use crate::cache::WindowPart;
use crate::limits::*;
use crate::objects::{Object, Phase};
use crate::server::Inner;
use std::ops::Range;
use std::rc::Rc;

impl Inner {
    /// Learns from a read of these blocks whether the reader is sequential, and reads ahead of it.
    pub fn note_reader(&self, object: &Rc<Object>, blocks: Range<u64>) {
        let mut state = object.state.borrow_mut();
        let sequential = state.next_block == blocks.start && !blocks.is_empty();
        state.next_block = blocks.end;
        if !sequential {
            state.ahead = 0;
            return;
        }
        let windows = state.blocks().div_ceil(WINDOW_BLOCKS as u64);
        let here = blocks.end.div_ceil(WINDOW_BLOCKS as u64);
        let from = state.ahead.max(here);
        let until = (blocks.end / WINDOW_BLOCKS as u64 + 1 + READ_AHEAD_WINDOWS).min(windows);
        if from >= until || !state.in_place {
            return;
        }
        state.ahead = until;
        let room = READ_AHEAD_QUEUE - self.ahead.len().min(READ_AHEAD_QUEUE);
        (from..until).take(room).for_each(|index| self.ahead.push((object.clone(), index)));
    }

    /// A read-ahead task.
    pub async fn read_ahead(self: Rc<Self>) {
        loop {
            let (object, index) = self.ahead.next().await;
            let window = self.window(&object, index);
            let open = object.state.borrow().phase == Phase::Open;
            if open && window.end > 0 && window.valid | window.loading == 0 {
                // An error here is found again, and told, by the reader who gets there.
                let _ = self.load(&object, WindowPart { index, blocks: 0..window.end }, 0).await;
                self.note_room();
            }
        }
    }
}
