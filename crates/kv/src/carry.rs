//! Commands about keys that another node keeps: they are carried there as they are, and the answers put together.

use crate::number::{Decimal, signed};
use crate::out::{Chunk, Later};
use crate::session::Protocol;
use crate::tenants::TenantNo;
use endpoint::Frame;

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

    /// What [`code`](Dialect::code) gave.
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

/// Where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the owner of a slot of keys.
    Slot(usize),
    /// To every node that serves keys, this one too.
    All,
}

/// How answers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// There is one.
    One,
    /// There is one, and the `END` behind it belongs to others too.
    WithoutEnd,
    /// Numbers, of which the sum counts, with what this node has found itself.
    Sum(i64),
    /// All are to be the same; the first other one counts.
    Same,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Certainly nothing was changed.
    Refused,
    /// It may have been executed.
    Silent,
    /// The answer is longer than a message.
    Long,
}

/// A command for other nodes.
#[derive(Debug)]
pub struct Carry {
    /// Whose keys.
    pub tenant: TenantNo,
    /// What the commands are written in.
    pub dialect: Dialect,
    /// The commands, and where each goes.
    pub parts: Vec<(Target, Vec<u8>)>,
    /// Whether they change something: then none is executed twice.
    pub changes: bool,
    /// Whether the answer of one that changes something may be as long as a value.
    pub long: bool,
    pub(crate) join: Join,
    /// What is answered for a read when the owner does not answer.
    pub(crate) miss: Vec<u8>,
    pub(crate) later: Later,
}

impl Carry {
    /// Here are the answers, one for each node that was asked.
    pub fn answer(self, mut answers: Vec<Result<Frame, Unanswered>>) {
        if matches!(self.join, Join::Sum(_)) && !self.changes {
            answers.retain(Result::is_ok); // what does not answer has nothing
        }
        let answers: Result<Vec<Frame>, Unanswered> = answers.into_iter().collect();
        let chunks = match answers {
            Err(why) => vec![Chunk::Text(self.failure(why))],
            Ok(answers) => self.joined(answers),
        };
        self.later.answer(chunks);
    }

    fn failure(&self, why: Unanswered) -> Vec<u8> {
        match why {
            Unanswered::Long => self
                .dialect
                .error("the answer is longer than 1 MiB, which another node cannot send"),
            _ if !self.changes => self.miss.clone(),
            Unanswered::Refused => self
                .dialect
                .error("the node that keeps the key is away, nothing was changed; try again"),
            Unanswered::Silent => self
                .dialect
                .error("the node that keeps the key is away, the change may have been made or not"),
        }
    }

    fn joined(&self, answers: Vec<Frame>) -> Vec<Chunk> {
        match self.join {
            Join::One => answers.into_iter().map(Chunk::Frame).collect(),
            Join::WithoutEnd => answers.into_iter().filter_map(without_end).collect(),
            Join::Sum(mine) => vec![Chunk::Text(sum(mine, &answers))],
            Join::Same => {
                let first = answers.first().map(|answer| &answer[..]).unwrap_or_default();
                let other = answers.iter().map(|answer| &answer[..]).find(|other| *other != first);
                vec![Chunk::Text(other.unwrap_or(first).to_vec())]
            }
        }
    }
}

fn without_end(answer: Frame) -> Option<Chunk> {
    let len = answer.strip_suffix(b"END\r\n")?.len();
    (len > 0).then(|| Chunk::Frame(answer.slice(0..len)))
}

/// The sum as a number of Redis's protocol; or the first answer that is no number.
fn sum(mine: i64, answers: &[Frame]) -> Vec<u8> {
    let mut all = mine;
    for answer in answers {
        let number = answer.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        match number.and_then(signed) {
            Some(number) => all += number,
            None => return answer.to_vec(),
        }
    }
    [b":", Decimal::signed(all).text(), b"\r\n"].concat()
}

/// A command of Redis's protocol.
pub(crate) fn command<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut text = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        text.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        text.extend_from_slice(arg);
        text.extend_from_slice(b"\r\n");
    }
    text
}
