//! The frames of this side that are under way: which have come, which are lost, how many there may be, and when what
//! is not acknowledged is sent again.
//!
//! Frame numbers are never used twice, so an acknowledgement always says which sending of a fragment has come, and a
//! round trip is never measured over two of them (RFC 9002).

use super::limits::*;
use std::collections::VecDeque;
use std::time::Duration;
use wire::Time;

/// The fragment that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Of this message.
    pub message: u64,
    /// Which one.
    pub index: u16,
}

/// What an acknowledgement tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It has come.
    Came(Fragment),
    /// Later ones have come, and it has not.
    Lost(Fragment),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    Lost,
    /// It has come, or nothing depends on it.
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    at: Time,
    fragment: Option<Fragment>,
    state: State,
}

/// All frames that were sent and may still be acknowledged.
#[derive(Debug)]
pub struct Flights {
    /// Number of the first of `flights`.
    oldest: u64,
    flights: VecDeque<Flight>,
    under_way: u32,
    window: u32,
    /// Frames acknowledged since the window grew.
    grown: u32,
    /// Below this the window doubles.
    threshold: u32,
    /// Losses of frames below this number have been answered already.
    answered: u64,
    /// Frames below it have been looked at for losses.
    examined: u64,
    told: (u64, u64),
    round_trip: Option<(Duration, Duration)>,
    backoff: u32,
    /// When something last came or, with nothing under way, was sent.
    progress_at: Time,
    /// Frames found lost.
    pub lost: u64,
    /// Times that nothing was acknowledged in time.
    pub timeouts: u64,
}

impl Flights {
    /// None yet.
    pub fn new(now: Time) -> Flights {
        Flights {
            oldest: 0,
            flights: VecDeque::with_capacity(FLIGHTS_MAX),
            under_way: 0,
            window: 2 * WINDOW_MIN,
            grown: 0,
            threshold: WINDOW_MAX,
            answered: 0,
            examined: 0,
            told: (0, 0),
            round_trip: None,
            backoff: 0,
            progress_at: now,
            lost: 0,
            timeouts: 0,
        }
    }

    /// The number of the next frame.
    pub fn next(&self) -> u64 {
        self.oldest + self.flights.len() as u64
    }

    /// Whether one more frame may be under way.
    pub fn has_room(&self) -> bool {
        self.under_way < self.window && self.flights.len() < FLIGHTS_MAX
    }

    /// Frames under way.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// A frame leaves that must be acknowledged; `None`: it carries no fragment.
    pub fn sent(&mut self, fragment: Option<Fragment>, now: Time) {
        if self.under_way == 0 && self.backoff == 0 {
            self.progress_at = now;
        }
        self.under_way += 1;
        self.flights.push_back(Flight { at: now, fragment, state: State::UnderWay });
    }

    /// A frame leaves that is not acknowledged.
    pub fn sent_alone(&mut self, now: Time) {
        self.flights.push_back(Flight { at: now, fragment: None, state: State::Settled });
        self.forget();
    }

    /// What a header of the peer says has come. Calls `news` for each fragment that is new in it, and for each that is
    /// found lost. False: it names frames that were never sent.
    pub fn acknowledged(
        &mut self,
        (next, before): (u64, u64),
        now: Time,
        mut news: impl FnMut(News),
    ) -> bool {
        if (next, before) == self.told || next == 0 || next < self.told.0 {
            return true; // old news
        }
        if next > self.next() {
            return false;
        }
        self.told = (next, before);
        let mut count = 0;
        for number in self.oldest.max(next.saturating_sub(HEARD_BITS + 1))..next {
            let below = next - 1 - number;
            let has_come = below == 0 || before >> (below - 1) & 1 == 1;
            let flight = &mut self.flights[(number - self.oldest) as usize];
            if !has_come || flight.state == State::Settled {
                continue;
            }
            self.under_way -= u32::from(flight.state == State::UnderWay);
            flight.state = State::Settled;
            count += 1;
            flight.fragment.into_iter().for_each(|it| news(News::Came(it)));
            if below == 0 {
                let span = now.since(flight.at);
                self.measure(span);
            }
        }
        if count > 0 {
            (self.backoff, self.progress_at) = (0, now);
            self.grow(count);
        }
        self.find_lost(next, &mut |it| news(News::Lost(it)));
        self.forget();
        true
    }

    fn find_lost(&mut self, next: u64, lost: &mut impl FnMut(Fragment)) {
        let end = next.saturating_sub(REORDER_MAX);
        for number in self.examined.max(self.oldest)..end {
            self.lose(number, lost);
        }
        self.examined = self.examined.max(end);
    }

    fn lose(&mut self, number: u64, lost: &mut impl FnMut(Fragment)) {
        let flight = &mut self.flights[(number - self.oldest) as usize];
        if flight.state != State::UnderWay {
            return;
        }
        flight.state = State::Lost;
        self.under_way -= 1;
        self.lost += 1;
        flight.fragment.into_iter().for_each(&mut *lost);
        if number >= self.answered {
            // Once for all that were under way together.
            self.window = (self.window / 2).max(WINDOW_MIN);
            (self.threshold, self.answered) = (self.window, self.next());
        }
    }

