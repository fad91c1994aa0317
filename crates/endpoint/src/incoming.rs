//! The incoming payload table: frames that wait for one payload each (HotI'99 section 2.2; USENIX'98 section 3.2).
//!
//! A token is an index and the key the entry had when it was armed. The first message that presents both gets the
//! frames and the entry is spent, so that a duplicate, late or forged message finds nothing and writes nothing. The
//! host may cancel at any time; frames that a transfer is just filling stay with the transfer until it ends.

use crate::frames::FrameMut;
use wire::{Token, mix};

/// An element of an entry's list: a frame of the pool, or, for an adapter's firmware, its address and length.
pub trait Room {
    /// Bytes that fit.
    fn room(&self) -> usize;
}

impl Room for FrameMut {
    fn room(&self) -> usize {
        self.len()
    }
}

/// The outcome of [`IncomingTable::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Nothing had come: the frames are back with the caller.
    Returned,
    /// A transfer is filling the frames: they are freed when it ends, and it delivers nothing.
    Filling,
    /// The token was spent or never valid.
    Stale,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    Armed,
    /// The frames are with the adapter; `wanted` until the host cancels.
    Filling {
        wanted: bool,
    },
}

/// The lists of frames are swapped in and out, so that after warm-up none is allocated.
#[derive(Debug)]
struct Entry<F> {
    state: State,
    key: u64,
    frames: Vec<F>,
}

impl<F> Entry<F> {
    fn free() -> Entry<F> {
        Entry { state: State::Free, key: 0, frames: Vec::new() }
    }
}

/// The table. A key is a number that goes up by one, mixed under two secrets: old ones never come again, and a peer
/// that has seen some does not know what others are given. It is no cryptography: links authenticate.
#[derive(Debug)]
pub struct IncomingTable<F = FrameMut> {
    entries: Box<[Entry<F>]>,
    free: Vec<u16>,
    armed: u64,
    secrets: [u64; 2],
    /// A planted bug, for tests of the checkers.
    pub(crate) keys_ignored: bool,
}

impl<F: Room> IncomingTable<F> {
    /// A table of `entries` free entries whose keys follow from `seed`.
    pub fn new(entries: usize, seed: u64) -> IncomingTable<F> {
        let count = u16::try_from(entries).expect("at most 65,535 entries");
        IncomingTable {
            entries: (0..entries).map(|_| Entry::free()).collect(),
            free: (0..count).rev().collect(),
            armed: 0,
            secrets: [mix(seed), mix(mix(seed) ^ seed)],
            keys_ignored: false,
        }
    }

    /// Takes memory for a frame in the list of each of the next `count` entries.
    pub(crate) fn reserve(&mut self, count: usize) {
        for index in self.free.iter().rev().take(count) {
            self.entries[*index as usize].frames.reserve(1);
        }
    }

    /// Arms an entry with `frames`, leaving an empty list. `None`, and the frames as they were, when the table is full.
    pub fn arm(&mut self, frames: &mut Vec<F>) -> Option<Token> {
        let index = self.free.pop()?;
        let key = self.next_key();
        let entry = &mut self.entries[index as usize];
        assert!(entry.state == State::Free, "an entry that is armed was free");
        assert!(entry.frames.is_empty(), "a free entry has no frames");
        (entry.state, entry.key) = (State::Armed, key);
        std::mem::swap(&mut entry.frames, frames);
        Some(Token { index, key })
    }

    fn next_key(&mut self) -> u64 {
        loop {
            self.armed = self.armed.wrapping_add(1);
            let key = mix(mix(self.armed ^ self.secrets[0]).wrapping_add(self.secrets[1]));
            if key != 0 {
                return key; // 0 is no token
            }
        }
    }

    fn find(&mut self, token: Token) -> Option<&mut Entry<F>> {
        let entry = self.entries.get_mut(token.index as usize)?;
        let named = entry.key == token.key || self.keys_ignored;
        (token.is_some() && named).then_some(entry)
    }

    /// Adapter: spends the token, if it is good for `bytes`, and moves the frames to be filled into the empty list
    /// `into`. Whether it was.
    pub fn claim(&mut self, token: Token, bytes: usize, into: &mut Vec<F>) -> bool {
        let Some(entry) = self.find(token) else { return false };
        let room: usize = entry.frames.iter().map(|f| f.room()).sum();
        if entry.state != State::Armed || room < bytes {
            return false;
        }
        assert!(into.is_empty(), "the frames that are claimed come alone");
        entry.state = State::Filling { wanted: true };
        std::mem::swap(&mut entry.frames, into);
        true
    }

    /// Adapter: the transfer that claimed `token` has ended. Whether the host still wants what it brought.
    pub fn finish(&mut self, token: Token) -> bool {
        let entry = self.find(token).expect("finish names a claimed token");
        let State::Filling { wanted } = std::mem::take(&mut entry.state) else {
            panic!("finish follows claim");
        };
        self.free.push(token.index);
        wanted
    }

