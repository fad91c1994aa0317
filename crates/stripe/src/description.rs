//! Descriptions: what objects keep of their files, for the day on which the names are lost.
//!
//! The manager tells of each file, some time after it changed, what a person needs to make use of its bytes: name,
//! owner, times, size, layout. It is kept in the object's header, under the header's checksum, so it is right or the
//! object is damaged. It comes there with the next checkpoint, by a header that is written anyway or, for objects that
//! nothing else happened to, by one that the checkpoint writes for it: no request waits for a disk. A description
//! since the last checkpoint goes with a crash, and the one before counts again.
//!
//! A layout of which the objects alone cannot tell where bytes are is told before it is used, and stable then: it is in
//! the log. No later description takes it back: one of an earlier layout leaves the layout that the object has.

use crate::disk::Disk;
use crate::limits::{
    DESCRIBED_LAYOUT_BYTES_MAX, DESCRIBED_MAX, DESCRIBED_PATH_BYTES_MAX, DESCRIBED_SPAN,
};
use crate::log::{Kind, Record};
use crate::objects::{Object, Phase, Spot};
use crate::protocol::{ObjectRequest, Shape, decode_object, encode_object};
use crate::server::{Inner, Server};
use node::{Answer, Notify, Request};
use std::cell::Cell;
use std::rc::Rc;
use wire::codec::{Decoder, Encoder, Short};
use wire::limits::{BLOCK_BYTES, TRAILER_BYTES_MAX, TRAILER_WORD_BYTES};
use wire::{Errno, ObjectId, Wall};

/// A file as the manager knew it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of storage.
    pub used: u64,
    /// Latest write.
    pub mtime: Wall,
    /// Latest change of attributes or name.
    pub ctime: Wall,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The columns that have objects, a bit for each: another one without an object is a hole. What the object was told
    /// before stays so.
    pub present: u32,
    /// The layout and the block map, as the manager writes them; at most [`DESCRIBED_LAYOUT_BYTES_MAX`], empty when it
    /// is longer.
    pub layout: Vec<u8>,
    /// The path; of a longer one the last [`DESCRIBED_PATH_BYTES_MAX`] bytes. An empty one leaves the one that the
    /// object has.
    pub path: Vec<u8>,
}

impl Description {
    /// Bytes besides layout and path.
    const FIXED_BYTES: usize = 8 + 8 + 12 + 12 + 4 + 4 + 4 + 4 + 2 + 2;
    /// Most bytes that [`encode`](Description::encode) writes.
    pub const BYTES_MAX: usize =
        Description::FIXED_BYTES + DESCRIBED_LAYOUT_BYTES_MAX + DESCRIBED_PATH_BYTES_MAX;

    /// What `before` had and this one does not tell better stays: a path where it has none, a later layout, and the
    /// columns that have objects, since a manager whose names are of before does not know of all that came since.
    pub(crate) fn keep(&mut self, before: &Description) {
        self.present |= before.present;
        if self.path.is_empty() {
            self.path.clone_from(&before.path);
        }
        if self.epoch() < before.epoch() {
            self.layout.clone_from(&before.layout);
        }
    }

    fn kept_layout(&self) -> &[u8] {
        if self.layout.len() <= DESCRIBED_LAYOUT_BYTES_MAX { &self.layout } else { &[] }
    }

    fn kept_path(&self) -> &[u8] {
        &self.path[self.path.len().saturating_sub(DESCRIBED_PATH_BYTES_MAX)..]
    }

    /// The epoch of its layout, 0 where it has none.
    pub fn epoch(&self) -> u32 {
        Decoder::new(self.kept_layout()).u32().unwrap_or(0)
    }

    /// Bytes that [`encode`](Description::encode) writes.
    pub fn bytes(&self) -> usize {
        Description::FIXED_BYTES + self.kept_layout().len() + self.kept_path().len()
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        let (layout, path) = (self.kept_layout(), self.kept_path());
        out.u64(self.size).u64(self.used);
        self.mtime.encode(out);
        self.ctime.encode(out);
        out.u32(self.mode).u32(self.uid).u32(self.gid).u32(self.present);
        out.u16(layout.len() as u16).u16(path.len() as u16).raw(layout).raw(path);
    }

    /// Reads what [`encode`](Description::encode) wrote.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Description, Short> {
        let (size, used) = (input.u64()?, input.u64()?);
        let (mtime, ctime) = (Wall::decode(input)?, Wall::decode(input)?);
        let (mode, uid, gid) = (input.u32()?, input.u32()?, input.u32()?);
        let present = input.u32()?;
        let (layout, path) = (usize::from(input.u16()?), usize::from(input.u16()?));
        if layout > DESCRIBED_LAYOUT_BYTES_MAX || path > DESCRIBED_PATH_BYTES_MAX {
            return Err(Short);
        }
        let (layout, path) = (input.raw(layout)?.to_vec(), input.raw(path)?.to_vec());
        Ok(Description { size, used, mtime, ctime, mode, uid, gid, present, layout, path })
    }
}

