//! The firmware's commands carried out: engines start and end, the processor executes, messages reach the host.

use super::engines::{EngineState, Phase, Registers};
use super::rates::direction;
use super::{Event, Pricing, World};
use crate::hardware::flow::Flow;
use crate::hardware::world::program::Program;
use crate::queue::Picos;
use nic::{Action, Command, Engine, Kind, Transfer};

impl<P: Program> World<P> {
    /// Something happened on `adapter`: its processor looks what to do, unless it is at something.
    pub(crate) fn wake(&mut self, adapter: u16) {
        let index = usize::from(adapter);
        let now = self.now();
        loop {
            if self.adapters[index].processor.command.is_some() {
                return;
            }
            let registers = self.registers(adapter);
            let Some(command) = self.adapters[index].nic.step(now.0, &registers) else { break };
            if command.instructions == 0 {
                self.apply(adapter, command.action);
            } else {
                self.execute(adapter, command);
            }
        }
        self.look_again(adapter);
    }

    fn execute(&mut self, adapter: u16, command: Command) {
        let now = self.now();
        let processor = &mut self.adapters[usize::from(adapter)].processor;
        processor.flow = Flow::new(now, u64::from(command.instructions));
        processor.command = Some(command);
        processor.executed += u64::from(command.instructions);
        processor.since = now;
        self.set_processor(adapter);
    }

    /// The processor is through with a command's instructions, if the stamp is still its.
    pub(crate) fn executed(&mut self, adapter: u16, stamp: u32) -> Option<u64> {
        let now = self.now();
        let processor = &mut self.adapters[usize::from(adapter)].processor;
        if processor.stamp != stamp {
            return None;
        }
        let command = processor.command.take()?;
        processor.busy = processor.busy + now.since(processor.since);
        processor.stamp += 1;
        self.apply(adapter, command.action);
        self.wake(adapter);
        Some(3)
    }

    fn apply(&mut self, adapter: u16, action: Action) {
        let index = usize::from(adapter);
        match action {
            Action::Start(engine) => {
                let transfer = self.adapters[index].nic.active(engine).expect("it starts");
                self.start(adapter, *transfer);
            }
            Action::Deliver { slot, landed, .. } => {
                self.adapters[index].in_progress -= 1;
                self.check_delivery(adapter, slot, landed);
                self.delivered(adapter, slot, landed);
            }
            Action::Interrupt => self.interrupted(adapter),
            Action::Complete { slot, .. } => {
                self.adapters[index].in_progress -= 1;
                self.completed(adapter, slot);
            }
        }
    }

    fn start(&mut self, adapter: u16, transfer: Transfer) {
        self.check_start(adapter, &transfer);
        let cost = self.cost(adapter, &transfer);
        let state = self.adapters[usize::from(adapter)].engines.of(transfer.engine);
        if state.phase != Phase::Idle {
            self.wrong(adapter, "a busy engine was started");
        }
        *state = EngineState { transfer: Some(transfer), phase: Phase::Starting, moved: 0 };
        let engine = transfer.engine;
        if cost == Picos::ZERO {
            self.ready(adapter, engine);
        } else {
            self.at(self.now() + cost, Event::Ready { adapter, engine });
        }
    }

    /// Time before a transfer's first byte. Receiving follows the wire and has no cost of its own.
    fn cost(&self, adapter: u16, transfer: &Transfer) -> Picos {
        let state = &self.adapters[usize::from(adapter)];
        let bus = &self.hosts[usize::from(state.host)].bus;
        let setup = match transfer.engine {
            Engine::HostDma => bus.setup(direction(transfer.direction)),
            _ => Picos::ZERO,
        };
        match state.pricing {
            Pricing::Constants(_) if transfer.engine == Engine::NetReceive => Picos::ZERO,
            Pricing::Constants(constants) if self.in_a_stream(adapter, transfer) => constants.busy,
            Pricing::Constants(constants) => constants.alone,
            Pricing::Contention => setup,
        }
    }

    /// Whether another packet is queued or in progress on this adapter, or behind this one on the adapter it
    /// comes from: a receiver is in the stream that its sender sends, also when it is quick enough to have one
    /// packet at a time.
    fn in_a_stream(&self, adapter: u16, transfer: &Transfer) -> bool {
        let source = transfer.packet.source.0;
        let busy = |adapter: u16| self.adapters[usize::from(adapter)].in_progress > 1;
        let behind = self.adapters[usize::from(source)].in_progress > 0;
        busy(adapter)
            || busy(source)
            || source != adapter && behind && !self.comes_from(adapter, source)
    }

    fn comes_from(&self, adapter: u16, source: u16) -> bool {
        self.adapters[usize::from(adapter)].incoming == Some(source)
    }

