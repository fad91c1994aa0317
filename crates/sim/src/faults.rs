//! Faults injected into the network, as a list of rules that stack: every message passes all of them.
//!
//! A rule has a window of time, two sets of nodes, what kind of messages it is about and a chance; which messages it
//! strikes is drawn from the network's random stream. A message that no rule strikes arrives once, whole and in order.

use crate::queue::Picos;
use crate::random::Random;
use wire::{Channel, Kind, NodeId};

/// The nodes that a rule applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// Every node.
    #[default]
    All,
    /// These.
    These(Vec<NodeId>),
}

impl Nodes {
    fn has(&self, node: NodeId) -> bool {
        match self {
            Nodes::All => true,
            Nodes::These(nodes) => nodes.contains(&node),
        }
    }
}

/// A message, as rules match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The senders.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// A request, an answer or something else.
    pub kind: Kind,
    /// Of which service.
    pub channel: Channel,
    /// The operation that it requests, or answers.
    pub op: u16,
}

/// The messages between its nodes that a rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Every message.
    #[default]
    All,
    /// Of this kind, to or from this service, about this operation.
    Of(Kind, Channel, u16),
}

impl Messages {
    fn has(&self, message: &Message) -> bool {
        match *self {
            Messages::All => true,
            Messages::Of(kind, channel, op) => {
                (message.kind, message.channel, message.op) == (kind, channel, op)
            }
        }
    }
}

/// Effect of a rule on a message that it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Drop,
    /// It arrives again, up to this long after the first time.
    Duplicate(Picos),
    /// It arrives up to this much later, and what was sent after it may overtake it.
    Reorder(Picos),
    /// It and all that follows it arrive this much later.
    Delay(Picos),
    /// It arrives this much later, and what was sent after it overtakes it.
    Overtake(Picos),
    /// One bit of the control message is flipped.
    CorruptHeader,
    /// One bit of the data or of the trailer is flipped.
    CorruptPayload,
    /// The link breaks in the middle of the payload.
    Cut,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The effect.
    pub fault: Fault,
    /// To messages from these nodes ...
    pub from: Nodes,
    /// ... to these ...
    pub to: Nodes,
    /// ... of these ...
    pub only: Messages,
    /// ... from this time on ...
    pub begin: Picos,
    /// ... and before this time ...
    pub end: Picos,
    /// ... so often in a million ...
    pub chance: u32,
    /// ... and not more than so many.
    pub most: u64,
    /// Messages that it has struck so far.
    pub struck: u64,
}

impl Rule {
    /// Always, everywhere, with this chance in a million.
    pub fn new(fault: Fault, chance: u32) -> Rule {
        let (begin, end) = (Picos::ZERO, Picos::NEVER);
        let (from, to, only) = (Nodes::All, Nodes::All, Messages::All);
        Rule { fault, from, to, only, begin, end, chance, most: u64::MAX, struck: 0 }
    }

    /// Always, every message that is one of these.
    pub fn of(fault: Fault, only: Messages) -> Rule {
        Rule { only, ..Rule::new(fault, crate::random::MILLION) }
    }

    /// Nothing passes from `from` to `to` in the window; a partition is two of these.
    pub fn silence(from: Nodes, to: Nodes, begin: Picos, end: Picos) -> Rule {
        Rule { from, to, begin, end, ..Rule::new(Fault::Drop, crate::random::MILLION) }
    }

    fn strikes(&mut self, now: Picos, message: &Message, random: &mut Random) -> bool {
        let in_window = self.begin <= now && now < self.end && self.struck < self.most;
        let between = self.from.has(message.from) && self.to.has(message.to);
        let concerned = in_window && between && self.only.has(message);
        let strikes = concerned && random.chance(self.chance);
        self.struck += u64::from(strikes);
        strikes
    }
}

/// Fate of one message, all rules taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Lost.
    pub dropped: bool,
    /// Comes again, this much later than the first time.
    pub again: Option<Picos>,
    /// Comes later, and may be overtaken.
    pub reordered: Option<Picos>,
    /// Comes later, and so does all behind it.
    pub delayed: Picos,
    /// One bit of the control message is wrong.
    pub header_bent: bool,
    /// One bit of data or trailer is wrong.
    pub payload_bent: bool,
    /// The link breaks in the payload.
    pub cut: bool,
}

impl Verdict {
    /// Asks every rule in turn.
    pub fn of(rules: &mut [Rule], now: Picos, message: &Message, random: &mut Random) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in rules {
            if rule.strikes(now, message, random) {
                verdict.add(rule.fault, random);
            }
        }
        verdict
    }

    fn add(&mut self, fault: Fault, random: &mut Random) {
        let up_to = |span: Picos, random: &mut Random| Picos(random.below(span.0.max(1)));
        match fault {
            Fault::Drop => self.dropped = true,
            Fault::Duplicate(span) => self.again = Some(up_to(span, random)),
            Fault::Reorder(span) => self.reordered = Some(up_to(span, random)),
            Fault::Delay(span) => self.delayed = self.delayed + span,
            Fault::Overtake(span) => self.reordered = Some(span),
            Fault::CorruptHeader => self.header_bent = true,
            Fault::CorruptPayload => self.payload_bent = true,
            Fault::Cut => self.cut = true,
        }
    }

    /// Whether the message arrives once, whole and in order.
    pub fn is_pass(&self) -> bool {
        *self == Verdict::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::MILLION;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const OP: u16 = 3;

    fn message(from: NodeId, to: NodeId) -> Message {
        Message { from, to, kind: Kind::Request, channel: Channel::MEMORY, op: OP }
    }

    #[test]
    fn rules_stack() {
        let mut rules = [
            Rule::new(Fault::Delay(Picos(5)), MILLION),
            Rule::new(Fault::Delay(Picos(7)), MILLION),
            Rule::new(Fault::CorruptHeader, MILLION),
            Rule::new(Fault::Drop, 0),
        ];
        let random = &mut Random::new(1, "t");
        let verdict = Verdict::of(&mut rules, Picos(1), &message(A, B), random);
        let expected = Verdict { delayed: Picos(12), header_bent: true, ..Verdict::default() };
        assert_eq!(verdict, expected);
        assert_eq!(rules.map(|rule| rule.struck), [1, 1, 1, 0]);
    }

    #[test]
    fn a_silence_has_a_direction_and_a_window() {
        let only = |node| Nodes::These(vec![node]);
        let mut rules = [Rule::silence(only(A), only(B), Picos(10), Picos(20))];
        let mut random = Random::new(1, "t");
        let mut dropped = |now, from, to| {
            Verdict::of(&mut rules, Picos(now), &message(from, to), &mut random).dropped
        };
        assert!(dropped(10, A, B));
        assert!(dropped(19, A, B));
        assert!(!dropped(9, A, B));
        assert!(!dropped(20, A, B));
        assert!(!dropped(15, B, A));
    }

    #[test]
    fn a_rule_may_be_about_the_first_messages_of_a_kind() {
        let only = Messages::Of(Kind::Request, Channel::MEMORY, OP);
        let mut rules = [Rule { most: 2, ..Rule::of(Fault::Drop, only) }];
        let mut random = Random::new(1, "t");
        let mut dropped =
            |message| Verdict::of(&mut rules, Picos(1), &message, &mut random).dropped;
        let asks = message(A, B);
        assert!(!dropped(Message { kind: Kind::Reply, ..asks }));
        assert!(!dropped(Message { op: OP + 1, ..asks }));
        assert!(!dropped(Message { channel: Channel::STRIPE, ..asks }));
        assert_eq!([asks; 3].map(dropped), [true, true, false]);
    }
}
