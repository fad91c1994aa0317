//! The handshake of a stream socket, step by step and never waiting.
//!
//! ```text
//! caller                                  acceptor
//!   hello [, first Noise message]  ---->
//!                                  <----  hello or refusal [, second Noise message]
//!   [third Noise message]          ---->
//! ```
//!
//! Under encryption the second Noise message repeats the hello or the refusal, and only what it repeats is believed. A
//! refusal in clear alone is one more failed attempt: anything that holds the peer's port can send it. It is all that
//! can be said to a caller with another key, another release or without encryption.

use super::frame_keys::FrameKeys;
use super::hello::{BadHello, HELLO_BYTES, Hello, Refusal};
use super::limits::HANDSHAKE_SPAN;
use super::noise::{FIRST_BYTES, Keys, Noise, SECOND_BYTES, THIRD_BYTES};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use snow::TransportState;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Time;

const _: () = assert!(SECOND_BYTES <= BUFFER_BYTES);
const BUFFER_BYTES: usize = 256;

/// Why a handshake failed. The text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The system says.
    #[error("{0}")]
    Failed(#[from] io::Error),
    /// The peer went away.
    #[error("the peer closed the connection during the handshake")]
    Ended,
    /// The peer took too long.
    #[error("the peer did not finish the handshake in time")]
    Late,
    /// The peer's introduction cannot be used. A refusal in it has been authenticated, if the link is to be.
    #[error("{0}")]
    Bad(BadHello),
    /// A refusal in clear on a link that is to be encrypted.
    #[error("what answers there refuses, without proof that it knows the cluster key: {0}")]
    Unproved(Refusal),
    /// This node does not want the connection.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The acceptor runs as another user.
    #[error(
        "the process there runs as user {0}, in a directory that others than that user can write: shared memory is for the \
         same user, root, or the owner of the socket's directory"
    )]
    User(u32),
    /// The caller runs as another user.
    #[error(
        "user {0} called: UNIX sockets are for the same user and root; `listen_mode` and `listen_group` in the configuration \
         let others use them"
    )]
    Stranger(u32),
    /// Newer ones needed the place.
    #[error("too many connections are being made at once, and this one is the oldest")]
    Crowded,
    /// Shared memory could not be exchanged.
    #[error("{0}")]
    Memory(String),
}

impl GreetingError {
    /// Why the peer does not want the connection, where it said so in a way that counts.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            GreetingError::Bad(BadHello::Refused(refusal)) => Some(*refusal),
            _ => None,
        }
    }

    /// The same for all that differ only in what the peer says or the system calls it.
    pub fn kind(&self) -> u8 {
        match self {
            GreetingError::Failed(_) => 0,
            GreetingError::Ended => 1,
            GreetingError::Late => 2,
            GreetingError::Bad(_) | GreetingError::Unproved(_) => 3,
            GreetingError::User(_) | GreetingError::Stranger(_) => 4,
            GreetingError::Memory(_) => 5,
            GreetingError::Crowded => 6,
            GreetingError::Refused(refusal) => 7 + *refusal as u8,
        }
    }
}

/// How this side answers or refuses a caller.
pub type Decide<'a> = &'a mut dyn FnMut(&Hello) -> Result<Hello, Refusal>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connect,
    CallerAnswer,
    CallerSecond,
    AcceptHello,
    AcceptFirst,
    AcceptThird,
    Done,
}

/// A connection that is being made.
#[derive(Debug)]
pub struct Greeting {
    socket: OwnedFd,
    step: Step,
    keys: Option<Keys>,
    ours: Hello,
    theirs: Hello,
    caller_hello: [u8; HELLO_BYTES],
    /// The acceptor's hello or refusal in clear, for the caller.
    answer: [u8; HELLO_BYTES],
    /// A refusal in clear, not to be believed before the Noise message that repeats it.
    unproved: Option<Refusal>,
    noise: Option<Noise>,
    have: usize,
    buffer: [u8; BUFFER_BYTES],
    out: Vec<u8>,
    failing: Option<GreetingError>,
    /// When it is given up.
    pub deadline: Time,
}

/// A finished handshake.
#[derive(Debug)]
pub struct Greeted {
    /// The connection.
    pub socket: OwnedFd,
    /// The hello of this side.
    pub ours: Hello,
    /// The hello of the peer.
    pub theirs: Hello,
    /// The keys, when it is encrypted.
    pub cipher: Option<TransportState>,
    /// Other keys that the two agreed on, for frames beside it.
    pub frame_keys: Option<FrameKeys>,
}

