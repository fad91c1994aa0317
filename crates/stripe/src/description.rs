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

use crate::limits::{
    DESCRIBED_LAYOUT_BYTES_BEFORE, DESCRIBED_LAYOUT_BYTES_MAX, DESCRIBED_PATH_BYTES_MAX,
    OWN_TRAILER_BYTES_MAX,
};
use crate::protocol::Shape;
use wire::codec::{Decoder, Encoder, Short};
use wire::field::Field;
use wire::limits::{TRAILER_BYTES_MAX, TRAILER_WORD_BYTES};
use wire::{ObjectId, Wall};

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
    /// The columns that have objects, a bit for each: another one without an object is a hole. Bits that the object had
    /// before stay.
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

    /// Keeps from `before`: a path where this has none, a later layout, and the columns that have objects, since a
    /// manager whose names are older does not know of the later ones.
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
        [self.mtime, self.ctime].put(out);
        out.u32(self.mode).u32(self.uid).u32(self.gid).u32(self.present);
        out.u16(layout.len() as u16).u16(path.len() as u16).raw(layout).raw(path);
    }

    /// Reads what [`encode`](Description::encode) wrote.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Description, Short> {
        let (size, used) = (input.u64()?, input.u64()?);
        let [mtime, ctime] = Field::take(input)?;
        let (mode, uid, gid) = (input.u32()?, input.u32()?, input.u32()?);
        let present = input.u32()?;
        let (layout, path) = (usize::from(input.u16()?), usize::from(input.u16()?));
        if layout > DESCRIBED_LAYOUT_BYTES_BEFORE || path > DESCRIBED_PATH_BYTES_MAX {
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
    pub(crate) fn encode(&self) -> Vec<u8> {
        let bytes = self.description.as_ref().map_or(0, Description::bytes);
        let mut trailer = vec![0; (4 + bytes).next_multiple_of(TRAILER_WORD_BYTES)];
        let mut out = Encoder::new(&mut trailer);
        self.shape.put(&mut out);
        out.u8(self.description.is_some().into());
        if let Some(description) = &self.description {
            description.encode(&mut out);
        }
        trailer
    }

    /// Reads it.
    pub fn decode(trailer: &[u8]) -> Result<Told, Short> {
        let mut input = Decoder::new(trailer);
        let shape = Shape::take(&mut input)?;
        let description = match input.u8()? {
            0 => None,
            _ => Some(Description::decode(&mut input)?),
        };
        Ok(Told { shape, description })
    }
}

/// Bytes of an object's name in a DESCRIBE request.
const NAME_BYTES: usize = 14;
const _: () = assert!(NAME_BYTES + Description::BYTES_MAX <= OWN_TRAILER_BYTES_MAX);
const _: () = assert!(4 + Description::BYTES_MAX <= TRAILER_BYTES_MAX);

/// The trailer of a DESCRIBE request with as many of `objects`, from the first on, as it has room for, and how many.
pub fn encode_some(objects: &[(ObjectId, Description)]) -> (Vec<u8>, usize) {
    let (mut bytes, mut count) = (0, 0);
    for (_, description) in objects {
        let more = NAME_BYTES + description.bytes();
        if bytes + more > OWN_TRAILER_BYTES_MAX {
            break;
        }
        (bytes, count) = (bytes + more, count + 1);
    }
    let mut trailer = vec![0; bytes.next_multiple_of(TRAILER_WORD_BYTES)];
    let mut out = Encoder::new(&mut trailer);
    for (object, description) in &objects[..count] {
        object.put(&mut out);
        description.encode(&mut out);
    }
    (trailer, count)
}

pub(crate) fn decode_some(
    trailer: &[u8],
    count: u32,
) -> Result<Vec<(ObjectId, Description)>, Short> {
    let mut input = Decoder::new(trailer);
    (0..count)
        .map(|_| Ok((ObjectId::take(&mut input)?, Description::decode(&mut input)?)))
        .collect()
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
