//! A port of an Ethernet in memory.

use live::link::ether::Port;
use rig::Ethernet;
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// Longest frame of the Ethernet in memory: what a veth of MTU 9000 has.
const FRAME_BYTES: usize = nic::ether::limits::FRAME_BYTES_MAX;
const TURN_FRAMES: usize = 64;

/// A port of an Ethernet in memory.
#[derive(Debug)]
pub struct MemoryPort {
    wire: Rc<RefCell<Ethernet>>,
    address: [u8; 6],
    frame: Box<[u8]>,
}

impl MemoryPort {
    pub fn new(wire: &Rc<RefCell<Ethernet>>, number: u8) -> MemoryPort {
        let frame = vec![0; FRAME_BYTES].into_boxed_slice();
        MemoryPort { wire: wire.clone(), address: [2, 0, 0, 0, 0, number], frame }
    }
}

impl Port for MemoryPort {
    fn name(&self) -> String {
        "memory".into()
    }

    fn address(&self) -> [u8; 6] {
        self.address
    }

    fn frame_bytes(&self) -> usize {
        FRAME_BYTES
    }

    fn has_arrived(&self) -> bool {
        self.wire.borrow().has(self.address)
    }

    fn receive(&mut self, take: &mut dyn FnMut(&mut [u8])) -> usize {
        for count in 0..TURN_FRAMES {
            let Some(mut frame) = self.wire.borrow_mut().receive(self.address) else {
                return count;
            };
            take(&mut frame);
            self.wire.borrow_mut().recycle(frame);
        }
        TURN_FRAMES
    }

    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<usize>) -> usize {
        let mut count = 0;
        while let Some(bytes) = next(&mut self.frame) {
            self.wire.borrow_mut().send(&self.frame[..bytes]);
            count += 1;
        }
        count
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn drops(&self) -> u64 {
        0
    }
}
