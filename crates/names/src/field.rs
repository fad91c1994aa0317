//! One encoding for records, calls and answers: fields one after the other, little-endian, lengths before lists.
//!
//! Decoding trusts nothing: lengths are checked before anything is allocated for them.

use node::rings::{Lock, LockKind, VolumeSpace};
use wire::{
    Attr, Decoder, Encoder, FileId, FileKind, Fragment, Home, Layout, NodeId, SetAttr, SetTime,
    Short, VolumeId, Wall,
};

/// A value that has an encoding.
pub(crate) trait Field<'a>: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads what `put` appended.
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short>;
}

/// The encoding of one value.
pub(crate) fn encoded<'a>(value: &impl Field<'a>) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    value.put(&mut out);
    out
}

/// Implements [`Field`] for a struct: its fields in order.
macro_rules! fields {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl<'a> $crate::field::Field<'a> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::field::Field::put(&self.$field, out);)*
            }
            fn take(input: &mut wire::Decoder<'a>) -> Result<Self, wire::Short> {
                Ok($name { $($field: $crate::field::Field::take(input)?),* })
            }
        }
    };
}
pub(crate) use fields;

macro_rules! numbers {
    ($($kind:ident),*) => {$(
        impl<'a> Field<'a> for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
                input.$kind()
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64);

macro_rules! wrapped {
    ($($kind:ident),*) => {$(
        impl<'a> Field<'a> for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
                Field::take(input).map($kind)
            }
        }
    )*};
}
wrapped!(FileId, NodeId, VolumeId);

impl<'a> Field<'a> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Short),
        }
    }
}

impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let len = input.u32()?;
        input.raw(len as usize)
    }
}

impl<'a> Field<'a> for Box<[u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        <&[u8]>::take(input).map(Box::from)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        bool::take(input)?.then(|| T::take(input)).transpose()
    }
}

impl<'a, A: Field<'a>, B: Field<'a>, C: Field<'a>> Field<'a> for (A, B, C) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Ok((A::take(input)?, B::take(input)?, C::take(input)?))
    }
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
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

impl<'a> Field<'a> for Attr {
    fn put(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; Attr::BYTES];
        self.encode(&mut Encoder::new(&mut bytes));
        out.extend_from_slice(&bytes);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Attr::decode(input)
    }
}

fields!(Home { server, disk });
fields!(Fragment { unit, units, column, width, object_unit });

impl<'a> Field<'a> for Layout {
    fn put(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; Layout::BYTES_MAX];
        let mut encoder = Encoder::new(&mut bytes);
        self.encode(&mut encoder);
        let len = encoder.len();
        out.extend_from_slice(&bytes[..len]);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Layout::decode(input)
    }
}

impl<'a> Field<'a> for Wall {
    fn put(&self, out: &mut Vec<u8>) {
        (self.seconds as u64).put(out);
        self.nanos.put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        Ok(Wall { seconds: input.u64()? as i64, nanos: input.u32()? })
    }
}

impl<'a> Field<'a> for FileKind {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        FileKind::parse(input.u8()?).ok_or(Short)
    }
}

impl<'a> Field<'a> for SetTime {
    fn put(&self, out: &mut Vec<u8>) {
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

fields!(SetAttr { mode, uid, gid, size, atime, mtime, clear_set_id });
fields!(Lock { start, end, kind, pid });
fields!(VolumeSpace { total_bytes, free_bytes, files, free_files });

impl<'a> Field<'a> for LockKind {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            LockKind::Read => 0,
            LockKind::Write => 1,
            LockKind::Unlock => 2,
        });
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(LockKind::Read),
            1 => Ok(LockKind::Write),
            2 => Ok(LockKind::Unlock),
            _ => Err(Short),
        }
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
}
