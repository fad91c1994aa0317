//! Commands that other nodes have brought are executed, those that are longer than a message as their parts arrive.

use super::Courier;
use super::carry::{Tried, op};
use crate::carry::{Carry, Dialect};
use crate::ids::TenantNo;
use crate::limits::*;
use crate::moment::Moment;
use crate::out::Out;
use crate::rope::{Rope, copy_from};
use crate::session::{Progress, Session};
use endpoint::Frame;
use node::{Answer, Request};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use wire::{Channel, Decoder, Encoder, Time};

/// Statuses of an answer.
pub(super) mod status {
    /// By another view, or not sure of it. Nothing was executed.
    pub const ELSEWHERE: u16 = 1;
    /// The answer is longer than there is room for; its length is in the body.
    pub const LONG: u16 = 2;
    /// There is no such tenant here.
    pub const NO_TENANT: u16 = 3;
    /// No frame is free, or too much is under way. Nothing was executed.
    pub const NO_MEMORY: u16 = 4;
    /// The message is none.
    pub const WRONG: u16 = 5;
    /// The part sent ahead is not here. Nothing was executed.
    pub const NO_PART: u16 = 6;
}

/// Seat of a command of this node's own clients that is executed late: no other waits at it.
const NOBODY: u32 = u32::MAX;

/// Commands and answers under way that are longer than a message.
pub(super) struct Long {
    /// By the asking incarnation and its number.
    halves: RefCell<BTreeMap<(u64, u64), Half>>,
    answers: RefCell<BTreeMap<u64, Kept>>,
    number: Cell<u64>,
}

/// A command of which more is to come.
struct Half {
    run: Run,
    /// Bytes that have come.
    at: u64,
    until: Time,
}

/// An answer that is fetched in parts.
struct Kept {
    out: Out,
    /// The asking incarnation.
    client: u64,
    until: Time,
    /// Its last part was fetched.
    ended: bool,
}

impl Long {
    /// `first` tells the numbers of this incarnation from those of others.
    pub fn new(first: u64) -> Long {
        let (halves, answers) = (RefCell::default(), RefCell::default());
        Long { halves, answers, number: Cell::new(first) }
    }

    /// Whether there is no room for a part of a command, of a new one or of one that is here.
    fn is_full(&self, new: bool) -> bool {
        let halves = self.halves.borrow();
        let bytes: usize = halves.values().map(|half| half.run.session.held_bytes()).sum();
        new && halves.len() >= LONG_COMMANDS_MAX || bytes > LONG_BYTES_MAX
    }

    fn next(&self) -> u64 {
        self.number.set(self.number.get().wrapping_add(1).max(1));
        self.number.get()
    }
}

/// A command that is executed.
struct Run {
    session: Session,
    out: Out,
}

impl Run {
    fn new(dialect: Dialect, tenant: TenantNo, seat: u32) -> Run {
        Run { session: Session::carried(dialect, tenant, seat), out: Out::default() }
    }
}

/// Content of a message with a command.
struct Message<'a> {
    dialect: Dialect,
    tenant: TenantNo,
    room: usize,
    /// The command's origin, and its number there.
    name: (u64, u64),
    /// Bytes that were sent ahead.
    at: u64,
    text: &'a [u8],
}

impl Courier {
    pub(super) fn moment(&self) -> Moment {
        Moment::new(self.0.cx.now(), self.0.cx.wall())
    }

    pub(super) fn view(&self) -> u64 {
        self.0.items.borrow().owners().map_or(0, |owners| owners.view())
    }

    fn serves(&self, view: u64) -> bool {
        self.0.items.borrow().owners().is_some_and(|owners| owners.serves(view, self.moment()))
    }

    /// A number that no other long command or answer of this incarnation has.
    pub(super) fn next_number(&self) -> u64 {
        self.0.long.next()
    }

    /// This node keeps the key: it has become sure of that meanwhile.
    pub(super) async fn run_here(&self, carry: &Carry, text: &Rope) -> Tried {
        if !self.serves(self.view()) {
            return Tried::Again;
        }
        let mut run = Run::new(carry.dialect, carry.tenant, NOBODY);
        for piece in text.pieces() {
            self.execute(&mut run, NOBODY, piece).await;
        }
        Tried::Answered(run.out.into_rope())
    }

    /// Executes commands of other nodes, one after the other.
    pub(super) async fn serve(self, worker: u32) {
        loop {
            let request = self.0.cx.accept(Channel::KEYS).await;
            match request.op {
                op::VIEW => self.tell_view(request),
                op::RUN => self.run(request, worker).await,
                op::PART => self.take_part(request, worker).await,
                op::MORE => self.give_part(request),
                _ => self.refuse(request, status::WRONG),
            }
        }
    }

