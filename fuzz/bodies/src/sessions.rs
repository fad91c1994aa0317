//! Both protocols of keys and values. What a client sends is sent to two servers, at once and in pieces: both say the
//! same, keep the same, and hold no more than they may.

mod replies;
mod words;

use endpoint::Frames;
use endpoint::memory::HeapRegion;
use kv::limits::{ARGUMENT_BYTES_MAX, INPUT_BYTES, QUEUED_BYTES_MAX};
use kv::{
    Counters, Items, ItemsConfig, Moment, Out, Progress, Protocol, Session, TenantConfig, TenantNo,
};
use std::cell::Cell;
use std::collections::BTreeMap;

const MEMORY_BYTES: usize = 1 << 20;
/// Longest values: of several extents, and shorter than what comes at once.
const VALUE_BYTES_MAX: [usize; 2] = [MEMORY_BYTES / 4, 16_399];
const TENANT: TenantNo = TenantNo(0);
/// In what is sent, not sent itself: time passes.
const LATER: u8 = 255;
const LATER_MS: u64 = 700;
/// Pieces of one text: in each one what was kept is looked at again.
const PIECES_MAX: usize = 4096;

thread_local! {
    /// Memory that is used again. All of it is free between two inputs.
    static INPUT: Cell<Vec<u8>> = Cell::new(vec![0; INPUT_BYTES]);
    static MEMORY: [Frames; 2] =
        std::array::from_fn(|_| Frames::new(HeapRegion::new(MEMORY_BYTES / 4096)));
}

/// The session's peer.
#[derive(Clone, Copy)]
struct Plan {
    protocol: Protocol,
    value_bytes_max: usize,
}

/// How long pieces are: all the same, or anything up to that.
#[derive(Clone, Copy)]
struct Pieces {
    most: usize,
    vary: bool,
    state: u32,
}

impl Pieces {
    fn new(most: usize, vary: bool) -> Pieces {
        Pieces { most, vary, state: most as u32 }
    }

    fn next(&mut self) -> usize {
        // a generator of Numerical Recipes
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if self.vary { 1 + (self.state >> 8) as usize % self.most } else { self.most }
    }
}

/// What an item is, for others.
type Kept = (Vec<u8>, u32, u64, Option<u64>);

/// What is left of a conversation.
struct Outcome {
    said: Vec<u8>,
    ended: bool,
    kept: BTreeMap<Vec<u8>, Kept>,
    counters: Counters,
}

struct World {
    items: Items,
    session: Session,
    out: Out,
    input: Vec<u8>,
    moment: Moment,
    said: Vec<u8>,
    ended: bool,
    /// Bytes that are written at a time.
    write: usize,
}

impl World {
    fn new(plan: Plan, frames: &Frames, write: usize) -> World {
        let tenant = TenantConfig {
            name: "a".into(),
            min_bytes: 0,
            max_bytes: MEMORY_BYTES,
            away_max_bytes: 0,
        };
        let config = ItemsConfig {
            memory_bytes: MEMORY_BYTES,
            value_bytes_max: plan.value_bytes_max,
            seed: 1,
            tenants: vec![tenant],
        };
        World {
            items: Items::new(config, frames.clone()).expect("a tenant that fits"),
            session: Session::new(plan.protocol, TENANT, 1),
            out: Out::default(),
            input: INPUT.take(),
            moment: Moment { now_ms: 5_000, wall_ms: 1_700_000_000_000 },
            said: Vec::new(),
            ended: false,
            write,
        }
    }

    /// Sends all of it, piece by piece, and reads what is answered as far as it comes.
    fn send(&mut self, mut bytes: &[u8], pieces: &mut Pieces) {
        while !self.ended && !bytes.is_empty() {
            let count = self.turn(&bytes[..pieces.next().min(bytes.len())]);
            assert!(count > 0, "what a connection keeps leaves room for more");
            bytes = &bytes[count..];
        }
    }

    /// One read, and all that follows from it.
    fn turn(&mut self, bytes: &[u8]) -> usize {
        let mut count = None;
        loop {
            let bytes = if count.is_none() { bytes } else { &[] };
            let World { session, items, out, input, .. } = self;
            let (used, progress) = session.feed(bytes, input, items, self.moment, out);
            count.get_or_insert(used);
            self.check(progress);
            self.write();
            self.ended = progress == Progress::Ended;
            if progress != Progress::Full {
                return count.unwrap_or_default();
            }
        }
    }

    fn check(&self, progress: Progress) {
        assert!(self.items.holds(TENANT).1 <= MEMORY_BYTES);
        assert!(self.items.held_bytes(TENANT) >= self.session.draft_bytes());
        assert!(self.session.kept_bytes() < INPUT_BYTES || progress == Progress::Full);
        let arguments = 2 * (ARGUMENT_BYTES_MAX + QUEUED_BYTES_MAX);
        assert!(self.session.held_bytes() <= arguments + INPUT_BYTES);
        assert!(self.out.text_bytes() <= 128 << 20);
        assert_eq!(self.out.pieces().map(<[u8]>::len).sum::<usize>(), self.out.len());
    }

