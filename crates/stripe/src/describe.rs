//! DESCRIBE and DESCRIPTION: how an object's [`Description`] comes into its header, and out of it.

use crate::description::{Description, Told, decode_some};
use crate::disk::Disk;
use crate::limits::{DESCRIBED_MAX, DESCRIBED_SPAN};
use crate::log::{Kind, Record};
use crate::objects::{Object, Phase, Spot};
use crate::protocol::ObjectRequest;
use crate::server::{Inner, Server};
use node::{Answer, Notify, Request};
use std::cell::Cell;
use std::rc::Rc;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, ObjectId};

impl Inner {
    /// DESCRIBE.
    pub async fn describe_all(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        let Ok(objects) = decode_some(request.trailer(), ask.bytes) else {
            return self.refuse(request, ask, Errno::EPROTO);
        };
        let statuses = self.describe_each(objects, ask).await;
        self.tell_each(request, &statuses);
    }

    /// Describes the files of objects; 0 or an error number of each.
    pub async fn describe_each(
        self: &Rc<Self>,
        objects: Vec<(ObjectId, Description)>,
        ask: &ObjectRequest,
    ) -> Vec<u16> {
        let told = objects.into_iter().map(async |(object, description)| {
            let ask = ObjectRequest { object, ..*ask };
            self.note_description(&ask, description).await.map_or_else(|errno| errno.0, |()| 0)
        });
        node::all(told).await
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

    /// If nothing else brings a checkpoint, the descriptions cause one after some time.
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
