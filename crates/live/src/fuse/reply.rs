//! From what a file operation brought to the kernel's bytes.
//!
//! Pure: a reply is a head in a buffer that is kept between replies, and the frames that follow it. An answer that
//! does not fit its question is our own mistake and reaches the application as EIO; it cannot end the mount.

use super::abi::{FOPEN_KEEP_CACHE, OFFSET_MAX, OUT_HEADER_BYTES, Output};
use super::limits::BELIEF;
use super::request::Shape;
use endpoint::Frame;
use node::rings::{FileReply, Handle, Lock, LockKind, VolumeSpace};
use std::time::Duration;
use wire::limits::{BLOCK_BYTES, NAME_BYTES_MAX};
use wire::{Attr, Errno, FileKind};

/// How long the kernel may believe what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// That a name is this file.
    pub entry: Duration,
    /// That a file has these attributes.
    pub attr: Duration,
    /// That there is no such name; zero: it asks each time.
    pub absence: Duration,
}

impl Default for Belief {
    fn default() -> Belief {
        Belief { entry: BELIEF, attr: BELIEF, absence: Duration::ZERO }
    }
}

/// The data that follows a reply's head.
#[derive(Debug, Default)]
pub struct Tail {
    /// Where it is.
    pub frames: Vec<Frame>,
    /// How much of the list, from its start.
    pub bytes: usize,
}

/// Writes the head of the reply to request `unique` into `head` and returns what follows it. `None`: no reply at all.
pub fn emit(
    head: &mut Vec<u8>,
    unique: u64,
    shape: &Shape,
    belief: &Belief,
    result: Result<FileReply, Errno>,
) -> Option<Tail> {
    if *shape == Shape::Silent {
        return None;
    }
    start(head);
    let body = result.map_err(|errno| meant(shape, errno));
    let result = body.and_then(|reply| put_body(head, shape, belief, reply));
    let result = match result {
        Err(Errno::ENOENT) if *shape == Shape::Lookup && !belief.absence.is_zero() => {
            put_absence(&mut Output(head), belief);
            Ok(Tail::default())
        }
        other => other,
    };
    Some(finish(head, unique, result))
}

/// The reply that only says `result`.
pub fn emit_status(head: &mut Vec<u8>, unique: u64, result: Result<(), Errno>) {
    start(head);
    finish(head, unique, result.map(|()| Tail::default()));
}

/// Makes room for the header at the start of the empty buffer.
pub fn start(head: &mut Vec<u8>) {
    head.clear();
    head.resize(OUT_HEADER_BYTES, 0);
}

/// Writes the header: length, error, request. An error has no body.
pub fn finish(head: &mut Vec<u8>, unique: u64, result: Result<Tail, Errno>) -> Tail {
    let (error, tail) = match result {
        Ok(tail) => (0, tail),
        Err(errno) => {
            head.truncate(OUT_HEADER_BYTES);
            (-i32::from(legal(errno).0), Tail::default())
        }
    };
    let bytes = (head.len() + tail.bytes) as u32;
    head[0..4].copy_from_slice(&bytes.to_ne_bytes());
    head[4..8].copy_from_slice(&error.to_ne_bytes());
    head[8..16].copy_from_slice(&unique.to_ne_bytes());
    tail
}

/// The kernel refuses numbers that are none of an application's.
fn legal(errno: Errno) -> Errno {
    if (1..512).contains(&errno.0) { errno } else { Errno::EIO }
}

/// ENOSYS tells the kernel never to ask again and to do without: locks would become local to this machine. A front
/// that cannot do something now must not say that.
fn meant(shape: &Shape, errno: Errno) -> Errno {
    match (errno, shape) {
        (Errno::ENOSYS, Shape::Lock | Shape::SetLock | Shape::WaitingLock) => Errno::ENOLCK,
        (Errno::ENOSYS, _) => Errno::EOPNOTSUPP,
        _ => errno,
    }
}

fn put_body(
    head: &mut Vec<u8>,
    shape: &Shape,
    belief: &Belief,
    reply: FileReply,
) -> Result<Tail, Errno> {
    let mut out = Output(head);
    let out = &mut out;
    match (shape, reply) {
        (Shape::Empty | Shape::SetLock | Shape::WaitingLock, _) => {}
        (Shape::Attr, FileReply::Attr(attr)) => put_attr_out(out, belief, &attr),
        (Shape::Entry | Shape::Lookup, FileReply::Entry(attr)) => put_entry(out, belief, &attr),
        (Shape::Open, FileReply::Opened { handle, keep_cache }) => {
            put_open(out, handle, keep_cache);
        }
        (Shape::Create, FileReply::Created { attr, handle }) => {
            put_entry(out, belief, &attr);
            put_open(out, handle, false);
        }
        (Shape::Data { bytes: most }, FileReply::Data { frames, bytes }) => {
            return data(frames, bytes, *most);
        }
        (Shape::Written { bytes: most }, FileReply::Written(bytes)) if bytes <= *most => {
            out.u32(bytes).u32(0);
        }
        (Shape::Path, FileReply::Bytes(path)) => {
            out.bytes(&path);
        }
        (Shape::Value { bytes }, FileReply::Bytes(value)) => put_value(out, *bytes, &value)?,
        (Shape::Space, FileReply::Space(space)) => put_space(out, &space),
        (Shape::Entries(listing), FileReply::Entries { entries, .. }) => {
            listing.put(out, belief, &entries);
        }
        (Shape::Lock, FileReply::Lock(lock)) => put_lock(out, &lock),
        (Shape::Offset, FileReply::Offset(offset)) => {
            out.u64(offset);
        }
        (Shape::Noted { offset }, FileReply::Offset(bytes)) => {
            out.u32(0).u32(0).u32(0).u32(0).u64(*offset).u64(bytes);
        }
        _ => return Err(Errno::EIO),
    }
    Ok(Tail::default())
}