    fn refuse(&self, request: Request, status: u16) {
        self.0.cx.reply(request, Answer { status, ..Answer::DONE });
    }

    fn tell_view(&self, request: Request) {
        let asked = Decoder::new(&request.body).u64().expect("eight bytes");
        match self.admits(request.source, asked) {
            true => self.0.cx.reply(request, Answer::DONE),
            false => self.refuse(request, status::ELSEWHERE),
        }
    }

    /// The content of a message; else the reason of its refusal.
    fn read<'a>(&self, request: &Request, bytes: &'a [u8]) -> Result<Message<'a>, u16> {
        let mut body = Decoder::new(&request.body);
        let view = body.u64().map_err(|_| status::WRONG)?;
        if !self.serves(view) {
            return Err(status::ELSEWHERE);
        }
        let mut body =
            || Some((body.u8().ok()?, body.u32().ok()?, body.u64().ok()?, body.u64().ok()?));
        let (dialect, room, number, at) = body().ok_or(status::WRONG)?;
        let dialect = Dialect::of_code(dialect).ok_or(status::WRONG)?;
        let (name, text) = split_name(bytes).ok_or(status::WRONG)?;
        let tenant = self.0.items.borrow().tenant_named(name).ok_or(status::NO_TENANT)?;
        let name = (request.client, number);
        Ok(Message { dialect, tenant, room: room as usize, name, at, text })
    }

    async fn run(&self, request: Request, worker: u32) {
        let bytes = request.data.copied(request.bytes);
        let begun = self.read(&request, &bytes).and_then(|message| {
            self.sweep_long();
            let run = match self.can_keep() {
                true => self.begin(&message, worker),
                false => Err(status::NO_MEMORY),
            };
            Ok((run?, message))
        });
        let (mut run, message) = match begun {
            Ok(begun) => begun,
            Err(why) => return self.refuse(request, why),
        };
        self.execute(&mut run, worker, message.text).await;
        self.answer(request, run.out, message.room, message.tenant);
    }

    /// The command that a message goes on with, or begins.
    fn begin(&self, message: &Message<'_>, seat: u32) -> Result<Run, u16> {
        if message.at == 0 {
            return Ok(Run::new(message.dialect, message.tenant, seat));
        }
        let half = self.0.long.halves.borrow_mut().remove(&message.name);
        let mut run = half.filter(|half| half.at == message.at).ok_or(status::NO_PART)?.run;
        run.session.move_to(seat);
        Ok(run)
    }

    async fn take_part(&self, request: Request, worker: u32) {
        let bytes = request.data.copied(request.bytes);
        let taken = match self.read(&request, &bytes) {
            Ok(message) => self.add_part(message, worker).await,
            Err(why) => Err(why),
        };
        self.refuse(request, taken.err().unwrap_or(0));
    }

    async fn add_part(&self, message: Message<'_>, worker: u32) -> Result<(), u16> {
        self.sweep_long();
        let known = self.0.long.halves.borrow().get(&message.name).map(|half| half.at);
        if known.is_some_and(|at| at > message.at) {
            return Ok(()); // it has come before
        }
        if self.0.long.is_full(known.is_none()) {
            return Err(status::NO_MEMORY);
        }
        let mut run = self.begin(&message, worker)?;
        self.execute(&mut run, worker, message.text).await;
        let at = message.at + message.text.len() as u64;
        let half = Half { run, at, until: self.0.cx.now() + LONG_SPAN };
        self.0.long.halves.borrow_mut().insert(message.name, half);
        Ok(())
    }

    /// Gives a part of a long answer; after the last one it may be asked for again for a moment only.
    fn give_part(&self, request: Request) {
        let mut body = Decoder::new(&request.body);
        let mut word = || body.u64().expect("sixteen bytes");
        let (number, from) = (word(), word() as usize);
        let part = self.part_of(request.client, number, from);
        match part {
            Ok(frame) => {
                let data = std::slice::from_ref(&frame);
                self.0.cx.reply(request, Answer { data, ..Answer::DONE });
            }
            Err(why) => self.refuse(request, why),
        }
    }

    fn part_of(&self, client: u64, number: u64, from: usize) -> Result<Frame, u16> {
        let mut answers = self.0.long.answers.borrow_mut();
        let kept = answers.get_mut(&number).filter(|kept| kept.client == client);
        let kept = kept.filter(|kept| from < kept.out.len()).ok_or(status::WRONG)?;
        let count = (kept.out.len() - from).min(CARRIED_PART_BYTES);
        let mut frame = self.0.cx.frames().alloc_exact(count).ok_or(status::NO_MEMORY)?;
        copy_from(kept.out.pieces(), from, &mut frame);
        kept.ended = from + count == kept.out.len();
        kept.until = self.0.cx.now() + if kept.ended { LONG_END_SPAN } else { LONG_SPAN };
        Ok(frame.freeze())
    }

    /// Long commands of other nodes that are here in part, and long answers that they are fetching.
    pub fn parts_held(&self) -> usize {
        self.0.long.halves.borrow().len() + self.0.long.answers.borrow().len()
    }

    /// Forgets parts and answers that were not requested for long.
    pub(super) fn sweep_long(&self) {
        let now = self.0.cx.now();
        self.0.long.halves.borrow_mut().retain(|_, half| half.until > now);
        self.0.long.answers.borrow_mut().retain(|_, kept| kept.until > now);
    }

    /// Looks after what is left of nodes that are gone.
    pub(super) async fn sweep(self) {
        loop {
            self.0.cx.sleep(LONG_SPAN).await;
            self.sweep_long();
        }
    }

    fn answer(&self, request: Request, out: Out, room: usize, tenant: TenantNo) {
        let len = out.len();
        let frame = if len <= room { self.pack(&out) } else { None };
        let mut body = [0; 16];
        if let Some(frame) = frame {
            Encoder::new(&mut body).u64(len as u64).u64(0);
            let data = if frame.is_empty() { &[][..] } else { std::slice::from_ref(&frame) };
            return self.0.cx.reply(request, Answer { body: &body, data, ..Answer::DONE });
        }
        // what changes nothing is rather executed again, with room for the answer
        let again = !request.once() && len > room && len <= CARRIED_PART_BYTES;
        let number = if again { 0 } else { self.keep(request.client, out, tenant) };
        Encoder::new(&mut body).u64(len as u64).u64(number);
        self.0.cx.reply(request, Answer { status: status::LONG, body: &body, ..Answer::DONE });
    }

    /// Whether there is room for one more long answer; one that was fetched as a whole gives way.
    fn can_keep(&self) -> bool {
        let mut answers = self.0.long.answers.borrow_mut();
        if answers.len() >= LONG_ANSWERS_MAX {
            let ended = answers.iter().find(|(_, kept)| kept.ended).map(|(number, _)| *number);
            ended.and_then(|number| answers.remove(&number));
        }
        answers.len() < LONG_ANSWERS_MAX
    }

    /// Keeps an answer until it is fetched. Without room in the tenant's memory it counts as not fetched in time.
    fn keep(&self, client: u64, mut out: Out, tenant: TenantNo) -> u64 {
        let number = self.next_number();
        let items = &mut self.0.items.borrow_mut();
        if items.adopt(&mut out, tenant).is_ok() && items.crowded() != Some(tenant) {
            let kept = Kept { out, client, until: self.0.cx.now() + LONG_SPAN, ended: false };
            self.0.long.answers.borrow_mut().insert(number, kept);
        }
        number
    }

    /// Executes as much of a command as is here.
    async fn execute(&self, run: &mut Run, seat: u32, text: &[u8]) {
        let mut at = 0;
        loop {
            let progress = self.feed(run, text, &mut at);
            self.ring();
            self.await_replies(&mut run.out, seat).await;
            let done = progress != Progress::Full || run.session.is_between();
            // one command makes no second one wait for the first's output
            if done && at == text.len() || run.out.is_full() || progress == Progress::Ended {
                return;
            }
        }
    }

    /// Gives a session the next part of a command.
    fn feed(&self, run: &mut Run, text: &[u8], at: &mut usize) -> Progress {
        let (items, input) = (&mut self.0.items.borrow_mut(), &mut self.0.input.borrow_mut());
        let (session, out) = (&mut run.session, &mut run.out);
        let (count, progress) = session.feed(&text[*at..], input, items, self.moment(), out);
        *at += count;
        progress
    }

    async fn await_replies(&self, out: &mut Out, seat: u32) {
        loop {
            let replies = self.0.replies.get(seat as usize).map(node::Notify::wait);
            out.settle();
            match replies {
                _ if !out.has_laters() => return,
                Some(replies) => replies.await,
                None => self.0.cx.sleep(VIEW_PAUSE).await,
            }
        }
    }

    /// Wakes the tasks whose replies have come.
    pub(super) fn tell_replies(&self) {
        let mut ready = Vec::new();
        self.0.items.borrow_mut().take_carried_ready(&mut ready);
        for seat in ready {
            self.0.replies.get(seat as usize).into_iter().for_each(node::Notify::notify_all);
        }
    }

    /// The answer, in one frame of the node's.
    fn pack(&self, out: &Out) -> Option<Frame> {
        let mut frame = self.0.cx.frames().alloc_exact(out.len().max(1))?;
        let count = copy_from(out.pieces(), 0, &mut frame);
        frame.truncate(count);
        Some(frame.freeze())
    }
}

/// The tenant's name and the command of a message.
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}
