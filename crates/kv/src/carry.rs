//! Commands about keys that another node keeps: they are carried there as they are, and the answers put together.

use crate::ids::TenantNo;
use crate::limits::{ANSWER_BYTES, SHORT_ANSWER_BYTES};
use crate::number::{Decimal, signed};
use crate::out::Later;
use crate::rope::Rope;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wire::NodeId;

/// Bytes that a part of a command takes beside its text.
const PART_BYTES: usize = 64;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// memcached's text protocol, classic and meta (protocol.txt of memcached 1.6).
    Memcached,
    /// Redis's, versions 2 and 3.
    Resp,
}

/// In which protocol, and which version of it, a command and its answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The protocol.
    pub protocol: Protocol,
    /// 2 or 3 for Redis's, else 0.
    pub version: u8,
}

impl Dialect {
    /// memcached's.
    pub const MEMCACHED: Dialect = Dialect { protocol: Protocol::Memcached, version: 0 };

    /// As it stands in a message.
    pub fn code(self) -> u8 {
        self.version
    }

    /// The dialect with this [`code`](Dialect::code).
    pub fn of_code(code: u8) -> Option<Dialect> {
        match code {
            0 => Some(Dialect::MEMCACHED),
            2 | 3 => Some(Dialect { protocol: Protocol::Resp, version: code }),
            _ => None,
        }
    }

    fn error(self, text: &str) -> Vec<u8> {
        let kind = if self.protocol == Protocol::Memcached { "SERVER_ERROR" } else { "-TRYAGAIN" };
        format!("{kind} {text}\r\n").into_bytes()
    }
}

/// Destination of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the owner of a slot of keys.
    Slot(usize),
    /// To every node that serves keys, this one too.
    All,
    /// To the first node from this one on, or the last.
    From(NodeId),
}

/// How answers become one.
#[derive(Clone, Debug)]
pub(crate) enum Join {
    /// There is one.
    One,
    /// There is one, and the `END` behind it belongs to others too.
    WithoutEnd,
    /// Numbers, of which the sum counts, with what this node has found itself.
    Sum(i64),
    /// All are to be the same; the first other one counts.
    Same,
    /// Arrays of Redis's protocol, which become one.
    Arrays,
    /// This is the answer, whatever they are.
    Instead(&'static [u8]),
    /// They are noted, and `OK` is answered.
    Noted(Note),
}

/// Answers, when all have come.
pub(crate) type Note = Rc<RefCell<Option<Vec<Vec<u8>>>>>;

/// Bytes of a command that its connection is counted for as long as it is under way; only of a long one, since how many
/// there are is bounded.
#[derive(Debug)]
pub(crate) struct Charge(Rc<Cell<usize>>, usize);

impl Charge {
    /// Of these commands, for a connection that has so many.
    pub fn of(parts: &[(Target, Rope)], all: &Rc<Cell<usize>>) -> Option<Charge> {
        let bytes = parts.iter().map(|(_, rope)| PART_BYTES + rope.text_bytes()).sum();
        if bytes <= SHORT_ANSWER_BYTES {
            return None;
        }
        all.set(all.get() + bytes);
        Some(Charge(all.clone(), bytes))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Certainly nothing was changed.
    Refused,
    /// It may have been executed.
    Silent,
    /// There is no memory here for the answer.
    NoRoom,
}

/// A command for other nodes.
#[derive(Debug)]
pub struct Carry {
    /// The tenant of the keys.
    pub tenant: TenantNo,
    /// The commands' dialect.
    pub dialect: Dialect,
    /// The commands, and where each goes.
    pub(crate) parts: Vec<(Target, Rope)>,
    /// Slots that all are to be of the owner of the part's. Empty: nothing else is.
    pub(crate) slots: Vec<usize>,
    /// Whether they change something: then none is executed twice.
    pub changes: bool,
    /// Whether the answer of one that changes something may be as long as a value.
    pub long: bool,
    pub(crate) join: Join,
    /// The answer to a read when the owner does not answer.
    pub(crate) miss: Vec<u8>,
    pub(crate) later: Later,
    /// Counted until it is answered.
    pub(crate) _held: Option<Charge>,
}

impl Carry {
    /// Bytes that are expected of the answer.
    pub(crate) fn answer_bytes(&self) -> usize {
        if self.changes && !self.long { SHORT_ANSWER_BYTES } else { ANSWER_BYTES }
    }

    /// Here are the answers, one for each node that was asked.
    pub(crate) fn answer(self, mut answers: Vec<Result<Rope, Unanswered>>) {
        if self.takes_what_comes() {
            answers.retain(Result::is_ok); // what does not answer has nothing
        }
        let answers: Result<Vec<Rope>, Unanswered> = answers.into_iter().collect();
        let rope = match answers {
            Err(why) => Rope::of_text(self.failure(why)),
            Ok(answers) => self.joined(answers),
        };
        self.later.answer(rope.into_chunks());
    }

