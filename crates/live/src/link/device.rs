//! The links as a device of a host.

use super::{LinkEvent, Links};
use crate::device::{Poller, Ready};
use crate::host::Device;
use node::Node;
use std::io;
use wire::Time;

impl Device for Links {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        poller.add(self.poller(), true, false)
    }

    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool> {
        let mut moved = node.with_endpoint(|endpoint| self.step(endpoint, now))?;
        while let Some(event) = self.take_event() {
            moved = true;
            match event {
                LinkEvent::Up(peer) => node.link_up(peer),
                LinkEvent::Down(peer) => node.link_down(peer),
            }
        }
        Ok(moved)
    }

    fn flush(&mut self, node: &mut Node, now: Time) -> io::Result<()> {
        node.with_endpoint(|endpoint| self.send_posted(endpoint, now))
    }

    fn is_quiet(&self) -> bool {
        Links::is_quiet(self)
    }

    fn before_sleep(&mut self) -> bool {
        Links::before_sleep(self)
    }

    fn woken(&mut self, ready: &[Ready]) {
        let is_ours = |one: &Ready| one.name == Poller::NAMELESS;
        if !ready.is_empty() && !ready.iter().any(is_ours) && ready.len() < Poller::READY_MAX {
            self.note_nothing();
        }
    }

    fn after_sleep(&mut self) {
        Links::after_sleep(self);
    }

    fn deadline(&self) -> Option<Time> {
        Links::deadline(self)
    }

    fn shares_processor(&self) -> bool {
        Links::shares_processor(self)
    }

    fn stop(&mut self, node: &mut Node) -> io::Result<bool> {
        node.with_endpoint(|endpoint| {
            self.step(endpoint, crate::clock::now())?;
            let drained = self.is_drained() && endpoint.posted() == 0;
            if drained {
                self.close_all(endpoint);
            }
            Ok(drained)
        })
    }
}
