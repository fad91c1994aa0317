//! The same messages under encryption: `control sealed 144 | data and trailer in sealed records`, again and again.
//!
//! The control message is opened and checked on its own, before any token is looked up. Data and trailer follow as one
//! run of bytes cut into records of [`RECORD_BYTES`], the last one shorter. A record is opened in the frames that it is
//! for, where its opener has the 16 bytes behind it that it needs, else beside them; only verified bytes count as come.
//! Both sides change to a new key after [`MESSAGES_PER_KEY`] sealed messages.

use super::landing::Landing;
use super::limits::*;
use super::stream::{Closed, Outgoing, Tally};
use endpoint::{Endpoint, Message};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use snow::TransportState;
use std::os::fd::BorrowedFd;
use wire::limits::CONTROL_BYTES;
use wire::{Control, ControlView, NodeId};

/// Both halves: they share the cipher state.
pub struct Sealed {
    cipher: TransportState,
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    /// An opened record on its way to where it goes; its last 16 bytes are the opener's.
    opened: Box<[u8]>,
    waiting: Option<Control>,
    landing: Option<Landing>,
    behind: Box<[u8]>,
    behind_start: usize,
    behind_end: usize,
    /// A record that lies in more than one frame.
    gathered: Box<[u8]>,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").finish_non_exhaustive()
    }
}

impl Sealed {
    /// After the handshake.
    pub fn new(cipher: TransportState) -> Sealed {
        let zeros = |bytes| vec![0; bytes].into_boxed_slice();
        Sealed {
            cipher,
            ahead: zeros(SEALED_AHEAD_BYTES),
            start: 0,
            end: 0,
            opened: zeros(RECORD_BYTES + SEAL_BYTES),
            waiting: None,
            landing: None,
            behind: zeros(SEALED_BEHIND_BYTES + RECORD_BYTES + SEAL_BYTES),
            behind_start: 0,
            behind_end: 0,
            gathered: zeros(RECORD_BYTES),
        }
    }

