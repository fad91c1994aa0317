//! The server's half of sessions: at-most-once execution. Each slot knows its last call and keeps the reply, so a
//! retransmitted request is answered again and not executed again.

use crate::kept::{Kept, Tally};
use crate::limits::{
    FORGOTTEN_COPIES, KEPT_SESSION_PAGES, SESSIONS, SLOTS_MAX, WINDOW_PAGES_MAX, WINDOW_PAGES_MIN,
};
use endpoint::Frame;
use std::collections::BTreeMap;
use wire::{Channel, Control, NodeId, SessionEpoch, Time, Token};

/// Names a request under execution; its reply needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The sender of the request: the caller, or the node that forwarded its call.
    pub source: NodeId,
    /// The incarnation of `source`: with slot and sequence it names the call for ever.
    pub client: u64,
    /// Slot of the session.
    pub slot: u16,
    /// Call number of the slot.
    pub sequence: u32,
    /// The service.
    pub channel: Channel,
    /// The operation.
    pub op: u16,
    /// Not to be executed twice.
    pub once: bool,
    /// When the caller stops waiting, by the clock here; [`Time::NEVER`] for never.
    pub deadline: Time,
    /// The node that gets the reply.
    pub origin: NodeId,
    pub(crate) epoch: SessionEpoch,
    pub(crate) origin_epoch: SessionEpoch,
    pub(crate) call: u32,
    pub(crate) token: Token,
    /// Sent before, as the sender says.
    pub(crate) again: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Executing,
    /// Answered, or passed on; may be executed again.
    Done,
    /// Answered; the reply is kept.
    Kept,
    /// Answered; the reply was kept and its data is gone. So many copies of the request have come since.
    Forgotten(u8),
}

/// A slot, with the reply of its last call if that is kept.
#[derive(Debug)]
struct Slot {
    sequence: u32,
    state: State,
    control: Control,
    kept: Kept,
}

/// The action that a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Execute,
    /// It was executed, and the reply is here.
    Answered,
    /// It was executed, and the reply is here no more.
    Forgotten,
    /// It is being executed, or a later call of the slot was: nothing.
    Ignore,
}

#[derive(Debug)]
pub(crate) struct ServerSession {
    pub epoch: SessionEpoch,
    pub client: u64,
    heard: Time,
    slots: Vec<Slot>,
    /// Pages of the replies that are kept.
    kept: Tally,
    /// Replies kept so far: tells which is oldest.
    answers: u64,
}

impl ServerSession {
    /// Decides about the request `sequence` of `slot`. `None`: no such slot.
    pub fn admit(&mut self, slot: u16, sequence: u32, now: Time) -> Option<Admission> {
        self.heard = now;
        let slot = self.slots.get_mut(slot as usize)?;
        let ahead = sequence.wrapping_sub(slot.sequence) as i32;
        Some(match (ahead, slot.state) {
            (1.., _) => {
                (slot.sequence, slot.state) = (sequence, State::Executing);
                slot.kept.clear();
                Admission::Execute
            }
            (0, State::Forgotten(FORGOTTEN_COPIES)) => Admission::Forgotten,
            (0, State::Forgotten(copies)) => {
                slot.state = State::Forgotten(copies + 1);
                Admission::Ignore
            }
            (0, State::Kept) => Admission::Answered,
            (0, State::Done) => {
                slot.state = State::Executing;
                Admission::Execute
            }
            _ => Admission::Ignore,
        })
    }

    /// Whether the slot still waits for the answer to this request.
    pub fn awaits(&self, key: &RequestKey) -> bool {
        let slot = &self.slots[key.slot as usize];
        self.epoch == key.epoch && slot.sequence == key.sequence && slot.state == State::Executing
    }

    /// The request is answered. Of a once-call the answer is kept until the slot's next call, and of any call one that
    /// is no more than a control message: it costs nothing, and a copy that was under way begins no second execution.
    pub fn answered(
        &mut self,
        key: &RequestKey,
        control: &Control,
        data: &[Frame],
        trailer: &[u8],
    ) {
        let is_small = data.is_empty() && trailer.is_empty() && key.origin == key.source;
        if !key.once && !is_small {
            return self.passed_on(key);
        }
        let slot = self.ended(key);
        (slot.state, slot.control) = (State::Kept, *control);
        self.answers += 1;
        self.slots[key.slot as usize].kept.set(self.answers, data, trailer);
    }

    /// The answer is another node's, or is not kept: a copy of the request is executed.
    pub fn passed_on(&mut self, key: &RequestKey) {
        self.ended(key).state = State::Done;
    }

    fn ended(&mut self, key: &RequestKey) -> &mut Slot {
        let slot = &mut self.slots[key.slot as usize];
        assert!(slot.state == State::Executing, "an answer is to a request under execution");
        assert!(slot.sequence == key.sequence, "an answer is to the slot's last request");
        slot
    }

