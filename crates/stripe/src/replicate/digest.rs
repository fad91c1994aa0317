//! What a replica has of its groups, in short: the same at all replicas that have the same.

use super::fill::PAGE;
use crate::groups::Local;
use crate::limits::TRANSFER_BYTES_MAX;
use crate::protocol::ObjectRequest;
use crate::server::{Inner, Server};
use std::rc::Rc;
use wire::checksum::crc32c;
use wire::{Errno, GroupId, ObjectId};

/// An object of a group, as one replica has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The group.
    pub group: GroupId,
    /// The object.
    pub object: ObjectId,
    /// Its layout epoch, and truncate generation.
    pub generation: (u32, u32),
    /// Its length in bytes.
    pub bytes: u64,
    /// CRC-32C over the checksums of its blocks.
    pub sum: u32,
}

impl Server {
    /// All objects of the groups that this server has a replica in, by group and object. While they change the objects
    /// are of different times.
    ///
    /// # Errors
    ///
    /// EIO: one of them, or a disk, is damaged.
    pub async fn digests(&self) -> Result<Vec<Digest>, Errno> {
        let mut digests = Vec::new();
        for local in self.0.groups.all() {
            // What is in memory only is in no list.
            self.0.flush_disk(&self.0.disks[usize::from(local.own.disk)]).await?;
            self.0.digest_group(&local, &mut digests).await?;
        }
        Ok(digests)
    }
}

impl Inner {
    async fn digest_group(
        self: &Rc<Self>,
        local: &Local,
        digests: &mut Vec<Digest>,
    ) -> Result<(), Errno> {
        let mut after = None;
        loop {
            let page = self.list_of(local.own.disk.into(), local.id, after, PAGE).await?;
            for object in &page {
                digests.extend(self.digest(local, *object).await?);
            }
            after = page.last().copied().filter(|_| page.len() == PAGE);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Nothing of an object that is not there any more.
    async fn digest(self: &Rc<Self>, local: &Local, id: ObjectId) -> Result<Option<Digest>, Errno> {
        let (group, disk) = (local.id, local.own.disk);
        let ask = ObjectRequest { object: id, group, disk, ..ObjectRequest::default() };
        let object = match self.object(&ask).await {
            Err(Errno::ESTALE) => return Ok(None),
            object => object?,
        };
        let Some(head) = self.present_head(&object) else { return Ok(None) };
        let (mut at, mut sum) = (0, 0u32);
        while at < head.length {
            let bytes = (head.length - at).min(TRANSFER_BYTES_MAX as u64) as u32;
            let sums = self.present_sums(&ObjectRequest { offset: at, bytes, ..ask }).await?;
            sum = crc32c(&[sum.to_le_bytes(), crc32c(&sums).to_le_bytes()].concat());
            at += u64::from(bytes);
        }
        let generation = (head.epoch, head.truncations);
        Ok(Some(Digest { group, object: id, generation, bytes: head.length, sum }))
    }
}
