//! Commands go to the nodes that keep their keys, and are executed there.
//!
//! | message | body | data | answer's body | answer's data |
//! | --- | --- | --- | --- | --- |
//! | VIEW | view 8 | | | |
//! | RUN | view 8, dialect 1, room for the answer 4 | length of the tenant's name 1, the name, the command | bytes 4 | what its client is answered |
//!
//! RUN is executed once when it changes something. A view other than the receiver's is refused: nothing was executed.

use super::Courier;
use crate::carry::{Carry, Dialect, Target, Unanswered};
use crate::limits::*;
use crate::moment::Moment;
use crate::out::Out;
use crate::session::{Progress, Session};
use crate::tenants::TenantNo;
use endpoint::{Frame, FrameMut};
use node::{Answer, Call, Request, all};
use wire::limits::PAYLOAD_BYTES_MAX;
use wire::{Channel, Decoder, Encoder, NodeId};

/// Operations on the channel.
pub(super) mod op {
    /// Asks whether a view is known and keys are served, and says that both is so where it comes from.
    pub const VIEW: u16 = 1;
    /// Executes a command.
    pub const RUN: u16 = 2;
}

/// Statuses of an answer.
mod status {
    /// By another view, or not sure of it. Nothing was executed.
    pub const ELSEWHERE: u16 = 1;
    /// The answer is longer than there is room for; its length is in the body.
    pub const LONG: u16 = 2;
    /// There is no such tenant here.
    pub const NO_TENANT: u16 = 3;
    /// No frame is free. Nothing was executed.
    pub const NO_MEMORY: u16 = 4;
    /// The message is none.
    pub const WRONG: u16 = 5;
}

/// What one attempt came to.
enum Tried {
    Answered(Frame),
    /// Nothing was executed: once more.
    Again,
    /// The answer has so many bytes.
    Needs(usize),
    Failed(Unanswered),
}

impl Courier {
    pub(super) async fn carry(self, worker: usize) {
        loop {
            let next = self.0.items.borrow_mut().poll_carry();
            let Some(carry) = next else {
                self.0.carries.rest(worker).await;
                continue;
            };
            self.ring();
            let mut answers = Vec::with_capacity(carry.parts.len());
            for some in carry.parts.chunks(CARRY_PARTS) {
                let asked = some.iter().map(|(target, text)| self.ask_all(&carry, *target, text));
                answers.extend(all(asked).await.into_iter().flatten());
            }
            carry.answer(answers);
        }
    }

    async fn ask_all(
        &self,
        carry: &Carry,
        target: Target,
        text: &[u8],
    ) -> Vec<Result<Frame, Unanswered>> {
        if let Target::Slot(slot) = target {
            let owner = || self.0.items.borrow().owners().and_then(|owners| owners.owner(slot));
            return vec![self.ask_one(carry, owner, text).await];
        }
        let members = self.members().await;
        let asked = members.iter().map(|node| self.ask_one(carry, || Some(*node), text));
        match members.is_empty() {
            true => vec![Err(Unanswered::Refused)],
            false => all(asked).await,
        }
    }

    /// The nodes that serve keys, when that is settled in time.
    async fn members(&self) -> Vec<NodeId> {
        let until = self.0.cx.now() + CARRY_PATIENCE;
        loop {
            let members = {
                let items = self.0.items.borrow();
                items.owners().and_then(|owners| owners.members().map(<[NodeId]>::to_vec))
            };
            match members {
                Some(members) => return members,
                None if self.0.cx.now() >= until => return Vec::new(),
                None => self.0.cx.sleep(VIEW_PAUSE).await,
            }
        }
    }