    /// Whether missing answers leave the others as they are. If an `END` follows, an error would be one answer too
    /// many: the client would take the `END` for the answer to its next command.
    fn takes_what_comes(&self) -> bool {
        match &self.join {
            Join::WithoutEnd => true,
            Join::Sum(_) | Join::Arrays => !self.changes,
            Join::One | Join::Same | Join::Instead(_) | Join::Noted(_) => false,
        }
    }

    fn failure(&self, why: Unanswered) -> Vec<u8> {
        match why {
            Unanswered::NoRoom if self.changes => {
                self.dialect.error("it is done, but there is no memory here for the answer")
            }
            Unanswered::NoRoom => self.dialect.error("there is no memory here for the answer"),
            _ if !self.changes => self.miss.clone(),
            // of a command about several keys the others' parts are done, and this node's own
            _ if matches!(self.join, Join::Same | Join::Sum(_)) => self
                .dialect
                .error("a node that keeps a part of the keys is away, others may have changed theirs; try again"),
            Unanswered::Refused => self
                .dialect
                .error("the node that keeps the key is away, nothing was changed; try again"),
            Unanswered::Silent => self
                .dialect
                .error("the node that keeps the key is away, the change may have been made or not"),
        }
    }

    fn joined(&self, answers: Vec<Rope>) -> Rope {
        match &self.join {
            Join::One => concat(answers),
            Join::WithoutEnd => concat(answers.into_iter().filter_map(without_end)),
            Join::Sum(mine) => Rope::of_text(sum(*mine, &answers)),
            Join::Same => Rope::of_text(same(answers.iter().map(Rope::to_vec).collect())),
            Join::Arrays => arrays(answers),
            Join::Instead(text) => Rope::of_text(*text),
            Join::Noted(note) => {
                *note.borrow_mut() = Some(answers.iter().map(Rope::to_vec).collect());
                Rope::of_text(b"+OK\r\n")
            }
        }
    }
}

fn concat(answers: impl IntoIterator<Item = Rope>) -> Rope {
    let mut all = Rope::default();
    answers.into_iter().for_each(|answer| all.join(answer));
    all
}

fn without_end(mut answer: Rope) -> Option<Rope> {
    answer.strip_end(b"END\r\n").then_some(answer)
}

/// The first of them, or the first that is an error.
fn same(all: Vec<Vec<u8>>) -> Vec<u8> {
    let errors = [&b"-"[..], b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR"];
    let is_error = |text: &&Vec<u8>| errors.iter().any(|error| text.starts_with(error));
    all.iter().find(is_error).or(all.first()).cloned().unwrap_or_default()
}

/// The sum as a number of Redis's protocol; or the first answer that is no number.
fn sum(mine: i64, answers: &[Rope]) -> Vec<u8> {
    let mut all = mine;
    for answer in answers.iter().map(Rope::to_vec) {
        let number = answer.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        match number.and_then(signed) {
            Some(number) => all += number,
            None => return answer,
        }
    }
    [b":", Decimal::signed(all).text(), b"\r\n"].concat()
}

/// One array of the elements of all; or the first answer that is none.
fn arrays(answers: Vec<Rope>) -> Rope {
    let (mut count, mut elements) = (0, Vec::new());
    for answer in answers {
        let bytes = answer.to_vec();
        let head = bytes.iter().position(|byte| *byte == b'\n').map(|end| bytes.split_at(end + 1));
        let parts = head.and_then(|(head, rest)| Some((head.strip_prefix(b"*")?, rest)));
        let parts = parts.and_then(|(head, rest)| Some((head.strip_suffix(b"\r\n")?, rest)));
        let Some((number, rest)) = parts.and_then(|(head, rest)| Some((signed(head)?, rest)))
        else {
            return answer;
        };
        count += number;
        elements.extend_from_slice(rest);
    }
    let mut all = Rope::of_text([b"*", Decimal::signed(count).text(), b"\r\n"].concat());
    all.text(&elements);
    all
}

/// A command of Redis's protocol.
pub(crate) fn command(args: impl IntoIterator<Item = Rope, IntoIter: ExactSizeIterator>) -> Rope {
    let args = args.into_iter();
    let mut text = Rope::of_text(format!("*{}\r\n", args.len()));
    for arg in args {
        text.text(format!("${}\r\n", arg.len()).as_bytes());
        text.join(arg);
        text.text(b"\r\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_among_the_answers_is_told() {
        let told = |all: &[&str]| same(all.iter().map(|text| text.as_bytes().to_vec()).collect());
        assert_eq!(told(&["+OK", "+OK"]), b"+OK");
        assert_eq!(told(&["-OOM x", "+OK", "+OK"]), b"-OOM x");
        assert_eq!(told(&["OK", "OK", "SERVER_ERROR x"]), b"SERVER_ERROR x");
        assert_eq!(told(&[]), b"");
    }

    #[test]
    fn a_long_command_counts_until_it_is_answered() {
        let all = Rc::new(Cell::new(0));
        let parts = |len: usize| vec![(Target::Slot(1), Rope::of_text(vec![0; len]))];
        assert!(Charge::of(&parts(100), &all).is_none() && all.get() == 0);
        let held = Charge::of(&parts(1 << 20), &all);
        assert!(all.get() > 1 << 20);
        drop(held);
        assert_eq!(all.get(), 0);
    }
}
