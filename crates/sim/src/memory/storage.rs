//! Stable storage of simulated clusters with network memory: one place for all nodes, which outlives them.

use super::model::parse;
use super::shared::Shared;
use super::spaces::{Kind, kind};
use crate::disk::{DiskFaults, DiskModel};
use crate::queue::Picos;
use crate::random::Random;
use endpoint::Frame;
use netmem::service::{Backing, Later};
use netmem::{PageId, SpaceId, Version};
use node::Cx;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Errno;

type Pages = BTreeMap<PageId, (Version, Box<[u8]>)>;

/// Stored pages, durations of operations, and faults.
pub struct Storage {
    model: DiskModel,
    /// Its faults, to be changed.
    pub faults: DiskFaults,
    random: Random,
    busy_until: Picos,
    pages: Pages,
}

impl Storage {
    /// Empty.
    pub fn new(seed: u64) -> Storage {
        Storage {
            model: DiskModel::default(),
            faults: DiskFaults::default(),
            random: Random::new(seed, "storage"),
            busy_until: Picos::ZERO,
            pages: Pages::new(),
        }
    }

    /// When an operation that is asked for now is done. One after the other moves its bytes.
    fn time(&mut self, now: Picos, bytes: usize, writes: bool) -> Picos {
        let picos = bytes as u64 * (1_000_000_000_000 / self.model.bytes_per_second);
        self.busy_until = now.max(self.busy_until) + Picos(picos * self.faults.slowness);
        let latency =
            self.model.latency + if writes { self.model.sync_latency } else { Picos::ZERO };
        self.busy_until
            + Picos(latency.0 * self.faults.slowness + self.random.below(self.model.latency.0))
    }

    /// A page is there from the beginning.
    pub fn fill(&mut self, id: PageId, version: Version, data: &[u8]) {
        Storage::store(&mut self.pages, id, version, data);
    }

    fn fails(&mut self) -> bool {
        self.random.chance(self.faults.error_chance)
    }

    /// A newer version than there is replaces it.
    fn store(pages: &mut Pages, id: PageId, version: Version, data: &[u8]) {
        let known = pages.get(&id).is_some_and(|(known, _)| *known > version);
        if !known {
            pages.insert(id, (version, data.into()));
        }
    }

    fn load(&self, id: PageId) -> Option<(Version, &[u8])> {
        let (version, data) = self.pages.get(&id)?;
        debug_assert!(parse(data).is_some_and(|(_, content)| content.version == *version));
        Some((*version, &data[..]))
    }
}

/// Stable storage as one node sees it.
pub struct Door {
    /// The node.
    pub cx: Cx,
    /// State shared by all nodes.
    pub shared: Rc<Shared>,
}

impl Door {
    /// Waits as long as an operation takes; whether it fails.
    async fn wait(cx: &Cx, shared: &Shared, bytes: usize, writes: bool) -> Result<(), Errno> {
        let at = shared.storage.borrow_mut().time(shared.now(cx), bytes, writes);
        cx.sleep_until(shared.clock(cx.id()).time(at)).await;
        if shared.storage.borrow_mut().fails() { Err(Errno::EIO) } else { Ok(()) }
    }
}

impl Backing for Door {
    fn has(&self, space: SpaceId) -> bool {
        kind(space) == Kind::Stored
    }

    fn read(
        &self,
        id: PageId,
        _: Version,
        bytes: u32,
    ) -> Later<Result<Option<(Version, Frame)>, Errno>> {
        let (cx, shared) = (self.cx.clone(), self.shared.clone());
        Box::pin(async move {
            Door::wait(&cx, &shared, bytes as usize, false).await?;
            let storage = shared.storage.borrow();
            let Some((version, data)) = storage.load(id) else { return Ok(None) };
            let data = cx.frames().copy_of(data).ok_or(Errno::ENOMEM)?;
            Ok(Some((version, data)))
        })
    }

    fn write(&self, id: PageId, version: Version, data: Frame) -> Later<Result<(), Errno>> {
        let (cx, shared) = (self.cx.clone(), self.shared.clone());
        Box::pin(async move {
            Door::wait(&cx, &shared, data.len(), true).await?;
            Storage::store(&mut shared.storage.borrow_mut().pages, id, version, &data);
            Ok(())
        })
    }
}
