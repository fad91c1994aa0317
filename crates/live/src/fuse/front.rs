//! The FUSE front end: a mount as a device of a node, whose tasks do its file operations.
//!
//! Another front end for files (NFS, say) is a [`Device`](crate::host::Device) too: it pushes `FileRequest`s with
//! `Node::front_push` and answers with what `Node::take_front_done` gives.

use super::callers;
use super::limits::LOOK_INTERVAL;
use super::mount::{Mount, MountError, MountOptions};
use super::reply::Belief;
use super::session::{Front, Session, SessionCounters, Stage};
use crate::clock;
use crate::device::Poller;
use crate::host::Device;
use node::Node;
use node::rings::{FileDone, FileRequest};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::thread::JoinHandle;
use wire::Time;

/// The device.
pub struct Fuse {
    // Before the mount: with the descriptor closed nothing waits for this thread when the mount is taken down.
    session: Session,
    mount: Mount,
    poller: Option<Poller>,
    /// Whether the poller watches the descriptor.
    watched: bool,
    /// Whether what follows the agreement with the kernel is done.
    settled: bool,
    unmounting: Option<JoinHandle<io::Result<()>>>,
    /// When to look after the processes that wait.
    look_at: Time,
    watch: MountWatch,
}

/// Tells how a mount is, beside the host that owns the device.
#[derive(Clone, Debug)]
pub struct MountWatch(Rc<Cell<(Stage, SessionCounters)>>);

impl MountWatch {
    /// How far it is. `Ended`: it was unmounted.
    pub fn stage(&self) -> Stage {
        self.0.get().0
    }

    /// The counters of its session.
    pub fn counters(&self) -> SessionCounters {
        self.0.get().1
    }
}

impl Fuse {
    /// Mounts. The mount cannot be used before the device is polled.
    pub fn new(options: &MountOptions, belief: Belief) -> Result<Fuse, MountError> {
        let (descriptor, mount) = Mount::new(options)?;
        let session = Session::new(descriptor, belief);
        let watch = MountWatch(Rc::new(Cell::new((session.stage(), session.counters()))));
        Ok(Fuse {
            session,
            mount,
            poller: None,
            watched: false,
            settled: false,
            unmounting: None,
            look_at: Time::ZERO,
            watch,
        })
    }

    /// Tells how the mount is after the device has gone to its host.
    pub fn watch(&self) -> MountWatch {
        self.watch.clone()
    }

    fn note_end(&mut self) {
        if self.session.has_ended() {
            self.mount.note_ended();
        }
    }

    /// Follows the session: watches the descriptor as long as its requests may be read. One that may not be read
    /// would wake the host for ever.
    fn follow(&mut self, node: &Node) -> io::Result<()> {
        let stage = self.session.stage();
        self.watch.0.set((stage, self.session.counters()));
        if stage == Stage::Serving && !self.settled {
            self.mount.raise_read_ahead();
            self.settled = true;
        }
        let watch = self.session.may_read(node.cx().frames());
        if watch == self.watched {
            return Ok(());
        }
        if let Some(poller) = &self.poller {
            match watch {
                true => poller.add(&self.session, true, false)?,
                false => poller.remove(&self.session)?,
            }
            self.watched = watch;
        }
        Ok(())
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // While the descriptor is open: afterwards nothing tells this mount from the next one at its place.
        self.note_end();
    }
}

impl Device for Fuse {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.session, true, false)?;
        self.watched = true;
        self.poller = Some(poller.clone());
        Ok(())
    }

    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool> {
        if now >= self.look_at {
            self.look_at = now + LOOK_INTERVAL;
            self.session.interrupt_abandoned(node, callers::has_given_up);
        }
        let frames = node.cx().frames().clone();
        let moved = self.session.poll(node, &frames)?;
        self.follow(node)?;
        Ok(moved)
    }

    fn deadline(&self) -> Option<Time> {
        (!self.session.is_quiet()).then_some(self.look_at)
    }

    /// Unmounts on a thread of its own, because the kernel may have writes for us first; done when that has ended and
    /// all that was asked is answered, but for locks that wait. A process that still has a file open gets ENOTCONN once
    /// the device is dropped.
    fn quiesce(&mut self, node: &mut Node) -> io::Result<bool> {
        self.note_end();
        if self.unmounting.is_none() && self.session.stage() != Stage::Ended {
            self.unmounting = Some(self.mount.unmount_beside());
        }
        self.poll(node, clock::now())?;
        let unmounted = self.unmounting.as_ref().is_none_or(JoinHandle::is_finished);
        Ok(unmounted && self.session.is_quiet())
    }
}

impl Front for Node {
    fn push(&mut self, request: FileRequest) -> Result<(), FileRequest> {
        self.front_push(request)
    }

    fn take_done(&mut self) -> Option<FileDone> {
        self.take_front_done()
    }
}