impl Greeting {
    /// The caller's side, over a socket that connects. `ours` says whether to encrypt; then `keys` are needed.
    pub fn call(socket: OwnedFd, ours: Hello, keys: Option<&Keys>, now: Time) -> Greeting {
        let mut greeting = Greeting::new(socket, Step::Connect, keys, now);
        greeting.ours = ours;
        greeting.caller_hello = ours.encode();
        greeting
    }

    /// The acceptor's side. With `keys` it accepts only encrypted connections, without only others.
    pub fn accept(socket: OwnedFd, keys: Option<&Keys>, now: Time) -> Greeting {
        Greeting::new(socket, Step::AcceptHello, keys, now)
    }

    fn new(socket: OwnedFd, step: Step, keys: Option<&Keys>, now: Time) -> Greeting {
        Greeting {
            socket,
            step,
            keys: keys.cloned(),
            ours: Hello::default(),
            theirs: Hello::default(),
            caller_hello: [0; HELLO_BYTES],
            answer: [0; HELLO_BYTES],
            unproved: None,
            noise: None,
            have: 0,
            buffer: [0; BUFFER_BYTES],
            out: Vec::new(),
            failing: None,
            deadline: now + HANDSHAKE_SPAN,
        }
    }

    /// Whether it waits for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        self.step == Step::Connect || !self.out.is_empty()
    }

    /// Goes on as far as it can; whether it is finished.
    pub fn advance(&mut self, decide: Decide<'_>) -> Result<bool, GreetingError> {
        self.try_advance(decide).map_err(|error| match self.unproved {
            Some(refusal) if error.refusal().is_none() => GreetingError::Unproved(refusal),
            _ => error,
        })
    }

    fn try_advance(&mut self, decide: Decide<'_>) -> Result<bool, GreetingError> {
        loop {
            self.flush()?;
            if self.out.is_empty()
                && let Some(error) = self.failing.take()
            {
                return Err(error);
            }
            if self.step == Step::Done {
                return Ok(self.out.is_empty());
            }
            if self.step == Step::Connect {
                sockopt::socket_error(&self.socket)
                    .map_err(io::Error::from)?
                    .map_err(io::Error::from)?;
                if rustix::net::getpeername(&self.socket).is_err() {
                    return Ok(false); // not connected yet
                }
                self.speak_first();
            } else if self.failing.is_some() || !self.fill()? {
                return Ok(false);
            } else {
                self.have = 0;
                self.take(decide)?;
            }
        }
    }

    /// The result. Only after [`advance`](Greeting::advance) said that it is done.
    pub fn finish(self) -> Greeted {
        let (cipher, frame_keys) = self.noise.map(Noise::finish).unzip();
        Greeted { socket: self.socket, ours: self.ours, theirs: self.theirs, cipher, frame_keys }
    }

    fn needed(&self) -> usize {
        match self.step {
            Step::CallerAnswer | Step::AcceptHello => HELLO_BYTES,
            Step::CallerSecond => SECOND_BYTES,
            Step::AcceptFirst => FIRST_BYTES,
            Step::AcceptThird => THIRD_BYTES,
            Step::Connect | Step::Done => 0,
        }
    }

    /// Receives exactly what the step needs, so that nothing of what follows is taken. Whether it is all there.
    fn fill(&mut self) -> Result<bool, GreetingError> {
        let needed = self.needed();
        while self.have < needed {
            let room = &mut self.buffer[self.have..needed];
            match rustix::net::recv(&self.socket, room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(GreetingError::Ended),
                Ok((count, _)) => self.have += count,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), GreetingError> {
        if self.out.is_empty() || self.step == Step::Connect {
            return Ok(());
        }
        match rustix::net::send(&self.socket, &self.out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        {
            Ok(count) => drop(self.out.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(())
    }

    fn speak_first(&mut self) {
        self.out.extend_from_slice(&self.caller_hello);
        if let Some(keys) = &self.keys {
            let noise = self.noise.insert(Noise::new(keys, &self.caller_hello, true));
            noise.write(&[], &mut self.out);
        }
        self.step = Step::CallerAnswer;
    }

    fn take(&mut self, decide: Decide<'_>) -> Result<(), GreetingError> {
        match self.step {
            Step::CallerAnswer => self.take_answer()?,
            Step::CallerSecond => self.take_second()?,
            Step::AcceptHello => self.take_hello(decide),
            Step::AcceptFirst => self.take_first(decide),
            Step::AcceptThird => {
                self.read_noise(THIRD_BYTES).map_err(|_| GreetingError::Refused(Refusal::Key))?;
                self.step = Step::Done;
            }
            Step::Connect | Step::Done => {}
        }
        Ok(())
    }

    fn hello(&self) -> Result<Hello, BadHello> {
        Hello::parse(self.buffer[..HELLO_BYTES].try_into().expect("64 bytes"))
    }

    fn read_noise(&mut self, bytes: usize) -> Result<[u8; BUFFER_BYTES], GreetingError> {
        let mut payload = [0; BUFFER_BYTES];
        let noise = self.noise.as_mut().expect("an encrypted handshake");
        match noise.read(&self.buffer[..bytes], &mut payload) {
            Ok(_) => Ok(payload),
            Err(_) => Err(GreetingError::Refused(Refusal::Key)),
        }
    }

    fn take_answer(&mut self) -> Result<(), GreetingError> {
        self.answer.copy_from_slice(&self.buffer[..HELLO_BYTES]);
        let sealed = self.noise.is_some();
        match self.hello() {
            Ok(theirs) => self.theirs = theirs,
            Err(BadHello::Refused(refusal)) if sealed && refusal.is_provable() => {
                self.unproved = Some(refusal);
            }
            Err(BadHello::Refused(refusal)) if sealed => {
                return Err(GreetingError::Unproved(refusal));
            }
            Err(error) => return Err(GreetingError::Bad(error)),
        }
        self.step = if sealed { Step::CallerSecond } else { Step::Done };
        Ok(())
    }

    fn take_second(&mut self) -> Result<(), GreetingError> {
        let payload = self.read_noise(SECOND_BYTES)?;
        if payload[..HELLO_BYTES] != self.answer {
            return Err(GreetingError::Bad(BadHello::Foreign));
        }
        if let Some(refusal) = self.unproved {
            return Err(GreetingError::Bad(BadHello::Refused(refusal)));
        }
        let noise = self.noise.as_mut().expect("an encrypted handshake");
        noise.write(&[], &mut self.out);
        self.step = Step::Done;
        Ok(())
    }

    fn take_hello(&mut self, decide: Decide<'_>) {
        self.caller_hello.copy_from_slice(&self.buffer[..HELLO_BYTES]);
        match self.hello() {
            Ok(theirs) => self.theirs = theirs,
            Err(error) => {
                // A peer of another protocol gets no answer, another release learns ours.
                if matches!(error, BadHello::Version(..)) {
                    self.refuse(Refusal::Version);
                }
                self.failing = Some(GreetingError::Bad(error));
                return;
            }
        }
        match &self.keys {
            keys if keys.is_some() != self.theirs.secure => {
                self.refuse(Refusal::Security);
            }
            Some(keys) => {
                self.noise = Some(Noise::new(keys, &self.caller_hello, false));
                self.step = Step::AcceptFirst;
            }
            None => self.answer(decide),
        }
    }

    fn take_first(&mut self, decide: Decide<'_>) {
        match self.read_noise(FIRST_BYTES) {
            Ok(_) => self.answer(decide),
            Err(_) => {
                self.refuse(Refusal::Key);
            }
        }
    }

    fn answer(&mut self, decide: Decide<'_>) {
        match decide(&self.theirs) {
            Ok(ours) => {
                self.ours = ours;
                let bytes = ours.encode();
                self.out.extend_from_slice(&bytes);
                self.step = Step::Done;
                if let Some(noise) = &mut self.noise {
                    noise.write(&bytes, &mut self.out);
                    self.step = Step::AcceptThird;
                }
            }
            Err(refusal) => {
                let bytes = self.refuse(refusal);
                if let Some(noise) = &mut self.noise {
                    noise.write(&bytes, &mut self.out);
                }
            }
        }
    }

    /// Says so in clear; what was said.
    fn refuse(&mut self, refusal: Refusal) -> [u8; HELLO_BYTES] {
        let bytes = Hello { refusal: Some(refusal), ..Hello::default() }.encode();
        self.out.extend_from_slice(&bytes);
        self.failing = Some(GreetingError::Refused(refusal));
        bytes
    }
}

impl AsFd for Greeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
