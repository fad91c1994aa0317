//! One connection: commands in any pieces in, replies out.
//!
//! Per read of its socket the world calls [`Session::begin_input`], reads behind what that gives, and calls
//! [`Session::run`]; or, while [`Session::gap`] has room, reads straight into it, calls [`Session::filled`] and then
//! `run` with nothing. As long as output waits it does not read.

use crate::items::Items;
use crate::memcached::Memcached;
use crate::moment::Moment;
use crate::out::Out;
use crate::resp::Resp;
use crate::tenants::TenantNo;

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
    /// So much output waits that the rest was kept: to be run again when it is written.
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
    /// The connection is at its end.
    End,
}

/// What a command works on.
pub(crate) struct Turn<'a> {
    pub items: &'a mut Items,
    pub tenant: TenantNo,
    pub moment: Moment,
    pub out: &'a mut Out,
}

impl Turn<'_> {
    /// Adds text to the output.
    pub fn say(&mut self, text: &[u8]) {
        self.out.text(text);
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
    /// The beginning of a command.
    kept: Vec<u8>,
}

impl Session {
    /// A connection to a tenant's address. `number` tells it from others.
    pub fn new(protocol: Protocol, tenant: TenantNo, number: u64) -> Session {
        let speaker = match protocol {
            Protocol::Memcached => Speaker::Memcached(Memcached::default()),
            Protocol::Resp => Speaker::Resp(Box::new(Resp::new(number))),
        };
        Session { speaker, tenant, kept: Vec::new() }
    }

    /// Bytes that it keeps until the rest of a command comes.
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

    /// Executes what is complete in `input`, as long as the output has room.
    pub fn run(
        &mut self,
        input: &[u8],
        items: &mut Items,
        moment: Moment,
        out: &mut Out,
    ) -> Progress {
        items.tick(moment);
        let mut turn = Turn { items, tenant: self.tenant, moment, out };
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
                Step::End => return Progress::Ended,
            }
        };
        self.kept.extend_from_slice(&input[at..]);
        progress
    }
}
