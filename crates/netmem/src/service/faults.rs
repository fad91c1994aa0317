//! Requests for one page at the same time are one fetch: the first does it, the others wait for its outcome. A prefetch
//! is such a fetch too, without a request that must wait.

use crate::limits::FAULTS_MAX;
use crate::page::{PageId, Wanted};

/// A fetch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultNo(usize);

/// The place of a request among the fetches under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It is the first: fetch, and say how that ended.
    First(FaultNo),
    /// Another one fetches what will do: wait for it.
    Behind(FaultNo),
    /// Too many fetches are under way.
    Full,
}

#[derive(Clone, Debug)]
enum State<T> {
    UnderWay,
    Ended(T),
    /// The fetching request went away.
    Abandoned,
}

#[derive(Clone, Debug)]
struct Fault<T> {
    wanted: Wanted,
    /// Number of fetches that had begun before it.
    turn: u64,
    waiters: u32,
    state: State<T>,
    /// No request for the page was there when it began.
    ahead: bool,
    /// Another node has been asked for it.
    begun: bool,
    /// Stable storage is being read: nothing else would be faster.
    reading: bool,
    /// It takes too long, or its page was changed meanwhile: the result is discarded.
    disowned: bool,
}

/// The fetches under way, and those whose outcome a task still waits for.
#[derive(Debug)]
pub struct Faults<T> {
    places: Vec<Option<Fault<T>>>,
    /// Prefetches among those under way.
    ahead: usize,
    /// And the others.
    demand: usize,
    /// Fetches that have begun.
    begun: u64,
}

impl<T> Fault<T> {
    fn is_open(&self) -> bool {
        matches!(self.state, State::UnderWay) && !self.disowned
    }
}

impl<T: Clone> Faults<T> {
    /// Without any; takes its memory now.
    pub fn new() -> Faults<T> {
        Faults { places: Vec::with_capacity(FAULTS_MAX), ahead: 0, demand: 0, begun: 0 }
    }

    /// A request for a page. A prefetch of it that has not begun yet is overtaken. A caller that is [`Entered::Behind`]
    /// must [`poll`](Faults::poll) until the fetch ends, or [`leave`](Faults::leave).
    pub fn enter(&mut self, wanted: Wanted) -> Entered {
        let serves = |fault: &Fault<T>| {
            let same = fault.wanted.id == wanted.id && fault.wanted.bytes == wanted.bytes;
            // of what comes early no version is asked for in particular
            let fits = fault.wanted.at_least >= wanted.at_least || fault.ahead;
            same && fits && fault.is_open() && (fault.begun || !fault.ahead)
        };
        let found = self.places.iter().position(|place| place.as_ref().is_some_and(serves));
        if let Some(at) = found {
            self.fault(FaultNo(at)).waiters += 1;
            return Entered::Behind(FaultNo(at));
        }
        self.cancel(|id| id == wanted.id);
        self.begin(wanted, false).map_or(Entered::Full, Entered::First)
    }

    /// Begins a prefetch. `None` while the page is being fetched, or when too much is under way.
    pub fn enter_ahead(&mut self, wanted: Wanted) -> Option<FaultNo> {
        let is_it = |fault: &Fault<T>| fault.wanted.id == wanted.id && fault.is_open();
        let known = self.places.iter().flatten().any(is_it);
        if known || self.ahead + self.demand >= FAULTS_MAX / 2 {
            return None;
        }
        self.begin(wanted, true)
    }

    /// Fetches that have begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether a fetch was among the first so many.
    pub fn is_among(&mut self, number: FaultNo, first: u64) -> bool {
        self.fault(number).turn < first
    }

    /// Fetches under way on demand.
    pub fn demand(&self) -> usize {
        self.demand
    }

    /// Whether the fetch began before anybody had asked for its page.
    pub fn is_ahead(&mut self, number: FaultNo) -> bool {
        self.fault(number).ahead
    }

    /// Another node is asked for it.
    pub fn note_begun(&mut self, number: FaultNo) {
        self.fault(number).begun = true;
    }

    /// Stable storage is being read for it.
    pub fn note_reading(&mut self, number: FaultNo) {
        let fault = self.fault(number);
        (fault.begun, fault.reading) = (true, true);
    }

    /// Whether a request waits for it meanwhile.
    pub fn is_waited_for(&mut self, number: FaultNo) -> bool {
        self.fault(number).waiters > 0
    }

