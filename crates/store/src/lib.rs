//! The transactional store of managers and members: an ordered map of bytes to bytes that survives crashes.
//!
//! It is not a database with concurrent transactions: one owner changes it, one batch after the other, and it knows no
//! thread, no clock and no file. Its owner appends its log records, runs its checkpoints and syncs its logs through
//! whatever world there is, real or simulated.
//!
//! ```text
//!  get, scan ─►  active overlay   changes since the last freeze, also in the newest log
//!                frozen overlay   changes on their way into the checkpoint, in older logs
//!                checkpoint       redb over the world's `StorageBackend`
//! ```
//!
//! The invariant: every change that was appended to a log is in the checkpoint or in a log that is not dropped, whole,
//! and so is every change before it. Opening puts all logs into the checkpoint and starts a new one, so what a crash
//! tore is looked at once and never appended to.
//!
//! Whatever becomes of its files while nothing has them open, a read gives the written value or an error that says what
//! is damaged: below redb every page has a sum (`sealed`), a log and the checkpoint each say what the other must
//! have (`log`, `recovery`), and `scrub` reads what nothing else does. One thing no store can tell by itself: that all
//! of its files together are an older copy.
//!
//! How the owner drives it: `admit` · `apply` → append the record, then answer · now and then `sync_point` → sync its
//! logs in order → `synced` · when dirty `freeze` → run the checkpoint → `checkpoint_done` → drop what `poll_drop`
//! names.
#![forbid(unsafe_code)]

mod batch;
mod checkpoint;
mod config;
mod error;
mod filling;
pub mod limits;
mod log;
pub mod memory;
mod overlay;
mod recovery;
mod sealed;
mod store;

pub use batch::{Batch, Change};
pub use checkpoint::Checkpoint;
pub use config::{Config, Flaws, Format};
pub use error::StoreError;
pub use filling::Filling;
pub use memory::{MemoryBackend, MemoryLogs};
pub use recovery::Recovery;
pub use redb::StorageBackend;
pub use store::scrub::{Health, Scrub, ScrubCounters};
pub use store::{Append, Counters, Entry, Store, SyncPoint};