    /// Has a command executed where its key is kept, as soon as it is settled where that is.
    async fn ask_one(
        &self,
        carry: &Carry,
        owner: impl Fn() -> Option<NodeId>,
        text: &[u8],
    ) -> Result<Frame, Unanswered> {
        let until = self.0.cx.now() + CARRY_PATIENCE;
        let mut room = match (carry.changes, carry.long) {
            (true, true) => PAYLOAD_BYTES_MAX,
            (true, false) => SHORT_ANSWER_BYTES,
            _ => ANSWER_BYTES,
        };
        loop {
            let tried = match owner() {
                Some(node) if node == self.0.cx.id() => self.run_here(carry, text).await,
                Some(node) => self.run_there(carry, node, text, room).await,
                None => Tried::Again,
            };
            match tried {
                Tried::Answered(answer) => return Ok(answer),
                Tried::Failed(why) => return Err(why),
                Tried::Needs(bytes) if bytes > room => room = bytes,
                _ if self.0.cx.now() >= until => return Err(Unanswered::Refused),
                _ => self.0.cx.sleep(VIEW_PAUSE).await,
            }
        }
    }

    fn moment(&self) -> Moment {
        Moment::new(self.0.cx.now(), self.0.cx.wall())
    }

    fn view(&self) -> u64 {
        self.0.items.borrow().owners().map_or(0, |owners| owners.view())
    }

    fn serves(&self, view: u64) -> bool {
        self.0.items.borrow().owners().is_some_and(|owners| owners.serves(view, self.moment()))
    }

    /// This node keeps the key: it has become sure of that meanwhile.
    async fn run_here(&self, carry: &Carry, text: &[u8]) -> Tried {
        if !self.serves(self.view()) {
            return Tried::Again;
        }
        let seat = NOBODY;
        let out = self.execute(carry.dialect, carry.tenant, seat, text).await;
        match self.pack(&out) {
            Ok(answer) => Tried::Answered(answer),
            Err(why) => Tried::Failed(why),
        }
    }

    async fn run_there(&self, carry: &Carry, to: NodeId, text: &[u8], room: usize) -> Tried {
        let cx = &self.0.cx;
        let message = self.message(carry.tenant, text);
        let (Some(message), Some(into)) = (message, cx.frames().alloc(room)) else {
            return Tried::Again;
        };
        let mut body = [0; 13];
        Encoder::new(&mut body).u64(self.view()).u8(carry.dialect.code()).u32(room as u32);
        let call = Call {
            to,
            channel: Channel::KEYS,
            op: op::RUN,
            once: carry.changes,
            deadline: Some(CARRY_PATIENCE),
            body: &body,
            data: cx.piece(message),
            trailer: &[],
            into: cx.piece(into),
        };
        let mut reply = match cx.call(call).await {
            Ok(reply) => reply,
            Err(error) if error.not_executed() && carry.changes => return Tried::Again,
            Err(error) if error.not_executed() => return Tried::Failed(Unanswered::Refused),
            Err(_) => return Tried::Failed(Unanswered::Silent),
        };
        let bytes = u32::from_le_bytes(reply.body[..4].try_into().expect("four bytes")) as usize;
        match reply.status {
            0 => answer(reply.data.pop(), reply.bytes),
            status::ELSEWHERE | status::NO_MEMORY => Tried::Again,
            status::LONG if bytes <= PAYLOAD_BYTES_MAX && !carry.changes => Tried::Needs(bytes),
            status::LONG => Tried::Failed(Unanswered::Long),
            _ => Tried::Failed(Unanswered::Refused),
        }
    }

    fn message(&self, tenant: TenantNo, text: &[u8]) -> Option<Frame> {
        let items = self.0.items.borrow();
        let name = items.tenant(tenant).name.as_bytes();
        let mut frame = self.0.cx.frames().alloc_exact(1 + name.len() + text.len())?;
        frame[0] = name.len() as u8;
        frame[1..=name.len()].copy_from_slice(name);
        frame[1 + name.len()..].copy_from_slice(text);
        Some(frame.freeze())
    }

