//! Requests for one page at the same time are one fetch: the first does it, the others wait for its outcome.

use crate::limits::FAULTS_MAX;
use crate::page::Wanted;

/// A fetch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultNo(usize);

/// What a request is to do.
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
    /// Whoever fetched went away.
    Abandoned,
}

#[derive(Clone, Debug)]
struct Fault<T> {
    wanted: Wanted,
    waiters: u32,
    state: State<T>,
}

/// The fetches under way, and those whose outcome somebody still waits for.
#[derive(Debug)]
pub struct Faults<T>(Vec<Option<Fault<T>>>);

impl<T: Clone> Faults<T> {
    /// Without any; takes its memory now.
    pub fn new() -> Faults<T> {
        Faults(Vec::with_capacity(FAULTS_MAX))
    }

    /// A request for a page. Who comes behind must [`poll`](Faults::poll) until it ends, or [`leave`](Faults::leave).
    pub fn enter(&mut self, wanted: Wanted) -> Entered {
        let serves = |fault: &Fault<T>| {
            let same = fault.wanted.id == wanted.id && fault.wanted.bytes == wanted.bytes;
            same && fault.wanted.at_least >= wanted.at_least
                && matches!(fault.state, State::UnderWay)
        };
        let found = self.0.iter().position(|place| place.as_ref().is_some_and(serves));
        if let Some(at) = found {
            self.fault(FaultNo(at)).waiters += 1;
            return Entered::Behind(FaultNo(at));
        }
        let fault = Fault { wanted, waiters: 0, state: State::UnderWay };
        match self.0.iter().position(Option::is_none) {
            Some(at) => self.0[at] = Some(fault),
            None if self.0.len() == FAULTS_MAX => return Entered::Full,
            None => self.0.push(Some(fault)),
        }
        let at = self.0.iter().rposition(|place| place.as_ref().is_some_and(serves));
        Entered::First(FaultNo(at.expect("it was just put there")))
    }

    /// The fetch has ended. Says whether anybody waits for it.
    pub fn end(&mut self, number: FaultNo, outcome: T) -> bool {
        self.close(number, State::Ended(outcome))
    }

    /// Whoever fetched goes away without an outcome: those who wait begin anew. Says whether anybody does.
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

    /// Who came behind does not wait any more.
    pub fn leave(&mut self, number: FaultNo) {
        let fault = self.fault(number);
        fault.waiters -= 1;
        if fault.waiters == 0 && !matches!(fault.state, State::UnderWay) {
            self.0[number.0] = None;
        }
    }

    /// Fetches under way, and outcomes that are still waited for.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    fn close(&mut self, number: FaultNo, state: State<T>) -> bool {
        let fault = self.fault(number);
        fault.state = state;
        let waited_for = fault.waiters > 0;
        if !waited_for {
            self.0[number.0] = None;
        }
        waited_for
    }

    fn fault(&mut self, number: FaultNo) -> &mut Fault<T> {
        self.0[number.0].as_mut().expect("it is kept while somebody waits")
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
