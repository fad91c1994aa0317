//! A client of a front end: one command at a time, in memcached's text protocol.

use super::super::shared::{Phase, Shared, deadlines};
use super::model::{Begun, Ended, SPAN, value};
use super::{Front, Keys, name};
use crate::queue::Picos;
use crate::random::Random;
use kv::{Moment, Out, Progress, Protocol, Session, TenantNo};
use node::Cx;
use std::rc::Rc;
use std::time::Duration;

/// How often a client looks for its answer.
const LOOK: Duration = Duration::from_micros(300);
/// Longest pause of a client between two commands.
const PAUSE_US_MAX: u64 = 20_000;
/// Pause of one that waits.
const WAIT: Duration = Duration::from_millis(20);
/// Keys that are counters.
const COUNTERS: u64 = 4;
/// Keys that all clients use most.
const HOT: u64 = 24;
/// Longest value of a hot key; others are longer, so that they leave.
const HOT_BYTES: u64 = 600;
const BYTES_MAX: u64 = 16 << 10;
/// Times that a read is repeated that should bring something: a link that breaks is a miss as well.
const TRIES: usize = 4;

/// One client.
pub struct Client {
    cx: Cx,
    front: Front,
    shared: Rc<Shared>,
    session: Session,
    random: Random,
    out: Out,
    input: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// Client `seat` of a node that begins to live.
    pub fn new(cx: &Cx, front: &Front, shared: &Rc<Shared>, tenant: TenantNo, seat: u32) -> Client {
        let name = format!("client {:x} {seat}", cx.incarnation());
        Client {
            cx: cx.clone(),
            front: front.clone(),
            shared: shared.clone(),
            session: Session::new(Protocol::Memcached, tenant, seat.into()).at_seat(seat),
            random: Random::new(shared.seed, &name),
            out: Out::default(),
            input: Vec::new(),
            answer: Vec::new(),
        }
    }

    /// Runs until the node ends.
    pub async fn run(mut self) {
        loop {
            match self.shared.phase.get() {
                Phase::Working => {
                    self.pause().await;
                    self.step().await;
                }
                Phase::Resting => {
                    self.pause().await;
                    let key = self.key();
                    self.read(key).await;
                }
                Phase::Quiet | Phase::Reading => self.cx.sleep(WAIT).await,
            }
        }
    }

    async fn pause(&mut self) {
        let pause = self.random.below(PAUSE_US_MAX);
        self.cx.sleep(Duration::from_micros(pause)).await;
    }

    fn key(&mut self) -> u64 {
        let all = u64::from(self.shared.shape.keys);
        let cold = self.random.chance(400_000) && all > HOT;
        if cold { HOT + self.random.below(all - HOT) } else { self.random.below(HOT.min(all)) }
    }

    async fn step(&mut self) {
        let key = self.key();
        match self.random.below(100) {
            _ if key < COUNTERS => self.count(key).await,
            0..60 => self.read(key).await,
            60..95 => self.set(key).await,
            _ => self.delete(key).await,
        }
    }

    fn now(&self) -> Picos {
        self.shared.now(&self.cx)
    }

    async fn set(&mut self, key: u64) {
        let most = if key < HOT { HOT_BYTES } else { BYTES_MAX };
        let bytes = 8 + self.random.below(most) as usize;
        let (shared, now) = (self.shared.clone(), self.now());
        let begun = shared.keys.model.borrow_mut().begin_set(key, bytes, now);
        let answer = self.store("set", key, &value(key, begun.serial, bytes)).await;
        let ended = ended(&answer, b"STORED\r\n");
        self.end_set(begun, ended);
    }

    fn end_set(&self, begun: Begun, ended: Ended) {
        let keys: &Keys = &self.shared.keys;
        let drops = keys.drops();
        keys.model.borrow_mut().end_set(begun, ended, self.now(), drops);
    }

    async fn store(&mut self, how: &str, key: u64, value: &[u8]) -> Vec<u8> {
        let head = format!("{how} {} 5 0 {}\r\n", name(key), value.len());
        self.ask(&[head.as_bytes(), value, b"\r\n"].concat()).await
    }

    async fn delete(&mut self, key: u64) {
        let (shared, now) = (self.shared.clone(), self.now());
        let begun = shared.keys.model.borrow_mut().begin_delete(key, now);
        let answer = self.ask(format!("delete {}\r\n", name(key)).as_bytes()).await;
        let ended = match &answer[..] {
            b"NOT_FOUND\r\n" => Ended::Made,
            answer => ended(answer, b"DELETED\r\n"),
        };
        shared.keys.model.borrow_mut().end_delete(begun, ended, self.now());
    }

