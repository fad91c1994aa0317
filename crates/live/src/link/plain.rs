//! Control messages, data and trailers over a stream socket as they are: `control 128 | data | trailer`, again and
//! again.
//!
//! One vectored send carries all that is queued; one receive takes many control messages; data goes from the socket
//! straight into its frames, except for what came along with its control message.

use super::landing::{LANDING_PIECES_MAX, Landing};
use super::limits::*;
use super::stream::{Closed, Outgoing, Tally};
use arrayvec::ArrayVec;
use endpoint::Endpoint;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use wire::limits::CONTROL_BYTES;
use wire::{Control, ControlView, NodeId};

/// The receiving half.
#[derive(Debug)]
pub struct PlainReceiver {
    ahead: Box<[u8; AHEAD_BYTES]>,
    start: usize,
    end: usize,
    landing: Option<Landing>,
}

/// Why parsing stopped.
#[derive(PartialEq, Eq)]
enum Stop {
    /// More bytes are needed.
    Empty,
    /// The endpoint has no entry free.
    Full,
}

impl PlainReceiver {
    /// Of a new connection.
    pub fn new() -> PlainReceiver {
        PlainReceiver { ahead: Box::new([0; AHEAD_BYTES]), start: 0, end: 0, landing: None }
    }

    /// Receives a bounded number of messages; whether any byte moved.
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        endpoint: &mut Endpoint,
        peer: NodeId,
        tally: &mut Tally,
    ) -> Result<bool, Closed> {
        let mut moved = self.start < self.end && self.parse(endpoint, peer, tally)? == Stop::Empty;
        for _ in 0..TURN_CALLS_MAX {
            if self.is_stalled() {
                break; // the endpoint is full: the socket is left to fill up
            }
            let (count, asked) = match self.read(socket, endpoint) {
                Ok(counts) => counts,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(Closed::Failed(error.into())),
            };
            tally.receive_calls += 1;
            if count == 0 {
                return Err(self.ended());
            }
            moved = true;
            let stop = self.parse(endpoint, peer, tally)?;
            if stop == Stop::Full || count < asked {
                break;
            }
        }
        Ok(moved)
    }

    fn ended(&self) -> Closed {
        if self.landing.is_some() || self.start < self.end {
            Closed::Truncated
        } else {
            Closed::Ended
        }
    }

    /// One receive into the rest of the payload and what may follow; how many bytes came and were asked for.
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        endpoint: &mut Endpoint,
    ) -> Result<(usize, usize), Errno> {
        let kept = self.end - self.start;
        self.ahead.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, kept);
        let Some(landing) = &mut self.landing else {
            let room = &mut self.ahead[kept..];
            let asked = room.len();
            let (count, _) = rustix::net::recv(socket, room, RecvFlags::DONTWAIT)?;
            self.end += count;
            return Ok((count, asked));
        };
        if !landing.is_wanted() {
            return skip(socket, landing, &mut self.ahead[..]);
        }
        let mut room: ArrayVec<IoSliceMut<'_>, LANDING_PIECES_MAX> = ArrayVec::new();
        landing.room(endpoint, &mut room);
        let payload: usize = room.iter().map(|piece| piece.len()).sum();
        let whole = payload == landing.missing();
        if whole {
            room.push(IoSliceMut::new(&mut self.ahead[..]));
        }
        let count = rustix::io::readv(socket, &mut room)?;
        landing.advance(count.min(payload));
        self.end = count.saturating_sub(payload);
        Ok((count, payload + usize::from(whole) * AHEAD_BYTES))
    }

    fn parse(
        &mut self,
        endpoint: &mut Endpoint,
        peer: NodeId,
        tally: &mut Tally,
    ) -> Result<Stop, Closed> {
        loop {
            if let Some(landing) = &mut self.landing {
                let count = landing.missing().min(self.end - self.start);
                landing.put(endpoint, &self.ahead[self.start..self.start + count]);
                self.start += count;
                if landing.missing() > 0 {
                    return Ok(Stop::Empty);
                }
                let landing = self.landing.take().expect("it was there");
                tally.count_received(landing.header());
                landing.deliver(endpoint);
            }
            if self.end - self.start < CONTROL_BYTES {
                return Ok(Stop::Empty);
            }
            let mut control = Control::default();
            control.0.copy_from_slice(&self.ahead[self.start..self.start + CONTROL_BYTES]);
            let header = ControlView::new(&control).map_err(Closed::Malformed)?.header();
            if header.source != peer {
                return Err(Closed::Forged(header.source));
            }
            self.landing = Landing::new(endpoint, &control, &header);
            if self.landing.is_none() {
                return Ok(Stop::Full);
            }
            self.start += CONTROL_BYTES;
        }
    }

    /// Whether the endpoint was full when the last bytes came.
    pub fn is_stalled(&self) -> bool {
        self.end - self.start >= CONTROL_BYTES
    }

    /// The connection is gone: what was coming in is given up.
    pub fn close(&mut self, endpoint: &mut Endpoint) {
        if let Some(landing) = self.landing.take() {
            landing.abandon(endpoint);
        }
    }
}

fn skip(
    socket: BorrowedFd<'_>,
    landing: &mut Landing,
    bucket: &mut [u8],
) -> Result<(usize, usize), Errno> {
    let asked = landing.missing().min(bucket.len());
    let (count, _) = rustix::net::recv(socket, &mut bucket[..asked], RecvFlags::DONTWAIT)?;
    landing.advance(count);
    Ok((count, asked))
}

/// Sends all that is queued, as far as the socket takes it. `Ok(true)`: the socket is full.
pub fn send(
    socket: BorrowedFd<'_>,
    outgoing: &mut Outgoing,
    endpoint: &mut Endpoint,
    tally: &mut Tally,
) -> Result<bool, Closed> {
    while outgoing.choose(endpoint, true) {
        let (count, asked) = match send_once(socket, outgoing, endpoint) {
            Ok(counts) => counts,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(error) => return Err(Closed::Failed(error.into())),
        };
        tally.send_calls += 1;
        outgoing.advance(count, endpoint, tally);
        if count < asked {
            return Ok(true);
        }
    }
    Ok(false)
}

fn send_once(
    socket: BorrowedFd<'_>,
    outgoing: &Outgoing,
    endpoint: &Endpoint,
) -> Result<(usize, usize), Errno> {
    let mut pieces: ArrayVec<IoSlice<'_>, SEND_PIECES_MAX> = ArrayVec::new();
    let (mut skip, mut asked) = (outgoing.sent, 0);
    'messages: for (n, message) in outgoing.queue.iter().enumerate() {
        let entry = endpoint.taken(message);
        let filling = entry.missing > 0;
        if filling && n > 0 {
            break; // what is filling begins as the first, when that has been decided
        }
        let trailer = &entry.trailer[..if filling { 0 } else { entry.control.trailer_bytes() }];
        let data = entry.payload.iter().map(|frame| &frame[..]);
        for part in [&entry.control.0[..]].into_iter().chain(data).chain([trailer]) {
            let skipped = part.len().min(skip);
            skip -= skipped;
            let part = &part[skipped..];
            if pieces.is_full() || asked >= SEND_BYTES_MAX {
                break 'messages;
            }
            if !part.is_empty() {
                asked += part.len();
                pieces.push(IoSlice::new(part));
            }
        }
        if filling {
            break;
        }
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let count = rustix::net::sendmsg(socket, &pieces, &mut SendAncillaryBuffer::default(), flags)?;
    Ok((count, asked))
}
