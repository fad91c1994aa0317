//! The handshake over a UNIX socket: a hello each way, with the descriptors of the speaker's ring memory and pool.
//!
//! Both sides insist that the other process runs as the same user, or as root, and that the memory is sealed so that
//! it can neither shrink nor be written by anyone but its owner.

use super::greeting::{Decide, GreetingError};
use super::hello::{HELLO_BYTES, Hello, Refusal};
use super::limits::{HANDSHAKE_SPAN, SHARED_SLOTS};
use super::shared_words::{OwnWords, PeerWords, ring_bytes};
use super::shm::SharedLink;
use crate::memory::{PeerRegion, SharedMemory};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Time;

const DESCRIPTORS: usize = 2;

/// A pool that peers may read.
#[derive(Debug)]
pub struct SharedPool {
    /// Its memfd.
    pub fd: OwnedFd,
    /// Its size.
    pub bytes: usize,
}

/// A connection that is being made.
#[derive(Debug)]
pub struct SharedGreeting {
    socket: OwnedFd,
    caller: bool,
    ours: Hello,
    theirs: Hello,
    ring: SharedMemory,
    peer: Option<(PeerRegion, PeerRegion)>,
    /// When it is given up.
    pub deadline: Time,
}

impl SharedGreeting {
    /// The caller's side: says hello at once, a fresh socket has room for it.
    pub fn call(
        socket: OwnedFd,
        mut ours: Hello,
        pool: &SharedPool,
        now: Time,
    ) -> Result<SharedGreeting, GreetingError> {
        let mut greeting = SharedGreeting::accept(socket, now)?;
        greeting.caller = true;
        describe(&mut ours, pool);
        greeting.ours = ours;
        greeting.speak(pool)?;
        Ok(greeting)
    }

    /// The acceptor's side.
    pub fn accept(socket: OwnedFd, now: Time) -> Result<SharedGreeting, GreetingError> {
        check_user(&socket)?;
        let ring = SharedMemory::create("trapeze-ring", ring_bytes(SHARED_SLOTS))?;
        Ok(SharedGreeting {
            socket,
            caller: false,
            ours: Hello::default(),
            theirs: Hello::default(),
            ring,
            peer: None,
            deadline: now + HANDSHAKE_SPAN,
        })
    }

    /// Goes on as far as it can; whether it is finished.
    pub fn advance(
        &mut self,
        pool: &SharedPool,
        decide: Decide<'_>,
    ) -> Result<bool, GreetingError> {
        if !self.listen()? {
            return Ok(false);
        }
        if !self.caller {
            match decide(&self.theirs) {
                Ok(ours) => self.ours = ours,
                Err(refusal) => return Err(self.refuse(refusal)),
            }
            describe(&mut self.ours, pool);
            self.speak(pool)?;
        }
        Ok(true)
    }

    /// The connection and both hellos. Only after [`advance`](SharedGreeting::advance) said so.
    pub fn finish(self) -> Result<(SharedLink, Hello, Hello), GreetingError> {
        let (ring, pool) = self.peer.expect("the peer's memory came with its hello");
        let link =
            SharedLink::new(self.socket, OwnWords::new(self.ring), PeerWords::new(ring), pool);
        Ok((link, self.ours, self.theirs))
    }

    fn speak(&self, pool: &SharedPool) -> Result<(), GreetingError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [self.ring.fd(), pool.fd.as_fd()];
        assert!(
            control.push(SendAncillaryMessage::ScmRights(&descriptors)),
            "there is room for two"
        );
        let bytes = self.ours.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags);
        match sent.map_err(io::Error::from)? {
            HELLO_BYTES => Ok(()),
            _ => Err(GreetingError::Memory("the socket did not take a hello at once".into())),
        }
    }

    /// Takes the peer's hello; false when it has not come.
    fn listen(&mut self) -> Result<bool, GreetingError> {
        let mut bytes = [0; HELLO_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let room = &mut [IoSliceMut::new(&mut bytes)];
        let got = match rustix::net::recvmsg(&self.socket, room, &mut control, flags) {
            Ok(got) => got.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
        if got < HELLO_BYTES {
            return Err(GreetingError::Ended); // it is sent in one piece
        }
        self.theirs = Hello::parse(&bytes).map_err(GreetingError::Bad)?;
        self.map(descriptors)?;
        Ok(true)
    }

    fn map(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), GreetingError> {
        let missing = || GreetingError::Memory("the peer passed no memory".into());
        if self.theirs.slots as usize != SHARED_SLOTS {
            return Err(GreetingError::Refused(Refusal::Version));
        }
        let mut descriptors = descriptors.into_iter();
        let ring = descriptors.next().ok_or_else(missing)?;
        let pool = descriptors.next().ok_or_else(missing)?;
        let open = |fd, bytes| {
            SharedMemory::open_read_only(fd, bytes)
                .map_err(|error| GreetingError::Memory(error.to_string()))
        };
        let pool_bytes = usize::try_from(self.theirs.pool_bytes).map_err(|_| missing())?;
        self.peer = Some((open(ring, ring_bytes(SHARED_SLOTS))?, open(pool, pool_bytes)?));
        Ok(())
    }

    fn refuse(&self, refusal: Refusal) -> GreetingError {
        let bytes = Hello { refusal: Some(refusal), ..Hello::default() }.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // The caller sees the connection close if this does not reach it.
        let _ = rustix::net::send(&self.socket, &bytes, flags);
        GreetingError::Refused(refusal)
    }
}

fn describe(hello: &mut Hello, pool: &SharedPool) {
    hello.pool_bytes = pool.bytes as u64;
    hello.slots = SHARED_SLOTS as u32;
}

fn check_user(socket: impl AsFd) -> Result<(), GreetingError> {
    let theirs = sockopt::socket_peercred(socket).map_err(io::Error::from)?.uid;
    let ours = rustix::process::geteuid();
    if theirs == ours || theirs.is_root() || ours.is_root() {
        Ok(())
    } else {
        Err(GreetingError::User(theirs.as_raw()))
    }
}

impl AsFd for SharedGreeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