    /// An engine's first byte can move.
    pub(crate) fn ready(&mut self, adapter: u16, engine: Engine) -> Option<u64> {
        let now = self.now();
        let state = self.adapters[usize::from(adapter)].engines.of(engine);
        state.phase = Phase::Moving;
        let transfer = state.transfer.expect("a transfer starts");
        match engine {
            Engine::HostDma => {
                let adapter_state = &mut self.adapters[usize::from(adapter)];
                adapter_state.engines.host = Flow::new(now, transfer.bytes as u64);
                let host = adapter_state.host;
                self.hosts[usize::from(host)].users.join(direction(transfer.direction));
                self.refresh_host(host);
            }
            Engine::NetSend => self.leave(adapter),
            Engine::NetReceive => {
                let sender = self.adapters[usize::from(adapter)].incoming;
                self.burst(sender.expect("what is received comes from somebody"));
            }
        }
        Some(4)
    }

    /// A host DMA transfer ends, if its rate has not changed since the event was made.
    pub(crate) fn host_dma_ends(&mut self, adapter: u16, stamp: u32) -> Option<u64> {
        let now = self.now();
        let state = &mut self.adapters[usize::from(adapter)];
        if state.engines.host_stamp != stamp || !state.engines.state(Engine::HostDma).is_moving() {
            return None;
        }
        assert!(state.engines.host.is_done(now), "a transfer ends when its bytes are through");
        state.engines.host_stamp += 1;
        let (host, transfer) = (state.host, state.engines.state(Engine::HostDma).transfer);
        let transfer = transfer.expect("a transfer ends");
        self.hosts[usize::from(host)].users.leave(direction(transfer.direction));
        self.finish(adapter, Engine::HostDma);
        self.refresh_host(host);
        self.wake(adapter);
        Some(5)
    }

    /// The engine is idle again and the firmware knows.
    pub(crate) fn finish(&mut self, adapter: u16, engine: Engine) {
        let now = self.now();
        let state = self.adapters[usize::from(adapter)].engines.of(engine);
        let transfer = std::mem::take(state).transfer.expect("a transfer ends");
        self.carry(adapter, &transfer);
        let state = &mut self.adapters[usize::from(adapter)];
        let dropped = transfer.kind == Kind::Discard && transfer.bytes > transfer.packet.payload;
        let leaves_nothing = dropped || !transfer.packet.is_last();
        if engine == Engine::NetReceive && transfer.last && leaves_nothing {
            state.in_progress -= 1;
        }
        state.nic.finished(now.0, engine);
    }

    /// The counter registers now.
    pub(crate) fn registers(&self, adapter: u16) -> Registers {
        let now = self.now();
        let engines = &self.adapters[usize::from(adapter)].engines;
        let host = engines.state(Engine::HostDma);
        let host = if host.is_moving() { engines.host.units(now) as usize } else { 0 };
        let send = if engines.bursting { engines.burst.units(now) as usize } else { 0 };
        let receive = self.burst_into(adapter).map_or(0, |burst| burst.units(now) as usize);
        let [_, sends, receives] = &engines.states;
        Registers { moved: [host, sends.moved + send, receives.moved + receive] }
    }

    /// The burst that comes in.
    fn burst_into(&self, adapter: u16) -> Option<&Flow> {
        let sender = self.adapters[usize::from(adapter)].incoming?;
        let engines = &self.adapters[usize::from(sender)].engines;
        engines.bursting.then_some(&engines.burst)
    }

    /// Works out when the firmware has to look at its engines again.
    pub(crate) fn look_again(&mut self, adapter: u16) {
        let state = &self.adapters[usize::from(adapter)];
        if state.processor.command.is_some() {
            return;
        }
        let host = state
            .nic
            .watch(Engine::HostDma)
            .filter(|_| state.engines.state(Engine::HostDma).is_moving());
        let host = host.map(|far| state.engines.host.time_of(far as u64));
        let receive = state.nic.watch(Engine::NetReceive).and_then(|far| {
            let burst = self.burst_into(adapter)?;
            let before = state.engines.state(Engine::NetReceive).moved;
            let far = (far as u64).checked_sub(before as u64)?;
            (far <= burst.total()).then(|| burst.time_of(far))
        });
        let times = [host, receive].into_iter().flatten();
        let next = times.min().filter(|time| *time != Picos::NEVER);
        self.look_at(adapter, next);
    }

    fn look_at(&mut self, adapter: u16, time: Option<Picos>) {
        let now = self.now();
        let state = &mut self.adapters[usize::from(adapter)];
        if state.look_time == time {
            return;
        }
        state.look_time = time;
        state.look += 1;
        let event = Event::Look { adapter, stamp: state.look };
        if let Some(time) = time {
            self.at(time.max(now), event);
        }
    }

    /// A transfer has come as far as the firmware waits for.
    pub(crate) fn look(&mut self, adapter: u16, stamp: u32) -> Option<u64> {
        let state = &mut self.adapters[usize::from(adapter)];
        if state.look != stamp {
            return None;
        }
        state.look += 1;
        self.wake(adapter);
        Some(6)
    }
}
