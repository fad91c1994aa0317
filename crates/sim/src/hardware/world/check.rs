//! Place of each page of payload, by name; and a check that no engine moves bytes that its source does not have.
//!
//! A page of payload has a name. Host pages and adapter buffers hold names, and every transfer carries one on. So a
//! stale copy, a lost byte or a sink ahead of its source is found when it happens.

use super::World;
use crate::hardware::world::program::Program;
use crate::queue::Picos;
use nic::{Direction, Engine, Kind, Transfer};

/// Metadata that travels with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Any value that the programs agree on.
    pub word: u64,
    /// Name of its first page; the others follow.
    pub name: u64,
    /// When its first sender posted it.
    pub born: Picos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    name: u64,
    filled: usize,
}

/// The names on one adapter.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    buffers: Vec<Buffer>,
    /// By entry of the send ring, and of the receive ring.
    pub sent: Vec<Header>,
    pub received: Vec<Header>,
    /// Payload bytes that have come to host memory, by entry of the receive ring.
    pub deposited: Vec<usize>,
}

impl Contents {
    pub fn new(config: &nic::Config, buffers: usize) -> Contents {
        Contents {
            buffers: vec![Buffer::default(); buffers],
            sent: vec![Header::default(); config.send_ring],
            received: vec![Header::default(); config.receive_ring],
            deposited: vec![0; config.receive_ring],
        }
    }
}

impl<P: Program> World<P> {
    /// A transfer is about to begin: its source must have, by now, what it takes.
    pub(crate) fn check_start(&mut self, adapter: u16, transfer: &Transfer) {
        let Some((buffer, offset)) = transfer.buffer else { return };
        let is_source = is_source(transfer);
        let state = &mut self.adapters[usize::from(adapter)].contents.buffers[usize::from(buffer)];
        if is_source && offset == 0 {
            *state = Buffer::default();
        }
        if is_source {
            return;
        }
        let has = state.filled.max(self.filling(adapter, buffer));
        if offset + transfer.bytes > has {
            let (from, to) = (offset, offset + transfer.bytes);
            self.wrong(
                adapter,
                &format!("overrun: bytes {from} to {to} of buffer {buffer}, which has {has}"),
            );
        }
        if transfer.engine == Engine::NetSend {
            self.check_sent(adapter, buffer, transfer);
        }
    }

    /// Bytes of `buffer` that the transfer which fills it now has filled.
    fn filling(&self, adapter: u16, buffer: u16) -> usize {
        let registers = self.registers(adapter);
        let fills = |engine: Engine| {
            let transfer = self.adapters[usize::from(adapter)].engines.state(engine).transfer?;
            let (filled, offset) = transfer.buffer.filter(|_| is_source(&transfer))?;
            (filled == buffer).then_some(offset + registers.moved[engine as usize])
        };
        fills(Engine::HostDma).or_else(|| fills(Engine::NetReceive)).unwrap_or(0)
    }

    /// Checks that a buffer leaves with the page that the host meant when it posted.
    fn check_sent(&self, adapter: u16, buffer: u16, transfer: &Transfer) {
        let state = &self.adapters[usize::from(adapter)];
        let has = state.contents.buffers[usize::from(buffer)].name;
        let meant = self.name(adapter, &state.contents.sent[transfer.slot], transfer.offset);
        let still_filling = has == 0;
        if has != meant && !still_filling {
            self.wrong(
                adapter,
                &format!("stale payload: buffer {buffer} has page {has}, page {meant} is meant"),
            );
        }
    }

    fn name(&self, adapter: u16, header: &Header, offset: usize) -> u64 {
        let host = self.adapters[usize::from(adapter)].host;
        header.name + (offset / self.hosts[usize::from(host)].page) as u64
    }

    /// A transfer has ended: names go where bytes went.
    pub(crate) fn carry(&mut self, adapter: u16, transfer: &Transfer) {
        let Some((buffer, offset)) = transfer.buffer else { return };
        let index = usize::from(adapter);
        let host = usize::from(self.adapters[index].host);
        match (transfer.engine, transfer.direction) {
            (Engine::HostDma, Direction::ToNet) => {
                let name = self.hosts[host].name_at(transfer.address);
                self.fill(adapter, buffer, offset + transfer.bytes, name);
                self.check_sent(adapter, buffer, transfer);
            }
            (Engine::NetReceive, _) => {
                let name = self.name(
                    adapter,
                    &self.adapters[index].contents.received[transfer.slot],
                    transfer.offset,
                );
                self.fill(adapter, buffer, offset + transfer.bytes, name);
            }
            (Engine::HostDma, Direction::ToHost) => {
                let contents = &mut self.adapters[index].contents;
                contents.deposited[transfer.slot] += transfer.bytes;
                let name = contents.buffers[usize::from(buffer)].name;
                let late = self.name(
                    adapter,
                    &self.adapters[index].contents.received[transfer.slot],
                    transfer.offset,
                );
                // cut through: the buffer is named when it is full
                self.hosts[host].set_name(transfer.address, if name == 0 { late } else { name });
            }
            (Engine::NetSend, _) => {}
        }
    }

    fn fill(&mut self, adapter: u16, buffer: u16, filled: usize, name: u64) {
        let state = &mut self.adapters[usize::from(adapter)].contents.buffers[usize::from(buffer)];
        *state = Buffer { name, filled };
    }

    /// A transfer from the link has ended: its control message says what comes.
    pub(crate) fn check_received(&mut self, adapter: u16, sender: u16, transfer: &Transfer) {
        if transfer.kind == Kind::Control {
            let outgoing =
                self.adapters[usize::from(sender)].engines.state(Engine::NetSend).transfer;
            let slot = outgoing.expect("who sends has a transfer").slot;
            let header = self.adapters[usize::from(sender)].contents.sent[slot];
            let contents = &mut self.adapters[usize::from(adapter)].contents;
            contents.received[transfer.slot] = header;
            if transfer.packet.offset == 0 {
                contents.deposited[transfer.slot] = 0;
            }
            self.adapters[usize::from(adapter)].senders[transfer.slot] = sender;
        }
    }

    /// Damages what an adapter's buffers hold, for tests of the checks.
    pub fn spoil(&mut self, adapter: usize) {
        let buffers = self.adapters[adapter].contents.buffers.iter_mut();
        buffers.filter(|buffer| buffer.name != 0).for_each(|buffer| buffer.name = u64::MAX);
    }

    /// A message is delivered: all of its payload must be where the firmware says.
    pub(crate) fn check_delivery(&self, adapter: u16, slot: usize, landed: usize) {
        let state = &self.adapters[usize::from(adapter)];
        let came = state.contents.deposited[slot];
        if came != landed {
            self.wrong(
                adapter,
                &format!("lost payload: {landed} bytes delivered, {came} came to host memory"),
            );
        }
        let header = &state.contents.received[slot];
        let host = &self.hosts[usize::from(state.host)];
        let mut offset = 0;
        for piece in state.nic.landed(slot).iter().take_while(|_| landed > 0) {
            let (has, meant) =
                (host.name_at(piece.frame.address), self.name(adapter, header, offset));
            if has != meant {
                self.wrong(
                    adapter,
                    &format!("wrong payload: page {has} delivered, page {meant} was sent"),
                );
            }
            offset += piece.frame.bytes;
        }
    }
}

fn is_source(transfer: &Transfer) -> bool {
    matches!(
        (transfer.engine, transfer.direction),
        (Engine::HostDma, Direction::ToNet) | (Engine::NetReceive, _)
    )
}