/// Data that is really there and no more than was asked for.
fn data(frames: Vec<Frame>, bytes: usize, most: u32) -> Result<Tail, Errno> {
    let there: usize = frames.iter().map(|frame| frame.len()).sum();
    if bytes > there || bytes > most as usize {
        return Err(Errno::EIO);
    }
    Ok(Tail { frames, bytes })
}

fn put_value(out: &mut Output<'_>, room: u32, value: &[u8]) -> Result<(), Errno> {
    match room {
        0 => out.u32(value.len() as u32).u32(0),
        room if value.len() > room as usize => return Err(Errno::ERANGE),
        _ => out.bytes(value),
    };
    Ok(())
}

/// `fuse_entry_out`. Numbers of files are never reused, so that the generation is always 0. One of several names of a
/// file is not believed: an open then does not say by which of them it came.
pub(super) fn put_entry(out: &mut Output<'_>, belief: &Belief, attr: &Attr) {
    let single = attr.links == 1 || attr.kind == FileKind::Directory;
    let entry = if single { belief.entry } else { Duration::ZERO };
    out.u64(attr.file.0).u64(0).u64(entry.as_secs()).u64(belief.attr.as_secs());
    out.u32(entry.subsec_nanos()).u32(belief.attr.subsec_nanos());
    put_attr(out, attr);
}

/// `fuse_entry_out` for no file.
fn put_absence(out: &mut Output<'_>, belief: &Belief) {
    out.u64(0).u64(0).u64(belief.absence.as_secs()).u64(0);
    out.u32(belief.absence.subsec_nanos()).u32(0);
    out.zeros(super::abi::ATTR_BYTES);
}

fn put_attr_out(out: &mut Output<'_>, belief: &Belief, attr: &Attr) {
    out.u64(belief.attr.as_secs()).u32(belief.attr.subsec_nanos()).u32(0);
    put_attr(out, attr);
}

/// `fuse_attr`.
fn put_attr(out: &mut Output<'_>, attr: &Attr) {
    let times = [attr.atime, attr.mtime, attr.ctime];
    out.u64(attr.file.0).u64(attr.size).u64(attr.used.div_ceil(512));
    times.iter().for_each(|time| _ = out.u64(time.seconds as u64));
    times.iter().for_each(|time| _ = out.u32(time.nanos));
    out.u32(attr.kind.mode_bits() | attr.mode & 0o7777).u32(attr.links);
    out.u32(attr.uid).u32(attr.gid).u32(attr.device()).u32(BLOCK_BYTES as u32).u32(0);
}

fn put_open(out: &mut Output<'_>, handle: Handle, keep_cache: bool) {
    out.u64(handle.0).u32(if keep_cache { FOPEN_KEEP_CACHE } else { 0 }).u32(0);
}

/// `fuse_kstatfs`.
fn put_space(out: &mut Output<'_>, space: &VolumeSpace) {
    let block = BLOCK_BYTES as u64;
    let free = space.free_bytes / block;
    out.u64(space.total_bytes / block).u64(free).u64(free);
    out.u64(space.files.saturating_add(space.free_files)).u64(space.free_files);
    out.u32(BLOCK_BYTES as u32).u32(NAME_BYTES_MAX as u32).u32(BLOCK_BYTES as u32);
    out.zeros(7 * 4);
}

