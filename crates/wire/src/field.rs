//! One encoding for bodies, records, calls and answers: fields one after the other, little-endian, lengths before
//! lists.
//!
//! Decoding trusts nothing: lengths are checked before anything is allocated for them, which only lists are.

use crate::limits::BODY_BYTES;
use crate::{
    Attr, CallId, Decoder, Encoder, FileId, FileKind, Fragment, GroupId, Home, Layout, NodeId,
    ObjectId, SetAttr, SetTime, Short, VolumeId, Wall, Wcc,
};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Destination of encoded bytes.
pub trait Output {
    /// Appends the bytes.
    fn append(&mut self, bytes: &[u8]);
}

impl Output for Encoder<'_> {
    fn append(&mut self, bytes: &[u8]) {
        self.raw(bytes);
    }
}

impl Output for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A value that has an encoding.
pub trait Field<'a>: Sized {
    /// Appends the value.
    fn put(&self, out: &mut impl Output);
    /// Reads what `put` appended.
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short>;
}

/// A value that is the body of a message.
pub trait Message: for<'a> Field<'a> {
    /// The body.
    fn encode(&self) -> [u8; BODY_BYTES] {
        body(self)
    }

    /// Reads a body. Bytes behind the message's last field are ignored.
    fn decode(body: &[u8]) -> Result<Self, Short> {
        Self::take(&mut Decoder::new(body))
    }
}

impl<T: for<'a> Field<'a>> Message for T {}

/// The value as the body of a message.
pub fn body<'a>(value: &impl Field<'a>) -> [u8; BODY_BYTES] {
    let mut body = [0; BODY_BYTES];
    value.put(&mut Encoder::new(&mut body));
    body
}

/// The encoding of one value.
pub fn encoded<'a>(value: &impl Field<'a>) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    value.put(&mut out);
    out
}

/// Implements [`Field`] for a struct: its fields in order, refused when it does not pass the check; or for a newtype.
#[macro_export]
macro_rules! fields {
    ($($name:ident),+) => {$(
        impl<'a> $crate::field::Field<'a> for $name {
            fn put(&self, out: &mut impl $crate::field::Output) {
                $crate::field::Field::put(&self.0, out);
            }
            fn take(input: &mut $crate::Decoder<'a>) -> Result<Self, $crate::Short> {
                $crate::field::Field::take(input).map($name)
            }
        }
    )+};
    ($name:ident { $($field:ident),* $(,)? } $(if $check:ident)?) => {
        impl<'a> $crate::field::Field<'a> for $name {
            fn put(&self, out: &mut impl $crate::field::Output) {
                $($crate::field::Field::put(&self.$field, out);)*
            }
            fn take(input: &mut $crate::Decoder<'a>) -> Result<Self, $crate::Short> {
                let value = $name { $($field: $crate::field::Field::take(input)?),* };
                $(if !value.$check() {
                    return Err($crate::Short);
                })?
                Ok(value)
            }
        }
    };
}
pub use fields;

macro_rules! numbers {
    ($($kind:ident),*) => {$(
        impl<'a> Field<'a> for $kind {
            fn put(&self, out: &mut impl Output) {
                out.append(&self.to_le_bytes());
            }
            fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
                input.$kind()
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, u128, i64);

fields!(FileId, NodeId, VolumeId);

impl<'a> Field<'a> for () {
    fn put(&self, _: &mut impl Output) {}
    fn take(_: &mut Decoder<'a>) -> Result<Self, Short> {
        Ok(())
    }
}

impl<'a> Field<'a> for bool {
    fn put(&self, out: &mut impl Output) {
        u8::from(*self).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Short),
        }
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn put(&self, out: &mut impl Output) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        bool::take(input)?.then(|| T::take(input)).transpose()
    }
}

impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut impl Output) {
        (self.len() as u32).put(out);
        out.append(self);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let len = input.u32()?;
        input.raw(len as usize)
    }
}

impl<'a> Field<'a> for Box<[u8]> {
    fn put(&self, out: &mut impl Output) {
        (self.len() as u32).put(out);
        out.append(self);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        <&[u8]>::take(input).map(Box::from)
    }
}

