//! Pages that come before they are touched, several in one exchange with the backing: those that the program names, and
//! those behind a page that was fetched where the fetches before it went on in order.
//!
//! No fault waits for room for them: they take frames whose pages can leave without being stored. A page that does not
//! come at once is fetched when it is touched.

use super::*;
use std::sync::atomic::AtomicU64;

/// Pages in one hand: their frames are taken before they are.
type Hand = ArrayVec<(usize, Page), LINE_CALLS>;

/// Sequences of fetches, forwards, several at a time: a merge reads as many runs.
#[derive(Debug, Default)]
pub struct Streams {
    /// In each the page that goes on with it, and how many came ahead before that one.
    slots: [AtomicU64; STREAMS],
    /// Fetches that began one.
    begun: AtomicUsize,
}

/// One of them, at a page behind which more are to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    slot: usize,
    /// Number of pages.
    pub pages: usize,
}

const WINDOW_BITS: u32 = 8;

impl Streams {
    /// A page is fetched. The first one that goes on with a stream says nothing yet; then it is two pages that come
    /// ahead, and twice as many each time that these have led to the next page, up to `most`.
    pub fn follow(&self, page: usize, most: usize) -> Option<Stream> {
        let goes_on = |word: u64| word != 0 && word >> WINDOW_BITS == page as u64;
        let load = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
        let Some(slot) = self.slots.iter().position(|slot| goes_on(load(slot))) else {
            let slot = self.begun.fetch_add(1, Ordering::Relaxed) % STREAMS;
            self.expect(slot, page + 1, 0);
            return None;
        };
        let window = load(&self.slots[slot]) & ((1 << WINDOW_BITS) - 1);
        self.expect(slot, page + 1, 1);
        (window > 0).then_some(Stream { slot, pages: (2 * window as usize).min(most) })
    }

    /// So many came, or were there; `next` is the first one behind them.
    pub fn went_on(&self, stream: Stream, next: usize, came: usize) {
        self.expect(stream.slot, next, came.max(1));
    }

    fn expect(&self, slot: usize, next: usize, window: usize) {
        let word = (next as u64) << WINDOW_BITS | window as u64;
        self.slots[slot].store(word, Ordering::Relaxed);
    }
}

impl Pager {
    /// `page` was fetched: brings those behind it, if they are likely to be touched next.
    pub(super) fn go_on(&self, context: &mut Context, page: usize) {
        if self.ahead == 0 {
            return;
        }
        let Some(stream) = self.streams.follow(page, self.ahead) else { return };
        let end = (page + 1 + stream.pages).min(self.table.pages());
        self.bring_ahead(context, page + 1..end);
        let next = (page + 1..end).find(|page| self.can_come(*page)).unwrap_or(end);
        self.streams.went_on(stream, next, next - page - 1);
    }

    /// Whether the backing has the page, and it is not here.
    fn can_come(&self, page: usize) -> bool {
        self.table.peek(page).is_some_and(is_away)
    }

    /// Brings what the backing has of the pages, [`Pager::ahead`] of them at the most, as far as there is room.
    pub fn bring_ahead(&self, context: &mut Context, pages: Range<usize>) {
        let away: ArrayVec<usize, LINE_CALLS> =
            pages.filter(|page| self.can_come(*page)).take(self.ahead).collect();
        let frames = away.iter().take_while(|_| self.take_spare_frame(context)).count();
        let mut hand: Hand = away[..frames]
            .iter()
            .filter_map(|page| Some((*page, self.table.try_lock(*page, is_away)?)))
            .collect();
        (hand.len()..frames).for_each(|_| self.resident.give_back());
        self.fetch_ahead(context, &mut hand);
        for (page, held) in hand {
            match held.state {
                State::Resident => self.resident_now(page, held, true),
                _ => {
                    self.resident.give_back();
                    self.table.unlock(page, held);
                }
            }
        }
    }

    /// Takes a frame whose page can leave at once.
    fn take_spare_frame(&self, context: &mut Context) -> bool {
        let leaves = |(_, page): &(u32, usize)| self.table.peek(*page).is_some_and(|p| !p.dirty);
        let no_wait = self.staging.next_to_leave(self.retire).iter().all(leaves);
        no_wait && self.take_frame(context).is_ok()
    }

    fn fetch_ahead(&self, context: &mut Context, hand: &mut Hand) {
        let wanted: ArrayVec<(u64, u64), LINE_CALLS> =
            hand.iter().map(|(page, _)| (*page as u64, self.table.version(*page))).collect();
        if wanted.is_empty() {
            return;
        }
        let (source, buffer) = context.parts();
        source.fetch_ahead(&wanted, buffer, &mut |which, Fetched { bytes, checksum }| {
            let (page, held) = &mut hand[which];
            assert_eq!(bytes.len(), self.page_bytes, "a source brings whole pages");
            if held.summed && checksum != self.table.checksum(*page) {
                return self.tally.count(What::Damaged);
            }
            // Before it is there: who is woken by that may count.
            [What::Fetched, What::Ahead].into_iter().for_each(|what| self.tally.count(what));
            if self.install(self.address(*page), bytes.as_ptr(), true).is_ok() {
                self.table.set_checksum(*page, checksum);
                *held = fetched(*held);
            }
        });
    }
}

pub(super) fn is_away(page: Page) -> bool {
    page.state == State::Absent && page.stored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fetches these pages where they did not come ahead; how many were fetched, and how many came ahead.
    fn read(pages: impl IntoIterator<Item = usize>) -> (usize, usize) {
        let (streams, mut there) = (Streams::default(), std::collections::BTreeSet::new());
        let (mut fetched, mut ahead) = (0, 0);
        for page in pages {
            if !there.insert(page) {
                continue;
            }
            fetched += 1;
            if let Some(stream) = streams.follow(page, 16) {
                let end = page + 1 + stream.pages;
                ahead += (page + 1..end).filter(|page| there.insert(*page)).count();
                streams.went_on(stream, end, stream.pages);
            }
        }
        (fetched, ahead)
    }

    #[test]
    fn a_scan_is_found_and_so_are_the_runs_of_a_merge() {
        let (fetched, ahead) = read(1000..2000);
        assert!(fetched < 70 && fetched + ahead < 1000 + 32, "{fetched} {ahead}");
        let merge = (0..500).flat_map(|at| (0..STREAMS).map(move |run| run * 10_000 + at));
        let (fetched, _) = read(merge);
        assert!(fetched < STREAMS * 40, "{fetched}");
    }

    #[test]
    fn pages_in_no_order_and_pairs_bring_nothing_ahead() {
        assert_eq!(read((0..1000).map(|n| n * 7919 % 10_007)), (1000, 0));
        assert_eq!(read((0..1000).rev()), (1000, 0));
        assert_eq!(read((0..1000).flat_map(|n| [n * 100, n * 100 + 1])), (2000, 0));
    }

    #[test]
    fn what_does_not_come_narrows_the_window() {
        let streams = Streams::default();
        assert_eq!(streams.follow(5, 16), None);
        assert_eq!(streams.follow(6, 16), None);
        let stream = streams.follow(7, 16).unwrap();
        assert_eq!(stream.pages, 2);
        streams.went_on(stream, 10, 2);
        let stream = streams.follow(10, 16).unwrap();
        assert_eq!(stream.pages, 4);
        streams.went_on(stream, 11, 0);
        assert_eq!(streams.follow(11, 16).unwrap().pages, 2);
    }
}
