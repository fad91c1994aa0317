//! A fault's ways to all holders.

use super::super::backing::{FetchError, Fetched, Source, StoreError};
use super::super::limits::{AHEAD_DEADLINE, PAUSE};
use super::Shared;
use super::way::{Connection, Mailbox};
use live::clock;
use netmem::Wanted;
use netmem::guest::{Gone, Refused, Response, Transport};
use netmem::protocol::{Put, Stayed};
use std::io;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use wire::Time;

/// Looks for room among pages that holders are to forget: the keeper makes some meanwhile.
const FORGETS_MAX: u32 = 100;

/// State for one thread at a time.
pub struct PeerSource {
    shared: Arc<Shared>,
    lines: Lines,
}

/// The ways themselves. A thread that asks over them waits in place.
struct Lines {
    shared: Arc<Shared>,
    ways: Box<[Option<Connection>]>,
    mail: Arc<[Mailbox]>,
    page_bytes: usize,
}

impl PeerSource {
    /// Connects to all holders that answer; an error when fewer do than there are to be copies.
    pub fn new(shared: Arc<Shared>, page_bytes: usize) -> io::Result<PeerSource> {
        let (config, mut failed) = (&shared.config, None);
        let mut reach = |at: usize| match Connection::reach(config, at, page_bytes) {
            Ok(way) => Some(shared.admit(at, way)),
            Err(error) => {
                shared.keeping().holders()[at].note_away(clock::now());
                failed = Some(error);
                None
            }
        };
        let ways: Box<[Option<Connection>]> = (0..config.holders.len()).map(&mut reach).collect();
        let (there, needed) = (ways.iter().flatten().count(), usize::from(config.copies));
        if there < needed {
            let why = failed.map_or(String::new(), |error| format!(": {error}"));
            let what = format!("{needed} holders are needed for a region, and {there} answer{why}");
            return Err(io::Error::new(io::ErrorKind::NotConnected, what));
        }
        let mail: Arc<[Mailbox]> = ways.iter().map(|_| Mailbox::default()).collect();
        let boxes = Arc::downgrade(&mail);
        shared.boxes.lock().unwrap_or_else(PoisonError::into_inner).push(boxes);
        let lines = Lines { shared: shared.clone(), ways, mail, page_bytes };
        Ok(PeerSource { shared, lines })
    }
}

impl Lines {
    fn way(&mut self, at: usize) -> &mut Connection {
        self.ways[at].as_mut().expect("it was reached")
    }
}

impl Transport for Lines {
    fn now(&self) -> Time {
        clock::now()
    }

    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// A way that broke is replaced by the keeper.
    fn reach(&mut self, at: usize) -> bool {
        let usable = self.ways[at].as_ref().is_some_and(|way| !way.is_broken());
        if !usable && !self.mail[at].exchange(&mut self.ways[at]) {
            self.shared.ring();
            return false;
        }
        self.ways[at].is_some() && !self.shared.keeping().holders()[at].is_away()
    }

    fn is_broken(&self, at: usize) -> bool {
        self.ways[at].as_ref().is_none_or(Connection::is_broken)
    }

    fn there(&self, at: usize) -> Option<Stayed> {
        self.ways[at].as_ref().map(|way| way.there)
    }

    fn generation(&self, at: usize) -> u16 {
        self.ways[at].as_ref().map_or(0, |way| way.generation)
    }

    async fn get(&mut self, at: usize, wanted: Wanted) -> Response {
        self.way(at).get(wanted)
    }

    fn ask_ahead(&mut self, at: usize, wanted: &[Wanted]) -> bool {
        self.way(at).post(AHEAD_DEADLINE, wanted);
        true
    }

    async fn answers(&mut self, at: usize, wanted: &[Wanted], found: &mut [Response]) {
        self.way(at).answers(wanted, found);
    }

    fn landed(&self, at: usize, nth: usize) -> &[u8] {
        self.ways[at].as_ref().expect("it has landed there").landed(nth, self.page_bytes)
    }

    async fn put(&mut self, at: usize, put: &Put, data: &[u8]) -> Result<(), Refused> {
        self.way(at).put(put, data)
    }

    fn ring(&self) {
        self.shared.ring();
    }
}

/// Polls requests over lines, which never wait for another task to go on.
fn at_once<T>(asks: impl Future<Output = T>) -> T {
    match pin!(asks).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("a line waits in place"),
    }
}

fn error_of(gone: Gone) -> FetchError {
    match gone {
        Gone::Lost => FetchError::Lost,
        Gone::Unavailable(errno) => FetchError::Unavailable(errno.0.into()),
    }
}

impl PeerSource {
    /// Has the holders forget the page. Where there is no room to note that, it is tried again after so many pauses at
    /// most; without it, what they have goes with the region.
    fn give_up(&self, page: u64, version: u64, pauses: u32) {
        let keeping = self.shared.keeping();
        for obsolete in keeping.forget(page, version) {
            let mut looks = 0;
            while !keeping.drop_at(clock::now(), obsolete) && looks < pauses {
                self.shared.ring();
                std::thread::sleep(PAUSE);
                looks += 1;
            }
        }
    }
}

impl Source for PeerSource {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        _: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        let fetched = at_once(self.shared.keeping().fetch(&mut self.lines, page, version));
        let (at, checksum) = fetched.map_err(error_of)?;
        Ok(Fetched { bytes: self.lines.landed(at, 0), checksum })
    }

    fn fetch_ahead(
        &mut self,
        wanted: &[(u64, u64)],
        _: &mut [u8],
        landed: &mut dyn FnMut(usize, Fetched<'_>),
    ) {
        let told = |which, bytes: &[u8], checksum| landed(which, Fetched { bytes, checksum });
        at_once(self.shared.keeping().fetch_ahead(&mut self.lines, wanted, told));
    }

    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError> {
        let stored = at_once(self.shared.keeping().store(&mut self.lines, page, version, from));
        stored.map_err(|errno| StoreError(errno.0.into()))
    }

    /// May wait for a moment: what is given up in great numbers is told of in batches.
    fn forget(&mut self, page: u64, version: u64) {
        self.give_up(page, version, FORGETS_MAX);
    }

    fn abandon(&mut self, page: u64, version: u64) {
        self.give_up(page, version, 0);
    }

    fn mend(&mut self, page: u64, version: u64, buffer: &mut [u8]) -> Result<bool, FetchError> {
        let mended = self.shared.keeping().mend(&mut self.lines, page, version, buffer);
        at_once(mended).map_err(error_of)
    }
}
