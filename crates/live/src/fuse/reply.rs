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
use wire::{Attr, Errno};

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

/// `fuse_entry_out`. Numbers of files are never reused, so that the generation is always 0.
pub(super) fn put_entry(out: &mut Output<'_>, belief: &Belief, attr: &Attr) {
    out.u64(attr.file.0).u64(0).u64(belief.entry.as_secs()).u64(belief.attr.as_secs());
    out.u32(belief.entry.subsec_nanos()).u32(belief.attr.subsec_nanos());
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
    out.u32(attr.uid).u32(attr.gid).u32(attr.rdev).u32(BLOCK_BYTES as u32).u32(0);
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
