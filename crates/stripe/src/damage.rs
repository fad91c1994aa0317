//! Objects that are damaged: what is found, and how it is told.
//!
//! Damage is found when an object is opened or read, and at a restart. The object's name is kept as long as the server
//! runs, or until the object is removed.

use crate::disk::{Disk, DiskAge, Entry, Health, errno};
use crate::limits::DAMAGED_MAX;
use crate::object::{Header, Unreadable};
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::server::{Inner, Server};
use node::Bug;
use node::rings::{DiskError, DiskFile};
use std::rc::Rc;
use wire::{Errno, ObjectId};

/// The finding about an object's file when it is opened.
pub(crate) enum Opened {
    /// The object.
    Object(Header),
    /// There is no such object.
    Nothing,
}

impl Inner {
    /// An object is damaged, for this reason.
    pub fn damage(&self, disk: &Disk, object: ObjectId, why: &dyn std::fmt::Display) -> Errno {
        self.report(format!("disk {}, object {object}: {why}", disk.id.0));
        let mut damaged = disk.damaged.borrow_mut();
        if damaged.len() < DAMAGED_MAX {
            damaged.insert(object);
        }
        Errno::EIO
    }

    /// Compares what is in an object's file with what is recorded. `header` is of its first bytes; `found`: there is a
    /// file.
    pub async fn recognise(
        &self,
        disk: &Disk,
        object: ObjectId,
        header: Result<Option<Header>, Unreadable>,
        found: bool,
    ) -> Result<Opened, Errno> {
        let header = header.map_err(|error| self.damage(disk, object, &error))?;
        let checked = match (disk.index.get(object), header) {
            (Some(recorded), Some(header)) => {
                self.compare(recorded, &header).map(|()| Opened::Object(header))
            }
            (None, None) => Ok(Opened::Nothing),
            (None, Some(_)) => Err("its file is there, but the index knows no such object"),
            (Some(_), None) if !found && self.cx.has_bug(Bug::MissingIsHole) => Ok(Opened::Nothing),
            (Some(_), None) if found => {
                Err("its file has no header, but the index knows the object")
            }
            (Some(_), None) if self.is_quarantined(disk, object).await.map_err(errno)? => {
                Ok(Opened::Nothing)
            }
            (Some(_), None) => Err("its file is missing, but the index knows the object"),
        };
        checked.map_err(|why| self.damage(disk, object, &why))
    }

    /// Whether the file with this header is the one that was recorded, or else what it is.
    pub fn compare(&self, recorded: Entry, header: &Header) -> Result<(), &'static str> {
        match self.cx.has_bug(Bug::IndexNotCompared) {
            true => Ok(()),
            false => recorded.check(header),
        }
    }

    /// ACCEPT_LOSS: the object begins anew as an empty one.
    pub async fn accept_loss(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        match self.object(ask).await {
            Err(Errno::EIO) => {}
            found => return found.and(Err(Errno::EEXIST)),
        }
        self.remove_durably(self.disk_at(ask.disk)?, ask, true).await?;
        // Made at once, so that it is an object with a layout epoch and not one that was never written.
        self.set_layout(ask).await
    }

    /// Whether the object was set aside, and a crash came before the index said so.
    pub async fn is_quarantined(&self, disk: &Disk, object: ObjectId) -> Result<bool, DiskError> {
        match disk.stat(DiskFile::Quarantined(object)).await {
            Ok(_) => Ok(true),
            Err(DiskError::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Server {
    /// The disks that were made ready, by number, also those that wait to be confirmed.
    pub fn ages(&self) -> Vec<(u16, DiskAge)> {
        let ready = self.0.disks.iter().filter(|disk| self.is_ready() && !disk.is_refused());
        let age = |disk: &Disk| DiskAge {
            id: disk.index.disk(),
            found: disk.found.get(),
            now: [disk.incarnations.borrow().sequence(), disk.journal.durable()],
        };
        ready.map(|disk| (disk.id.0, age(disk))).collect()
    }

    /// The disks, one bit each, that are empty ones in the places of lost ones, as far as a person has said so.
    pub fn replacing(&self) -> u32 {
        self.0.config.replacing
    }

    /// A disk that was made ready serves from now on, or is refused for this reason.
    pub fn confirm(&self, disk: u16, confirmed: Result<(), String>) {
        let disk = &self.0.disks[usize::from(disk)];
        if disk.is_refused() {
            return;
        }
        *disk.health.borrow_mut() = match confirmed {
            Ok(()) => Health::Serving,
            Err(why) => {
                let text = format!("disk {}: {why}", disk.id.0);
                self.0.report(text.clone());
                Health::Refused(Errno::ENODEV, text)
            }
        };
        disk.room.notify_all();
        disk.work.notify_all();
        self.0.witnessed.notify_all();
    }

    /// Objects found damaged since the start, by disk; at most [`DAMAGED_MAX`] of each.
    pub fn damaged(&self) -> Vec<(usize, ObjectId)> {
        let disks = self.0.disks.iter().enumerate();
        disks
            .flat_map(|(number, disk)| {
                let damaged = disk.damaged.borrow();
                damaged.iter().map(|object| (number, *object)).collect::<Vec<_>>()
            })
            .collect()
    }
}
