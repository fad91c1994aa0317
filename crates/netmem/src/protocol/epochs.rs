//! Messages about ages: digests and epochs. Both are longer than a body, and travel as data.

use crate::ages::{Age, Histogram};
use crate::epoch::{Digest, Epoch, Share};
use std::time::Duration;
use wire::field::{Field, fields};
use wire::{Decoder, Encoder, NodeId, Short};

/// Bytes of a [`Digest`].
pub const DIGEST_BYTES: usize = 34 + 2 * Histogram::BYTES;
/// Bytes of an [`Epoch`] without shares, and of each share.
const EPOCH_BYTES: usize = 20;
const SHARE_BYTES: usize = 14;

/// The epoch of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The epoch that is to be planned.
    pub epoch: u32,
}

fields!(Tick { epoch });
fields!(Share { node, weight, oldest });

/// Appends a digest.
pub fn encode_digest(digest: &Digest, out: &mut Encoder<'_>) {
    out.u16(digest.node.0).u32(digest.capacity).u32(digest.local_min).u32(digest.free);
    (digest.local, digest.hosted).put(out);
    let millis = u64::try_from(digest.member_for.as_millis()).unwrap_or(u64::MAX);
    out.u64(digest.oldest.0).u64(millis).u32(digest.link_pages);
}

/// Reads what [`encode_digest`] wrote.
pub fn decode_digest(input: &mut Decoder<'_>) -> Result<Digest, Short> {
    Ok(Digest {
        node: NodeId(input.u16()?),
        capacity: input.u32()?,
        local_min: input.u32()?,
        free: input.u32()?,
        local: Field::take(input)?,
        hosted: Field::take(input)?,
        oldest: Age(input.u64()?),
        member_for: Duration::from_millis(input.u64()?),
        link_pages: input.u32()?,
    })
}

/// The bytes of an epoch.
pub fn encode_epoch(epoch: &Epoch) -> Vec<u8> {
    let mut bytes = vec![0; EPOCH_BYTES + epoch.shares.len() * SHARE_BYTES];
    let mut out = Encoder::new(&mut bytes);
    out.u32(epoch.number).u64(epoch.min_age.0).u32(epoch.replacements).u16(epoch.next.0);
    out.u16(epoch.shares.len() as u16);
    for share in &epoch.shares {
        share.put(&mut out);
    }
    bytes
}

/// Reads what [`encode_epoch`] wrote. Shares that are not in the order of their nodes are refused.
pub fn decode_epoch(input: &mut Decoder<'_>) -> Result<Epoch, Short> {
    let (number, min_age) = (input.u32()?, Age(input.u64()?));
    let (replacements, next) = (input.u32()?, NodeId(input.u16()?));
    let shares = (0..input.u16()?).map(|_| Share::take(input)).collect::<Result<Vec<_>, _>>()?;
    if !shares.is_sorted_by(|one, other| one.node < other.node) {
        return Err(Short);
    }
    Ok(Epoch { number, min_age, replacements, shares, next })
}
