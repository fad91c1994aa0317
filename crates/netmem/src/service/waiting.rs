//! Guards of tasks that fetch a page or wait for one: in any way that a task ends, the table of faults is updated.

use super::events::Event;
use super::faults::FaultNo;
use super::{GetError, Got, Service};

/// The first of several requests: however it ends, the others are told.
pub struct First<'a> {
    service: &'a Service,
    number: Option<FaultNo>,
}

impl<'a> First<'a> {
    /// A fetch begins.
    pub fn new(service: &'a Service, number: FaultNo) -> First<'a> {
        First { service, number: Some(number) }
    }

    /// Its number.
    pub fn number(&self) -> FaultNo {
        self.number.expect("it has not ended")
    }

    /// It has ended so.
    pub fn end(mut self, outcome: Result<Got, GetError>) {
        let number = self.number.take().expect("it ends once");
        if self.service.fetches().end(number, outcome) {
            self.service.raise(Event::FetchEnded);
        }
        self.service.ease_ahead();
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        if self.service.fetches().abandon(number) {
            self.service.raise(Event::FetchEnded);
        }
    }
}

/// A request that waits for the first.
pub struct Behind<'a> {
    pub service: &'a Service,
    pub number: Option<FaultNo>,
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        let number = self.number;
        number.into_iter().for_each(|number| self.service.fetches().leave(number));
    }
}
