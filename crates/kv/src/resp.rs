//! Redis's protocol, versions 2 and 3 (redis.io, "Redis serialization protocol specification").

mod commands;
mod connection;
mod glob;
mod info;
mod inline;
mod keys;
mod multi;
mod owner;
mod reply;
mod strings;

use crate::items::Content;
use crate::limits::{
    ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, BESIDE_BYTES_MAX, INLINE_BYTES_MAX, VALUE_BYTES_MAX,
    WHOLE_BYTES,
};
use crate::number::integer;
use crate::out::Seat;
use crate::turn::{Step, Turn};
use crate::value::Draft;
use arrayvec::ArrayVec;
use owner::Route;
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Arguments of a command that is executed where it was read. Of one with more, the answers need not all have room at
/// once: it stops, and goes on with what was gathered.
const WHOLE_ARGUMENTS: usize = 16;
/// Longest line that says how much follows.
const HEADER_BYTES_MAX: usize = 32;

const NO_AUTH: &str = "NOAUTH Authentication required.";
const TOO_MUCH_UNPROVED: &str = "unauthenticated multibulk length";
const NO_ROOM: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
const TOO_LARGE: &[u8] = b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
const TOO_LONG: &[u8] = b"-ERR the command is too long: keys and short values of one have 24M at most, with 16 for each\r\n";

/// A connection's place in the protocol, and what the client said of itself.
#[derive(Debug)]
pub struct Resp {
    gather: Option<Gather>,
    client: Client,
}

/// State of a client.
#[derive(Debug)]
pub struct Client {
    /// 2 or 3.
    pub version: u8,
    pub name: Vec<u8>,
    /// Of the connection.
    pub number: u64,
    /// Arguments of the command that are answered, when it has stopped before its end for want of room for the rest.
    pub answered: Option<NonZeroUsize>,
    /// Of a transaction that has begun.
    pub queue: Option<Box<multi::Queue>>,
    /// Keys that must not have changed when it ends.
    pub watched: Vec<multi::Watch>,
    /// The values that a transaction needs were requested.
    pub brought: bool,
    /// Whether it gave the password, where there is one.
    pub proved: bool,
}

impl Client {
    fn new(number: u64) -> Client {
        Client {
            version: 2,
            name: Vec::new(),
            number,
            answered: None,
            queue: None,
            watched: Vec::new(),
            brought: false,
            proved: false,
        }
    }

    /// Whether it must give the password first. A command that another node has carried here was checked there.
    fn is_stranger(&self, turn: &Turn<'_>) -> bool {
        let asked = !self.proved && turn.items.facts().password.is_some();
        asked && matches!(turn.seat, Seat::Connection(_))
    }
}

/// A command that is taken in argument by argument.
#[derive(Debug, Default)]
struct Gather {
    /// Arguments that are to come.
    missing: usize,
    args: Vec<Arg>,
    bytes: Vec<u8>,
    draft: Option<Draft>,
    /// Of an argument that is not wanted: so many of its bytes, and the end of its line, are to come.
    discard: Option<usize>,
    /// Why the command is not executed.
    failed: Option<&'static [u8]>,
}

/// An argument.
#[derive(Debug)]
enum Arg {
    /// Here in the bytes, between two places.
    Span(u32, u32),
    /// A long value.
    Draft(Box<Draft>),
    /// A value that was used.
    Gone,
}

impl Arg {
    fn span(start: usize, end: usize) -> Arg {
        let place = |at| u32::try_from(at).expect("what is gathered is bounded");
        Arg::Span(place(start), place(end))
    }
}

/// The arguments of a command, the first of which is its name.
pub struct Args<'a> {
    bytes: &'a [u8],
    args: &'a mut [Arg],
}

impl<'a> Args<'a> {
    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// A short argument; `None` when there is none, or it is long.
    pub fn get(&self, number: usize) -> Option<&'a [u8]> {
        match self.args.get(number)? {
            Arg::Span(start, end) if (end - start) as usize <= BESIDE_BYTES_MAX => {
                Some(&self.bytes[*start as usize..*end as usize])
            }
            _ => None,
        }
    }

    /// Whether an argument is long, in whatever pieces it came.
    pub fn is_long(&self, number: usize) -> bool {
        number < self.args.len() && self.get(number).is_none()
    }

    /// How long those are that are not in frames.
    pub fn spans(&self) -> impl Iterator<Item = usize> {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Span(start, end) => Some((end - start) as usize),
            _ => None,
        })
    }

    /// A short argument; of a long one nothing.
    pub fn text(&self, number: usize) -> &'a [u8] {
        self.get(number).unwrap_or_default()
    }

    /// Some of them: those of one command of several.
    fn part(&mut self, numbers: Range<usize>) -> Args<'_> {
        Args { bytes: self.bytes, args: &mut self.args[numbers] }
    }

    /// An argument that is stored, once.
    pub fn take(&mut self, number: usize) -> Content<'a> {
        match std::mem::replace(&mut self.args[number], Arg::Gone) {
            Arg::Span(start, end) => Content::Bytes(&self.bytes[start as usize..end as usize]),
            Arg::Draft(draft) => Content::Draft(*draft),
            Arg::Gone => Content::Bytes(&[]),
        }
    }
}

