//! Replies that leave before all of their data is there (cut-through delivery, HPDC'97 section 3).

use super::Cx;
use endpoint::{Filling, Frame};

/// A reply that is on its way while its data still comes. Dropped before the last part, it is filled up with data that
/// does not fit its checksums: the caller sends its request again.
#[must_use = "dropped at once it spoils the reply"]
pub struct FillingReply {
    cx: Cx,
    filling: Option<Filling>,
}

impl FillingReply {
    pub(crate) fn new(cx: Cx, filling: Filling) -> FillingReply {
        FillingReply { cx, filling: Some(filling) }
    }

    /// The next parts of the data. Panics when they are more than was announced as missing.
    pub fn fill(&self, parts: &[Frame]) {
        let mut endpoint = self.cx.0.endpoint.borrow_mut();
        let filling = self.filling.as_ref().expect("there until it is dropped");
        parts.iter().for_each(|part| endpoint.fill(filling, part.clone()));
    }
}

impl Drop for FillingReply {
    fn drop(&mut self) {
        let mut endpoint = self.cx.0.endpoint.borrow_mut();
        self.filling.take().into_iter().for_each(|filling| endpoint.end_filling(filling));
    }
}

impl std::fmt::Debug for FillingReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FillingReply({:?})", self.filling)
    }
}