    /// Increments a counter; one that is not there begins anew, where no counter was before.
    async fn count(&mut self, key: u64) {
        if self.random.chance(300_000) {
            return self.read(key).await;
        }
        let (shared, now) = (self.shared.clone(), self.now());
        let begun = shared.keys.model.borrow_mut().begin_increment(key, now);
        let answer = self.ask(format!("incr {} 1\r\n", name(key)).as_bytes()).await;
        if answer == b"NOT_FOUND\r\n" {
            let drops = shared.keys.drops();
            shared.keys.model.borrow_mut().absent(begun, self.cx.id(), drops);
            return self.begin_counter(key).await;
        }
        if let Some(number) = number(&answer) {
            shared.keys.model.borrow_mut().got_number(begun, self.cx.id(), number, true);
        }
    }

    async fn begin_counter(&mut self, key: u64) {
        let (shared, now) = (self.shared.clone(), self.now());
        let begun = shared.keys.model.borrow_mut().begin_set(key, 0, now);
        let first = (begun.serial * SPAN).to_string();
        let answer = self.store("add", key, first.as_bytes()).await;
        let ended = match &answer[..] {
            b"NOT_STORED\r\n" => Ended::Refused,
            answer => ended(answer, b"STORED\r\n"),
        };
        self.end_set(begun, ended);
    }

    async fn read(&mut self, key: u64) {
        for last in (0..TRIES).map(|at| at + 1 == TRIES) {
            let begun = self.shared.keys.model.borrow_mut().begin(key, self.now());
            let answer = self.ask(format!("get {}\r\n", name(key)).as_bytes()).await;
            let (shared, node) = (self.shared.clone(), self.cx.id());
            let mut model = shared.keys.model.borrow_mut();
            if let Some(value) = found(&answer) {
                return match number(value) {
                    Some(number) if key < COUNTERS => {
                        model.got_number(begun, node, number, false);
                    }
                    _ => model.got(begun, node, value),
                };
            }
            let calm = shared.keys.calm.get().is_some_and(|since| since <= begun.at);
            let drops = shared.keys.drops();
            if !calm || !model.misses(begun, drops) {
                return;
            }
            if last {
                return model.missed(begun, node, drops);
            }
        }
    }

    /// Sends a command; what it is answered.
    async fn ask(&mut self, command: &[u8]) -> Vec<u8> {
        let line = command.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let text = String::from_utf8_lossy(line).into_owned();
        let number = self.shared.begin(&self.cx, deadlines::SEVERAL, format_args!("{text}"));
        self.input.extend_from_slice(command);
        loop {
            self.serve();
            self.front.courier.ring();
            if self.out.is_empty() && self.input.is_empty() {
                break;
            }
            self.cx.sleep(LOOK).await;
        }
        self.front.items.borrow_mut().take_ready(&mut Vec::new());
        let answer = std::mem::take(&mut self.answer);
        let end = answer.iter().position(|byte| *byte == b'\r').unwrap_or(0);
        let said = String::from_utf8_lossy(&answer[..end]).into_owned();
        match said.contains("ERROR") {
            false => self.shared.end(self.now(), number, Ok(format_args!("{said}"))),
            true => self.shared.end(self.now(), number, Err(format_args!("{said}"))),
        }
        answer
    }

    /// Executes what has arrived, as far as the output lets it.
    fn serve(&mut self) {
        loop {
            self.write();
            let waits = self.input.is_empty() && self.session.kept_bytes() == 0;
            if !self.out.is_empty() || waits {
                return;
            }
            let kept = self.session.kept_bytes();
            let progress = self.run_session();
            assert_ne!(progress, Progress::Ended, "a command that ends a connection");
            let stuck = self.out.is_empty() && self.input.is_empty();
            if stuck && self.session.kept_bytes() >= kept {
                return;
            }
        }
    }

    fn run_session(&mut self) -> Progress {
        let moment = Moment::new(self.cx.now(), self.cx.wall());
        let items = &mut self.front.items.borrow_mut();
        let mut input = vec![0; kv::limits::INPUT_BYTES];
        let (count, progress) =
            self.session.feed(&self.input, &mut input, items, moment, &mut self.out);
        self.input.drain(..count);
        progress
    }

    fn write(&mut self) {
        self.out.settle();
        self.out.write_to(&mut self.answer);
    }
}

/// How a change has ended that is answered `made` when it was made.
fn ended(answer: &[u8], made: &[u8]) -> Ended {
    let unknown = answer.windows(14).any(|text| text == b"may have been ");
    match answer == made {
        true => Ended::Made,
        false if unknown => Ended::Unknown,
        false => Ended::Refused,
    }
}

/// The number that an answer or a value is.
fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// The value in an answer to `get`; `None` for a miss.
fn found(answer: &[u8]) -> Option<&[u8]> {
    let line = answer.iter().position(|byte| *byte == b'\n')?;
    answer[line + 1..].strip_suffix(b"\r\nEND\r\n")
}