    /// Forgets the data of the oldest replies until at most `pages` are kept.
    pub fn keep_at_most(&mut self, pages: usize) {
        while self.kept.get() > pages {
            let with_data = self.slots.iter_mut().filter(|slot| slot.kept.pages() > 0);
            let oldest = with_data.min_by_key(|slot| slot.kept.number());
            oldest.expect("pages are kept").forget();
        }
    }

    /// Forgets what every reply that is kept carries beside its control part.
    pub fn forget_kept(&mut self) {
        self.slots.iter_mut().filter(|slot| slot.kept.carries()).for_each(Slot::forget);
    }

    /// The kept answer of a slot.
    pub fn kept(&self, slot: u16) -> (&Control, &[Frame], &[u8]) {
        let slot = &self.slots[slot as usize];
        (&slot.control, slot.kept.data(), slot.kept.trailer())
    }
}

impl Slot {
    fn new(kept: Kept) -> Slot {
        Slot { sequence: 0, state: State::Idle, control: Control::default(), kept }
    }

    fn forget(&mut self) {
        self.kept.release();
        self.state = match self.state {
            State::Kept => State::Forgotten(0),
            state => state,
        };
    }
}

/// All sessions that clients have here.
#[derive(Debug)]
pub(crate) struct Server {
    sessions: BTreeMap<NodeId, ServerSession>,
    next_epoch: u32,
    slots: u16,
    budget_pages: usize,
    /// Pages of the replies that all sessions keep.
    kept: Tally,
}

impl Server {
    pub fn new(first_epoch: u32, slots: u16, budget_pages: usize) -> Server {
        let slots = slots.clamp(1, SLOTS_MAX);
        let (sessions, next_epoch, kept) = (BTreeMap::new(), first_epoch, Tally::default());
        Server { sessions, next_epoch, slots, budget_pages, kept }
    }

    /// The session of this client in this epoch.
    pub fn find(&mut self, client: NodeId, epoch: SessionEpoch) -> Option<&mut ServerSession> {
        self.sessions.get_mut(&client).filter(|session| session.epoch == epoch)
    }

    /// The session of this client, whatever its epoch.
    pub fn latest(&mut self, client: NodeId) -> Option<&mut ServerSession> {
        self.sessions.get_mut(&client)
    }

    /// A session for this incarnation of the client: a new one, or the present one for a duplicate HELLO. Of two
    /// incarnations the greater is the later one, unless the client says that it is later than `over`. The error is the
    /// known incarnation: this HELLO may be of an earlier one, or of a node whose clock is behind.
    pub fn greet(
        &mut self,
        from: NodeId,
        client: u64,
        over: u64,
        now: Time,
    ) -> Result<SessionEpoch, u64> {
        match self.sessions.get(&from) {
            Some(known) if known.client == client => return Ok(known.epoch),
            Some(known) if known.client > client && known.client != over => {
                return Err(known.client);
            }
            _ => {}
        }
        self.sessions.remove(&from);
        self.make_room();
        self.next_epoch = self.next_epoch.wrapping_add(1).max(1);
        let epoch = SessionEpoch(self.next_epoch);
        let kept = Tally::default();
        let slot = |_| Slot::new(Kept::new(&kept, &self.kept));
        let slots = (0..self.slots).map(slot).collect();
        let session = ServerSession { epoch, client, heard: now, slots, kept, answers: 0 };
        self.sessions.insert(from, session);
        Ok(epoch)
    }

    /// Forgets replies of `source` until it keeps no more than a session may, then of those that keep most until all
    /// together keep no more than `pages`.
    pub fn bound_kept(&mut self, source: NodeId, pages: usize) {
        if let Some(session) = self.sessions.get_mut(&source) {
            session.keep_at_most(KEPT_SESSION_PAGES.min(pages));
        }
        while self.kept.get() > pages {
            let most = self.sessions.values_mut().max_by_key(|session| session.kept.get());
            let most = most.expect("pages are kept");
            most.keep_at_most(most.kept.get() - 1);
        }
    }

    /// The client is gone: nothing that it could ask for again is kept in frames.
    pub fn forget_kept(&mut self, client: NodeId) {
        self.sessions.get_mut(&client).into_iter().for_each(ServerSession::forget_kept);
    }

    /// Pages of kept replies.
    pub fn kept_pages(&self) -> usize {
        self.kept.get()
    }

    fn make_room(&mut self) {
        if self.sessions.len() >= SESSIONS {
            let silent = self.sessions.iter().min_by_key(|(_, session)| session.heard);
            let silent = *silent.expect("not empty").0;
            self.sessions.remove(&silent);
        }
    }

    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Pages that each session may have on the way: its part of the budget.
    pub fn window(&self) -> u16 {
        let part = self.budget_pages / self.sessions.len().max(1);
        part.clamp(WINDOW_PAGES_MIN.into(), WINDOW_PAGES_MAX.into()) as u16
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }
}
