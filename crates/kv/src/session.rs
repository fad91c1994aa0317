//! One connection: commands in any pieces in, replies out.
//!
//! Per read of its socket the world calls [`Session::begin_input`], reads behind what that gives, and calls
//! [`Session::run`]; or, while [`Session::gap`] has room, reads straight into it, calls [`Session::filled`] and then
//! `run` with nothing. As long as output waits it does not read.

use crate::away::Wish;
use crate::carry::{Carry, Charge, Dialect, Join, Target};
use crate::items::{Content, NoRoom};
use crate::items::{ItemNo, Items};
use crate::limits::BESIDE_BYTES_MAX;
use crate::memcached::Memcached;
use crate::moment::Moment;
use crate::out::Out;
use crate::resp::Resp;
use crate::rope::Rope;
use crate::tenants::TenantNo;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// What a connection's client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// memcached's text protocol, classic and meta (protocol.txt of memcached 1.6).
    Memcached,
    /// Redis's, versions 2 and 3.
    Resp,
}

/// How far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All that was complete is done.
    Waiting,
    /// So much output waits, or something in it is still to come, that the rest was kept: to be run again when it is
    /// written.
    Full,
    /// Nothing more is read: the connection is closed when its output is written.
    Ended,
}

/// What a step of a protocol did with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Took so many bytes.
    Used(usize),
    /// Needs more than there is.
    Wants,
    /// Took nothing: to be done when the output, in which something is to come, is written.
    Blocked,
    /// The connection is at its end.
    End,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Changes nothing.
    Reads,
    /// Changes something, and answers shortly.
    Changes,
    /// Changes something, and may answer with a value.
    ChangesAndGives,
}

/// What a command works on.
pub(crate) struct Turn<'a> {
    pub items: &'a mut Items,
    pub tenant: TenantNo,
    pub moment: Moment,
    pub out: &'a mut Out,
    pub seat: Seat,
    /// Answers are made whole, however much waits.
    pub whole: bool,
    /// Bytes of commands of the connection's that other nodes execute.
    pub carried: &'a Rc<Cell<usize>>,
}

/// Who waits for a reply that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// A connection, by the world's number.
    Connection(u32),
    /// A command of another node.
    Carried(u32),
}

impl Turn<'_> {
    /// Adds text to the output.
    pub fn say(&mut self, text: &[u8]) {
        self.out.text(text);
    }

    /// Adds a reply with a value, or the bytes of it that are in the range: what `head` writes, the bytes, `tail`. When
    /// the value is away all of this comes later, or `miss` if it is lost.
    pub fn give(
        &mut self,
        at: ItemNo,
        range: Range<usize>,
        (head, tail, miss): (impl FnOnce(&Items, &mut Vec<u8>), &'static [u8], &[u8]),
    ) {
        let (items, out) = (&mut *self.items, &mut *self.out);
        if items.is_away(at) {
            let (mut text, later) = (Vec::new(), items.later(self.seat));
            head(items, &mut text);
            let wish = Wish { later, head: text, tail, miss: miss.to_vec(), range };
            return items.fetch(at, wish, false, out);
        }
        out.with(|text| head(items, text));
        match range.len() == items.value_len(at) {
            true => items.send_value(at, out),
            false => items.send_part(at, range, out),
        }
        out.text(tail);
    }

    /// The slot of a key that another node keeps. A command that was carried here is executed here.
    pub fn elsewhere(&self, key: &[u8]) -> Option<usize> {
        match self.seat {
            Seat::Connection(_) => self.items.slot_elsewhere(key, self.moment),
            Seat::Carried(_) => None,
        }
    }

    /// Whether a command concerns all nodes of the key space.
    pub fn is_for_all(&self) -> bool {
        matches!(self.seat, Seat::Connection(_)) && self.items.owners().is_some()
    }

    /// Whether the next command has to wait for those before it, which other nodes execute: one that changes something
    /// there for all of them, any other for changes.
    pub fn has_to_wait(&self, changes: bool) -> bool {
        if changes { self.out.has_laters() } else { self.out.waits_for_change() }
    }

    /// Whether the rest of a command's answer has to wait. A command that was carried here is answered as a whole.
    pub fn is_full(&self) -> bool {
        matches!(self.seat, Seat::Connection(_)) && self.out.is_full() && !self.whole
    }

    /// Has other nodes execute commands.
    pub fn carry(
        &mut self,
        dialect: Dialect,
        parts: Vec<(Target, Rope)>,
        told: (Join, Effect, &[u8]),
    ) {
        self.carry_together(dialect, parts, told, Vec::new());
    }

    /// As [`carry`](Turn::carry), as long as all these slots have the same owner as the command's.
    pub fn carry_together(
        &mut self,
        dialect: Dialect,
        parts: Vec<(Target, Rope)>,
        (join, effect, miss): (Join, Effect, &[u8]),
        slots: Vec<usize>,
    ) {
        let (later, tenant) = (self.items.later(self.seat), self.tenant);
        let (changes, long) = (effect != Effect::Reads, effect == Effect::ChangesAndGives);
        let (miss, _held) = (miss.to_vec(), Charge::of(&parts, self.carried));
        let carry =
            Carry { tenant, dialect, parts, slots, changes, long, join, miss, later, _held };
        self.items.carry(carry, self.out);
    }

    /// What is stored, to be carried: a long value in frames of the items', since what is under way is bounded as they
    /// are.
    pub fn rope_of(&mut self, content: Content<'_>) -> Result<Rope, NoRoom> {
        match content {
            Content::Bytes(bytes) if bytes.len() <= BESIDE_BYTES_MAX => Ok(Rope::of_text(bytes)),
            Content::Bytes(bytes) => self.items.draft_of(self.tenant, bytes).map(Rope::of_draft),
            Content::Draft(draft) => Ok(Rope::of_draft(draft)),
        }
    }

    /// The item of a key whose value is away.
    pub fn away(&mut self, key: &[u8]) -> Option<ItemNo> {
        let found = self.items.find(self.tenant, key, self.moment);
        found.filter(|at| self.items.is_away(*at))
    }

    /// Whether a command can work on the key's value. If not, it has been asked for.
    pub fn has_value(&mut self, key: &[u8]) -> bool {
        let Some(at) = self.away(key) else { return true };
        self.items.bring(at, self.seat, self.out);
        false
    }
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

    /// Whose items it works on.
    pub fn tenant(&self) -> TenantNo {
        self.tenant
    }

    /// Of what it has, what is read again in front of what comes next.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Puts what it kept at the beginning of `input`; how many bytes. What comes next belongs behind them.
    pub fn begin_input(&mut self, input: &mut [u8]) -> usize {
        let kept = std::mem::take(&mut self.kept);
        input[..kept.len()].copy_from_slice(&kept);
        kept.len()
    }

    /// Where the next bytes of a long value belong; empty when there is no such place.
    pub fn gap(&mut self) -> &mut [u8] {
        // What was kept comes first.
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