    /// As a socket takes it: a part at a time.
    fn write(&mut self) {
        while !self.out.is_empty() {
            let piece = self.out.pieces().next().expect("as long as something waits");
            let count = piece.len().min(self.write);
            self.said.extend_from_slice(&piece[..count]);
            self.out.written(count);
        }
        assert_eq!(self.out.len(), 0);
    }

    fn outcome(mut self) -> Outcome {
        let (found, _) = self.items.scan(TENANT, 0, u32::MAX);
        let kept =
            found.into_iter().filter(|at| !self.items.has_ended(*at, self.moment)).map(|at| {
                let (items, item) = (&self.items, self.items.item(at));
                let value: Vec<u8> = items.value(at).flatten().copied().collect();
                assert_eq!(value.len(), items.value_len(at));
                let left = items.expiry(at).left_ms(self.moment);
                (items.key(at).to_vec(), (value, item.flags, item.cas, left))
            });
        let (kept, counters) = (kept.collect(), self.items.counters(TENANT));
        drop((self.session, self.out));
        self.items.flush(TENANT);
        assert_eq!(self.items.holds(TENANT), (0, 0));
        assert!(!self.items.has_mortals());
        INPUT.set(self.input);
        Outcome { said: self.said, ended: self.ended, kept, counters }
    }
}

fn converse(plan: Plan, text: &[u8], frames: &Frames, mut pieces: Pieces) -> Outcome {
    let mut world = World::new(plan, frames, pieces.most.saturating_add(6));
    for part in text.split(|byte| *byte == LATER) {
        world.send(part, &mut pieces);
        world.moment.now_ms += LATER_MS;
        world.moment.wall_ms += LATER_MS;
    }
    let outcome = world.outcome();
    assert_eq!(frames.free_pages(), frames.pages());
    outcome
}

/// The text comes at once, and in pieces of `1 + 16 * step` bytes, or of so many at the most when `step` is odd.
fn talk(protocol: Protocol, step: u8, text: &[u8]) {
    let value_bytes_max = VALUE_BYTES_MAX[usize::from(step / 2 % 2)];
    let plan = Plan { protocol, value_bytes_max };
    let most = (1 + usize::from(step) * 16).max(text.len() / PIECES_MAX);
    let (pieces, whole) = MEMORY.with(|[one, other]| {
        (
            converse(plan, text, one, Pieces::new(most, step % 2 == 1)),
            converse(plan, text, other, Pieces::new(usize::MAX, false)),
        )
    });
    for outcome in [&pieces, &whole] {
        replies::check(plan, text, &outcome.said, outcome.ended);
    }
    compare(&pieces, &whole);
}

/// Both are the same, as far as they must be.
fn compare(pieces: &Outcome, whole: &Outcome) {
    // A long value takes its room when it begins to arrive.
    let made_room = |outcome: &Outcome| outcome.counters.evicted + outcome.counters.no_room > 0;
    if made_room(pieces) || made_room(whole) {
        return;
    }
    // What is said of memory depends on what was read of the answers before it.
    let shows_memory = |text: &[u8]| {
        let words = [&b"STAT held_bytes "[..], b"held_bytes:"];
        words.iter().any(|word| text.windows(word.len()).any(|part| part == *word))
    };
    if shows_memory(&whole.said) {
        return;
    }
    let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let same = pieces.said.iter().zip(&whole.said).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(40);
    assert!(
        pieces.said == whole.said,
        "in pieces, from {from} on: {}\nat once: {}",
        show(&pieces.said[from..pieces.said.len().min(from + 200)]),
        show(&whole.said[from..whole.said.len().min(from + 200)])
    );
    assert_eq!(pieces.ended, whole.ended);
    assert_eq!(pieces.kept, whole.kept);
    assert_eq!(pieces.counters, whole.counters);
}

fn raw(protocol: Protocol, bytes: &[u8]) {
    let Some((step, text)) = bytes.split_first() else { return };
    talk(protocol, *step, text);
}

fn composed(protocol: Protocol, bytes: &[u8]) {
    let Some((step, rest)) = bytes.split_first() else { return };
    talk(protocol, *step, &words::compose(protocol, rest));
}

/// memcached's protocols.
pub fn memcached(bytes: &[u8]) {
    raw(Protocol::Memcached, bytes);
}

/// Redis's protocol.
pub fn resp(bytes: &[u8]) {
    raw(Protocol::Resp, bytes);
}

/// Lines of memcached's protocols, with values of any length.
pub fn memcached_words(bytes: &[u8]) {
    composed(Protocol::Memcached, bytes);
}

/// Commands of Redis's, with arguments of any length.
pub fn resp_words(bytes: &[u8]) {
    composed(Protocol::Resp, bytes);
}
