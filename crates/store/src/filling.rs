//! A new store that is filled with the rows of another one, as of a backup: nothing of it is in a log, all in the
//! checkpoint.

use crate::batch::Batch;
use crate::limits::{FILLING_BATCH_BYTES, FILLING_BYTES};
use crate::store::{Entry, Store};

/// Bytes of a row in a batch beside key and value.
const ROW_BYTES: usize = 16;

/// A store that is being filled.
#[derive(Debug)]
pub struct Filling {
    store: Store,
    batch: Batch,
    bytes: usize,
}

impl Filling {
    /// Of a store without entries.
    pub fn new(store: Store) -> Filling {
        Filling { store, batch: Batch::new(), bytes: 0 }
    }

    /// Adds rows. The error is a sentence for people.
    pub fn put(&mut self, rows: Vec<Entry>) -> Result<(), String> {
        for (key, value) in rows {
            self.bytes += key.len() + value.len() + ROW_BYTES;
            self.batch.put(&key, &value);
            if self.bytes >= FILLING_BATCH_BYTES {
                self.apply();
            }
        }
        match self.store.overlay_bytes() >= FILLING_BYTES {
            true => self.store.put_in_place(),
            false => Ok(()),
        }
    }

    fn apply(&mut self) {
        self.bytes = 0;
        // All of it comes into the checkpoint, so the record needs no log.
        let _no_log = self.store.apply(std::mem::replace(&mut self.batch, Batch::new()));
    }

    /// All rows are on stable storage.
    pub fn end(mut self) -> Result<(), String> {
        self.apply();
        self.store.put_in_place()
    }
}

impl Store {
    /// Brings what was changed into the checkpoint, on stable storage, while nothing serves the store.
    pub fn put_in_place(&mut self) -> Result<(), String> {
        let Some(checkpoint) = self.freeze() else { return Ok(()) };
        let result = checkpoint.run();
        self.checkpoint_done(result);
        match self.last_failure() {
            Some(why) => Err(why.to_string()),
            None if self.is_dirty() => Err("the checkpoint could not be written".to_string()),
            None => Ok(()),
        }
    }
}
