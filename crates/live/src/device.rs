//! Devices that a host polls, and the descriptor it sleeps in.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An epoll set, level-triggered but for what is added as an [edge](Poller::add_edge). Clones name the same set; it is
/// itself a descriptor that can be put into another.
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
    /// The far end has closed or failed.
    pub closed: bool,
}

impl Poller {
    /// The name of what has none.
    pub(crate) const NAMELESS: u64 = u64::MAX;
    /// Most descriptors that one [`wait`](Poller::wait) reports; the rest is reported by the next.
    pub(crate) const READY_MAX: usize = 64;

    /// An empty set.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(Arc::new(epoll::create(CreateFlags::CLOEXEC)?)))
    }

    /// Adds a descriptor without a name.
    pub fn add(&self, fd: impl AsFd, readable: bool, writable: bool) -> io::Result<()> {
        self.add_named(fd, readable, writable, Poller::NAMELESS)
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

    /// Adds a descriptor that is reported once each time something comes, whether or not what came before was read.
    pub fn add_edge(&self, fd: impl AsFd, name: u64) -> io::Result<()> {
        let flags = flags(true, false) | EventFlags::ET;
        Ok(epoll::add(&*self.0, fd, EventData::new_u64(name), flags)?)
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

    /// Takes a descriptor out of the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&*self.0, fd)?)
    }

    /// Waits until something is ready, at most `span` (`None`: for ever), and puts it into `into`. A signal ends the
    /// wait with nothing.
    pub fn wait(&self, span: Option<Duration>, into: &mut Vec<Ready>) -> io::Result<()> {
        into.clear();
        if let Some(span) = span.filter(|span| !span.is_zero() && !COARSE.load(Ordering::Relaxed)) {
            match self.wait_precisely(span, into) {
                // Before Linux 5.11, or in a sandbox that does not know the call.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                    COARSE.store(true, Ordering::Relaxed);
                }
                Err(rustix::io::Errno::INTR) => return Ok(()),
                result => return Ok(result?),
            }
        }
        let span =
            span.map(|s| Timespec { tv_sec: s.as_secs() as i64, tv_nsec: s.subsec_nanos().into() });
        let mut space = [std::mem::MaybeUninit::<Event>::uninit(); Poller::READY_MAX];
        match epoll::wait(&*self.0, &mut space, span.as_ref()) {
            Ok((ready, _)) => into.extend(ready.iter().map(|e| named(*e))),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// `epoll_wait` counts milliseconds, and `rustix` calls nothing else for short spans: who is to be called in 100 us
    /// would sleep ten times as long.
    fn wait_precisely(&self, span: Duration, into: &mut Vec<Ready>) -> rustix::io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; Poller::READY_MAX];
        let span = libc::timespec {
            tv_sec: span.as_secs() as libc::time_t,
            tv_nsec: span.subsec_nanos().into(),
        };
        // SAFETY: the kernel writes at most as many events as it is told there is room for, and reads the span; both
        // live until the call returns. Without a signal mask its size is not looked at.
        let count = unsafe {
            let (fd, events) = (self.0.as_raw_fd(), events.as_mut_ptr());
            let none = std::ptr::null::<libc::sigset_t>();
            libc::syscall(
                libc::SYS_epoll_pwait2,
                fd,
                events,
                Self::READY_MAX,
                &raw const span,
                none,
                0,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO));
        }
        into.extend(events[..count as usize].iter().map(|event| {
            let flags = EventFlags::from_bits_retain(event.events);
            named(Event { flags, data: EventData::new_u64(event.u64) })
        }));
        Ok(())
    }
}

/// Whether the system lacks the precise wait.
static COARSE: AtomicBool = AtomicBool::new(false);

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
        closed: failed || flags.contains(EventFlags::RDHUP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_edge_is_reported_once_each_time_and_a_close_is_told_apart() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let (poller, mut ready) = (Poller::new().unwrap(), Vec::new());
        poller.add_edge(&far, 7).unwrap();
        for _ in 0..2 {
            near.write_all(b"x").unwrap();
            poller.wait(None, &mut ready).unwrap();
            assert!(ready[0].readable && !ready[0].closed);
            poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
            assert!(ready.is_empty());
        }
        drop(near);
        poller.wait(None, &mut ready).unwrap();
        assert!(ready[0].closed);
    }

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
        let expected = Ready { name: 7, readable: true, writable: false, closed: false };
        assert_eq!(ready, [expected]);
        inner.remove(&far).unwrap();
        outer.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
    }
}
