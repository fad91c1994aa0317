//! Events that tasks of the service wait for, each by its name. Parts have no clock and no tasks: a task that changes
//! one of them raises the events that its answer names.

use node::{Cx, Notify};

/// Something that a task may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A fetch is over.
    FetchEnded,
    /// Something may be due to be prefetched.
    PrefetchDue,
    /// A page is to be sent to another node.
    PageLeaves,
    /// A page that left has arrived, or will not.
    PageArrived,
    /// A notice waits.
    NoticeWaits,
    /// A directory has to be told of a mirror that is here, or is not.
    RegistrationDue,
    /// Pages of this node's own may have lost all their mirrors.
    MirrorsLost,
    /// Another view.
    ViewChanged,
    /// Frames are needed, and dirty pages are in the way.
    Pressure,
    /// A page has become durable, or a frame free.
    Eased,
    /// A page may lack mirrors.
    RepairDue,
    /// This node lends more or less than before.
    ShareChanged,
}

const COUNT: usize = Event::ShareChanged as usize + 1;

/// The tasks that wait, by event.
pub struct Events([Notify; COUNT]);

impl Events {
    /// For tasks of this node.
    pub fn new(cx: &Cx) -> Events {
        Events(std::array::from_fn(|_| Notify::new(cx)))
    }

    /// Waits until it is raised after this call.
    pub fn wait(&self, event: Event) -> impl Future<Output = ()> + '_ {
        self.0[event as usize].wait()
    }

    /// Ends the waiting of all who wait for it now.
    pub fn raise(&self, event: Event) {
        self.0[event as usize].notify_all();
    }
}
