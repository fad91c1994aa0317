//! Addresses of keys and values, and connections that come to them.

use super::Sockets;
use super::connection::Connection;
use super::limits::*;
use kv::{Protocol, Session, TenantNo};
use std::io;
use std::net::{SocketAddr, TcpStream};

/// An address that clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where; port 0 is any that is free.
    pub at: SocketAddr,
    /// The protocol of its clients.
    pub protocol: Protocol,
    /// The owner of the items there.
    pub tenant: TenantNo,
}

/// The reply to a client that is one too many.
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
            match self.listeners.accept(listener, &self.poller)? {
                Some(socket) => self.admit(socket, listener)?,
                None => return Ok(accepted > 0),
            }
        }
        Ok(true)
    }

    fn admit(&mut self, socket: TcpStream, listener: usize) -> io::Result<()> {
        let Address { at, protocol, tenant } = self.places[listener];
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
}