/// The parsed beginning of the input.
enum Parsed {
    /// A whole command of so many bytes.
    Whole(ArrayVec<Arg, WHOLE_ARGUMENTS>, usize),
    /// A part of a command.
    Half,
    /// A command that is to be gathered.
    Long,
    /// No command.
    Wrong(Why),
}

/// The number on a header line such as `$12`, and where the next line begins; `None` when it has no end yet.
fn header(input: &[u8], at: usize) -> Result<Option<(i64, usize)>, ()> {
    let line = input.get(at + 1..).unwrap_or_default();
    let head = &line[..line.len().min(HEADER_BYTES_MAX)];
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        return if head.len() < HEADER_BYTES_MAX { Ok(None) } else { Err(()) };
    };
    let text = line[..end].strip_suffix(b"\r").ok_or(())?;
    Ok(Some((integer(text).ok_or(())?, at + 1 + end + 1)))
}

/// Error of the protocol.
type Why = Cow<'static, str>;
const BAD_COUNT: Why = Cow::Borrowed("invalid multibulk length");
const BAD_BULK: Why = Cow::Borrowed("invalid bulk length");

fn parse(input: &[u8]) -> Parsed {
    let (count, mut at) = match header(input, 0) {
        Ok(Some(found)) => found,
        Ok(None) => return Parsed::Half,
        Err(()) => return Parsed::Wrong(BAD_COUNT),
    };
    let mut args = ArrayVec::new();
    match usize::try_from(count) {
        Err(_) => return Parsed::Whole(args, at), // a null array is no command
        Ok(count) if count > ARGUMENTS_MAX => return Parsed::Wrong(BAD_COUNT),
        Ok(count) if count > WHOLE_ARGUMENTS => return Parsed::Long,
        Ok(count) => {
            for _ in 0..count {
                match bulk(input, at) {
                    Ok(Some((start, end))) => {
                        args.push(Arg::span(start, end));
                        at = end + 2;
                    }
                    Ok(None) if input.len() > WHOLE_BYTES => return Parsed::Long,
                    Ok(None) => return half(input, at),
                    Err(why) => return Parsed::Wrong(why),
                }
            }
        }
    }
    Parsed::Whole(args, at)
}

/// A command whose argument at `at` is not all here.
fn half(input: &[u8], at: usize) -> Parsed {
    match header(input, at) {
        Ok(Some((len, _))) if len > BESIDE_BYTES_MAX as i64 => Parsed::Long,
        _ => Parsed::Half,
    }
}

/// Bounds of the bulk string at `at`; `None` when it is not all here.
fn bulk(input: &[u8], at: usize) -> Result<Option<(usize, usize)>, Why> {
    let Some((len, start)) = bulk_header(input, at)? else { return Ok(None) };
    let end = start + len;
    match input.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some((start, end))),
        Some(_) => Err(BAD_BULK),
        None => Ok(None),
    }
}

fn bulk_header(input: &[u8], at: usize) -> Result<Option<(usize, usize)>, Why> {
    match input.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(other) => {
            return Err(format!("expected '$', got '{}'", char::from(*other)).into());
        }
    }
    let Some((len, start)) = header(input, at).map_err(|()| BAD_BULK)? else { return Ok(None) };
    let len = usize::try_from(len).ok().filter(|len| *len <= VALUE_BYTES_MAX);
    Ok(Some((len.ok_or(BAD_BULK)?, start)))
}

impl Resp {
    /// A new connection.
    pub fn new(number: u64) -> Resp {
        Resp { gather: None, client: Client::new(number) }
    }

    /// As HELLO says it.
    pub fn set_version(&mut self, version: u8) {
        self.client.version = version;
    }

