//! The handshake over a UNIX socket: a hello each way, with the descriptors of the speaker's ring memory and pool. A
//! caller that wants adapters passes its adapter's memory instead of its pool, and the acceptor does as the caller.
//!
//! Both sides insist that the other process may: an acceptor that it runs as the same user, as root, or as one that the
//! socket is configured for; a caller that it runs as the same user, as root, or as the owner of the directory in which
//! the socket is. And both that the memory is sealed, so that it can neither shrink nor be written but by its owner.

use super::adapter::{AdapterLink, AdapterShape, Port};
use super::address::Address;
use super::dial::SocketAccess;
use super::greeting::{Decide, GreetingError};
use super::hello::{BadHello, HELLO_BYTES, Hello, Refusal};
use super::limits::{HANDSHAKE_SPAN, SHARED_SLOTS};
use super::neighbour::Neighbour;
use super::shared_words::{OwnWords, PeerWords, ring_bytes};
use super::shm::SharedLink;
use crate::memory::{PeerRegion, SharedMemory};
use endpoint::tuning::Pulses;
use rustix::fs::Uid;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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

/// Memory that a side may pass to the other.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// The node's pool.
    pub pool: &'a SharedPool,
    /// How its adapters are made.
    pub shape: &'a AdapterShape,
}

/// A connection that is being made.
#[derive(Debug)]
pub struct SharedGreeting {
    socket: OwnedFd,
    caller: bool,
    ours: Hello,
    theirs: Hello,
    ring: SharedMemory,
    /// Of a connection over adapters.
    memory: Option<SharedMemory>,
    peer: Option<(PeerRegion, PeerRegion)>,
    /// When it is given up.
    pub deadline: Time,
}

impl SharedGreeting {
    /// The caller's side, of a socket that is connected to this address: says hello at once, for which a fresh socket
    /// has room.
    pub fn call(
        (socket, address): (OwnedFd, &Address),
        ours: Hello,
        Passed { pool, shape }: Passed<'_>,
        now: Time,
    ) -> Result<SharedGreeting, GreetingError> {
        check_acceptor(&socket, address)?;
        let mut greeting = SharedGreeting::new(socket, now)?;
        greeting.caller = true;
        greeting.ours = ours;
        greeting.speak(Passed { pool, shape })?;
        Ok(greeting)
    }

    /// The acceptor's side.
    pub fn accept(
        socket: OwnedFd,
        access: SocketAccess,
        now: Time,
    ) -> Result<SharedGreeting, GreetingError> {
        check_caller(&socket, access)?;
        SharedGreeting::new(socket, now)
    }

    fn new(socket: OwnedFd, now: Time) -> Result<SharedGreeting, GreetingError> {
        let ring = SharedMemory::create("trapeze-ring", ring_bytes(SHARED_SLOTS))?;
        Ok(SharedGreeting {
            socket,
            caller: false,
            ours: Hello::default(),
            theirs: Hello::default(),
            ring,
            memory: None,
            peer: None,
            deadline: now + HANDSHAKE_SPAN,
        })
    }

    /// Goes on as far as it can; whether it is finished.
    pub fn advance(
        &mut self,
        passed: Passed<'_>,
        decide: Decide<'_>,
    ) -> Result<bool, GreetingError> {
        if !self.listen()? {
            return Ok(false);
        }
        if !self.caller {
            match decide(&self.theirs) {
                Ok(ours) => self.ours = Hello { adapter: self.theirs.adapter, ..ours },
                Err(refusal) => return Err(self.refuse(refusal)),
            }
            self.speak(passed)?;
        }
        if self.theirs.adapter != self.ours.adapter {
            return Err(GreetingError::Refused(Refusal::Version));
        }
        Ok(true)
    }

    /// The connection and both hellos. Only after [`advance`](SharedGreeting::advance) said so.
    pub fn finish(
        self,
        shape: &AdapterShape,
        pulses: Pulses,
    ) -> (Box<dyn Neighbour>, Hello, Hello) {
        let (ring, peer) = self.peer.expect("the peer's memory came with its hello");
        let (own, words) = (OwnWords::new(self.ring), PeerWords::new(ring));
        let link: Box<dyn Neighbour> = match self.memory {
            None => Box::new(SharedLink::new(self.socket, (own, words), peer, pulses)),
            Some(memory) => {
                let port = Port::new(shape.clone(), memory, own, words, peer);
                Box::new(AdapterLink::new(self.socket, port))
            }
        };
        (link, self.ours, self.theirs)
    }

    fn speak(&mut self, Passed { pool, shape }: Passed<'_>) -> Result<(), GreetingError> {
        if self.ours.adapter {
            self.memory = Some(shape.memory()?);
        }
        let (fd, bytes) = match &self.memory {
            Some(memory) => (memory.fd(), memory.bytes()),
            None => (pool.fd.as_fd(), pool.bytes),
        };
        (self.ours.pool_bytes, self.ours.slots) = (bytes as u64, SHARED_SLOTS as u32);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [self.ring.fd(), fd];
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
        self.theirs = Hello::parse(&bytes).map_err(|error| {
            // Another release learns this one's version; a foreign protocol gets no answer.
            if !self.caller && matches!(error, BadHello::Version(..)) {
                self.refuse(Refusal::Version);
            }
            GreetingError::Bad(error)
        })?;
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

/// The user at the other end, unless it is this process's own or root.
fn other_user(socket: impl AsFd) -> Result<Option<Uid>, GreetingError> {
    let theirs = sockopt::socket_peercred(socket).map_err(io::Error::from)?.uid;
    let trusted = theirs == rustix::process::geteuid() || theirs.is_root();
    Ok((!trusted).then_some(theirs))
}

/// Where the socket is configured for others, the kernel has compared its permissions with the caller. Else they may
/// have been changed since it was made.
fn check_caller(socket: impl AsFd, access: SocketAccess) -> Result<(), GreetingError> {
    match other_user(socket)? {
        Some(user) if !access.is_shared() => Err(GreetingError::Stranger(user.as_raw())),
        _ => Ok(()),
    }
}

/// Another user is who this address means only where no third one could have put a socket in its place.
fn check_acceptor(socket: impl AsFd, address: &Address) -> Result<(), GreetingError> {
    let Some(user) = other_user(socket)?.filter(|_| !rustix::process::geteuid().is_root()) else {
        return Ok(());
    };
    let (Address::Unix(path) | Address::Adapter(path)) = address else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let found = std::fs::metadata(folder.unwrap_or(Path::new(".")))?;
    match found.uid() == user.as_raw() && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(GreetingError::User(user.as_raw())),
    }
}

impl AsFd for SharedGreeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
