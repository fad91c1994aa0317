//! How an object is opened: its header, first checksums and first blocks are one read.

use crate::damage::Opened;
use crate::disk::{Disk, errno};
use crate::limits::*;
use crate::object::{GROUP_BYTES, HEADER_BYTES, Header, decode_sums, file_bytes};
use crate::objects::{Gates, Logged, Object, Phase, Spot};
use crate::protocol::ObjectRequest;
use crate::server::Inner;
use node::Bug;
use node::rings::DiskError;
use std::rc::Rc;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, ObjectId};

/// Bytes read to open an object: header, first checksums, and a chunk of data, so that a small file is one read.
const OPEN_BYTES: usize = HEADER_BYTES as usize + BLOCK_BYTES + CHUNK_BYTES;
const _: () = assert!((OPEN_BYTES as u64) < GROUP_BYTES);

impl Inner {
    pub fn disk(&self, object: &Object) -> &Disk {
        &self.disks[object.disk]
    }

    /// The disk with this number; ENXIO when the server has none.
    pub fn disk_at(&self, disk: u8) -> Result<&Disk, Errno> {
        self.disks.get(usize::from(disk)).ok_or_else(|| {
            let count = self.disks.len();
            self.report(format!("disk {disk} was asked for, the configuration has {count}"));
            Errno::ENXIO
        })
    }

    /// The object that a request is about, opened. It may not exist: its state says so.
    pub async fn object(self: &Rc<Self>, ask: &ObjectRequest) -> Result<Rc<Object>, Errno> {
        let Spot { id, disk } = Spot::of(ask);
        self.disk_at(disk)?.check()?;
        let disk = usize::from(disk);
        let open = self.objects.borrow().get(Spot::of(ask)).cloned();
        if let Some(object) = open {
            return self.in_group(self.opened(object).await?, ask);
        }
        let key = self.cache.borrow_mut().open(disk);
        let object = Rc::new(Object::new(&self.cx, id, disk, key));
        self.objects.borrow_mut().insert(&object);
        self.objects.borrow_mut().sweep(&mut self.cache.borrow_mut());
        let opening = Opening { inner: self.clone(), object: object.clone() };
        let result = self.open(&object).await;
        let phase = result.map_or_else(Phase::Failed, |()| Phase::Open);
        object.state.borrow_mut().phase = phase;
        drop(opening);
        result?;
        self.in_group(object, ask)
    }

    /// The object, if it is one of the group that was asked; ESTALE if it is another's.
    fn in_group(&self, object: Rc<Object>, ask: &ObjectRequest) -> Result<Rc<Object>, Errno> {
        {
            let mut state = object.state.borrow_mut();
            if !state.exists {
                state.head.group = ask.group;
            } else if state.head.group != ask.group {
                return Err(Errno::ESTALE);
            }
        }
        Ok(object)
    }

    /// Opens an object as the log says it is.
    pub fn adopt(&self, disk: &Disk, id: ObjectId, logged: Logged) {
        let place = usize::from(disk.id.0);
        let mut cache = self.cache.borrow_mut();
        let object = Rc::new(Object::new(&self.cx, id, place, cache.open(place)));
        let mut state = object.state.borrow_mut();
        (state.phase, state.exists, state.in_place) = (Phase::Open, true, logged.found);
        (state.head, state.stable) = (logged.head, Some(logged.head));
        (state.header_sequence, state.pending) = (logged.sequence, logged.pending);
        state.description = logged.description;
        for (group, sums) in logged.sums {
            cache.set_newer_group(object.key, group, sums);
        }
        drop(state);
        self.objects.borrow_mut().insert(&object);
        disk.unapplied.borrow_mut().insert(id, object);
    }

    /// Whether neither memory, nor the log, nor the disk has anything of an object. ENXIO and the disk's own error when
    /// it is not served.
    pub fn is_nowhere(&self, Spot { id, disk }: Spot) -> Result<bool, Errno> {
        let open = self.objects.borrow().get(Spot { id, disk }).is_some();
        let disk = self.disk_at(disk)?;
        disk.check()?;
        Ok(!open && !disk.is_logged(id) && disk.index.get(id).is_none())
    }