/// The reply to DESCRIPTION, beside the attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The layout in short, as the first who wrote to the object had it.
    pub shape: Shape,
    /// The description, if the manager told one.
    pub description: Option<Description>,
}

impl Told {
    /// The trailer of a DESCRIPTION reply.
    fn encode(&self) -> Vec<u8> {
        let bytes = self.description.as_ref().map_or(0, Description::bytes);
        let mut trailer = vec![0; (4 + bytes).next_multiple_of(TRAILER_WORD_BYTES)];
        let mut out = Encoder::new(&mut trailer);
        self.shape.encode(&mut out);
        out.u8(self.description.is_some().into());
        if let Some(description) = &self.description {
            description.encode(&mut out);
        }
        trailer
    }

    /// Reads it.
    pub fn decode(trailer: &[u8]) -> Result<Told, Short> {
        let mut input = Decoder::new(trailer);
        let shape = Shape::decode(&mut input)?;
        let description = match input.u8()? {
            0 => None,
            _ => Some(Description::decode(&mut input)?),
        };
        Ok(Told { shape, description })
    }
}

/// Bytes of an object's name in a DESCRIBE request.
const NAME_BYTES: usize = 14;
const _: () = assert!(NAME_BYTES + Description::BYTES_MAX <= TRAILER_BYTES_MAX);
const _: () = assert!(4 + Description::BYTES_MAX <= TRAILER_BYTES_MAX);

/// The trailer of a DESCRIBE request with as many of `objects`, from the first on, as it has room for, and how many.
pub fn encode_some(objects: &[(ObjectId, Description)]) -> (Vec<u8>, usize) {
    let (mut bytes, mut count) = (0, 0);
    for (_, description) in objects {
        let more = NAME_BYTES + description.bytes();
        if bytes + more > TRAILER_BYTES_MAX {
            break;
        }
        (bytes, count) = (bytes + more, count + 1);
    }
    let mut trailer = vec![0; bytes.next_multiple_of(TRAILER_WORD_BYTES)];
    let mut out = Encoder::new(&mut trailer);
    for (object, description) in &objects[..count] {
        encode_object(object, &mut out);
        description.encode(&mut out);
    }
    (trailer, count)
}

fn decode_some(trailer: &[u8], count: u32) -> Result<Vec<(ObjectId, Description)>, Short> {
    let mut input = Decoder::new(trailer);
    (0..count).map(|_| Ok((decode_object(&mut input)?, Description::decode(&mut input)?))).collect()
}

impl Inner {
    /// DESCRIBE.
    pub async fn describe_all(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        let Ok(objects) = decode_some(request.trailer(), ask.bytes) else {
            return self.refuse(request, ask, Errno::EPROTO);
        };
        let told = objects.into_iter().map(async |(object, description)| {
            let ask = ObjectRequest { object, ..*ask };
            self.note_description(&ask, description).await.map_or_else(|errno| errno.0, |()| 0)
        });
        let statuses = node::all(told).await;
        self.tell_each(request, &statuses);
    }

    async fn note_description(
        self: &Rc<Self>,
        ask: &ObjectRequest,
        mut description: Description,
    ) -> Result<(), Errno> {
        if self.is_nowhere(Spot::of(ask))? {
            return Err(Errno::ENOENT);
        }
        let object = self.object(ask).await?;
        let is_known = self.take_description(&object, &mut description)?;
        let told = if description.path.is_empty() { Err(Errno::ENODATA) } else { Ok(()) };
        if ask.stable {
            self.log_description(&object).await?;
        }
        if is_known {
            return told;
        }
        let disk = self.disk(&object);
        let is_first = disk.described.borrow().is_empty();
        disk.described.borrow_mut().insert(object.id, object.clone());
        if is_first {
            self.clone().expect_checkpoint(object.disk);
        }
        if disk.is_much_described() {
            disk.work.notify_all();
        }
        told
    }

    /// The object has the description, with what it had and keeps; whether it had all of it.
    fn take_description(
        &self,
        object: &Object,
        description: &mut Description,
    ) -> Result<bool, Errno> {
        let mut state = object.state.borrow_mut();
        if state.phase != Phase::Open || !state.exists {
            return Err(Errno::ENOENT);
        }
        if let Some(before) = state.description.as_deref() {
            description.keep(before);
        }
        let is_known = state.description.as_deref() == Some(&*description);
        if !is_known {
            state.description = Some(Rc::new(description.clone()));
        }
        Ok(is_known)
    }

    /// Makes the description of an object stable.
    async fn log_description(self: &Rc<Self>, object: &Rc<Object>) -> Result<(), Errno> {
        let disk = self.disk(object);
        self.wait_for_log(disk).await?;
        self.reserve(disk, BLOCK_BYTES as u64).await?;
        let _gate = object.commits.acquire(1).await;
        let (phase, stable, description) = {
            let state = object.state.borrow();
            (state.phase, state.stable, state.description.clone())
        };
        let head = stable.filter(|_| phase == Phase::Open).ok_or(Errno::ENOENT)?;
        let bare = Record::bare(Kind::Describe, object.id, head);
        self.put_record(object, Record { description, ..bare }).await?;
        object.state.borrow_mut().announced = true;
        Ok(())
    }

