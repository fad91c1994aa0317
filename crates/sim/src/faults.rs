//! Faults of the network, as a list of rules that stack: every message passes all of them.
//!
//! A rule has a window of time, two sets of nodes and a chance; which messages it strikes is drawn from the network's
//! random stream. A message that no rule strikes arrives once, whole and in order.

use crate::queue::Picos;
use crate::random::Random;
use wire::NodeId;

/// Which nodes a rule is about.
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

/// What a rule does to a message that it strikes.
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
    /// What happens.
    pub fault: Fault,
    /// To messages from these nodes ...
    pub from: Nodes,
    /// ... to these ...
    pub to: Nodes,
    /// ... from this time on ...
    pub begin: Picos,
    /// ... and before this time ...
    pub end: Picos,
    /// ... so often in a million.
    pub chance: u32,
}

impl Rule {
    /// Always, everywhere, with this chance in a million.
    pub fn new(fault: Fault, chance: u32) -> Rule {
        let (begin, end) = (Picos::ZERO, Picos::NEVER);
        Rule { fault, from: Nodes::All, to: Nodes::All, begin, end, chance }
    }

    /// Nothing passes from `from` to `to` in the window; a partition is two of these.
    pub fn silence(from: Nodes, to: Nodes, begin: Picos, end: Picos) -> Rule {
        Rule { from, to, begin, end, ..Rule::new(Fault::Drop, crate::random::MILLION) }
    }

    fn strikes(&self, now: Picos, from: NodeId, to: NodeId, random: &mut Random) -> bool {
        let in_window = self.begin <= now && now < self.end;
        in_window && self.from.has(from) && self.to.has(to) && random.chance(self.chance)
    }
}

/// What becomes of one message, all rules taken together.
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
    pub fn of(
        rules: &[Rule],
        now: Picos,
        from: NodeId,
        to: NodeId,
        random: &mut Random,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in rules {
            if rule.strikes(now, from, to, random) {
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

    #[test]
    fn rules_stack() {
        let rules = [
            Rule::new(Fault::Delay(Picos(5)), MILLION),
            Rule::new(Fault::Delay(Picos(7)), MILLION),
            Rule::new(Fault::CorruptHeader, MILLION),
            Rule::new(Fault::Drop, 0),
        ];
        let verdict = Verdict::of(&rules, Picos(1), A, B, &mut Random::new(1, "t"));
        let expected = Verdict { delayed: Picos(12), header_bent: true, ..Verdict::default() };
        assert_eq!(verdict, expected);
    }

    #[test]
    fn a_silence_has_a_direction_and_a_window() {
        let only = |node| Nodes::These(vec![node]);
        let rules = [Rule::silence(only(A), only(B), Picos(10), Picos(20))];
        let mut random = Random::new(1, "t");
        let mut dropped =
            |now, from, to| Verdict::of(&rules, Picos(now), from, to, &mut random).dropped;
        assert!(dropped(10, A, B));
        assert!(dropped(19, A, B));
        assert!(!dropped(9, A, B));
        assert!(!dropped(20, A, B));
        assert!(!dropped(15, B, A));
    }
}