    /// Requests wait behind a prefetch no more, unless stable storage is being read: others fetch by themselves.
    /// Says whether they do.
    pub fn disown(&mut self, number: FaultNo) -> bool {
        let fault = self.fault(number);
        fault.disowned |= !fault.reading;
        fault.disowned
    }

    /// Disowns the prefetches of pages that have changed.
    pub fn cancel(&mut self, changed: impl Fn(PageId) -> bool) {
        if self.ahead > 0 {
            let ahead = self.places.iter_mut().flatten().filter(|fault| fault.ahead);
            ahead.for_each(|fault| fault.disowned |= changed(fault.wanted.id));
        }
    }

    /// Whether what comes is still wanted.
    pub fn is_disowned(&mut self, number: FaultNo) -> bool {
        self.fault(number).disowned
    }

    fn begin(&mut self, wanted: Wanted, ahead: bool) -> Option<FaultNo> {
        let (turn, waiters, state) = (self.begun, 0, State::UnderWay);
        let (begun, reading, disowned) = (false, false, false);
        let fault = Fault { wanted, turn, waiters, state, ahead, begun, reading, disowned };
        let free = self.places.iter().position(Option::is_none);
        let at = free.unwrap_or(self.places.len());
        match free {
            Some(at) => self.places[at] = Some(fault),
            None if at == FAULTS_MAX => return None,
            None => self.places.push(Some(fault)),
        }
        *self.under_way(ahead) += 1;
        assert!(self.ahead + self.demand <= FAULTS_MAX, "every fetch in flight has a place");
        self.begun += 1;
        Some(FaultNo(at))
    }

    fn under_way(&mut self, ahead: bool) -> &mut usize {
        if ahead { &mut self.ahead } else { &mut self.demand }
    }

    /// The fetch has ended. Says whether anybody waits for it.
    pub fn end(&mut self, number: FaultNo, outcome: T) -> bool {
        self.close(number, State::Ended(outcome))
    }

    /// The fetching request goes away without an outcome: those who wait begin anew. Says whether anybody does.
    pub fn abandon(&mut self, number: FaultNo) -> bool {
        self.close(number, State::Abandoned)
    }

    /// Of who came behind: `None` while the fetch is under way, then its outcome, which is `None` when it was
    /// abandoned. It has left then.
    pub fn poll(&mut self, number: FaultNo) -> Option<Option<T>> {
        let outcome = match &self.fault(number).state {
            State::UnderWay => return None,
            State::Ended(outcome) => Some(outcome.clone()),
            State::Abandoned => None,
        };
        self.leave(number);
        Some(outcome)
    }

    /// A later request does not wait any more.
    pub fn leave(&mut self, number: FaultNo) {
        let fault = self.fault(number);
        assert!(fault.waiters > 0, "a request leaves the fetch that it waits for");
        fault.waiters -= 1;
        if fault.waiters == 0 && !matches!(fault.state, State::UnderWay) {
            self.places[number.0] = None;
        }
    }