    /// The object in the caller's hands alone, with room in the log for what it will do.
    pub async fn hold<'a>(&self, object: &'a Object) -> Result<Gates<'a>, Errno> {
        self.wait_for_log(self.disk(object)).await?;
        Ok(object.gates().await)
    }

    async fn opened(&self, object: Rc<Object>) -> Result<Rc<Object>, Errno> {
        loop {
            let moved = object.moved.wait();
            let phase = object.state.borrow().phase;
            match phase {
                Phase::Opening => moved.await,
                Phase::Open => break,
                Phase::Failed(errno) => return Err(errno),
                Phase::Removed => return Err(Errno::ESTALE),
            }
        }
        Ok(object)
    }

    /// Reads header, first checksums and first blocks; the header alone when the disk cannot read one of the others.
    async fn open(&self, object: &Object) -> Result<(), Errno> {
        let disk = self.disk(object);
        let into = disk.frame(OPEN_BYTES).await;
        let (mut bytes, count) = match disk.read_some(object.file(), 0, into).await {
            Err(DiskError::Failed(Errno::EIO)) => {
                let into = disk.frame(HEADER_BYTES as usize).await;
                disk.read_some(object.file(), 0, into).await
            }
            read => read,
        }
        .map_err(errno)?;
        if self.cx.has_bug(Bug::HeaderSumIgnored) {
            Header::sum_anew(&mut bytes);
        }
        let header = Header::read(object.id, &bytes);
        let header = match self.recognise(disk, object.id, header, count.is_some()).await? {
            Opened::Object(header) => header,
            Opened::Nothing => {
                // Bytes of a file without a header were never committed: the first write truncates them.
                object.state.borrow_mut().uncut = count.map(|_| 0);
                return Ok(());
            }
        };
        let there = count.unwrap_or(0) as u64;
        let is_short = there < file_bytes(header.head.length).min(bytes.len() as u64);
        if is_short && !self.cx.has_bug(Bug::ShortFileIgnored) {
            return Err(self.damage(disk, object.id, &"its file is cut short"));
        }
        {
            let mut state = object.state.borrow_mut();
            (state.exists, state.in_place) = (true, true);
            (state.head, state.stable) = (header.head, Some(header.head));
            state.header_sequence = header.sequence;
            state.description = header.description(&bytes).map(Rc::new);
            state.file_blocks = state.blocks();
        }
        if bytes.len() == OPEN_BYTES {
            self.keep_first_chunk(object, header.head.length, &bytes[HEADER_BYTES as usize..]);
        }
        Ok(())
    }

    /// Caches what came with the header, as far as it is right; what is not is found when it is asked for.
    fn keep_first_chunk(&self, object: &Object, length: u64, bytes: &[u8]) {
        let (sums, data) = bytes.split_at(BLOCK_BYTES);
        let mut cache = self.cache.borrow_mut();
        cache.set_group(object.key, 0, decode_sums(sums));
        let blocks = length.div_ceil(BLOCK_BYTES as u64).min(CHUNK_BLOCKS as u64) as usize;
        let data = &data[..blocks * BLOCK_BYTES];
        let found: Vec<u32> = data.chunks_exact(BLOCK_BYTES).map(block_crc).collect();
        let right = found
            .iter()
            .enumerate()
            .all(|(block, sum)| cache.committed_sum(object.key, block as u64) == Some(*sum));
        if !right || blocks == 0 {
            return;
        }
        let Some(mut frame) = cache.alloc(data.len()) else { return };
        frame.copy_from_slice(data);
        // Without memory the blocks are read again when they are asked for.
        let _ = cache.insert(object.key, 0, 0, &frame.freeze(), &found);
    }

    /// The object is gone: nothing of it is kept in memory, and it is refused for a while.
    pub fn let_go(&self, object: &Rc<Object>) {
        {
            let mut state = object.state.borrow_mut();
            state.phase = Phase::Removed;
            state.note_changed();
            state.pending.clear();
            state.torn.clear();
            self.cache.borrow_mut().clear(object.key);
        }
        self.bury(object);
        object.moved.notify_all();
        self.disk(object).room.notify_all();
    }

    /// Takes a removed object out of the table and refuses it for a while.
    fn bury(&self, object: &Rc<Object>) {
        let mut objects = self.objects.borrow_mut();
        objects.forget(object);
        objects.bury(object.spot(), self.cx.now());
    }
}

/// An object that is being opened: all that wait for it are told, however it ends.
struct Opening {
    inner: Rc<Inner>,
    object: Rc<Object>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        let phase = self.object.state.borrow().phase;
        if phase != Phase::Open {
            if phase == Phase::Opening {
                self.object.state.borrow_mut().phase = Phase::Failed(Errno::EIO);
            }
            self.inner.objects.borrow_mut().forget(&self.object);
        }
        self.object.moved.notify_all();
    }
}