    /// Executes commands of other nodes, one after the other.
    pub(super) async fn serve(self, worker: u32) {
        loop {
            let request = self.0.cx.accept(Channel::KEYS).await;
            match request.op {
                op::VIEW => self.tell_view(request),
                op::RUN => self.run(request, worker).await,
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

    async fn run(&self, request: Request, worker: u32) {
        let view = Decoder::new(&request.body).u64().expect("eight bytes");
        if !self.serves(view) {
            return self.refuse(request, status::ELSEWHERE);
        }
        let bytes: Vec<u8> = request.data.iter().flat_map(|frame| frame.iter()).copied().collect();
        let bytes = &bytes[..request.bytes.min(bytes.len())];
        let Some((dialect, name, text)) = parse(request.body[8], bytes) else {
            return self.refuse(request, status::WRONG);
        };
        let Some(tenant) = self.0.items.borrow().tenant_named(name) else {
            return self.refuse(request, status::NO_TENANT);
        };
        let out = self.execute(dialect, tenant, worker, text).await;
        self.answer(request, &out);
    }

    fn answer(&self, request: Request, out: &Out) {
        let room = u32::from_le_bytes(request.body[9..13].try_into().expect("four bytes"));
        let bytes = (out.len() as u32).to_le_bytes();
        let fits = out.len() <= room as usize;
        match if fits { self.pack(out) } else { Err(Unanswered::Long) } {
            Ok(answer) => {
                let data = if answer.is_empty() { &[][..] } else { std::slice::from_ref(&answer) };
                self.0.cx.reply(request, Answer { body: &bytes, data, ..Answer::DONE });
            }
            Err(_) => self
                .0
                .cx
                .reply(request, Answer { status: status::LONG, body: &bytes, ..Answer::DONE }),
        }
    }

    /// Executes a command to its end; what its client is answered.
    async fn execute(&self, dialect: Dialect, tenant: TenantNo, seat: u32, text: &[u8]) -> Out {
        let mut session = Session::carried(dialect, tenant, seat);
        let (mut out, mut at) = (Out::default(), 0);
        loop {
            let progress = self.feed(&mut session, text, &mut at, &mut out);
            self.ring();
            self.await_replies(&mut out, seat).await;
            let done = progress != Progress::Full && at == text.len();
            if done || out.len() > PAYLOAD_BYTES_MAX {
                return out;
            }
        }
    }

    /// Gives a session the next part of a command.
    fn feed(&self, session: &mut Session, text: &[u8], at: &mut usize, out: &mut Out) -> Progress {
        let rest = &text[*at..];
        let items = &mut self.0.items.borrow_mut();
        let gap = session.gap();
        let count = gap.len().min(rest.len());
        if count > 0 {
            gap[..count].copy_from_slice(&rest[..count]);
            *at += count;
            session.filled(count);
            return session.run(&[], items, self.moment(), out);
        }
        let mut input = self.0.input.borrow_mut();
        let kept = session.begin_input(&mut input);
        let count = rest.len().min(input.len() - kept);
        input[kept..kept + count].copy_from_slice(&rest[..count]);
        *at += count;
        session.run(&input[..kept + count], items, self.moment(), out)
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

    /// What is answered, in one frame of the node's.
    fn pack(&self, out: &Out) -> Result<Frame, Unanswered> {
        if out.len() > PAYLOAD_BYTES_MAX {
            return Err(Unanswered::Long);
        }
        let frame = self.0.cx.frames().alloc_exact(out.len().max(1));
        let mut frame = frame.ok_or(Unanswered::Silent)?;
        let mut at = 0;
        for piece in out.pieces() {
            frame[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        frame.truncate(at);
        Ok(frame.freeze())
    }
}

/// A command of this node's own clients that is executed late: nobody else waits at its seat.
const NOBODY: u32 = u32::MAX;

fn answer(frame: Option<FrameMut>, bytes: usize) -> Tried {
    let Some(mut frame) = frame else { return Tried::Failed(Unanswered::Silent) };
    frame.truncate(bytes);
    Tried::Answered(frame.freeze())
}

/// The dialect, the tenant's name and the command of a message.
fn parse(dialect: u8, bytes: &[u8]) -> Option<(Dialect, &[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (name, text) = rest.split_at_checked(usize::from(*len))?;
    Some((Dialect::of_code(dialect)?, name, text))
}
