//! What a host polls, and the descriptor it sleeps in.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Most descriptors that one [`Poller::wait`] reports; the rest is reported by the next.
const EVENTS_MAX: usize = 64;

/// A level-triggered epoll set. Clones name the same set; it is itself a descriptor that can be put into another.
#[derive(Clone, Debug)]
pub struct Poller(Arc<OwnedFd>);

/// A descriptor that has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The name it was added under.
    pub name: u64,
    /// There is something to read, or the far end has closed or failed.
    pub readable: bool,
    /// There is room to write, or the far end has closed or failed.
    pub writable: bool,
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(Arc::new(epoll::create(CreateFlags::CLOEXEC)?)))
    }

    /// Adds a descriptor that nobody asks the name of.
    pub fn add(&self, fd: impl AsFd, readable: bool, writable: bool) -> io::Result<()> {
        self.add_named(fd, readable, writable, u64::MAX)
    }

    /// Adds a descriptor under a name that [`wait`](Poller::wait) reports.
    pub fn add_named(
        &self,
        fd: impl AsFd,
        readable: bool,
        writable: bool,
        name: u64,
    ) -> io::Result<()> {
        Ok(epoll::add(&*self.0, fd, EventData::new_u64(name), flags(readable, writable))?)
    }

    /// Changes what a descriptor of the set is watched for. Its name must be given again.
    pub fn modify_named(
        &self,
        fd: impl AsFd,
        readable: bool,
        writable: bool,
        name: u64,
    ) -> io::Result<()> {
        Ok(epoll::modify(&*self.0, fd, EventData::new_u64(name), flags(readable, writable))?)
    }

    /// As [`modify_named`](Poller::modify_named) for a descriptor without a name.
    pub fn modify(&self, fd: impl AsFd, readable: bool, writable: bool) -> io::Result<()> {
        self.modify_named(fd, readable, writable, u64::MAX)
    }

    /// Takes a descriptor out of the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&*self.0, fd)?)
    }

    /// Waits until something is ready, at most `span` (`None`: for ever), and puts it into `into`. A signal ends the
    /// wait with nothing.
    pub fn wait(&self, span: Option<Duration>, into: &mut Vec<Ready>) -> io::Result<()> {
        into.clear();
        let span =
            span.map(|s| Timespec { tv_sec: s.as_secs() as i64, tv_nsec: s.subsec_nanos().into() });
        let mut space = [std::mem::MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&*self.0, &mut space, span.as_ref()) {
            Ok((ready, _)) => into.extend(ready.iter().map(|e| named(*e))),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn flags(readable: bool, writable: bool) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN | EventFlags::RDHUP, readable);
    flags.set(EventFlags::OUT, writable);
    flags
}

fn named(event: Event) -> Ready {
    let flags = event.flags;
    let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
    Ready {
        name: event.data.u64(),
        readable: failed || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
        writable: failed || flags.contains(EventFlags::OUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn readiness_is_reported_by_name_also_through_a_set_in_a_set() {
        let (outer, inner) = (Poller::new().unwrap(), Poller::new().unwrap());
        let (mut near, far) = UnixStream::pair().unwrap();
        inner.add_named(&far, true, false, 7).unwrap();
        outer.add_named(&inner, true, false, 1).unwrap();
        let mut ready = Vec::new();
        outer.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
        near.write_all(b"x").unwrap();
        outer.wait(None, &mut ready).unwrap();
        assert_eq!(ready[0].name, 1);
        inner.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [Ready { name: 7, readable: true, writable: false }]);
        inner.remove(&far).unwrap();
        outer.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
    }
}