    /// Fetches under way, and outcomes that are still waited for.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    fn close(&mut self, number: FaultNo, state: State<T>) -> bool {
        assert!(self.begun >= (self.ahead + self.demand) as u64, "what is under way has begun");
        let fault = self.fault(number);
        assert!(matches!(fault.state, State::UnderWay), "a fetch ends once");
        fault.state = state;
        let (waited_for, ahead) = (fault.waiters > 0, fault.ahead);
        if !waited_for {
            self.places[number.0] = None;
        }
        *self.under_way(ahead) -= 1;
        waited_for
    }

    fn fault(&mut self, number: FaultNo) -> &mut Fault<T> {
        self.places[number.0].as_mut().expect("it is kept while somebody waits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{PageId, SpaceId, Version};

    fn wanted(index: u64, at_least: u64) -> Wanted {
        let id = PageId { space: SpaceId(1), index };
        Wanted { id, at_least: Version(at_least), bytes: 4096 }
    }

    fn first(entered: Entered) -> FaultNo {
        let Entered::First(number) = entered else { panic!("{entered:?}") };
        number
    }

    #[test]
    fn who_comes_behind_gets_the_outcome_of_the_first() {
        let mut faults = Faults::new();
        let number = first(faults.enter(wanted(1, 5)));
        assert_eq!(faults.enter(wanted(1, 4)), Entered::Behind(number));
        assert_eq!(faults.enter(wanted(1, 5)), Entered::Behind(number));
        assert_eq!(faults.poll(number), None);
        assert!(faults.end(number, 'a'));
        // what comes now is a new fetch, though the outcome is still there
        let next = first(faults.enter(wanted(1, 5)));
        assert_ne!(next, number);
        assert_eq!(faults.poll(number), Some(Some('a')));
        assert_eq!(faults.poll(number), Some(Some('a')));
        assert!(!faults.end(next, 'b'));
        assert_eq!(faults.len(), 0);
    }

    #[test]
    fn whether_a_fetch_began_before_a_request_is_known() {
        let mut faults = Faults::<char>::new();
        let early = first(faults.enter(wanted(1, 5)));
        let before = faults.begun();
        assert!(faults.is_among(early, before));
        faults.end(early, 'a');
        let late = first(faults.enter(wanted(1, 5)));
        assert!(late == early && !faults.is_among(late, before), "in the same place");
    }

    #[test]
    fn a_newer_version_is_another_fetch() {
        let mut faults = Faults::<char>::new();
        first(faults.enter(wanted(1, 5)));
        first(faults.enter(wanted(1, 6)));
        first(faults.enter(wanted(2, 5)));
        assert_eq!(faults.len(), 3);
    }

    #[test]
    fn those_behind_an_abandoned_fetch_begin_anew() {
        let mut faults = Faults::<char>::new();
        let number = first(faults.enter(wanted(1, 1)));
        assert_eq!(faults.enter(wanted(1, 1)), Entered::Behind(number));
        assert_eq!(faults.enter(wanted(1, 1)), Entered::Behind(number));
        faults.leave(number);
        assert!(faults.abandon(number));
        assert_eq!(faults.poll(number), Some(None));
        assert_eq!(faults.len(), 0);
    }

    #[test]
    fn a_prefetch_is_joined_until_it_takes_too_long() {
        let mut faults = Faults::new();
        let early = faults.enter_ahead(wanted(1, 0)).unwrap();
        assert_eq!(faults.enter_ahead(wanted(1, 0)), None, "once is enough");
        faults.note_begun(early);
        assert_eq!(faults.enter(wanted(1, 7)), Entered::Behind(early));
        assert!(faults.is_ahead(early) && faults.demand() == 0);
        assert!(faults.disown(early));
        let own = first(faults.enter(wanted(1, 7)));
        assert_eq!(faults.enter(wanted(1, 7)), Entered::Behind(own), "not behind what is slow");
        assert!(faults.is_disowned(early) && !faults.is_disowned(own));
        assert!(faults.end(early, 'a'), "who still waits hears of it");
        assert_eq!(faults.poll(early), Some(Some('a')));
        assert!(faults.end(own, 'b'));
        faults.leave(own);
        assert_eq!((faults.len(), faults.demand(), faults.ahead), (0, 0, 0));
    }

    #[test]
    fn a_prefetch_that_has_not_begun_is_overtaken() {
        let mut faults = Faults::<char>::new();
        let early = faults.enter_ahead(wanted(1, 0)).unwrap();
        let own = first(faults.enter(wanted(1, 0)));
        assert!(faults.is_disowned(early) && own != early);
        assert!(!faults.abandon(early));
    }

    #[test]
    fn a_page_that_changes_is_not_what_is_on_its_way() {
        let mut faults = Faults::<char>::new();
        let (early, other) =
            (faults.enter_ahead(wanted(1, 0)).unwrap(), faults.enter_ahead(wanted(2, 0)).unwrap());
        let demand = first(faults.enter(wanted(3, 0)));
        faults.cancel(|id| id.index != 2);
        assert_eq!(
            [early, other, demand].map(|number| faults.is_disowned(number)),
            [true, false, false]
        );
    }

    #[test]
    fn who_waits_for_stable_storage_goes_on_waiting() {
        let mut faults = Faults::<char>::new();
        let early = faults.enter_ahead(wanted(1, 0)).unwrap();
        faults.note_reading(early);
        assert!(!faults.disown(early));
        assert_eq!(faults.enter(wanted(1, 3)), Entered::Behind(early));
    }

    #[test]
    fn there_is_a_limit() {
        let mut faults = Faults::<char>::new();
        let numbers: Vec<FaultNo> =
            (0..FAULTS_MAX as u64).map(|index| first(faults.enter(wanted(index, 1)))).collect();
        assert_eq!(faults.enter(wanted(9999, 1)), Entered::Full);
        assert!(matches!(faults.enter(wanted(7, 1)), Entered::Behind(_)));
        faults.end(numbers[3], 'c');
        assert_eq!(faults.enter(wanted(9999, 1)), Entered::First(numbers[3]));
    }
}
