//! What an I/O server knows of the manager's store: how far it was, kept in the label of each of its disks.
//!
//! A store of names whose directory comes back as it was some time ago cannot tell so by itself. The manager tells its
//! servers every second how far its store is durable, and asks them when it starts. A server keeps the latest that it
//! was told, on every disk that serves, at most a second after it was told: the label is written beside the object
//! path, and no request waits for it.

use crate::disk::{Disk, errno};
use crate::limits::MARK_SPAN;
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::server::{Inner, Server};
use node::rings::DiskError;
use std::rc::Rc;
use wire::codec::{Decoder, Encoder, Short};
use wire::{Errno, Wall};

/// How far a manager's store is. The later of two is the larger one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Witness {
    /// Counts the stores that the volume's names were in: a restored one begins another. Sequences of different
    /// lineages have nothing to do with each other.
    pub lineage: u16,
    /// Every change up to this one is on stable storage; 0 is nothing.
    pub sequence: u64,
    /// Which of the volume's stores it is, of whatever lineage. An older copy of one has the same.
    pub store: u32,
    /// Which incarnation of the manager told so.
    pub incarnation: u32,
    /// When the manager told so, in seconds since 1970.
    pub told: u64,
}

impl Witness {
    /// Whether it is of a later lineage, or of the same one and further.
    pub fn is_beyond(&self, other: &Witness) -> bool {
        (self.lineage, self.sequence) > (other.lineage, other.sequence)
    }

    /// Whether no manager was ever heard of that had anything on stable storage.
    pub fn is_nothing(&self) -> bool {
        self.sequence == 0
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.u16(self.lineage).u64(self.sequence).u32(self.store);
        out.u32(self.incarnation).u64(self.told);
    }

    /// Reads what [`encode`](Witness::encode) wrote.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Witness, Short> {
        let (lineage, sequence) = (input.u16()?, input.u64()?);
        let (store, incarnation) = (input.u32()?, input.u32()?);
        Ok(Witness { lineage, sequence, store, incarnation, told: input.u64()? })
    }

    /// The fields of a request that tell it.
    pub(crate) fn put(&self, ask: &mut ObjectRequest) {
        (ask.epoch, ask.offset) = (self.lineage.into(), self.sequence);
        (ask.truncations, ask.bytes) = (self.store, self.incarnation);
        ask.mtime = Wall { seconds: self.told as i64, nanos: 0 };
    }

    fn of_request(ask: &ObjectRequest) -> Result<Witness, Errno> {
        let lineage = u16::try_from(ask.epoch).map_err(|_| Errno::EPROTO)?;
        let (store, incarnation, told) = (ask.truncations, ask.bytes, ask.mtime.seconds as u64);
        Ok(Witness { lineage, sequence: ask.offset, store, incarnation, told })
    }

    fn reply(&self) -> ObjectReply {
        let mtime = Wall { seconds: self.told as i64, nanos: 0 };
        ObjectReply {
            epoch: self.lineage.into(),
            length: self.sequence,
            truncations: self.store,
            used: self.incarnation.into(),
            mtime,
            ..ObjectReply::default()
        }
    }

    /// What a reply says.
    pub(crate) fn of_reply(reply: &ObjectReply) -> Result<Witness, Errno> {
        let lineage = u16::try_from(reply.epoch).map_err(|_| Errno::EPROTO)?;
        let incarnation = u32::try_from(reply.used).map_err(|_| Errno::EPROTO)?;
        let (store, told) = (reply.truncations, reply.mtime.seconds as u64);
        Ok(Witness { lineage, sequence: reply.length, store, incarnation, told })
    }
}

impl Disk {
    /// Notes how far the manager was heard to be.
    async fn note_witness(&self, witness: Witness) -> Result<(), DiskError> {
        self.note(|lives| lives.set_witness(witness)).await
    }
}

impl Inner {
    /// The latest that was told, to this incarnation or an earlier one.
    fn witness(&self) -> Witness {
        let serving = self.disks.iter().filter(|disk| disk.check().is_ok());
        let noted = serving.map(|disk| disk.lives.borrow().witness());
        noted.fold(self.witness.get(), Witness::max)
    }

    /// WITNESS: the later one of what the manager tells and what is known is known from now on.
    pub async fn hear_witness(&self, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let told = Witness::of_request(ask)?;
        if ask.object.volume != self.config.volume {
            return Err(Errno::EINVAL);
        }
        // What a disk that does not serve has noted may be another volume's, or older.
        let states = self.disks.iter().map(|disk| disk.check());
        if let Some(waiting) = states.reduce(Result::or) {
            waiting?;
        }
        let known = self.witness();
        if told.is_beyond(&known) {
            self.witness.set(told);
            self.witnessed.notify_all();
            return Ok(told.reply());
        }
        Ok(known.reply())
    }

    /// Keeps in a disk's label what was told of the manager.
    pub async fn keep_witness(self: Rc<Self>, disk: usize) {
        let disk = &self.disks[disk];
        while !disk.is_refused() {
            let witnessed = self.witnessed.wait();
            if disk.check().is_err() || !self.is_witness_due(disk) {
                witnessed.await;
                continue;
            }
            if let Err(error) = disk.note_witness(self.witness()).await {
                self.report(format!(
                    "disk {}: how far the manager is cannot be noted in its label: {error}",
                    disk.id.0
                ));
            }
            self.cx.sleep(MARK_SPAN).await;
        }
    }

    fn is_witness_due(&self, disk: &Disk) -> bool {
        self.witness().is_beyond(&disk.lives.borrow().witness())
    }
}

impl Server {
    /// Notes in the labels how far the logs and the manager are: for a clean stop. Nothing is brought into place.
    pub async fn note(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        for disk in self.0.disks.iter().filter(|disk| disk.check().is_ok()) {
            let mut noted = disk.note_durable().await;
            if self.0.is_witness_due(disk) {
                noted = noted.and(disk.note_witness(self.0.witness()).await);
            }
            result = result.and(noted.map_err(errno));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_lineage_is_beyond_any_sequence_and_the_clock_decides_nothing() {
        let one = Witness { lineage: 1, sequence: 900, store: 8, incarnation: 6, told: 5 };
        let other = Witness { lineage: 2, sequence: 3, store: 7, incarnation: 9, told: 4 };
        assert!(other.is_beyond(&one) && !one.is_beyond(&other));
        assert!(!Witness { told: 9, ..one }.is_beyond(&one));
        let mut ask = ObjectRequest::default();
        other.put(&mut ask);
        assert_eq!(Witness::of_request(&ask), Ok(other));
        assert_eq!(Witness::of_reply(&other.reply()), Ok(other));
        ask.epoch = 1 << 16;
        assert_eq!(Witness::of_request(&ask), Err(Errno::EPROTO));
    }
}
