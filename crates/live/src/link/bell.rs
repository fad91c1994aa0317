//! The socket beside shared memory: one byte wakes a sleeper, its end tells of a death.

use super::limits::SHARED_BELLS_MAX;
use super::stream::{Closed, Tally};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One side's.
#[derive(Debug)]
pub struct Bell {
    socket: OwnedFd,
    /// Wake-up bytes that may be in the socket.
    rung: usize,
}

impl Bell {
    /// Over a connected UNIX socket.
    pub fn new(socket: OwnedFd) -> Bell {
        Bell { socket, rung: 0 }
    }

    /// One byte: more say no more, so a full socket is as good.
    pub fn ring(&mut self, tally: &mut Tally) -> Result<(), Closed> {
        tally.wakes += 1;
        match rustix::net::send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Closed::Ended),
            Err(error) => Err(Closed::Failed(error.into())),
        }
    }

    /// A wake-up byte has come. It has done its work, so it stays where it is until there are many: whether they are to
    /// be taken off.
    pub fn count(&mut self) -> bool {
        self.rung += 1;
        self.rung >= SHARED_BELLS_MAX
    }

    /// Takes wake-up bytes off the socket; an error when the peer is gone.
    pub fn drain(&mut self) -> Result<(), Closed> {
        self.rung = 0;
        let mut bytes = [0; 2 * SHARED_BELLS_MAX];
        loop {
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Closed::Ended),
                Ok(_) => {} // until it is empty: a close is reported once and stands behind them
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(Errno::CONNRESET) => return Err(Closed::Ended),
                Err(error) => return Err(Closed::Failed(error.into())),
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
