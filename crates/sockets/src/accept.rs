//! Addresses, and connections that come to them.

use super::Sockets;
use super::connection::Connection;
use super::limits::*;
use kv::{Protocol, Session, TenantNo};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// An address that clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where; port 0 is any that is free.
    pub at: SocketAddr,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Whose items are there.
    pub tenant: TenantNo,
}

/// Why nobody can connect.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// To this address.
    #[error("cannot listen at {0}: {1}")]
    Address(SocketAddr, io::Error),
    /// To any.
    #[error("cannot wait for connections: {0}")]
    System(io::Error),
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: Address,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listener {
    pub fn bind(address: &Address) -> Result<Listener, ListenError> {
        let refused = |error| ListenError::Address(address.at, error);
        let socket = TcpListener::bind(address.at).map_err(refused)?;
        socket.set_nonblocking(true).map_err(refused)?;
        // The standard library's queue is short for 10,000 clients that come at once.
        rustix::net::listen(&socket, BACKLOG).map_err(|error| refused(error.into()))?;
        let at = socket.local_addr().map_err(refused)?;
        Ok(Listener { socket, address: Address { at, ..*address } })
    }

    pub fn address(&self) -> SocketAddr {
        self.address.at
    }
}

/// What a client is told that is one too many.
fn refusal(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Memcached => b"ERROR Too many open connections\r\n",
        Protocol::Resp => b"-ERR max number of clients reached\r\n",
    }
}

impl Sockets {
    /// Accepts who waits at a listener; whether there was anybody.
    pub(super) fn accept(&mut self, listener: usize) -> io::Result<bool> {
        for accepted in 0..ACCEPTS_PER_TURN {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match rustix::net::accept_with(&self.listeners[listener], flags) {
                Ok(socket) => TcpStream::from(socket),
                Err(Errno::AGAIN) => return Ok(accepted > 0),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.watch_listeners(false)?;
                    self.accept_at = Some(live::clock::now() + ACCEPT_PAUSE);
                    return Ok(accepted > 0);
                }
                Err(_) => continue, // it was gone again
            };
            self.admit(socket, listener)?;
        }
        Ok(true)
    }

    fn admit(&mut self, socket: TcpStream, listener: usize) -> io::Result<()> {
        let Address { at, protocol, tenant } = self.listeners[listener].address;
        let mut items = self.workplace.items.borrow_mut();
        let facts = items.facts_mut();
        facts.accepted += 1;
        facts.port = at.port();
        if facts.connections >= self.most as u64 {
            facts.refused += 1;
            // A client that does not take even this is told by the close.
            let _ = rustix::io::write(&socket, refusal(protocol));
            return Ok(());
        }
        facts.connections += 1;
        let session = Session::new(protocol, tenant, facts.accepted);
        drop(items);
        // Without it a reply of several writes would wait for the client's acknowledgement.
        let _ = socket.set_nodelay(true);
        let number = self.spare.pop().unwrap_or(self.connections.len() as u32);
        if number as usize == self.connections.len() {
            self.connections.push(None);
        }
        self.poller.add_named(&socket, true, false, self.name(number))?;
        let session = session.at_seat(number);
        self.connections[number as usize] = Some(Connection::new(socket, session));
        Ok(())
    }

    /// Has the poller watch all that there is.
    pub(super) fn watch_all(&mut self) -> io::Result<()> {
        for (name, listener) in (0..).zip(&self.listeners) {
            self.poller.add_named(listener, true, false, name)?;
        }
        Ok(())
    }

    /// Has the poller watch the listeners, or not.
    pub(super) fn watch_listeners(&mut self, watch: bool) -> io::Result<()> {
        for (name, listener) in (0..).zip(&self.listeners) {
            self.poller.modify_named(listener, watch, false, name)?;
        }
        Ok(())
    }
}
