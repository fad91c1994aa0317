//! One connection: commands in any pieces in, replies out.
//!
//! Per read of its socket the world calls [`Session::begin_input`], reads behind what that gives, and calls
//! [`Session::run`]; or, while [`Session::gap`] has room, reads straight into it, calls [`Session::filled`] and then
//! `run` with nothing. As long as output waits it does not read.

use crate::carry::{Dialect, Protocol};
use crate::ids::TenantNo;
use crate::items::Items;
use crate::memcached::Memcached;
use crate::moment::Moment;
use crate::out::{Out, Seat};
use crate::resp::Resp;
use crate::turn::{Step, Turn};
use std::cell::Cell;
use std::rc::Rc;

/// Progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All complete commands are done.
    Waiting,
    /// So much output waits, or something in it is still to come, that the rest was kept: to be run again when it is
    /// written.
    Full,
    /// Nothing more is read: the connection is closed when its output is written.
    Ended,
}

#[derive(Debug)]
enum Speaker {
    Memcached(Memcached),
    Resp(Box<Resp>),
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    speaker: Speaker,
    tenant: TenantNo,
    seat: Seat,
    /// The beginning of a command.
    kept: Vec<u8>,
    /// Bytes of long commands that other nodes execute.
    carried: Rc<Cell<usize>>,
}

impl Session {
    /// A connection to a tenant's address. `number` tells it from others.
    pub fn new(protocol: Protocol, tenant: TenantNo, number: u64) -> Session {
        let speaker = match protocol {
            Protocol::Memcached => Speaker::Memcached(Memcached::default()),
            Protocol::Resp => Speaker::Resp(Box::new(Resp::new(number))),
        };
        let (seat, kept, carried) = (Seat::Connection(0), Vec::new(), Rc::default());
        Session { speaker, tenant, seat, kept, carried }
    }

    /// By which number the world knows the connection, when replies that came later are [ready](Items::take_ready).
    pub fn at_seat(self, seat: u32) -> Session {
        Session { seat: Seat::Connection(seat), ..self }
    }

    /// For commands that another node has carried here, the `seat`th of those that are under way.
    pub(crate) fn carried(dialect: Dialect, tenant: TenantNo, seat: u32) -> Session {
        let mut session = Session::new(dialect.protocol, tenant, 0);
        if let Speaker::Resp(resp) = &mut session.speaker {
            resp.set_version(dialect.version);
        }
        Session { seat: Seat::Carried(seat), ..session }
    }

    /// The rest of a carried command is executed at another seat.
    pub(crate) fn move_to(&mut self, seat: u32) {
        self.seat = Seat::Carried(seat);
    }

    /// Whether nothing is known of a next command.
    pub(crate) fn is_between(&self) -> bool {
        let none = match &self.speaker {
            Speaker::Memcached(memcached) => memcached.is_between(),
            Speaker::Resp(resp) => resp.is_between(),
        };
        none && self.kept.is_empty()
    }

    /// Bytes that it has until the rest of a command comes, or the rest of a transaction, or an answer from another
    /// node, beside those of long values, which are in the items' frames.
    pub fn held_bytes(&self) -> usize {
        let gathered = match &self.speaker {
            Speaker::Memcached(_) => 0,
            Speaker::Resp(resp) => resp.held_bytes(),
        };
        self.kept.len() + gathered + self.carried.get()
    }

    /// Bytes of the items' memory that long values of a half command take.
    pub fn draft_bytes(&self) -> usize {
        match &self.speaker {
            Speaker::Memcached(memcached) => memcached.draft_bytes(),
            Speaker::Resp(resp) => resp.draft_bytes(),
        }
    }

    /// The tenant whose items it works on.
    pub fn tenant(&self) -> TenantNo {
        self.tenant
    }

    /// Kept bytes that are read again in front of the next ones.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Puts the kept bytes at the beginning of `input`; returns their number. The next bytes belong behind them.
    pub fn begin_input(&mut self, input: &mut [u8]) -> usize {
        let kept = std::mem::take(&mut self.kept);
        input[..kept.len()].copy_from_slice(&kept);
        kept.len()
    }

    /// Room for the next bytes of a long value; empty when there is none.
    pub fn gap(&mut self) -> &mut [u8] {
        // Kept bytes come first.
        match (&mut self.speaker, self.kept.is_empty()) {
            (Speaker::Memcached(memcached), true) => memcached.gap(),
            (Speaker::Resp(resp), true) => resp.gap(),
            _ => &mut [],
        }
    }

    /// So many bytes have been put into the gap.
    pub fn filled(&mut self, bytes: usize) {
        match &mut self.speaker {
            Speaker::Memcached(memcached) => memcached.filled(bytes),
            Speaker::Resp(resp) => resp.filled(bytes),
        }
    }

    /// As one read of a socket, of `bytes` that have come already: takes what fits into the gap, or behind what was
    /// kept into `input`, and [runs](Session::run). How many bytes it took.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        input: &mut [u8],
        items: &mut Items,
        moment: Moment,
        out: &mut Out,
    ) -> (usize, Progress) {
        let gap = self.gap();
        let count = gap.len().min(bytes.len());
        if count > 0 {
            gap[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            return (count, self.run(&[], items, moment, out));
        }
        let kept = self.begin_input(input);
        let count = bytes.len().min(input.len() - kept);
        input[kept..kept + count].copy_from_slice(&bytes[..count]);
        (count, self.run(&input[..kept + count], items, moment, out))
    }

    /// Executes what is complete in `input`, as long as the output has room.
    pub fn run(
        &mut self,
        input: &[u8],
        items: &mut Items,
        moment: Moment,
        out: &mut Out,
    ) -> Progress {
        items.tick(moment);
        let (tenant, seat, carried) = (self.tenant, self.seat, &self.carried);
        let mut turn = Turn { items, tenant, moment, out, seat, whole: false, carried };
        let mut at = 0;
        let progress = loop {
            if turn.out.is_full() {
                break Progress::Full;
            }
            let step = match &mut self.speaker {
                Speaker::Memcached(memcached) => memcached.step(&input[at..], &mut turn),
                Speaker::Resp(resp) => resp.step(&input[at..], &mut turn),
            };
            match step {
                Step::Used(bytes) => at += bytes,
                Step::Wants => break Progress::Waiting,
                Step::Blocked => break Progress::Full,
                Step::End => return Progress::Ended,
            }
        };
        self.kept.extend_from_slice(&input[at..]);
        progress
    }
}
