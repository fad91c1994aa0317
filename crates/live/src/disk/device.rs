//! The disks as a device of the node's host.

use super::Disks;
use crate::clock;
use crate::device::Poller;
use crate::host::Device;
use crate::limits::DISK_OPS_PER_POLL;
use node::Node;
use std::cmp::Reverse;
use std::io;
use wire::Time;

impl Device for Disks {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.helpers.watch(poller)?;
        if let Some(uring) = &self.uring {
            uring.watch(poller)?;
        }
        Ok(())
    }

    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool> {
        let mut moved = false;
        for _ in 0..DISK_OPS_PER_POLL {
            if !self.has_room() {
                break;
            }
            let Some(request) = node.take_disk() else { break };
            self.start(request, now);
            moved = true;
        }
        if self.under_way() == 0 {
            return Ok(false);
        }
        moved |= self.turn(now)?;
        while let Some(done) = self.next_done() {
            node.disk_done(done);
            moved = true;
        }
        Ok(moved)
    }

    fn is_quiet(&self) -> bool {
        self.under_way() == 0
    }

    fn before_sleep(&mut self) -> bool {
        let due = self.uring.as_mut().is_some_and(|uring| uring.before_sleep());
        due | self.helpers.before_sleep()
    }

    fn after_sleep(&mut self) {
        self.helpers.after_sleep();
    }

    fn deadline(&self) -> Option<Time> {
        self.held.peek().map(|Reverse((time, _))| *time)
    }

    fn stop(&mut self, node: &mut Node) -> io::Result<bool> {
        let moved = self.poll(node, clock::now())?;
        Ok(!moved && self.under_way() == 0)
    }
}