    /// Receives a bounded number of messages; whether any byte moved.
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        endpoint: &mut Endpoint,
        peer: NodeId,
        tally: &mut Tally,
    ) -> Result<bool, Closed> {
        let mut moved = self.waiting.is_some() && self.parse(endpoint, peer, tally)?;
        for _ in 0..TURN_CALLS_MAX {
            if self.waiting.is_some() {
                break; // the endpoint is full: the socket is left to fill up
            }
            self.ahead.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let room = &mut self.ahead[self.end..];
            let asked = room.len();
            let count = match rustix::net::recv(socket, room, RecvFlags::DONTWAIT) {
                Ok((count, _)) => count,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(Closed::Failed(error.into())),
            };
            tally.receive_calls += 1;
            if count == 0 {
                let middle = self.landing.is_some() || self.start < self.end;
                return Err(if middle { Closed::Truncated } else { Closed::Ended });
            }
            self.end += count;
            moved = true;
            if !self.parse(endpoint, peer, tally)? || count < asked {
                break;
            }
        }
        Ok(moved)
    }

    /// Opens what has come. False: the endpoint has no entry free.
    fn parse(
        &mut self,
        endpoint: &mut Endpoint,
        peer: NodeId,
        tally: &mut Tally,
    ) -> Result<bool, Closed> {
        loop {
            if self.landing.is_none() {
                if self.waiting.is_none() {
                    self.waiting = self.open_control()?;
                }
                let Some(control) = &self.waiting else { return Ok(true) };
                let header = ControlView::new(control).map_err(Closed::Malformed)?.header();
                if header.source != peer {
                    return Err(Closed::Forged(header.source));
                }
                self.landing = Landing::new(endpoint, control, &header);
                if self.landing.is_none() {
                    return Ok(false);
                }
                self.waiting = None;
            }
            if !self.land(endpoint)? {
                return Ok(true);
            }
            let landing = self.landing.take().expect("it has just landed");
            tally.count_received(landing.header());
            landing.deliver(endpoint);
        }
    }

    fn open_control(&mut self) -> Result<Option<Control>, Closed> {
        if self.end - self.start < SEALED_CONTROL_BYTES {
            return Ok(None);
        }
        self.open(SEALED_CONTROL_BYTES, None)?;
        let mut control = Control::default();
        control.0.copy_from_slice(&self.opened[..CONTROL_BYTES]);
        Ok(Some(control))
    }

    /// Opens the records of the message that is coming in; whether it is complete.
    fn land(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed> {
        let mut landing = self.landing.take().expect("a message is coming in");
        let landed = self.land_records(&mut landing, endpoint);
        self.landing = Some(landing);
        landed
    }

    fn land_records(
        &mut self,
        landing: &mut Landing,
        endpoint: &mut Endpoint,
    ) -> Result<bool, Closed> {
        while landing.missing() > 0 {
            let bytes = landing.missing().min(RECORD_BYTES);
            let sealed = bytes + SEAL_BYTES;
            if self.end - self.start < sealed {
                return Ok(false);
            }
            if let Some(room) = landing.next_room(endpoint).filter(|room| room.len() >= sealed) {
                self.open(sealed, Some(room))?;
                landing.advance(bytes);
            } else {
                self.open(sealed, None)?;
                landing.put(endpoint, &self.opened[..bytes]);
            }
        }
        Ok(true)
    }

    /// Opens the next `bytes` bytes there, else where opened records are.
    fn open(&mut self, bytes: usize, into: Option<&mut [u8]>) -> Result<(), Closed> {
        let sealed = &self.ahead[self.start..self.start + bytes];
        let into = into.unwrap_or(&mut self.opened);
        self.cipher.read_message(sealed, into).map_err(|_| Closed::Tampered)?;
        self.start += bytes;
        if self.cipher.receiving_nonce().is_multiple_of(MESSAGES_PER_KEY) {
            self.cipher.rekey_incoming();
        }
        Ok(())
    }

    /// Seals and sends all that is queued, as far as the socket takes it. `Ok(true)`: the socket is full.
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        outgoing: &mut Outgoing,
        endpoint: &mut Endpoint,
        tally: &mut Tally,
    ) -> Result<bool, Closed> {
        loop {
            self.seal_queue(outgoing, endpoint, tally)?;
            let pending = &self.behind[self.behind_start..self.behind_end];
            if pending.is_empty() {
                return Ok(false);
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(socket, pending, flags) {
                Ok(count) => {
                    tally.send_calls += 1;
                    self.behind_start += count;
                    if self.behind_start < self.behind_end {
                        return Ok(true);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
                Err(error) => return Err(Closed::Failed(error.into())),
            }
        }
    }

    /// Seals as much of the queue as there is room for. A message is done with when its last byte is sealed.
    fn seal_queue(
        &mut self,
        outgoing: &mut Outgoing,
        endpoint: &mut Endpoint,
        tally: &mut Tally,
    ) -> Result<(), Closed> {
        if self.behind_start == self.behind_end {
            (self.behind_start, self.behind_end) = (0, 0);
        }
        while self.behind_end < SEALED_BEHIND_BYTES && outgoing.choose(endpoint, true) {
            let message = outgoing.queue.front().expect("one was chosen");
            let count = self.seal_next(endpoint.taken(message), outgoing.sent)?;
            outgoing.advance(count, endpoint, tally);
        }
        Ok(())
    }

    /// Seals the control message or the next record of the message of which `sent` bytes are sealed; how many bytes.
    /// The data of a whole record is there, or the message is whole.
    fn seal_next(&mut self, entry: &Message, sent: usize) -> Result<usize, Closed> {
        if sent == 0 {
            return seal(
                &mut self.cipher,
                &entry.control.0,
                &mut self.behind,
                &mut self.behind_end,
            );
        }
        let trailer = &entry.trailer[..entry.control.trailer_bytes()];
        let parts = entry.payload.iter().map(|frame| &frame[..]).chain([trailer]);
        let mut skip = sent - CONTROL_BYTES;
        let mut gathered = 0;
        for part in parts {
            let skipped = part.len().min(skip);
            skip -= skipped;
            let part = &part[skipped..];
            if gathered == 0 && part.len() >= RECORD_BYTES {
                let (cipher, behind) = (&mut self.cipher, &mut self.behind);
                return seal(cipher, &part[..RECORD_BYTES], behind, &mut self.behind_end);
            }
            let count = part.len().min(RECORD_BYTES - gathered);
            self.gathered[gathered..gathered + count].copy_from_slice(&part[..count]);
            gathered += count;
        }
        seal(&mut self.cipher, &self.gathered[..gathered], &mut self.behind, &mut self.behind_end)
    }

    /// Whether the endpoint was full when the last control message came.
    pub fn is_stalled(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether sealed bytes wait for the socket.
    pub fn is_pending(&self) -> bool {
        self.behind_start < self.behind_end
    }

    /// The connection is gone: what was coming in is given up.
    pub fn close(&mut self, endpoint: &mut Endpoint) {
        if let Some(landing) = self.landing.take() {
            landing.abandon(endpoint);
        }
    }
}

fn seal(
    cipher: &mut TransportState,
    plain: &[u8],
    into: &mut [u8],
    at: &mut usize,
) -> Result<usize, Closed> {
    *at += cipher.write_message(plain, &mut into[*at..]).map_err(|_| Closed::Tampered)?;
    if cipher.sending_nonce().is_multiple_of(MESSAGES_PER_KEY) {
        cipher.rekey_outgoing();
    }
    Ok(plain.len())
}
