//! Checks from outside that no token writes a frame it does not own: a payload lands only under the token that its
//! receiver put on the wire for this very call, once, and never in bytes that another transfer is filling.
//!
//! It watches what travels and trusts nothing that the endpoint says of itself.

use std::collections::BTreeMap;
use wire::{NodeId, Token};

/// The newest offer that a node made under one index of its payload table.
#[derive(Clone, Copy, Debug)]
struct Offer {
    key: u64,
    call: u32,
    landed: bool,
}

/// Offered payloads, and those being filled.
#[derive(Debug, Default)]
pub struct TokenCheck {
    offers: BTreeMap<(NodeId, u16), Offer>,
    /// Stretches of a node's pool that a transfer fills now: (node, first byte) to the end.
    filling: BTreeMap<(NodeId, usize), usize>,
    violations: Vec<String>,
}

impl TokenCheck {
    /// `node` sends a request of its call record `call` whose reply may use `token`.
    pub fn offered(&mut self, node: NodeId, token: Token, call: u32) {
        if !token.is_some() {
            return;
        }
        let offer = Offer { key: token.key, call, landed: false };
        let Some(old) = self.offers.insert((node, token.index), offer) else { return };
        if old.key == token.key {
            self.offers.insert((node, token.index), old);
            if old.call != call {
                self.violation(node, token, format!("offered for call {} and {call}", old.call));
            }
        }
    }

    /// A reply to `node`'s call record `call` got frames under `token`.
    pub fn claimed(&mut self, node: NodeId, token: Token, call: u32) {
        match self.offers.get_mut(&(node, token.index)) {
            Some(offer) if offer.key == token.key && !offer.landed && offer.call == call => {
                offer.landed = true;
            }
            other => {
                let offer = other.map(|offer| *offer);
                self.violation(node, token, format!("claimed by call {call}, but {offer:?}"));
            }
        }
    }

    /// The transfer under `token` broke off before its end: the frames wait again.
    pub fn broken_off(&mut self, node: NodeId, token: Token) {
        let offer = self.offers.get_mut(&(node, token.index));
        if let Some(offer) = offer.filter(|offer| offer.key == token.key) {
            offer.landed = false;
        }
    }

    /// A transfer begins to fill `len` bytes of `node`'s pool.
    pub fn filling(&mut self, node: NodeId, start: usize, len: usize) {
        let end = start + len;
        let before = self.filling.range(..(node, end)).next_back();
        let overlap = before.filter(|((owner, _), old_end)| *owner == node && **old_end > start);
        if let Some(((_, old), old_end)) = overlap {
            let text = format!("fills {start}..{end} while {old}..{old_end} is being filled");
            self.violation(node, Token::NONE, text);
        }
        self.filling.insert((node, start), end);
    }

    /// The transfer that filled from `start` has ended.
    pub fn filled(&mut self, node: NodeId, start: usize) {
        self.filling.remove(&(node, start));
    }

    /// The node died; its next incarnation starts with nothing offered.
    pub fn forget(&mut self, node: NodeId) {
        self.offers.retain(|(owner, _), _| *owner != node);
        self.filling.retain(|(owner, _), _| *owner != node);
    }

    /// The violations so far; empties the list.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn violation(&mut self, node: NodeId, token: Token, text: String) {
        self.violations.push(format!("token {}:{:x} of {node} {text}", token.index, token.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);
    const TOKEN: Token = Token { index: 1, key: 9 };

    #[test]
    fn an_offer_is_claimed_once() {
        let mut check = TokenCheck::default();
        check.offered(NODE, TOKEN, 5);
        check.offered(NODE, TOKEN, 5);
        check.claimed(NODE, TOKEN, 5);
        assert!(check.take_violations().is_empty());
        check.claimed(NODE, TOKEN, 5);
        assert_eq!(check.take_violations().len(), 1);
        check.broken_off(NODE, TOKEN);
        check.claimed(NODE, TOKEN, 5);
        assert!(check.take_violations().is_empty());
    }

    #[test]
    fn a_stale_forged_or_foreign_claim_is_seen() {
        let mut check = TokenCheck::default();
        check.offered(NODE, TOKEN, 5);
        check.claimed(NODE, Token { key: 8, ..TOKEN }, 5);
        check.claimed(NODE, TOKEN, 6);
        check.claimed(NodeId(4), TOKEN, 5);
        assert_eq!(check.take_violations().len(), 3);
    }

    #[test]
    fn one_key_for_two_calls_is_seen() {
        let mut check = TokenCheck::default();
        check.offered(NODE, TOKEN, 5);
        check.offered(NODE, TOKEN, 6);
        assert_eq!(check.take_violations().len(), 1);
    }

    #[test]
    fn two_transfers_into_one_frame_are_seen() {
        let mut check = TokenCheck::default();
        check.filling(NODE, 4096, 4096);
        check.filling(NODE, 8192, 1);
        check.filling(NodeId(4), 4096, 4096);
        assert!(check.take_violations().is_empty());
        check.filling(NODE, 8000, 10);
        assert_eq!(check.take_violations().len(), 1);
        check.filled(NODE, 4096);
    }
}
