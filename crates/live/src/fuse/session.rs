//! One mount's conversation with the kernel: reads requests, asks the front, writes replies.
//!
//! It is the only part that knows /dev/fuse as a file, and it knows nothing else: not who mounted, not who waits for
//! the descriptor. It holds back when the front or the pool is full: requests then wait in the kernel.
//!
//! Invariant: every request that was read gets exactly one reply, or none where the protocol has none.

use super::abi::{IN_HEADER_BYTES, MINOR_MIN, OUT_HEADER_BYTES, Output, opcode};
use super::landing::{HEAD_BYTES, Landing, RUNS_MAX};
use super::limits::{REPLY_PIECES_MAX, TURN_REQUESTS_MAX};
use super::negotiation::{self, Answer};
use super::reply::{self, Belief, Tail};
use super::request::{self, Header, KernelRequest, Offer, Shape, WriteIn};
use super::requests::Requests;
use arrayvec::ArrayVec;
use endpoint::Frames;
use node::rings::{Caller, FileDone, FileOp, FileRequest};
use rustix::io::Errno as OsError;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::{Errno, FileId};

/// The node that does the file operations.
#[expect(clippy::result_large_err, reason = "a request that is given back is not an error")]
pub trait Front {
    /// Takes a request, or gives it back when there is no room now.
    fn push(&mut self, request: FileRequest) -> Result<(), FileRequest>;
    /// The next answer.
    fn take_done(&mut self) -> Option<FileDone>;
    /// The kernel forgot `lookups` of the entries it was given for `file`.
    fn forget(&mut self, file: FileId, lookups: u64) {
        let _ = (file, lookups);
    }
}

/// How far a mount is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// INIT has not been agreed on.
    Starting,
    /// In use.
    Serving,
    /// It cannot be used any more: it was unmounted or aborted.
    Ended,
}

/// Result of one look at the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Moved,
    /// The kernel has nothing, or we must not read now.
    Idle,
}

/// Number at the front of what the kernel wants no reply to; requests have greater ones.
const UNANSWERED: u64 = 0;

/// From Linux 6.1 on the kernel takes set-group-id from new programs whose makers are not of the group that the
/// directory gives. Before, who asks for it at once and not by a chmod does not get it, being a member or not.
const MINOR_STRIPS_SET_GID: u32 = 37;

fn without_set_gid(mode: u32) -> u32 {
    let program = libc::S_ISGID | libc::S_IXGRP;
    if mode & program == program { mode & !libc::S_ISGID } else { mode }
}

