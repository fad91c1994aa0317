//! XDR (RFC 4506): big-endian, in units of four bytes, as values that borrow from the bytes they came in.
//!
//! It is not `wire`'s codec: that one is little-endian and ours. Decoding trusts nothing: no length is believed before
//! the bytes are there, and nothing is allocated for a length alone. Padding may be any bytes, as in other servers.

/// The bytes are not the value that they should be: too short, a length or an alternative that is not legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the arguments cannot be decoded")]
pub struct Garbage;

/// Reads values one after the other.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(*head)
    }

    /// An unsigned number (section 4.2).
    pub fn u32(&mut self) -> Result<u32, Garbage> {
        self.array().map(u32::from_be_bytes)
    }

    /// An unsigned hyper (section 4.5).
    pub fn u64(&mut self) -> Result<u64, Garbage> {
        self.array().map(u64::from_be_bytes)
    }

    /// Opaque bytes of a known length (section 4.9), and their padding.
    pub fn fixed(&mut self, bytes: usize) -> Result<&'a [u8], Garbage> {
        let padded = bytes.checked_next_multiple_of(4).ok_or(Garbage)?;
        let (head, rest) = self.rest.split_at_checked(padded).ok_or(Garbage)?;
        self.rest = rest;
        Ok(&head[..bytes])
    }

    /// A length and opaque bytes, or a string (sections 4.10 and 4.11), of at most `most` bytes.
    pub fn opaque(&mut self, most: usize) -> Result<&'a [u8], Garbage> {
        let bytes = self.u32()? as usize;
        if bytes > most {
            return Err(Garbage);
        }
        self.fixed(bytes)
    }

    /// That nothing is left: more than the arguments is not the call that was meant.
    pub fn end(&self) -> Result<(), Garbage> {
        if self.rest.is_empty() { Ok(()) } else { Err(Garbage) }
    }
}

/// Zeros that follow so many opaque bytes.
pub const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() & 3
}

/// Appends a length, the bytes and their padding.
pub fn put_opaque(bytes: &[u8], out: &mut Vec<u8>) {
    u32::try_from(bytes.len()).expect("opaque bytes of less than 4 GiB").put(out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..padding(bytes.len())]);
}

/// A value with an encoding.
pub trait Xdr<'a>: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads what `put` appended.
    fn take(input: &mut Input<'a>) -> Result<Self, Garbage>;
}

/// The encoding of one value.
pub fn encoded<'a>(value: &impl Xdr<'a>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    value.put(&mut out);
    out
}

/// The value in all of the bytes.
pub fn decoded<'a, T: Xdr<'a>>(bytes: &'a [u8]) -> Result<T, Garbage> {
    let mut input = Input::new(bytes);
    let value = T::take(&mut input)?;
    input.end()?;
    Ok(value)
}

impl<'a> Xdr<'a> for () {
    fn put(&self, _out: &mut Vec<u8>) {}
    fn take(_input: &mut Input<'a>) -> Result<(), Garbage> {
        Ok(())
    }
}

impl<'a> Xdr<'a> for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn take(input: &mut Input<'a>) -> Result<u32, Garbage> {
        input.u32()
    }
}

impl<'a> Xdr<'a> for i32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn take(input: &mut Input<'a>) -> Result<i32, Garbage> {
        input.array().map(i32::from_be_bytes)
    }
}

impl<'a> Xdr<'a> for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn take(input: &mut Input<'a>) -> Result<u64, Garbage> {
        input.u64()
    }
}

impl<'a> Xdr<'a> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(*self).put(out);
    }
    fn take(input: &mut Input<'a>) -> Result<bool, Garbage> {
        match input.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }
}

/// Fixed opaque bytes: verifiers.
impl<'a, const N: usize> Xdr<'a> for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
        out.extend_from_slice(&[0; 3][..padding(N)]);
    }
    fn take(input: &mut Input<'a>) -> Result<[u8; N], Garbage> {
        let bytes = input.fixed(N)?;
        bytes.try_into().map_err(|_| Garbage)
    }
}

/// Optional data (section 4.19): whether it is there, and it.
impl<'a, T: Xdr<'a>> Xdr<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut Input<'a>) -> Result<Option<T>, Garbage> {
        bool::take(input)?.then(|| T::take(input)).transpose()
    }
}

