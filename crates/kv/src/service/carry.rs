//! Commands go to the nodes that keep their keys, and are executed there.
//!
//! | message | body | data | answer's body | answer's data |
//! | --- | --- | --- | --- | --- |
//! | VIEW | view 8 | | | |
//! | RUN | view 8, dialect 1, room for the answer 4, number 8, bytes sent ahead 8 | length of the tenant's name 1, the name, the command or what is left of it | bytes 8, number 8 | what its client is answered |
//! | PART | view 8, dialect 1, room 4, number 8, bytes sent ahead 8 | as RUN's, a part of a command that is longer than a message | | |
//! | MORE | number 8, from 8 | | | more of a long answer |
//!
//! RUN is executed once when it changes something. A view other than the receiver's is refused: nothing was executed.
//! PART changes only what RUN finds, and is known by its place: duplicates are harmless. A long answer stays where it
//! was made until its last part was fetched, or was not requested for seconds.

use super::Courier;
use super::run::status;
use crate::carry::{Carry, Target, Unanswered};
use crate::ids::TenantNo;
use crate::items::NoRoom;
use crate::limits::*;
use crate::rope::{Rope, copy_from};
use crate::value::Draft;
use endpoint::{Frame, FrameMut};
use node::{Call, Reply, all};
use wire::{Channel, Decoder, Encoder, NodeId};

/// Operations on the channel.
pub(super) mod op {
    /// Asks whether a view is known and keys are served, and says that both is so where it comes from.
    pub const VIEW: u16 = 1;
    /// Executes a command.
    pub const RUN: u16 = 2;
    /// A part of a command.
    pub const PART: u16 = 3;
    /// Asks for more of an answer.
    pub const MORE: u16 = 4;
}

/// Outcome of one attempt.
pub(super) enum Tried {
    Answered(Rope),
    /// Nothing was executed: once more.
    Again,
    /// The answer has so many bytes.
    Needs(usize),
    Failed(Unanswered),
}

/// State of an answer that does not fit.
struct Long {
    bytes: usize,
    /// By which it is fetched in parts; 0 when it is to be asked for again, with room for it.
    number: u64,
}