    /// Whether nothing is known of a next command.
    pub fn is_between(&self) -> bool {
        self.gather.is_none()
    }

    /// Bytes of the short arguments of a command that is arriving, and of a transaction.
    pub fn held_bytes(&self) -> usize {
        let gather = self.gather.as_ref().map_or(0, |gather| {
            gather.bytes.capacity() + gather.args.capacity() * size_of::<Arg>()
        });
        gather + multi::held_bytes(&self.client)
    }

    /// Bytes of the items' memory that long values have of a command that is arriving.
    pub fn draft_bytes(&self) -> usize {
        self.gather.as_ref().map_or(0, Gather::draft_bytes)
    }

    /// Room for the next bytes of a long value.
    pub fn gap(&mut self) -> &mut [u8] {
        match self.gather.as_mut().and_then(|gather| gather.draft.as_mut()) {
            Some(draft) => draft.gap(),
            None => &mut [],
        }
    }

    /// So many bytes have been put there.
    pub fn filled(&mut self, bytes: usize) {
        if let Some(draft) = self.gather.as_mut().and_then(|gather| gather.draft.as_mut()) {
            draft.filled(bytes);
        }
    }

    /// Does the first thing in `input`.
    pub fn step(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Step {
        if let Some(gather) = self.gather.take() {
            return self.gather(gather, input, turn);
        }
        match input.first() {
            None => Step::Wants,
            Some(b'*') => self.array(input, turn),
            Some(_) => self.inline(input, turn),
        }
    }

    fn array(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Step {
        match parse(input) {
            Parsed::Long if self.client.is_stranger(turn) => wrong(TOO_MUCH_UNPROVED, turn),
            Parsed::Whole(mut args, used) => {
                let args = Args { bytes: input, args: &mut args };
                if args.spans().any(|bytes| !turn.items.takes(bytes)) {
                    return self.refuse(TOO_LARGE, used, turn);
                }
                self.execute(args, used, turn)
            }
            Parsed::Half => Step::Wants,
            Parsed::Wrong(why) => wrong(&why, turn),
            Parsed::Long => {
                let (count, used) = header(input, 0).ok().flatten().expect("it was parsed");
                self.gather = Some(Gather { missing: count as usize, ..Gather::default() });
                Step::Used(used)
            }
        }
    }

    fn execute(&mut self, args: Args<'_>, used: usize, turn: &mut Turn<'_>) -> Step {
        if args.len() > 0 && self.client.is_stranger(turn) && !connection::is_open(&args) {
            turn.error(NO_AUTH);
            return Step::Used(used);
        }
        if turn.has_to_wait(false) {
            return Step::Blocked;
        }
        turn.items.facts_mut().commands += 1;
        let args = match multi::take(args, &mut self.client, turn) {
            multi::Taken::Not(args) => args,
            multi::Taken::Done => return Step::Used(used),
            multi::Taken::Blocked => return Step::Blocked,
        };
        if !commands::is_ready(&args, turn) {
            return Step::Blocked;
        }
        let goes_on = self.client.answered.is_some();
        match if goes_on { Route::Split } else { owner::route(&args, turn) } {
            Route::Here => {
                if args.len() > 0 && !commands::execute(args, &mut self.client, turn) {
                    return Step::End;
                }
            }
            _ if turn.has_to_wait(true) && !owner::reads(&args) => return Step::Blocked,
            route => owner::carry(args, route, &mut self.client, turn),
        }
        if self.client.answered.is_some() { Step::Blocked } else { Step::Used(used) }
    }

    /// A command as a person types it: words on a line.
    fn inline(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Step {
        let end = input.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(input.len()) > INLINE_BYTES_MAX {
            return wrong("too big inline request", turn);
        }
        let Some(end) = end else { return Step::Wants };
        let Some((bytes, mut args)) = inline::split(&input[..end]) else {
            return wrong("unbalanced quotes in request", turn);
        };
        if inline::is_http(&Args { bytes: &bytes, args: &mut args }) {
            return Step::End; // a page in a browser sends it: what follows must not be executed
        }
        if self.client.is_stranger(turn) && args.len() > WHOLE_ARGUMENTS {
            return wrong(TOO_MUCH_UNPROVED, turn);
        }
        if args.len() <= WHOLE_ARGUMENTS {
            return self.execute(Args { bytes: &bytes, args: &mut args }, end + 1, turn);
        }
        self.gather = Some(Gather { args, bytes, ..Gather::default() });
        Step::Used(end + 1)
    }

    fn gather(&mut self, mut gather: Gather, input: &[u8], turn: &mut Turn<'_>) -> Step {
        let step = match gather.missing {
            0 => return self.gathered(gather, turn),
            _ => gather.step(input, turn),
        };
        match step {
            Ok(step) => {
                self.gather = Some(gather);
                step
            }
            Err(why) => wrong(&why, turn),
        }
    }

    fn gathered(&mut self, mut gather: Gather, turn: &mut Turn<'_>) -> Step {
        if let Some(text) = gather.failed {
            return self.refuse(text, 0, turn);
        }
        let args = Args { bytes: &gather.bytes, args: &mut gather.args };
        let step = self.execute(args, 0, turn);
        if step == Step::Blocked {
            self.gather = Some(gather);
        }
        step
    }

    /// A command that is not looked at, nor the transaction that it is a part of.
    fn refuse(&mut self, text: &'static [u8], used: usize, turn: &mut Turn<'_>) -> Step {
        turn.say(text);
        self.client.queue.iter_mut().for_each(|queue| queue.fail());
        Step::Used(used)
    }
}

fn wrong(why: &str, turn: &mut Turn<'_>) -> Step {
    turn.error(&format!("ERR Protocol error: {why}"));
    Step::End
}

impl Gather {
    fn draft_bytes(&self) -> usize {
        let drafts = self.args.iter().filter_map(|arg| match arg {
            Arg::Draft(draft) => Some(&**draft),
            _ => None,
        });
        drafts.chain(&self.draft).map(Draft::held_bytes).sum()
    }

    /// Takes in something of the next argument.
    fn step(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<Step, Why> {
        if let Some(left) = self.discard {
            return self.discard(left, input);
        }
        match self.draft.take() {
            Some(draft) => self.go_on(draft, input, turn),
            None => self.begin(input, turn),
        }
    }

    fn discard(&mut self, left: usize, input: &[u8]) -> Result<Step, Why> {
        let count = left.min(input.len());
        self.discard = Some(left - count);
        match input.get(..2) {
            _ if count > 0 => Ok(Step::Used(count)),
            None => Ok(Step::Wants),
            Some(b"\r\n") if left == 0 => {
                (self.discard, self.missing) = (None, self.missing - 1);
                Ok(Step::Used(2))
            }
            Some(_) => Err(BAD_BULK),
        }
    }

    /// The command is not executed: what has come of it is forgotten, what is to come is passed over.
    fn fail(&mut self, text: &'static [u8]) {
        self.failed = self.failed.or(Some(text));
        (self.bytes, self.args) = Default::default();
    }

    fn begin(&mut self, input: &[u8], turn: &mut Turn<'_>) -> Result<Step, Why> {
        let Some((len, start)) = bulk_header(input, 0)? else { return Ok(Step::Wants) };
        let places = (self.args.len() + 1) * size_of::<Arg>();
        if !turn.items.takes(len) {
            self.fail(TOO_LARGE);
        } else if self.bytes.len() + len.min(BESIDE_BYTES_MAX) + places > ARGUMENT_BYTES_MAX {
            self.fail(TOO_LONG);
        }
        if self.failed.is_some() {
            self.discard = Some(len);
            return Ok(Step::Used(start));
        }
        if len > BESIDE_BYTES_MAX {
            self.draft = Some(Draft::new(len));
            return Ok(Step::Used(start));
        }
        let Some((start, end)) = bulk(input, 0)? else { return Ok(Step::Wants) };
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&input[start..end]);
        self.args.push(Arg::span(at, at + len));
        self.missing -= 1;
        Ok(Step::Used(end + 2))
    }

    fn go_on(&mut self, mut draft: Draft, input: &[u8], turn: &mut Turn<'_>) -> Result<Step, Why> {
        let left = draft.left();
        if left > 0 {
            if turn.items.extend(&mut draft, turn.tenant).is_err() {
                self.fail(NO_ROOM);
                self.discard = Some(left);
                return Ok(Step::Used(0));
            }
            let count = draft.copy(input);
            self.draft = Some(draft);
            return Ok(if count == 0 { Step::Wants } else { Step::Used(count) });
        }
        match input.get(..2) {
            None => {
                self.draft = Some(draft);
                Ok(Step::Wants)
            }
            Some(b"\r\n") => {
                self.args.push(Arg::Draft(Box::new(draft)));
                self.missing -= 1;
                Ok(Step::Used(2))
            }
            Some(_) => Err(BAD_BULK),
        }
    }
}
