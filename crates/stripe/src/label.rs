//! Notes in the labels of the disks while a server serves: how far the log is, and how far the manager is.
//! No request waits for it.

use crate::disk::{Disk, errno};
use crate::limits::MARK_SPAN;
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::server::{Inner, Server};
use crate::witness::{Witness, Witnesses};
use std::rc::Rc;
use wire::{Errno, NodeId};

impl Inner {
    /// Notes how far a disk's log is durable, a second later at most, also while commits go on. Neither a log that is
    /// missing nor one that is truncated tells by itself how far it was.
    pub async fn note_progress(self: Rc<Self>, disk: usize) {
        let disk = &self.disks[disk];
        while !disk.is_refused() {
            let written = disk.journal.written();
            if disk.journal.durable() <= disk.mark().durable {
                written.await;
                continue;
            }
            self.cx.sleep(MARK_SPAN).await;
            if let Err(error) = disk.note_durable().await {
                self.report(format!(
                    "disk {}: how far its log is cannot be noted in its label: {error}",
                    disk.id.0
                ));
            }
        }
    }

    /// The latest that was told, to this incarnation or an earlier one.
    fn known_witnesses(&self) -> Witnesses {
        let mut known = self.witnesses.borrow().clone();
        for disk in self.disks.iter().filter(|disk| disk.check().is_ok()) {
            known.learn_all(disk.incarnations.borrow().witnesses());
        }
        known
    }

    /// WITNESS: the later one of what a manager tells and what is known of it is known from now on.
    pub async fn hear_witness(&self, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let told = Witness::of_request(ask)?;
        if ask.object.volume != self.config.volume {
            return Err(Errno::EINVAL);
        }
        // The note of a disk that does not serve may be another volume's, or older.
        let states = self.disks.iter().map(|disk| disk.check());
        if let Some(waiting) = states.reduce(Result::or) {
            waiting?;
        }
        let manager = NodeId(ask.object.column);
        let mut known = self.known_witnesses();
        if told.is_beyond(&known.get(manager)) {
            known.learn(manager, told)?;
            self.witnesses.borrow_mut().learn(manager, told)?;
            self.witnessed.notify_all();
            return Ok(told.reply());
        }
        Ok(known.get(manager).reply())
    }

    /// Keeps in a disk's label what was told of the managers.
    pub async fn keep_witness(self: Rc<Self>, disk: usize) {
        let disk = &self.disks[disk];
        while !disk.is_refused() {
            let witnessed = self.witnessed.wait();
            if disk.check().is_err() || !self.is_witness_due(disk) {
                witnessed.await;
                continue;
            }
            if let Err(error) = disk.note_witnesses(&self.known_witnesses()).await {
                self.report(format!(
                    "disk {}: how far the managers are cannot be noted in its label: {error}",
                    disk.id.0
                ));
            }
            self.cx.sleep(MARK_SPAN).await;
        }
    }

    fn is_witness_due(&self, disk: &Disk) -> bool {
        self.known_witnesses().is_beyond(disk.incarnations.borrow().witnesses())
    }
}

impl Server {
    /// Notes in the labels how far the logs and the manager are: for a clean stop. Nothing is brought into place.
    pub async fn note(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        for disk in self.0.disks.iter().filter(|disk| disk.check().is_ok()) {
            let mut noted = disk.note_durable().await;
            if self.0.is_witness_due(disk) {
                noted = noted.and(disk.note_witnesses(&self.0.known_witnesses()).await);
            }
            result = result.and(noted.map_err(errno));
        }
        result
    }
}