impl Courier {
    pub(super) async fn carry(self) {
        loop {
            let next = self.0.items.borrow_mut().poll_carry();
            let Some(carry) = next else {
                self.0.carries.wait().await;
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
        text: &Rope,
    ) -> Vec<Result<Rope, Unanswered>> {
        if target != Target::All {
            let whose = || {
                let items = self.0.items.borrow();
                let owners = items.owners()?;
                let is_its = |node: NodeId, slot: usize| owners.owner(slot) == Some(node);
                let node = owners.whose(target)?;
                carry.slots.iter().all(|slot| is_its(node, *slot)).then_some(node)
            };
            return vec![self.ask_one(carry, whose, text).await];
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
        text: &Rope,
    ) -> Result<Rope, Unanswered> {
        let until = self.0.cx.now() + CARRY_PATIENCE;
        let mut room = carry.answer_bytes();
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

    async fn run_there(&self, carry: &Carry, to: NodeId, text: &Rope, room: usize) -> Tried {
        let mut part = Part { to, number: 0, at: 0, room };
        if text.len() > CARRIED_PART_BYTES {
            part.number = self.next_number();
            if let Err(tried) = self.send_ahead(carry, &mut part, text).await {
                return tried;
            }
        }
        let bytes = text.len() - part.at;
        match self.send_part(carry, op::RUN, &part, text, bytes).await {
            Err(tried) => tried,
            Ok(reply) => self.answered(carry, to, reply).await,
        }
    }

    /// Sends all but the end of a long command.
    async fn send_ahead(&self, carry: &Carry, part: &mut Part, text: &Rope) -> Result<(), Tried> {
        while text.len() - part.at > CARRIED_PART_BYTES {
            let reply = self.send_part(carry, op::PART, part, text, CARRIED_PART_BYTES).await?;
            match reply.status {
                0 => part.at += CARRIED_PART_BYTES,
                status::ELSEWHERE | status::NO_MEMORY | status::NO_PART => {
                    return Err(Tried::Again);
                }
                _ => return Err(Tried::Failed(Unanswered::Refused)),
            }
        }
        Ok(())
    }

    async fn send_part(
        &self,
        carry: &Carry,
        op: u16,
        part: &Part,
        text: &Rope,
        bytes: usize,
    ) -> Result<Reply, Tried> {
        let cx = &self.0.cx;
        let room = if op == op::RUN { Some(cx.frames().alloc(part.room)) } else { None };
        let message = self.message(carry.tenant, text, part.at, bytes);
        let (Some(message), Some(into)) = (message, room.map_or(Some(None), |room| room.map(Some)))
        else {
            return Err(Tried::Again);
        };
        let mut body = [0; 29];
        let mut encoder = Encoder::new(&mut body);
        encoder.u64(self.view()).u8(carry.dialect.code()).u32(part.room as u32);
        encoder.u64(part.number).u64(part.at as u64);
        let once = op == op::RUN && carry.changes;
        let call = Call {
            to: part.to,
            channel: Channel::KEYS,
            op,
            once,
            deadline: Some(CARRY_PATIENCE),
            body: &body,
            data: cx.piece(message),
            trailer: &[],
            into: into.map_or_else(|| cx.pieces(), |into| cx.piece(into)),
        };
        cx.call(call).await.map_err(|error| match error {
            error if error.not_executed() && carry.changes => Tried::Again,
            error if error.not_executed() || op == op::PART => Tried::Failed(Unanswered::Refused),
            _ => Tried::Failed(Unanswered::Silent),
        })
    }

    async fn answered(&self, carry: &Carry, to: NodeId, mut reply: Reply) -> Tried {
        let mut body = Decoder::new(&reply.body);
        let bytes = body.u64().expect("eight bytes") as usize;
        let long = Long { bytes, number: body.u64().expect("eight bytes") };
        match reply.status {
            0 => match reply.data.pop() {
                Some(frame) => self.own(carry, &frame[..reply.bytes.min(frame.len())]),
                None => Tried::Failed(Unanswered::Silent),
            },
            status::ELSEWHERE | status::NO_MEMORY | status::NO_PART => Tried::Again,
            status::LONG if long.number == 0 && !carry.changes => {
                Tried::Needs(bytes.min(CARRIED_PART_BYTES))
            }
            status::LONG => self.fetch_answer(carry, to, long).await,
            _ => Tried::Failed(Unanswered::Refused),
        }
    }

    /// An answer waits for its client in memory of the items: one that reads slowly takes none from messages.
    fn own(&self, carry: &Carry, bytes: &[u8]) -> Tried {
        if bytes.len() <= BESIDE_BYTES_MAX {
            return Tried::Answered(Rope::of_text(bytes));
        }
        match self.0.items.borrow_mut().draft_of(carry.tenant, bytes) {
            Ok(draft) => Tried::Answered(draft.into_rope()),
            Err(NoRoom) => Tried::Failed(Unanswered::NoRoom),
        }
    }

    /// Brings a long answer into frames of the items', as a value that a client stores here.
    async fn fetch_answer(&self, carry: &Carry, to: NodeId, long: Long) -> Tried {
        let mut draft = Draft::new(long.bytes);
        while draft.left() > 0 {
            let part = self.fetch_part(to, &long, &draft).await;
            let Some((frame, count)) = part else {
                return match carry.changes {
                    true => Tried::Failed(Unanswered::Silent),
                    false => Tried::Again,
                };
            };
            let mut items = self.0.items.borrow_mut();
            if items.append(&mut draft, &frame[..count], carry.tenant).is_err() {
                return Tried::Failed(Unanswered::NoRoom);
            }
        }
        Tried::Answered(draft.into_rope())
    }

    /// The next part of a long answer, and how many bytes it has.
    async fn fetch_part(
        &self,
        to: NodeId,
        long: &Long,
        draft: &Draft,
    ) -> Option<(FrameMut, usize)> {
        let cx = &self.0.cx;
        let from = long.bytes - draft.left();
        let into = cx.frames().alloc_exact(draft.left().min(CARRIED_PART_BYTES))?;
        let mut body = [0; 16];
        Encoder::new(&mut body).u64(long.number).u64(from as u64);
        let call = Call {
            to,
            channel: Channel::KEYS,
            op: op::MORE,
            once: false,
            deadline: Some(CARRY_PATIENCE),
            body: &body,
            data: cx.pieces(),
            trailer: &[],
            into: cx.piece(into),
        };
        let mut reply = cx.call(call).await.ok().filter(|reply| reply.status == 0)?;
        let count = reply.bytes.min(draft.left());
        Some((reply.data.pop()?, count)).filter(|_| count > 0)
    }

    /// A message with so many bytes of a command, from byte `from` on.
    fn message(&self, tenant: TenantNo, text: &Rope, from: usize, bytes: usize) -> Option<Frame> {
        let items = self.0.items.borrow();
        let name = items.tenant(tenant).name.as_bytes();
        let mut frame = self.0.cx.frames().alloc_exact(1 + name.len() + bytes)?;
        frame[0] = name.len() as u8;
        frame[1..=name.len()].copy_from_slice(name);
        copy_from(text.pieces(), from, &mut frame[1 + name.len()..]);
        Some(frame.freeze())
    }
}

/// The part of a command to send.
struct Part {
    to: NodeId,
    /// Of the command, if it is sent in several.
    number: u64,
    /// Bytes that were sent before.
    at: usize,
    /// For the answer.
    room: usize,
}