fn interrupt(front: u64) -> FileRequest {
    let (caller, op) = (Caller::default(), FileOp::Interrupt { front });
    FileRequest { front: UNANSWERED, caller, op }
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionCounters {
    /// Requests read.
    pub requests: u64,
    /// Replies written.
    pub replies: u64,
    /// Answers of the front that named no request, and replies that the kernel refused: mistakes of ours.
    pub mistakes: u64,
}

/// The conversation.
pub struct Session {
    device: OwnedFd,
    stage: Stage,
    belief: Belief,
    landing: Landing,
    body: Vec<u8>,
    head: Vec<u8>,
    requests: Requests,
    held: Option<FileRequest>,
    counters: SessionCounters,
    /// Second number of the version agreed on.
    minor: u32,
}

impl Session {
    /// Over an open /dev/fuse that belongs to a mount.
    pub fn new(device: OwnedFd, belief: Belief) -> Session {
        Session {
            device,
            stage: Stage::Starting,
            belief,
            landing: Landing::new(),
            body: Vec::new(),
            head: Vec::new(),
            requests: Requests::new(),
            held: None,
            counters: SessionCounters::default(),
            minor: MINOR_MIN,
        }
    }

    /// How far the mount is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether the kernel has ended the connection, which it does before the mount's number is another one's. It may
    /// not have been read yet.
    pub fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut asked = [PollFd::new(&self.device, PollFlags::empty())];
        let ended = poll(&mut asked, Some(&Timespec::default())).is_ok()
            && asked[0].revents().contains(PollFlags::ERR);
        ended || self.stage == Stage::Ended
    }

    /// The counters since the mount.
    pub fn counters(&self) -> SessionCounters {
        self.counters
    }

    /// Whether every request read was answered, but for locks that wait, maybe for ever.
    pub fn is_quiet(&self) -> bool {
        self.requests.is_quiet() && self.held.is_none()
    }

    /// Whether a request that the kernel has could be read now.
    pub fn may_read(&mut self, frames: &Frames) -> bool {
        self.stage != Stage::Ended
            && self.held.is_none()
            && self.requests.has_room()
            && self.landing.make_room(frames)
    }

    /// Moves answers to the kernel and requests to the front, a bounded number; whether anything moved.
    pub fn poll(&mut self, front: &mut impl Front, frames: &Frames) -> io::Result<bool> {
        let mut moved = self.answer(front)?;
        for _ in 0..TURN_REQUESTS_MAX {
            if self.step(front, frames)? == Step::Idle {
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// As [`poll`](Session::poll) for one request; with a descriptor that waits, waits for it.
    pub fn poll_once(&mut self, front: &mut impl Front, frames: &Frames) -> io::Result<bool> {
        Ok(self.step(front, frames)? == Step::Moved)
    }

    /// Ends what callers wait for that have `given_up`. To be called every
    /// [`LOOK_INTERVAL`](super::limits::LOOK_INTERVAL) while there are requests.
    pub fn interrupt_abandoned(&mut self, front: &mut impl Front, given_up: impl Fn(u32) -> bool) {
        for number in self.requests.abandoned(given_up) {
            // One that finds no room now is tried again at the next call.
            let _ = front.push(interrupt(number));
        }
    }

    /// Writes the replies to what the front has done.
    fn answer(&mut self, front: &mut impl Front) -> io::Result<bool> {
        let mut moved = false;
        while let Some(FileDone { front, result }) = front.take_done() {
            moved = true;
            if front == UNANSWERED {
                continue;
            }
            let Some((unique, shape)) = self.requests.remove(front) else {
                self.counters.mistakes += 1;
                continue;
            };
            if let Some(tail) = reply::emit(&mut self.head, unique, &shape, &self.belief, result) {
                self.send(unique, &tail)?;
            }
        }
        Ok(moved)
    }

    /// One request, and the answers that are there after it.
    fn step(&mut self, front: &mut impl Front, frames: &Frames) -> io::Result<Step> {
        if let Some(held) = self.held.take() {
            self.held = front.push(held).err();
        }
        if !self.may_read(frames) {
            return Ok(Step::Idle);
        }
        let Some(bytes) = self.receive()? else {
            return Ok(Step::Idle);
        };
        self.counters.requests += 1;
        self.take_in(bytes, front, frames)?;
        self.answer(front)?;
        Ok(Step::Moved)
    }

    /// Reads one request; how long it is.
    fn receive(&mut self) -> io::Result<Option<usize>> {
        let mut slices: ArrayVec<IoSliceMut<'_>, { RUNS_MAX + 1 }> = ArrayVec::new();
        slices.extend(self.landing.slices());
        loop {
            match rustix::io::readv(&self.device, &mut slices) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(OsError::AGAIN) => return Ok(None),
                // ENOENT: the caller gave up on the request before it was read.
                Err(OsError::INTR | OsError::NOENT) => {}
                Err(OsError::NODEV | OsError::CONNABORTED) => {
                    self.stage = Stage::Ended;
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_in(&mut self, bytes: usize, front: &mut impl Front, frames: &Frames) -> io::Result<()> {
        let Ok(header) = Header::parse(&self.landing.head()[..bytes.min(IN_HEADER_BYTES)]) else {
            let text = format!("the kernel sent a FUSE request of {bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        let asked = match header.opcode {
            opcode::WRITE => self.parse_write(&header, bytes, frames),
            _ => {
                self.landing.copy_body(bytes, &mut self.body);
                request::parse(&header, &self.body)
            }
        };
        match asked {
            Ok(asked) => self.ask(&header, asked, front),
            Err(errno) => self.send_status(header.unique, Err(errno)),
        }
    }

    fn parse_write(
        &mut self,
        header: &Header,
        bytes: usize,
        frames: &Frames,
    ) -> Result<KernelRequest, Errno> {
        let data_bytes = bytes.checked_sub(HEAD_BYTES).ok_or(Errno::EINVAL)?;
        let write = WriteIn::parse(&self.landing.head()[IN_HEADER_BYTES..])?;
        if write.bytes as usize != data_bytes {
            return Err(Errno::EINVAL);
        }
        let data = self.landing.take(data_bytes, frames);
        let WriteIn { handle, offset, bytes, flags } = write;
        let op = FileOp::Write { file: header.file, handle, offset, data, flags };
        Ok(KernelRequest::Operation(op, Shape::Written { bytes }))
    }

    fn ask(
        &mut self,
        header: &Header,
        asked: KernelRequest,
        front: &mut impl Front,
    ) -> io::Result<()> {
        let unique = header.unique;
        match asked {
            KernelRequest::Operation(_, Shape::WaitingLock)
                if !self.requests.has_room_to_wait() =>
            {
                self.send_status(unique, Err(Errno::ENOLCK))
            }
            KernelRequest::Operation(op, shape) => {
                self.post(header, op, shape, front);
                Ok(())
            }
            KernelRequest::Interrupt { unique } => {
                // Not found: its answer is on its way, or its caller is looked at (see `callers`).
                if let Some(number) = self.requests.find_interrupted(unique) {
                    self.held = front.push(interrupt(number)).err();
                }
                Ok(())
            }
            KernelRequest::Forget(forgotten) => {
                forgotten.into_iter().for_each(|(file, lookups)| front.forget(file, lookups));
                Ok(())
            }
            KernelRequest::Init(offer) => self.agree(unique, &offer),
            KernelRequest::Refused(errno) => self.send_status(unique, Err(errno)),
            KernelRequest::Destroy => self.send_status(unique, Ok(())),
            KernelRequest::Nothing => Ok(()),
        }
    }

    fn post(&mut self, header: &Header, mut op: FileOp, shape: Shape, front: &mut impl Front) {
        if let FileOp::Create { mode, .. } | FileOp::MakeNode { mode, .. } = &mut op
            && self.minor < MINOR_STRIPS_SET_GID
            && header.caller.uid != 0
        {
            *mode = without_set_gid(*mode);
        }
        let number = self.requests.insert(header.unique, header.caller.pid, shape);
        let request = FileRequest { front: number, caller: header.caller.clone(), op };
        self.held = front.push(request).err();
    }

    fn agree(&mut self, unique: u64, offer: &Offer) -> io::Result<()> {
        let answer = match negotiation::answer(offer) {
            Ok(answer) => answer,
            Err(errno) => {
                self.send_status(unique, Err(errno))?;
                let (major, minor) = (offer.major, offer.minor);
                let text = format!(
                    "the kernel speaks FUSE {major}.{minor}; 7.31 is needed: use Linux 5.4 or newer"
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        };
        reply::start(&mut self.head);
        answer.put(&mut Output(&mut self.head));
        let tail = reply::finish(&mut self.head, unique, Ok(Tail::default()));
        self.send(unique, &tail)?;
        if let Answer::Agreed { minor, .. } = answer {
            (self.stage, self.minor) = (Stage::Serving, minor);
        }
        Ok(())
    }

    fn send_status(&mut self, unique: u64, result: Result<(), Errno>) -> io::Result<()> {
        reply::emit_status(&mut self.head, unique, result);
        self.send(unique, &Tail::default())
    }

    /// Writes the reply in `head` and `tail`. One that the kernel finds wrong is replaced by EIO.
    fn send(&mut self, unique: u64, tail: &Tail) -> io::Result<()> {
        match self.write(tail) {
            Ok(()) => self.counters.replies += 1,
            // ENOENT: the caller gave up. The others: the next read says that the mount has ended.
            Err(OsError::NOENT | OsError::NODEV | OsError::CONNABORTED | OsError::PERM) => {}
            Err(OsError::INVAL) if self.head.len() + tail.bytes > OUT_HEADER_BYTES => {
                self.counters.mistakes += 1;
                return self.send_status(unique, Err(Errno::EIO));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn write(&self, tail: &Tail) -> Result<(), OsError> {
        let mut slices: ArrayVec<IoSlice<'_>, REPLY_PIECES_MAX> = ArrayVec::new();
        slices.push(IoSlice::new(&self.head));
        gather(tail, &mut slices).ok_or(OsError::INVAL)?;
        loop {
            match rustix::io::writev(&self.device, &slices) {
                Ok(_) => return Ok(()),
                Err(OsError::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Adds the first bytes of the frames. `None`: more pieces than one call takes.
fn gather<'a>(tail: &'a Tail, slices: &mut ArrayVec<IoSlice<'a>, REPLY_PIECES_MAX>) -> Option<()> {
    let mut left = tail.bytes;
    for frame in &tail.frames {
        let part = left.min(frame.len());
        if part > 0 {
            slices.try_push(IoSlice::new(&frame[..part])).ok()?;
        }
        left -= part;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::abi::Input;
    use endpoint::HeapRegion;
    use node::rings::{FileReply, Handle};
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::collections::VecDeque;

    /// A front that takes `room` requests and answers when told to.
    #[derive(Default)]
    struct Desk {
        room: usize,
        taken: VecDeque<FileRequest>,
        done: VecDeque<FileDone>,
    }

    impl Desk {
        fn answer(&mut self, result: Result<FileReply, Errno>) -> FileOp {
            let FileRequest { front, op, .. } = self.taken.pop_front().unwrap();
            self.done.push_back(FileDone { front, result });
            op
        }
    }

    impl Front for Desk {
        fn push(&mut self, request: FileRequest) -> Result<(), FileRequest> {
            if self.taken.len() == self.room {
                return Err(request);
            }
            self.taken.push_back(request);
            Ok(())
        }

        fn take_done(&mut self) -> Option<FileDone> {
            self.done.pop_front()
        }
    }

    /// A session whose kernel is the test: packets in, packets out.
    struct Pair {
        session: Session,
        kernel: OwnedFd,
        desk: Desk,
        frames: Frames,
    }

    impl Pair {
        fn new(room: usize, pages: usize) -> Pair {
            let (kernel, device) = rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                None,
            )
            .unwrap();
            let session = Session::new(device, Belief::default());
            let frames = Frames::new(HeapRegion::new(pages));
            Pair { session, kernel, desk: Desk { room, ..Desk::default() }, frames }
        }

        fn send(&self, opcode: u32, unique: u64, body: &[u8]) {
            let mut bytes = Vec::new();
            let mut out = Output(&mut bytes);
            out.u32((IN_HEADER_BYTES + body.len()) as u32).u32(opcode).u64(unique).u64(1);
            out.u32(0).u32(0).u32(1).u32(0).bytes(body);
            rustix::io::write(&self.kernel, &bytes).unwrap();
        }

        fn poll(&mut self) -> bool {
            self.session.poll(&mut self.desk, &self.frames).unwrap()
        }

        /// The next reply: request, error, body.
        fn reply(&self) -> Option<(u64, i32, Vec<u8>)> {
            let mut bytes = vec![0; 1 << 20];
            let length = rustix::io::read(&self.kernel, &mut bytes[..]).ok()?;
            let mut input = Input::new(&bytes[..length]);
            assert_eq!(input.u32().unwrap() as usize, length);
            let error = input.u32().unwrap() as i32;
            Some((input.u64().unwrap(), error, bytes[OUT_HEADER_BYTES..length].to_vec()))
        }
    }

    fn write_in(offset: u64, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        Output(&mut body).u64(7).u64(offset).u32(data.len() as u32).zeros(20).bytes(data);
        body
    }

    #[test]
    fn the_data_of_writes_lands_in_frames() {
        let mut pair = Pair::new(9, 1000);
        let data: Vec<u8> = (0..100_000u32).map(|at| (at / 7) as u8).collect();
        pair.send(opcode::WRITE, 2, &write_in(5, &data));
        pair.send(opcode::WRITE, 4, &write_in(9, &data[..100]));
        assert!(pair.poll());
        for length in [100_000, 100] {
            let FileOp::Write { data: frames, handle, .. } =
                pair.desk.answer(Ok(FileReply::Written(length as u32)))
            else {
                panic!()
            };
            assert_eq!(handle, Handle(7));
            let there: Vec<u8> = frames.iter().flat_map(|frame| frame.to_vec()).collect();
            assert!(there == data[..length]);
        }
        pair.poll();
        assert_eq!(pair.reply(), Some((2, 0, [&100_000u32.to_ne_bytes()[..], &[0; 4]].concat())));
        assert_eq!(pair.reply().unwrap().0, 4);
        assert!(pair.session.is_quiet());
    }

    #[test]
    fn a_full_front_stops_the_reading_and_loses_nothing() {
        let mut pair = Pair::new(2, 1000);
        (1..=5).for_each(|number| pair.send(opcode::STATFS, number * 2, &[]));
        pair.poll();
        assert_eq!(pair.desk.taken.len(), 2);
        assert_eq!(pair.session.counters().requests, 3);
        assert!(!pair.session.may_read(&pair.frames));
        for number in 1..=5 {
            pair.desk.answer(Err(Errno::EIO));
            pair.poll();
            assert_eq!(pair.reply(), Some((number * 2, -5, vec![])));
        }
        assert!(pair.session.is_quiet());
        assert_eq!(pair.reply(), None);
    }

    #[test]
    fn a_request_is_interrupted_when_its_caller_gives_up_and_not_by_any_signal() {
        let mut pair = Pair::new(9, 1000);
        pair.send(opcode::STATFS, 6, &[]);
        pair.send(opcode::INTERRUPT, 3, &6u64.to_ne_bytes());
        pair.send(opcode::INTERRUPT, 5, &4u64.to_ne_bytes());
        pair.poll();
        assert_eq!(pair.desk.taken.len(), 1);
        let waiting = pair.desk.taken[0].front;
        for _ in 0..2 {
            pair.session.interrupt_abandoned(&mut pair.desk, |caller| caller == 1);
        }
        assert_eq!(pair.desk.taken.len(), 2, "at the second look");
        pair.desk.answer(Err(Errno::EINTR));
        let interrupt = pair.desk.answer(Ok(FileReply::Done));
        assert!(matches!(interrupt, FileOp::Interrupt { front } if front == waiting));
        pair.poll();
        assert_eq!(pair.reply(), Some((6, -4, vec![])));
        assert_eq!(pair.reply(), None);
        assert!(pair.session.is_quiet());
    }

    #[test]
    fn locks_wait_in_bounded_number() {
        let mut pair = Pair::new(crate::fuse::limits::WAITING_LOCKS_MAX + 1, 1000);
        let mut body = Vec::new();
        Output(&mut body).u64(7).u64(1).u64(0).u64(9).u32(libc::F_WRLCK as u32).zeros(12);
        for unique in 0..=crate::fuse::limits::WAITING_LOCKS_MAX as u64 {
            pair.send(opcode::SETLKW, unique, &body);
            pair.poll();
        }
        let last = crate::fuse::limits::WAITING_LOCKS_MAX as u64;
        assert_eq!(pair.reply(), Some((last, -37, vec![])));
    }

    #[test]
    fn an_old_kernel_gives_no_set_group_id_to_new_programs() {
        assert_eq!(without_set_gid(0o6755), 0o4755);
        assert_eq!(without_set_gid(0o2745), 0o2745, "no program");
        let mut pair = Pair::new(9, 1000);
        let mut init = Vec::new();
        Output(&mut init).u32(7).u32(31).u32(1).u32(1);
        pair.send(opcode::INIT, 2, &init);
        let mut body = Vec::new();
        Output(&mut body).u32(0).u32(0o102755).zeros(8).bytes(b"program\0");
        pair.send(opcode::CREATE, 4, &body);
        pair.poll();
        let FileOp::Create { mode, .. } = pair.desk.answer(Err(Errno::EIO)) else { panic!() };
        assert_eq!(mode, 0o2755, "root's");
        pair.session.minor = MINOR_STRIPS_SET_GID - 1;
        let header = Header::parse(&[0; IN_HEADER_BYTES]).unwrap();
        let caller = Caller { uid: 1000, ..header.caller.clone() };
        let op =
            FileOp::MakeNode { parent: FileId(1), name: [b'x'].into(), mode: 0o102755, rdev: 0 };
        pair.session.post(&Header { caller, ..header }, op, Shape::Entry, &mut pair.desk);
        let FileOp::MakeNode { mode, .. } = pair.desk.answer(Err(Errno::EIO)) else { panic!() };
        assert_eq!(mode, 0o100755);
    }

    #[test]
    fn an_answer_given_twice_is_counted_and_not_sent() {
        let mut pair = Pair::new(9, 1000);
        pair.send(opcode::STATFS, 2, &[]);
        pair.poll();
        let front = pair.desk.taken[0].front;
        pair.desk.answer(Err(Errno::EIO));
        pair.desk.done.push_back(FileDone { front, result: Err(Errno::EIO) });
        pair.poll();
        assert!(pair.reply().is_some());
        assert_eq!(pair.reply(), None);
        assert_eq!(pair.session.counters().mistakes, 1);
    }

    proptest! {
        /// Any packets: no panic, no frame lost, at most one reply to each.
        #[test]
        fn hostile_packets(
            packets in prop::collection::vec(
                (0u32..60, prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200)),
                1..20,
            ),
        ) {
            let mut pair = Pair::new(100, 600);
            let mut replies = Vec::new();
            for (number, (opcode, body)) in packets.iter().enumerate() {
                pair.send(*opcode, number as u64, body);
                // An INIT from too old a kernel ends the session, nothing else does.
                if pair.session.poll(&mut pair.desk, &pair.frames).is_err() {
                    prop_assert_eq!(*opcode, opcode::INIT);
                }
                while !pair.desk.taken.is_empty() {
                    pair.desk.answer(Ok(FileReply::Done));
                }
                pair.poll();
                while let Some((unique, ..)) = pair.reply() {
                    replies.push(unique);
                }
            }
            prop_assert!(pair.session.is_quiet());
            prop_assert!(replies.windows(2).all(|pair| pair[0] < pair[1]));
            let Pair { session, frames, desk, .. } = pair;
            drop((session, desk));
            prop_assert_eq!(frames.free_pages(), 600);
        }
    }
}