fn put_lock(out: &mut Output<'_>, lock: &Lock) {
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    out.u64(lock.start).u64(lock.end.min(OFFSET_MAX)).u32(kind as u32).u32(lock.pid);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::abi::Input;
    use endpoint::{Frames, HeapRegion};
    use wire::{FileId, FileKind, Wall};

    fn emitted(shape: Shape, result: Result<FileReply, Errno>) -> (i32, Vec<u8>, usize) {
        emitted_by(&Belief::default(), shape, result)
    }

    /// Error, body, bytes of the tail; the header is checked.
    fn emitted_by(
        belief: &Belief,
        shape: Shape,
        result: Result<FileReply, Errno>,
    ) -> (i32, Vec<u8>, usize) {
        let mut head = vec![9; 3];
        let tail = emit(&mut head, 77, &shape, belief, result).unwrap();
        let mut input = Input::new(&head);
        assert_eq!(input.u32().unwrap() as usize, head.len() + tail.bytes);
        let error = input.u32().unwrap() as i32;
        assert_eq!(input.u64().unwrap(), 77);
        (error, head[16..].to_vec(), tail.bytes)
    }

    fn attr() -> Attr {
        Attr {
            file: FileId(5),
            kind: FileKind::Symlink,
            mode: 0o777,
            size: 3,
            used: 513,
            mtime: Wall { seconds: -2, nanos: 7 },
            ..Attr::default()
        }
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        let handle = Handle(1);
        let sizes = |shape, reply| emitted(shape, Ok(reply)).1.len();
        assert_eq!(sizes(Shape::Attr, FileReply::Attr(attr())), 104);
        assert_eq!(sizes(Shape::Entry, FileReply::Entry(attr())), 128);
        assert_eq!(sizes(Shape::Open, FileReply::Opened { handle, keep_cache: true }), 16);
        assert_eq!(sizes(Shape::Create, FileReply::Created { attr: attr(), handle }), 144);
        assert_eq!(sizes(Shape::Space, FileReply::Space(VolumeSpace::default())), 80);
        assert_eq!(sizes(Shape::Written { bytes: 9 }, FileReply::Written(9)), 8);
        assert_eq!(sizes(Shape::Offset, FileReply::Offset(9)), 8);
        let lock = Lock { start: 0, end: u64::MAX, kind: LockKind::Write, pid: 1 };
        let (_, bytes, _) = emitted(Shape::Lock, Ok(FileReply::Lock(lock)));
        assert_eq!(bytes.len(), 24);
        assert_eq!(bytes[8..16], OFFSET_MAX.to_ne_bytes());
        assert_eq!(sizes(Shape::Empty, FileReply::Done), 0);
    }

    #[test]
    fn attributes_stand_where_the_kernel_reads_them() {
        let (_, bytes, _) = emitted(Shape::Attr, Ok(FileReply::Attr(attr())));
        let mut input = Input::new(&bytes);
        let belief = (input.u64().unwrap(), input.u32().unwrap(), input.u32().unwrap());
        assert_eq!(belief, (1, 0, 0));
        let words: Vec<u64> = (0..6).map(|_| input.u64().unwrap()).collect();
        assert_eq!(words, [5, 3, 2, 0, -2i64 as u64, 0]);
        let halves: Vec<u32> = (0..4).map(|_| input.u32().unwrap()).collect();
        assert_eq!(halves, [0, 7, 0, 0o120777]);
    }

    #[test]
    fn the_length_of_a_value_can_be_asked_first() {
        let value = |bytes, value: &[u8]| {
            emitted(Shape::Value { bytes }, Ok(FileReply::Bytes(value.to_vec())))
        };
        assert_eq!(value(0, b"abcde").1, [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(value(5, b"abcde").1, b"abcde");
        assert_eq!(value(4, b"abcde"), (-34, vec![], 0));
    }

    #[test]
    fn errors_have_no_body_and_never_switch_anything_off() {
        assert_eq!(emitted(Shape::Attr, Err(Errno::ENOENT)), (-2, vec![], 0));
        assert_eq!(emitted(Shape::SetLock, Err(Errno::ENOSYS)).0, -37);
        assert_eq!(emitted(Shape::Empty, Err(Errno::ENOSYS)).0, -95);
        assert_eq!(emitted(Shape::Empty, Err(Errno(0))).0, -5);
        assert_eq!(emitted(Shape::Empty, Err(Errno(512))).0, -5);
    }

    #[test]
    fn absence_is_believed_only_when_asked_for() {
        assert_eq!(emitted(Shape::Lookup, Err(Errno::ENOENT)), (-2, vec![], 0));
        let belief = Belief { absence: Duration::from_millis(1500), ..Belief::default() };
        let (error, bytes, _) = emitted_by(&belief, Shape::Lookup, Err(Errno::ENOENT));
        assert_eq!((error, bytes.len()), (0, 128));
        assert_eq!(bytes[16..24], 1u64.to_ne_bytes());
        assert_eq!(bytes[32..36], 500_000_000u32.to_ne_bytes());
        assert_eq!(emitted_by(&belief, Shape::Entry, Err(Errno::ENOENT)).0, -2);
    }

    #[test]
    fn an_answer_that_does_not_fit_is_an_error_of_input_or_output() {
        let frames = Frames::new(HeapRegion::new(4));
        let data = |bytes| {
            let frames = vec![frames.copy_of(b"abc").unwrap(), frames.copy_of(b"de").unwrap()];
            emitted(Shape::Data { bytes: 4 }, Ok(FileReply::Data { frames, bytes }))
        };
        assert_eq!(data(4), (0, vec![], 4));
        assert_eq!(data(5).0, -5);
        assert_eq!(emitted(Shape::Written { bytes: 3 }, Ok(FileReply::Written(4))).0, -5);
        assert_eq!(emitted(Shape::Attr, Ok(FileReply::Done)).0, -5);
        let mut head = Vec::new();
        let silent = emit(&mut head, 1, &Shape::Silent, &Belief::default(), Ok(FileReply::Done));
        assert!(silent.is_none());
    }
}