/// A linked list (section 4.19): each with a word before it, and one behind the last. Every entry takes four bytes of
/// input at least, so what is allocated is bounded by the length of the record.
impl<'a, T: Xdr<'a>> Xdr<'a> for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        for value in self {
            true.put(out);
            value.put(out);
        }
        false.put(out);
    }
    fn take(input: &mut Input<'a>) -> Result<Vec<T>, Garbage> {
        let mut list = Vec::new();
        while bool::take(input)? {
            list.push(T::take(input)?);
        }
        Ok(list)
    }
}

/// Defines a struct whose encoding is its fields in order.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(<$life:lifetime>)? {
            $($(#[$inner:meta])* pub $field:ident: $kind:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        pub struct $name $(<$life>)? { $($(#[$inner])* pub $field: $kind),* }

        impl<'a> $crate::xdr::Xdr<'a> for $name $(<$life>)? {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::xdr::Xdr::put(&self.$field, out);)*
            }
            fn take(input: &mut $crate::xdr::Input<'a>) -> Result<Self, $crate::xdr::Garbage> {
                Ok(Self { $($field: $crate::xdr::Xdr::take(input)?),* })
            }
        }
    };
}
pub(crate) use record;

/// Defines an enumeration (section 4.3): a number that is none of its own is not decoded.
macro_rules! enumeration {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$inner:meta])* $variant:ident = $number:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name { $($(#[$inner])* $variant = $number),* }

        impl $name {
            /// Every value.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The value with this number.
            pub fn of(number: u32) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl<'a> $crate::xdr::Xdr<'a> for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $crate::xdr::Xdr::put(&(*self as u32), out);
            }
            fn take(input: &mut $crate::xdr::Input<'a>) -> Result<Self, $crate::xdr::Garbage> {
                $name::of(input.u32()?).ok_or($crate::xdr::Garbage)
            }
        }
    };
}
pub(crate) use enumeration;

/// Defines opaque bytes of at most so many, borrowed from the record.
macro_rules! opaque {
    ($(#[$meta:meta])* pub struct $name:ident of $most:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<'a>(pub &'a [u8]);

        impl<'a> $crate::xdr::Xdr<'a> for $name<'a> {
            fn put(&self, out: &mut Vec<u8>) {
                $crate::xdr::put_opaque(self.0, out);
            }
            fn take(input: &mut $crate::xdr::Input<'a>) -> Result<Self, $crate::xdr::Garbage> {
                input.opaque($most).map($name)
            }
        }
    };
}
pub(crate) use opaque;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_big_endian_and_opaque_bytes_are_padded() {
        let mut out = Vec::new();
        1u32.put(&mut out);
        put_opaque(b"abcde", &mut out);
        assert_eq!(out, [0, 0, 0, 1, 0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0]);
    }

    #[test]
    fn a_length_that_is_not_there_allocates_nothing() {
        for length in [5u32, 0x7fff_ffff, u32::MAX, u32::MAX - 2] {
            let bytes = [&length.to_be_bytes()[..], b"abcd"].concat();
            assert_eq!(Input::new(&bytes).opaque(usize::MAX), Err(Garbage));
        }
    }

    #[test]
    fn a_truth_value_is_zero_or_one() {
        assert_eq!(decoded::<bool>(&[0, 0, 0, 2]), Err(Garbage));
        assert_eq!(decoded::<Option<u32>>(&[0, 0, 0, 1]), Err(Garbage));
    }

    #[test]
    fn a_list_without_an_end_is_garbage() {
        let endless = [0, 0, 0, 1].repeat(10_000);
        assert_eq!(decoded::<Vec<()>>(&endless), Err(Garbage));
    }

    proptest! {
        #[test]
        fn values_come_back(numbers in prop::collection::vec(any::<u64>(), 0..20), maybe: Option<bool>, signed: i32) {
            let bytes = encoded(&numbers);
            prop_assert_eq!(decoded::<Vec<u64>>(&bytes).unwrap(), numbers);
            prop_assert_eq!(decoded::<Option<bool>>(&encoded(&maybe)), Ok(maybe));
            prop_assert_eq!(decoded::<i32>(&encoded(&signed)), Ok(signed));
        }

        #[test]
        fn opaque_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut out = Vec::new();
            put_opaque(&bytes, &mut out);
            prop_assert_eq!(out.len() % 4, 0);
            let mut input = Input::new(&out);
            prop_assert_eq!(input.opaque(40), Ok(&bytes[..]));
            prop_assert_eq!(input.end(), Ok(()));
        }
    }
}