    /// Where nothing else brings a checkpoint, what was described has one of its own after some time.
    fn expect_checkpoint(self: Rc<Self>, disk: usize) {
        let cx = self.cx.clone();
        let checkpoints = self.disks[disk].checkpoints.get();
        cx.spawn("describe", async move {
            self.cx.sleep(DESCRIBED_SPAN).await;
            let disk = &self.disks[disk];
            if disk.checkpoints.get() == checkpoints {
                disk.is_described_long.set(true);
                disk.work.notify_all();
            }
        });
    }

    /// DESCRIPTION.
    pub async fn tell_description(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        let reply = self.attributes(ask).await;
        let (reply, object) = match (reply, self.object(ask).await) {
            (Ok(reply), Ok(object)) => (reply, object),
            (Err(errno), _) | (_, Err(errno)) => return self.refuse(request, ask, errno),
        };
        let (shape, description) = {
            let state = object.state.borrow();
            (state.stable.unwrap_or_default().shape, state.description.clone())
        };
        let trailer = Told { shape, description: description.as_deref().cloned() }.encode();
        self.cx.reply(request, Answer { trailer: &trailer, ..Answer::body(&reply.encode()) });
    }

    /// Sees to it that the checkpoint that has begun writes the headers of all that was described. A header that no
    /// record of a log announces would pass for damage after a crash, so what has none gets one, in the new log.
    pub(crate) async fn log_described(&self, disk: &Disk) {
        disk.is_described_long.set(false);
        disk.checkpoints.set(disk.checkpoints.get() + 1);
        let described = std::mem::take(&mut *disk.described.borrow_mut());
        let bytes = described.len() * BLOCK_BYTES;
        // On a full disk it waits for the next header: nothing that was acknowledged is lost by that.
        if described.is_empty() || self.reserve(disk, bytes as u64).await.is_err() {
            return;
        }
        node::all(described.values().map(|object| self.announce(disk, object))).await;
    }

    async fn announce(&self, disk: &Disk, object: &Rc<Object>) {
        let _gate = object.commits.acquire(1).await;
        let (phase, stable) = {
            let state = object.state.borrow();
            (state.phase, state.stable)
        };
        // The first commit of what is not stable yet will write a header.
        let Some(head) = stable.filter(|_| phase == Phase::Open) else { return };
        if disk.unapplied.borrow().contains_key(&object.id) {
            return;
        }
        let record = Record::bare(Kind::Commit, object.id, head);
        if disk.journal.append(record, Vec::new()).await.is_ok() {
            object.state.borrow_mut().announced = true;
            disk.unapplied.borrow_mut().insert(object.id, object.clone());
        }
    }
}

impl Server {
    /// Brings what was described into the headers of objects, by a checkpoint of each disk that has such: for a clean
    /// stop. One that fails is in [`problems`](Server::problems).
    pub async fn place_descriptions(&self) {
        let is_due = |disk: &&Disk| {
            let placing = disk.checkpointing.available() == 0;
            disk.check().is_ok() && (placing || !disk.described.borrow().is_empty())
        };
        let due: Vec<usize> =
            self.0.disks.iter().filter(is_due).map(|disk| usize::from(disk.id.0)).collect();
        let (left, ended) = (Rc::new(Cell::new(due.len())), Rc::new(Notify::new(&self.0.cx)));
        for disk in due {
            let (server, left, ended) = (self.0.clone(), left.clone(), ended.clone());
            // A checkpoint goes on where its caller gives up: it cannot be left in the middle.
            self.0.cx.spawn("stripe last checkpoint", async move {
                let disk = &server.disks[disk];
                if let Err(error) = server.checkpoint(disk).await {
                    server.report(format!("disk {}: descriptions of files: {error}", disk.id.0));
                }
                left.set(left.get() - 1);
                ended.notify_all();
            });
        }
        loop {
            let one = ended.wait();
            if left.get() == 0 {
                return;
            }
            one.await;
        }
    }
}

impl Disk {
    /// Whether so much was described, or something so long ago, that it is time for a checkpoint.
    pub(crate) fn is_much_described(&self) -> bool {
        self.described.borrow().len() >= DESCRIBED_MAX || self.is_described_long.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_description_survives_the_wire_and_a_long_path_keeps_its_end(
            size: u64,
            layout in 0usize..1000,
            path in 0usize..3000,
        ) {
            let path: Vec<u8> = (0..path).map(|at| at as u8).collect();
            let full = Description { size, present: 5, layout: vec![3; layout], path, ..Description::default() };
            let (trailer, count) = encode_some(&[(ObjectId::default(), full.clone())]);
            prop_assert_eq!(count, 1);
            let (_, read) = decode_some(&trailer, 1).unwrap().remove(0);
            prop_assert!(full.path.ends_with(&read.path) && full.layout.starts_with(&read.layout));
            let kept = Description { layout: read.layout.clone(), path: read.path.clone(), ..full };
            prop_assert_eq!(read, kept);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0u32..9) {
            let _ = decode_some(&bytes, count);
        }
    }
}