    /// Those at the front that no acknowledgement can name any more.
    fn forget(&mut self) {
        while let Some(flight) = self.flights.front() {
            let late = self.oldest + HEARD_BITS + 1 < self.told.0;
            match flight.state {
                State::Settled => {}
                State::Lost if late => {}
                _ => break,
            }
            self.flights.pop_front();
            self.oldest += 1;
        }
    }

    fn grow(&mut self, count: u32) {
        if self.window < self.threshold {
            self.window = (self.window + count).min(WINDOW_MAX);
            return;
        }
        self.grown += count;
        if self.grown >= self.window {
            self.grown = 0;
            self.window = (self.window + 1).min(WINDOW_MAX);
        }
    }

    fn measure(&mut self, span: Duration) {
        self.round_trip = Some(match self.round_trip {
            None => (span, span / 2),
            Some((mean, deviation)) => {
                let off = span.abs_diff(mean);
                ((mean * 7 + span) / 8, (deviation * 3 + off) / 4)
            }
        });
    }

    fn resend_span(&self) -> Duration {
        let first = self.round_trip.map_or(RESEND_SPAN_FIRST, |(mean, deviation)| {
            (mean + deviation * 4 + ACK_SPAN).max(RESEND_SPAN_MIN)
        });
        (first * (1 << self.backoff.min(10))).min(RESEND_SPAN_MAX)
    }

    fn last_sent(&self) -> Time {
        let under_way = |flight: &&Flight| flight.state == State::UnderWay;
        self.flights.iter().rev().find(under_way).map_or(self.progress_at, |flight| flight.at)
    }

    /// When what is under way is sent again.
    pub fn resend_at(&self) -> Option<Time> {
        let since = || self.last_sent().max(self.progress_at);
        (self.under_way > 0).then(|| since() + self.resend_span())
    }

    /// Nothing was acknowledged in time: all that is under way is lost.
    pub fn time_out(&mut self, mut lost: impl FnMut(Fragment)) {
        self.timeouts += 1;
        self.backoff += 1;
        for number in self.oldest..self.next() {
            self.lose(number, &mut lost);
        }
        self.window = WINDOW_MIN;
    }

    /// Whether something is to be acknowledged.
    pub fn is_waiting(&self) -> bool {
        self.under_way > 0 || self.backoff > 0
    }

    /// Since when nothing has come, though something was to be acknowledged.
    pub fn progress_at(&self) -> Time {
        self.progress_at
    }

    /// Time passed in which nobody looked: it does not count.
    pub fn excuse(&mut self, now: Time) {
        self.progress_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time(us * 1000)
    }

    fn sent(flights: &mut Flights, count: u16) {
        for index in 0..count {
            flights.sent(Some(Fragment { message: 0, index }), at(0));
        }
    }

    fn told(flights: &mut Flights, next: u64, before: u64, now: Time) -> (Vec<u16>, Vec<u16>) {
        let (mut came, mut lost) = (Vec::new(), Vec::new());
        let is_good = flights.acknowledged((next, before), now, |news| match news {
            News::Came(it) => came.push(it.index),
            News::Lost(it) => lost.push(it.index),
        });
        assert!(is_good);
        (came, lost)
    }

    #[test]
    fn what_later_frames_have_overtaken_is_lost() {
        let mut flights = Flights::new(at(0));
        sent(&mut flights, 8);
        assert_eq!(told(&mut flights, 3, 0b10, at(20)), (vec![0, 2], vec![]));
        assert_eq!(told(&mut flights, 5, 0b1011, at(30)), (vec![3, 4], vec![1]));
        assert_eq!((flights.under_way(), flights.lost), (3, 1));
        assert_eq!(told(&mut flights, 5, 0b1111, at(30)), (vec![1], vec![]), "it came late");
        assert_eq!(told(&mut flights, 4, 0b111, at(30)), (vec![], vec![]), "old news");
        assert!(!flights.acknowledged((9, 0), at(30), |_| {}), "it was never sent");
    }

    #[test]
    fn what_nobody_acknowledges_is_sent_again_later_and_later() {
        let mut flights = Flights::new(at(0));
        sent(&mut flights, 2);
        let first = flights.resend_at().unwrap();
        assert_eq!(first, at(0) + RESEND_SPAN_FIRST);
        let mut lost = Vec::new();
        flights.time_out(|it| lost.push(it.index));
        assert_eq!((lost, flights.resend_at()), (vec![0, 1], None));
        flights.sent(Some(Fragment { message: 0, index: 0 }), first);
        assert_eq!(flights.resend_at(), Some(first + 2 * RESEND_SPAN_FIRST));
        let _ = told(&mut flights, 3, 0b11, first + Duration::from_micros(40));
        assert_eq!((flights.under_way(), flights.resend_at()), (0, None));
        flights.sent(None, at(9000));
        assert_eq!(flights.resend_at(), Some(at(9000) + RESEND_SPAN_MIN), "as measured");
    }

    #[test]
    fn the_window_halves_once_for_losses_of_one_round_trip() {
        let mut flights = Flights::new(at(0));
        flights.window = 200;
        sent(&mut flights, 60);
        let (_, lost) = told(&mut flights, 60, 0, at(20));
        assert_eq!((lost.len(), flights.window), (57, 100));
    }
}