    /// Adapter: the transfer that claimed `token` broke off. The frames wait again, unless the host has cancelled.
    pub fn unclaim(&mut self, token: Token, frames: &mut Vec<F>) {
        let entry = self.find(token).expect("unclaim names a claimed token");
        match std::mem::take(&mut entry.state) {
            State::Filling { wanted: true } => {
                entry.state = State::Armed;
                std::mem::swap(&mut entry.frames, frames);
            }
            State::Filling { wanted: false } => self.free.push(token.index),
            _ => panic!("unclaim follows claim"),
        }
    }

    /// Host: no payload may use the token from now on. Frames that come back are moved into the empty list `into`.
    pub fn cancel(&mut self, token: Token, into: &mut Vec<F>) -> Cancelled {
        let Some(entry) = self.find(token) else { return Cancelled::Stale };
        match entry.state {
            State::Armed => {
                assert!(into.is_empty(), "the frames that come back come alone");
                entry.state = State::Free;
                std::mem::swap(&mut entry.frames, into);
                self.free.push(token.index);
                Cancelled::Returned
            }
            State::Filling { .. } => {
                entry.state = State::Filling { wanted: false };
                Cancelled::Filling
            }
            State::Free => Cancelled::Stale,
        }
    }

    /// Whether the token's frames wait for a payload or are just being filled.
    pub fn holds(&self, token: Token) -> bool {
        let entry = self.entries.get(token.index as usize);
        entry.is_some_and(|entry| entry.key == token.key && entry.state != State::Free)
    }

    /// Entries that hold or fill frames.
    pub fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Frames;
    use crate::memory::HeapRegion;

    fn table_with_token() -> (Frames, IncomingTable, Token) {
        let frames = Frames::new(HeapRegion::new(8));
        let mut table = IncomingTable::new(4, 77);
        let token = table.arm(&mut vec![frames.alloc(4096).unwrap()]).unwrap();
        (frames, table, token)
    }

    #[test]
    fn i4_a_token_works_once() {
        let (frames, mut table, token) = table_with_token();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        assert!(table.claim(token, 4096, &mut first));
        assert!(
            !table.claim(token, 1, &mut second),
            "a second message with the token gets nothing"
        );
        assert!(table.finish(token));
        assert!(!table.claim(token, 1, &mut second));
        drop(first);
        assert_eq!((second.len(), table.in_use(), frames.free_pages()), (0, 0, 8));
    }

    /// The holder of one token must not know the next one, which may be another peer's.
    #[test]
    fn i4_keys_do_not_tell_each_other() {
        let mut table = IncomingTable::<FrameMut>::new(4, 77);
        let mut keys = Vec::new();
        for _ in 0..1000 {
            let token = table.arm(&mut Vec::new()).unwrap();
            table.cancel(token, &mut Vec::new());
            keys.push(token.key);
        }
        let mut steps: Vec<_> = keys.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        keys.sort_unstable();
        keys.dedup();
        steps.sort_unstable();
        steps.dedup();
        assert_eq!((keys.len(), steps.len()), (1000, 999));
    }

    #[test]
    fn i4_a_wrong_key_or_too_long_a_payload_gets_nothing() {
        let (_frames, mut table, token) = table_with_token();
        let mut into = Vec::new();
        assert!(!table.claim(Token { key: token.key ^ 1, ..token }, 1, &mut into));
        assert!(!table.claim(Token { index: 9, ..token }, 1, &mut into));
        assert!(!table.claim(Token::NONE, 1, &mut into));
        assert!(!table.claim(token, 4097, &mut into));
        assert!(into.is_empty());
        assert!(table.claim(token, 4096, &mut into));
    }

    #[test]
    fn i4_a_cancelled_token_gets_nothing_and_its_key_never_returns() {
        let (_frames, mut table, token) = table_with_token();
        let mut into = Vec::new();
        assert_eq!(table.cancel(token, &mut into), Cancelled::Returned);
        assert_eq!(into.len(), 1);
        assert_eq!(table.cancel(token, &mut Vec::new()), Cancelled::Stale);
        let next = table.arm(&mut into).unwrap();
        assert_eq!(next.index, token.index);
        assert!(!table.claim(token, 1, &mut Vec::new()));
    }

    #[test]
    fn frames_being_filled_stay_with_the_transfer() {
        let (frames, mut table, token) = table_with_token();
        let mut claimed = Vec::new();
        assert!(table.claim(token, 1, &mut claimed));
        assert_eq!(table.cancel(token, &mut Vec::new()), Cancelled::Filling);
        assert_eq!(frames.free_pages(), 7, "not reusable while the transfer runs");
        assert!(!table.finish(token), "the host does not want it any more");
        drop(claimed);
        assert_eq!(frames.free_pages(), 8);
    }

    #[test]
    fn a_broken_transfer_leaves_the_token_good() {
        let (_frames, mut table, token) = table_with_token();
        let mut claimed = Vec::new();
        assert!(table.claim(token, 1, &mut claimed));
        table.unclaim(token, &mut claimed);
        assert!(claimed.is_empty());
        assert!(table.claim(token, 1, &mut claimed));
    }

    #[test]
    fn a_full_table_gives_the_frames_back() {
        let (frames, mut table, _) = table_with_token();
        for _ in 0..3 {
            table.arm(&mut Vec::new()).unwrap();
        }
        let mut refused = vec![frames.alloc(4096).unwrap()];
        assert!(table.arm(&mut refused).is_none());
        assert_eq!(refused.len(), 1);
    }
}