impl<'a, A: Field<'a>, B: Field<'a>> Field<'a> for (A, B) {
    fn put(&self, out: &mut impl Output) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

impl<'a, A: Field<'a>, B: Field<'a>, C: Field<'a>> Field<'a> for (A, B, C) {
    fn put(&self, out: &mut impl Output) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Ok((A::take(input)?, B::take(input)?, C::take(input)?))
    }
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    fn put(&self, out: &mut impl Output) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let count = input.u32()? as usize;
        if count > input.rest().len() {
            return Err(Short);
        }
        (0..count).map(|_| T::take(input)).collect()
    }
}

impl<'a, T: Field<'a> + Copy + Default, const N: usize> Field<'a> for [T; N] {
    fn put(&self, out: &mut impl Output) {
        self.iter().for_each(|value| value.put(out));
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let mut all = [T::default(); N];
        for value in &mut all {
            *value = T::take(input)?;
        }
        Ok(all)
    }
}

fields!(Attr { file, kind, mode, links, uid, gid, rdev, size, used, atime, mtime, ctime, change });
fields!(Wcc { before, after });
fields!(CallId { client, xid, procedure, head });
fields!(Fragment { unit, units, column, width, object_unit });
fields!(Home { server, disk });
fields!(GroupId);
fields!(ObjectId { volume, file, column });
fields!(SetAttr { mode, uid, gid, size, atime, mtime, clear_set_id });

impl<'a> Field<'a> for Layout {
    fn put(&self, out: &mut impl Output) {
        let mut bytes = [0; Layout::BYTES_MAX];
        let mut encoder = Encoder::new(&mut bytes);
        self.encode(&mut encoder);
        let len = encoder.len();
        out.append(&bytes[..len]);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Layout::decode(input)
    }
}

impl<'a> Field<'a> for Wall {
    fn put(&self, out: &mut impl Output) {
        self.seconds.put(out);
        self.nanos.put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let (seconds, nanos) = (input.i64()?, input.u32()?);
        if nanos < 1_000_000_000 { Ok(Wall { seconds, nanos }) } else { Err(Short) }
    }
}

impl<'a> Field<'a> for FileKind {
    fn put(&self, out: &mut impl Output) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        FileKind::parse(input.u8()?).ok_or(Short)
    }
}

impl<'a> Field<'a> for SetTime {
    fn put(&self, out: &mut impl Output) {
        let time = match self {
            SetTime::Now => None,
            SetTime::To(time) => Some(*time),
        };
        time.put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Ok(<Option<Wall> as Field>::take(input)?.map_or(SetTime::Now, SetTime::To))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_and_lengths_are_not_believed() {
        let changes = SetAttr {
            mode: Some(0o644),
            mtime: Some(SetTime::To(Wall { seconds: -7, nanos: 5 })),
            atime: Some(SetTime::Now),
            clear_set_id: true,
            ..SetAttr::default()
        };
        let bytes = encoded(&changes);
        assert_eq!(SetAttr::take(&mut Decoder::new(&bytes)), Ok(changes));
        let huge = encoded(&u32::MAX);
        assert_eq!(Vec::<u64>::take(&mut Decoder::new(&huge)), Err(Short));
        assert_eq!(<&[u8]>::take(&mut Decoder::new(&huge)), Err(Short));
    }

    #[test]
    fn attributes_survive_the_wire() {
        let attr = Attr {
            file: FileId::new(3, 99),
            kind: FileKind::Symlink,
            size: 7,
            mtime: Wall { seconds: -1, nanos: 999_999_999 },
            change: u64::MAX,
            ..Attr::default()
        };
        let bytes = encoded(&attr);
        assert_eq!(bytes.len(), Attr::BYTES);
        assert_eq!(Attr::take(&mut Decoder::new(&bytes)), Ok(attr));
        assert_eq!(Attr::take(&mut Decoder::new(&bytes[1..])), Err(Short));
    }

    #[test]
    fn a_time_of_a_whole_second_too_many_nanoseconds_is_refused() {
        let bytes = encoded(&(1u64, 1_000_000_000u32, 0u8));
        assert_eq!(Wall::take(&mut Decoder::new(&bytes)), Err(Short));
    }
}
