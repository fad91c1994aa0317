//! Shares of the bus, the adapters' memory and the link: worked out anew at each start and end of a flow.
//!
//! A transfer over the link is bound by both adapters' memories. The receiver's share is what its host engine
//! leaves it; the sender's what its host engine and its own receive engine leave it, where the latter is
//! counted at what the link could bring: the first in the order is not asked whether its sender is slow. So one
//! look at each side is enough.

use super::{Adapter, Event, Pricing, World};
use crate::hardware::board::Wanted;
use crate::hardware::bus::Direction;
use crate::hardware::flow::Rate;
use crate::hardware::world::program::Program;
use nic::Engine;

impl<P: Program> World<P> {
    /// Something started or ended on `adapter` or on its host's bus.
    pub(crate) fn refresh(&mut self, adapter: u16) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.clear();
        let host = usize::from(self.adapters[usize::from(adapter)].host);
        for &sibling in &self.hosts[host].adapters {
            self.touched(sibling, &mut dirty);
        }
        let mut next = 0;
        while let Some(&adapter) = dirty.get(next) {
            let changed = self.set_transfers(adapter);
            changed.into_iter().for_each(|receiver| self.touched(receiver, &mut dirty));
            next += 1;
        }
        dirty.iter().for_each(|adapter| self.set_processor(*adapter));
        self.dirty = dirty;
    }

    /// Something changed for all adapters of a host.
    pub(crate) fn refresh_host(&mut self, host: u16) {
        if let Some(&adapter) = self.hosts[usize::from(host)].adapters.first() {
            self.refresh(adapter);
        }
        self.set_pio(host);
        self.set_move(host);
        let now = self.now();
        self.hosts[usize::from(host)].note_bus(now);
    }

    /// The adapters whose rates hang on this one's: itself, who sends to it, who receives from it, and in turn who
    /// receives from the latter.
    fn touched(&self, adapter: u16, dirty: &mut Vec<u16>) {
        let receiver = self.receiver(adapter);
        let all = [
            Some(adapter),
            self.sender(adapter),
            receiver,
            receiver.and_then(|r| self.receiver(r)),
        ];
        for adapter in all.into_iter().flatten() {
            if !dirty.contains(&adapter) {
                dirty.push(adapter);
            }
        }
    }

    fn get(&self, adapter: u16) -> &Adapter {
        &self.adapters[usize::from(adapter)]
    }

    /// The receiver of the burst that leaves here now.
    fn receiver(&self, adapter: u16) -> Option<u16> {
        let sender = self.get(adapter);
        sender.engines.bursting.then_some(sender.outgoing.to)
    }

    /// The sender of the burst that comes in here now.
    fn sender(&self, adapter: u16) -> Option<u16> {
        self.get(adapter).incoming.filter(|sender| self.get(*sender).engines.bursting)
    }

    /// The adapter that receives from it, if that changed.
    fn set_transfers(&mut self, adapter: u16) -> Option<u16> {
        let now = self.now();
        let host_rate = self.host_rate(adapter);
        let burst_rate = self.receiver(adapter).map_or(Rate::ZERO, |_| self.burst_rate(adapter));
        let engines = &mut self.adapters[usize::from(adapter)].engines;
        if engines.state(Engine::HostDma).is_moving() && engines.host.set_rate(now, host_rate) {
            engines.host_stamp += 1;
            let event = Event::HostDma { adapter, stamp: engines.host_stamp };
            let end = engines.host.end();
            self.at(end, event);
        }
        let engines = &mut self.adapters[usize::from(adapter)].engines;
        let changed = engines.bursting && engines.burst.set_rate(now, burst_rate);
        let receiver = self.get(adapter).outgoing.to;
        if changed {
            let engines = &mut self.adapters[usize::from(adapter)].engines;
            engines.burst_stamp += 1;
            let event = Event::Burst { adapter, stamp: engines.burst_stamp };
            let end = engines.burst.end();
            self.at(end, event);
            self.look_again(receiver);
        }
        self.look_again(adapter);
        changed.then_some(receiver)
    }

    /// Rate of the host's engine on the bus and in memory.
    fn host_rate(&self, adapter: u16) -> Rate {
        let adapter = self.get(adapter);
        let engine = adapter.engines.state(Engine::HostDma);
        let Some(transfer) = engine.transfer.filter(|_| engine.is_moving()) else {
            return Rate::ZERO;
        };
        let host = &self.hosts[usize::from(adapter.host)];
        let direction = direction(transfer.direction);
        let share = host.users.share(&host.bus, direction, host.bus.rate(direction));
        match adapter.pricing {
            Pricing::Constants(_) => share,
            Pricing::Contention => {
                adapter.board.arbitrate(Wanted { host: share, ..Wanted::default() }).host
            }
        }
    }

    /// Rate that the link and both memories would give the burst from `adapter` if its own receive engine stood still.
    fn offered(&self, adapter: u16) -> Rate {
        let receiver = self.get(adapter).outgoing.to;
        let link = self.fabric.link().rate.min(self.net_peak(adapter)).min(self.net_peak(receiver));
        let sends = self.granted(adapter, Rate::ZERO, link).send;
        self.granted(receiver, link, Rate::ZERO).receive.min(sends)
    }

    fn burst_rate(&self, adapter: u16) -> Rate {
        let offered = self.offered(adapter);
        let coming = self.sender(adapter).map_or(Rate::ZERO, |sender| self.offered(sender));
        self.granted(adapter, coming, offered).send
    }

    fn net_peak(&self, adapter: u16) -> Rate {
        let adapter = self.get(adapter);
        match adapter.pricing {
            Pricing::Constants(constants) => constants.wire.min(adapter.board.link),
            Pricing::Contention => adapter.board.link.min(adapter.board.engine_peak()),
        }
    }

    fn granted(&self, adapter: u16, receive: Rate, send: Rate) -> crate::hardware::board::Granted {
        let host = self.host_rate(adapter);
        let adapter = self.get(adapter);
        match adapter.pricing {
            Pricing::Contention => adapter.board.arbitrate(Wanted { host, receive, send }),
            Pricing::Constants(_) => {
                let idle = adapter.board.arbitrate(Wanted::default());
                crate::hardware::board::Granted { host, receive, send, ..idle }
            }
        }
    }

    /// The processor has what the engines leave, at the rates that they have now.
    pub(crate) fn set_processor(&mut self, adapter: u16) {
        if self.get(adapter).processor.command.is_none() {
            return;
        }
        let now = self.now();
        let receive =
            self.sender(adapter).map_or(Rate::ZERO, |sender| self.get(sender).engines.burst.rate());
        let send =
            self.receiver(adapter).map_or(Rate::ZERO, |_| self.get(adapter).engines.burst.rate());
        let rate = self.granted(adapter, receive, send).instructions;
        let processor = &mut self.adapters[usize::from(adapter)].processor;
        if processor.flow.set_rate(now, rate) {
            processor.stamp += 1;
            let event = Event::Executed { adapter, stamp: processor.stamp };
            let end = processor.flow.end();
            self.at(end, event);
        }
    }

    /// The host's programmed I/O shares the bus with its adapters.
    pub(crate) fn set_pio(&mut self, host: u16) {
        let now = self.now();
        let state = &mut self.hosts[usize::from(host)];
        let Some((towards, alone)) = state.pio_rate() else { return };
        let rate = state.users.share(&state.bus, towards, alone);
        if state.pio.set_rate(now, rate) {
            state.pio_stamp += 1;
            let event = Event::Pio { host, stamp: state.pio_stamp };
            let end = state.pio.end();
            self.at(end, event);
        }
    }
}

/// The firmware's direction on the bus.
pub(crate) fn direction(direction: nic::Direction) -> Direction {
    match direction {
        nic::Direction::ToNet => Direction::ToAdapter,
        nic::Direction::ToHost => Direction::ToHost,
    }
}
