//! Little-endian encoding into and out of byte slices, for operation bodies, names and records.
//!
//! Encoding past the end of the buffer is our own mistake and panics; decoding past the end is the peer's and is
//! [`Short`].

/// The bytes ended before the value did, or a length or tag in them is not legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

impl core::fmt::Display for Short {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the message ends before its last field")
    }
}

impl core::error::Error for Short {}

/// Writes values one after the other into a slice.
#[derive(Debug)]
pub struct Encoder<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Encoder<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Encoder { bytes, at: 0 }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.at
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// Appends `bytes` as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    /// Appends two bytes, lowest first.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends four bytes, lowest first.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends eight bytes, lowest first.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends eight bytes, two's complement, lowest first.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a length of two bytes, then the bytes: names, values, lists.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let len = u16::try_from(bytes.len()).expect("a field of at most 65,535 bytes");
        self.u16(len).raw(bytes)
    }
}

/// Reads values one after the other out of a slice.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], Short> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Short)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let mut value = [0; N];
        value.copy_from_slice(self.raw(N)?);
        Ok(value)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Short> {
        Ok(self.array::<1>()?[0])
    }

    /// The next two bytes as a number.
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next sixteen bytes as a number.
    pub fn u128(&mut self) -> Result<u128, Short> {
        self.array().map(u128::from_le_bytes)
    }

    /// The next eight bytes as a signed number.
    pub fn i64(&mut self) -> Result<i64, Short> {
        self.array().map(i64::from_le_bytes)
    }

    /// A length of two bytes and as many bytes as it says.
    pub fn bytes(&mut self) -> Result<&'a [u8], Short> {
        let len = self.u16()?;
        self.raw(len.into())
    }
}
