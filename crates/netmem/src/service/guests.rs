//! Pages of processes that are no nodes: regions of a program beside the cluster. Such a process is the directory of
//! its pages (SOSP'95, non-shared pages: no hop), so nothing of them is registered here; it chooses the holders, and
//! makes mirrors again. A node keeps its pages as long as it hears of the process.

use super::{Config, Service, Up, View};
use crate::limits::GUEST_SPAN;
use crate::page::SpaceId;
use crate::protocol::{Message, Spaces, Stayed};
use node::{Answer, Cx, Request};
use std::collections::BTreeMap;
use wire::{Errno, Time};

/// The spaces of which pages may be here, and when their processes were heard of last.
#[derive(Debug, Default)]
pub struct Guests(BTreeMap<SpaceId, Time>);

impl Guests {
    /// A page of the space was taken in.
    pub fn handle_stored(&mut self, now: Time, space: SpaceId) {
        self.0.insert(space, now);
    }

    /// Its process is there. One of which nothing is here is not remembered.
    fn handle_stay(&mut self, now: Time, space: SpaceId) {
        self.0.entry(space).and_modify(|heard| *heard = now);
    }

    /// It was freed.
    pub fn remove(&mut self, space: SpaceId) {
        self.0.remove(&space);
    }

    /// Removes spaces whose process was silent for too long: nothing needs their pages.
    pub fn take_silent(&mut self, now: Time) -> Vec<SpaceId> {
        let silent = |heard: &Time| now.since(*heard) >= GUEST_SPAN;
        let gone = self.0.iter().filter(|(_, heard)| silent(heard)).map(|(space, _)| *space);
        let gone: Vec<SpaceId> = gone.collect();
        self.0.retain(|_, heard| !silent(heard));
        gone
    }
}

impl Service {
    /// Starts the service on a node that only lends `bytes` bytes, to processes that are no nodes: it knows of no other
    /// node.
    pub fn lend(cx: &Cx, bytes: usize) -> Service {
        let service = Service::start(cx, Config { local_min_bytes: 0, ..Config::new(bytes) });
        let me = Up { node: cx.id(), incarnation: cx.incarnation(), weight: 1, machine: 0 };
        service.set_view(View::new(1, vec![me]));
        service
    }

    pub(super) fn handle_stay(&self, request: Request) {
        let spaces = Spaces::decode(&request.body);
        let data = request.data.first().map_or(&[][..], |frame| &frame[..]);
        let now = self.cx().now();
        let heard = spaces.and_then(|spaces| {
            let mut guests = self.0.guests.borrow_mut();
            spaces.spaces(data)?.for_each(|space| guests.handle_stay(now, space));
            Ok(())
        });
        let (node, incarnation) = (self.me(), self.cx().incarnation());
        let machine = self.0.home.borrow().view().machine(node);
        let stayed = Stayed { node, incarnation, machine };
        let body = stayed.encode();
        let answer = heard.map_or(Answer::error(Errno::EPROTO), |()| Answer::body(&body));
        self.cx().reply(request, answer);
    }
}
