//! Listening sockets of a device, and the pause when the system has no descriptor left for who connects.

use super::limits::{ACCEPT_PAUSE, BACKLOG};
use live::device::Poller;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use wire::Time;

/// Why clients cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// To this address.
    #[error("cannot listen at {0}: {1}")]
    Address(SocketAddr, io::Error),
    /// To any.
    #[error("cannot wait for connections: {0}")]
    System(io::Error),
}

/// Listening sockets, which a poller knows by their numbers.
#[derive(Debug)]
pub struct Listeners {
    all: Vec<(TcpListener, SocketAddr)>,
    /// When to accept again after the system had no descriptor left.
    accept_at: Option<Time>,
}

impl Listeners {
    /// At these addresses; port 0 is any that is free.
    pub fn bind(addresses: impl IntoIterator<Item = SocketAddr>) -> Result<Listeners, ListenError> {
        let all = addresses.into_iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Listeners { all, accept_at: None })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Where they listen, in order.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.all.iter().map(|(_, at)| *at)
    }

    /// Has a poller watch all of them.
    pub fn attach(&self, poller: &Poller) -> io::Result<()> {
        for (name, (socket, _)) in (0..).zip(&self.all) {
            poller.add_named(socket, true, false, name)?;
        }
        Ok(())
    }

    /// Has the poller watch them, or not.
    pub fn watch(&self, poller: &Poller, watch: bool) -> io::Result<()> {
        for (name, (socket, _)) in (0..).zip(&self.all) {
            poller.modify_named(socket, watch, false, name)?;
        }
        Ok(())
    }

    /// The next connection that waits at a listener. Without a descriptor for it all of them pause, since the poller
    /// would report it for ever.
    pub fn accept(&mut self, at: usize, poller: &Poller) -> io::Result<Option<TcpStream>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match rustix::net::accept_with(&self.all[at].0, flags) {
                Ok(socket) => return Ok(Some(TcpStream::from(socket))),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.watch(poller, false)?;
                    self.accept_at = Some(live::clock::now() + ACCEPT_PAUSE);
                    return Ok(None);
                }
                Err(_) => {} // it was gone again
            }
        }
    }

    /// Ends the pause when it is over.
    pub fn resume(&mut self, poller: &Poller, now: Time) -> io::Result<()> {
        if self.accept_at.is_some_and(|at| now >= at) {
            self.accept_at = None;
            self.watch(poller, true)?;
        }
        Ok(())
    }

    /// When the pause is over.
    pub fn deadline(&self) -> Option<Time> {
        self.accept_at
    }
}

fn bind(at: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let refused = |error| ListenError::Address(at, error);
    let socket = TcpListener::bind(at).map_err(refused)?;
    socket.set_nonblocking(true).map_err(refused)?;
    // The standard library's queue is short for 10,000 clients that come at once.
    rustix::net::listen(&socket, BACKLOG).map_err(|error| refused(error.into()))?;
    let bound = socket.local_addr().map_err(refused)?;
    Ok((socket, bound))
}
