//! NetRPC's guarantees, over links with faults that proptest chooses.

use crate::common::*;
use netrpc::CallError;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::{Channel, NodeId, Time};

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(SAFE),
        1 => Just(LOST),
        1 => Just(Fate { copies: 2, ..SAFE }),
        1 => (0u64..40).prop_map(|late| Fate { late, ..SAFE }),
        1 => (0u64..400).prop_map(|late| Fate { late, copies: 2, ..SAFE }),
        1 => (1u64..10, 1usize..3).prop_map(|(filling, copies)| Fate { filling, copies, ..SAFE }),
        1 => (0u64..5).prop_map(|filling| Fate { filling, broken: true, ..SAFE }),
        1 => Just(Fate { bent: true, ..SAFE }),
    ]
}

fn cycle(fates: Vec<Fate>) -> Route {
    let mut n = 0;
    Box::new(move |_| {
        n += 1;
        fates[n % fates.len()]
    })
}

#[derive(Clone, Debug)]
enum Action {
    Call {
        once: bool,
        control: bool,
        send: usize,
        want: usize,
        deadline: Option<u64>,
    },
    Cancel(prop::sample::Index),
    Run(u64),
    /// The server answers what waits there, newest first or oldest first.
    Answer {
        newest_first: bool,
    },
    Hog,
    FreeMemory,
    RestartServer,
    RestartClient,
    LinkDown,
    LinkUp,
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = || prop_oneof![Just(0usize), 1usize..20_000];
    prop_oneof![
        8 => (any::<(bool, bool)>(), bytes(), bytes(), prop::option::of(0u64..3000))
            .prop_map(|((once, control), send, want, deadline)| Action::Call { once, control, send, want, deadline }),
        1 => any::<prop::sample::Index>().prop_map(Action::Cancel),
        6 => prop_oneof![0u64..6, 200u64..600].prop_map(Action::Run),
        6 => any::<bool>().prop_map(|newest_first| Action::Answer { newest_first }),
        1 => Just(Action::Hog),
        2 => Just(Action::FreeMemory),
        1 => Just(Action::RestartServer),
        1 => Just(Action::RestartClient),
        1 => Just(Action::LinkDown),
        1 => Just(Action::LinkUp),
    ]
}

/// The model: which calls were made, executed and ended.
struct Story {
    net: Net,
    calls: BTreeMap<u64, (Ask, netrpc::CallId)>,
    executed: BTreeMap<u64, u32>,
    ended: BTreeSet<u64>,
    /// Calls of which no end may come: cancelled, or their client died.
    silent: BTreeSet<u64>,
    memory: Vec<endpoint::FrameMut>,
    incarnations: [u64; 2],
}

const ENTRIES: usize = 24;

impl Story {
    fn new(fates: Vec<Fate>) -> Story {
        let peers = (1..=2).map(|id| Peer::new(config(id, 1), ENTRIES)).collect();
        let mut net = Net::with(peers);
        net.route = cycle(fates);
        Story {
            net,
            calls: BTreeMap::new(),
            executed: BTreeMap::new(),
            ended: BTreeSet::new(),
            silent: BTreeSet::new(),
            memory: Vec::new(),
            incarnations: [1, 1],
        }
    }

    fn act(&mut self, action: &Action) {
        let now = self.net.now();
        match action {
            Action::Call { once, control, send, want, deadline } => {
                let ticket = self.calls.len() as u64;
                let deadline = deadline.map_or(Time::NEVER, |ms| now + Duration::from_millis(ms));
                let channel = if *control { Channel::MEMBERS } else { Channel::USER };
                let (send_bytes, want_bytes, once) = (*send, *want, *once);
                let ask = Ask { to: 2, channel, once, deadline, send_bytes, want_bytes, ticket };
                if let Some(id) = self.net.call(1, ask) {
                    self.calls.insert(ticket, (ask, id));
                }
            }
            Action::Cancel(which) if !self.calls.is_empty() => {
                let ticket = which.index(self.calls.len()) as u64;
                let Some(&(_, id)) = self.calls.get(&ticket) else { return };
                if !self.ended.contains(&ticket) && self.silent.insert(ticket) {
                    self.net.cancel(1, id);
                }
            }
            Action::Cancel(_) => {}
            Action::Run(turns) => (0..*turns).for_each(|_| self.step()),
            Action::Answer { newest_first } => self.answer(*newest_first),
            Action::Hog => {
                let frames = self.net.peer(2).frames.clone();
                self.memory.extend(std::iter::from_fn(|| frames.alloc(1)));
            }
            Action::FreeMemory => self.memory.clear(),
            Action::RestartServer => self.restart(2),
            Action::RestartClient => {
                let open = self.calls.keys().filter(|ticket| !self.ended.contains(ticket));
                self.silent.extend(open);
                self.restart(1);
            }
            Action::LinkDown => self.net.peer(1).rpc.link_down(now, NodeId(2)),
            Action::LinkUp => {
                let peer = self.net.peer(1);
                peer.rpc.link_up(now, &mut peer.endpoint, NodeId(2));
            }
        }
    }

    fn restart(&mut self, id: u16) {
        self.memory.clear();
        let incarnation = &mut self.incarnations[usize::from(id) - 1];
        *incarnation += 1;
        self.net.restart(id, *incarnation, ENTRIES);
    }

    fn step(&mut self) {
        self.net.step();
        for asked in &mut self.net.peer(2).asked.iter_mut().filter(|asked| asked.body[63] == 0) {
            asked.body[63] = 1; // looked at
            let ticket = u64::from_le_bytes(asked.body[..8].try_into().unwrap());
            let (ask, _) = self.calls[&ticket];
            assert_eq!(asked.data, vec![ticket as u8; ask.send_bytes], "the request's own data");
            let count = self.executed.entry(ticket).or_default();
            *count += 1;
            assert!(!ask.once || *count == 1, "call {ticket} was executed twice");
        }
        for end in std::mem::take(&mut self.net.peer(1).ended) {
            assert!(!self.silent.contains(&end.ticket), "call {} was given up", end.ticket);
            assert!(self.ended.insert(end.ticket), "call {} ended twice", end.ticket);
            if end.result.is_ok() {
                let (ask, _) = self.calls[&end.ticket];
                assert!(self.executed.contains_key(&end.ticket));
                assert_eq!(end.data, vec![end.ticket as u8 ^ 0xff; ask.want_bytes], "its own data");
            } else {
                assert_ne!(end.result, Err(CallError::Fatal), "nobody broke the protocol");
            }
        }
    }

    fn answer(&mut self, newest_first: bool) {
        let mut asked = std::mem::take(&mut self.net.peer(2).asked);
        if newest_first {
            asked.reverse();
        }
        for asked in asked {
            if asked.body[63] == 0 {
                self.net.peer(2).asked.push(asked); // not looked at yet
                continue;
            }
            let ticket = u64::from_le_bytes(asked.body[..8].try_into().unwrap());
            let data = vec![ticket as u8 ^ 0xff; self.calls[&ticket].0.want_bytes];
            // Without memory for an answer the caller asks again.
            let frame = self.net.peer(2).frames.alloc_exact(data.len().max(1));
            match frame {
                Some(frame) => {
                    drop(frame);
                    self.net.peer(2).reply(asked, 0, &data);
                }
                None => self.net.peer(2).asked.push(asked),
            }
        }
    }

    /// With memory and a safe link again: every call ends, and nothing is left.
    fn finish(mut self) {
        self.memory.clear();
        self.net.route = Box::new(|_| SAFE);
        self.act(&Action::LinkUp);
        for _ in 0..20_000 {
            self.step();
            self.answer(false);
            if self.ended.len() + self.silent.len() == self.calls.len() {
                break;
            }
        }
        for ticket in self.calls.keys() {
            assert!(
                self.ended.contains(ticket) || self.silent.contains(ticket),
                "call {ticket} hangs"
            );
        }
        (0..500).for_each(|_| self.step());
        self.answer(false);
        (0..20).for_each(|_| self.step());
        let client = self.net.peer(1);
        assert_eq!(client.rpc.open_calls(), 0);
        assert_eq!(client.endpoint.replytokens(), 0, "tokens left");
        assert_eq!(client.frames.free_pages(), PAGES, "frames left at the client");
        assert_eq!(client.rpc.under_way(NodeId(2)), 0, "slots left");
        let server = self.net.peers.pop().unwrap();
        drop(server.rpc); // and with it the kept replies
        assert_eq!(server.frames.free_pages(), PAGES, "frames left at the server");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Loss, repetition, reordering, damage, broken transfers, lack of memory, full rings, restarts of both sides and
    /// cancellation: a once-call is executed at most once, every call ends exactly once, with its own data or an
    /// error, and nothing is left behind.
    #[test]
    fn at_most_once_and_every_call_ends(
        fates in prop::collection::vec(fate(), 1..60), actions in prop::collection::vec(action(), 1..60),
    ) {
        let mut story = Story::new(fates);
        actions.iter().for_each(|action| story.act(action));
        story.finish();
    }

    /// Grants of the server are never exceeded: slots of every client, pages of every client (but for one larger call
    /// that goes alone), and all pages together; and control calls get through beside any bulk load. A payload wants
    /// one run of pages, and small ones may lie in all of them: then its caller tries again.
    #[test]
    fn credits_are_never_exceeded(
        slots in 1u16..20,
        loads in prop::collection::vec((1u16..4, prop_oneof![Just(0usize), 1usize..1 << 20], any::<bool>()), 1..120),
        answers in prop::collection::vec(0usize..4, 1..50),
    ) {
        run_loads(slots, loads, &answers);
    }

    /// A page that was granted is there.
    #[test]
    fn within_its_credits_nobody_is_refused(
        slots in 1u16..20,
        loads in prop::collection::vec((1u16..4, 0usize..4097, any::<bool>()), 1..120),
        answers in prop::collection::vec(0usize..4, 1..50),
    ) {
        prop_assert_eq!(run_loads(slots, loads, &answers), 0);
    }

    /// Delegated calls through one, two or three forwarders end in the caller's frames, and every forwarder's record
    /// ends too.
    #[test]
    fn delegation_chains_end_everywhere(
        fates in prop::collection::vec(fate(), 1..40), length in 3u16..6, calls in 1u64..12,
    ) {
        let mut net = Net::new(length);
        net.route = cycle(fates);
        for ticket in 0..calls {
            net.call(1, Ask { ticket, once: false, want_bytes: 100, ..ASK });
        }
        let mut ended = BTreeSet::new();
        for turn in 0..30_000 {
            if turn == 3000 { net.route = Box::new(|_| SAFE) }
            net.step();
            pass_on(&mut net, length);
            for end in std::mem::take(&mut net.peer(1).ended) {
                prop_assert_eq!(end.result, Ok(0));
                prop_assert!(ended.insert(end.ticket));
                prop_assert_eq!(end.data, vec![end.ticket as u8; 100]);
            }
            if turn > 3000 && net.peers.iter().all(|peer| peer.rpc.open_calls() == 0) { break }
        }
        prop_assert_eq!(ended.len() as u64, calls);
        net.route = Box::new(|_| SAFE);
        (0..500).for_each(|_| { net.step(); pass_on(&mut net, length) });
        net.check_nothing_left();
    }
}

/// Runs these calls of three clients, answered so many at a time; how often the server had no room for a request.
fn run_loads(slots: u16, loads: Vec<(u16, usize, bool)>, answers: &[usize]) -> u64 {
    const BUDGET: usize = 768; // 256 for each of three clients, within the server's 1024 pages
    let mut configs: Vec<_> = (1..=4).map(|id| config(id, 1)).collect();
    (configs[3].slots, configs[3].budget_pages) = (slots, BUDGET);
    let mut net = Net::with(configs.into_iter().map(|config| Peer::new(config, 512)).collect());
    for round in 0..2 {
        (1..=3).for_each(|id| {
            net.call(id, Ask { to: 4, ticket: round, ..ASK });
        });
        let mut all = |net: &mut Net| (1..=3).all(|id| net.peer(id).ended.len() > round as usize);
        assert!(net.serve(100, |_| Vec::new(), &mut all));
    }
    let mut loads = loads.into_iter();
    let mut made = [0; 3];
    let (mut ticket, mut idle) = (10, 0);
    for turn in 0..4000 {
        if let Some((from, send_bytes, control)) = loads.next() {
            let channel = if control { Channel::MEMBERS } else { Channel::USER };
            let call = net.call(from, Ask { to: 4, channel, send_bytes, ticket, ..ASK });
            made[usize::from(from) - 1] += usize::from(call.is_some());
            ticket += 1;
        } else {
            idle += 1;
        }
        net.step();
        check_credits(&mut net, slots, BUDGET);
        let count = if idle > 200 { usize::MAX } else { answers[turn % answers.len()] };
        for _ in 0..count {
            let server = net.peer(4);
            if server.asked.is_empty() {
                break;
            }
            let asked = server.asked.remove(0);
            server.reply(asked, 0, &[]);
        }
        if idle > 200 && (1..=3).all(|id| net.peer(id).rpc.open_calls() == 0) {
            break;
        }
    }
    for id in 1..=3u16 {
        assert_eq!(net.peer(id).ended.len(), made[usize::from(id) - 1] + 2);
    }
    let overloads = net.peer(4).rpc.counters().overloads;
    net.check_nothing_left();
    overloads
}

fn check_credits(net: &mut Net, slots: u16, budget: usize) {
    for id in 1..=3 {
        assert!(net.peer(id).rpc.under_way(NodeId(4)) <= slots.into());
        let asked = net.peer(4).asked.iter().filter(|asked| asked.key.source == NodeId(id));
        let pages: Vec<usize> = asked.map(|asked| run_pages(asked.data.len())).collect();
        assert!(pages.len() <= slots.into(), "more calls than granted at the server");
        let with_data = pages.iter().filter(|pages| **pages > 0).count();
        assert!(pages.iter().sum::<usize>() <= 256 || with_data == 1, "more pages than granted");
    }
    let server = net.peer(4);
    assert!(PAGES - server.frames.free_pages() <= budget, "more pages than the budget");
}

fn run_pages(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { bytes.div_ceil(4096).next_power_of_two() }
}

/// All nodes but the first and the last pass their requests on; the last answers.
fn pass_on(net: &mut Net, length: u16) {
    let now = net.now();
    for id in 2..=length {
        let peer = net.peer(id);
        for asked in std::mem::take(&mut peer.asked) {
            if id == length {
                let data = vec![asked.body[0]; 100];
                peer.reply(asked, 0, &data);
            } else {
                let next = NodeId(id + 1);
                peer.rpc.forward(now, &mut peer.endpoint, &asked.key, next, &asked.body);
            }
        }
    }
}

/// A call with data both ways, given up after each number of turns, over links with each kind of trouble.
#[test]
fn a_call_may_be_given_up_at_every_point() {
    let troubles = [
        SAFE,
        LOST,
        Fate { copies: 2, ..SAFE },
        Fate { filling: 3, ..SAFE },
        Fate { filling: 3, copies: 2, ..SAFE },
        Fate { filling: 2, broken: true, ..SAFE },
        Fate { bent: true, ..SAFE },
    ];
    for (trouble, once, turns) in troubles
        .into_iter()
        .flat_map(|trouble| [true, false].map(|once| (trouble, once)))
        .flat_map(|(trouble, once)| (0..24).map(move |turns| (trouble, once, turns)))
    {
        let mut net = Net::new(2);
        let mut packets = 0;
        net.route = Box::new(move |_| {
            packets += 1;
            if packets > 2 && packets % 2 == 0 { trouble } else { SAFE }
        });
        let ask = Ask { ticket: 1, once, send_bytes: 5000, want_bytes: 5000, ..ASK };
        let id = net.call(1, ask).unwrap();
        net.serve(turns, |_| vec![7; 5000], |_| false);
        let ended = net.peer(1).ended.len();
        net.cancel(1, id);
        net.route = Box::new(|_| SAFE);
        net.call(1, Ask { ticket: 2, ..ask });
        net.serve(3000, |_| vec![7; 5000], |net| net.peer(1).ended.len() > ended);
        net.serve(300, |_| vec![7; 5000], |_| false);
        let tickets: Vec<u64> = net.peer(1).ended.iter().map(|end| end.ticket).collect();
        assert_eq!(tickets[ended..], [2], "{trouble:?} {once} {turns}");
        assert_eq!(net.peer(1).endpoint.replytokens(), 0);
        assert_eq!(net.peer(1).frames.free_pages(), PAGES, "{trouble:?} {once} {turns}");
    }
}

/// Sequence numbers go round: the slot after 2^32 calls is as good as a new one. The numbers are private, so a server
/// is shown them directly.
#[test]
fn sequence_numbers_wrap() {
    use wire::{CallHeader, ControlView, Header};
    let mut net = Net::new(2);
    let seen: Rc<RefCell<Option<(Header, CallHeader)>>> = Rc::default();
    let slot = seen.clone();
    net.route = Box::new(move |packet| {
        if is_request(packet) {
            let call = ControlView::new(&packet.control).unwrap().call();
            *slot.borrow_mut() = Some((packet.header(), call));
        }
        SAFE
    });
    net.call(1, Ask { ticket: 1, ..ASK });
    net.run(4);
    let (header, call) = seen.borrow().unwrap();
    let mut send = |sequence: u32| {
        let mut control = wire::Control::new(&Header { sequence, ..header }, &call);
        control.seal();
        net.inject(Packet { control, data: Vec::new(), trailer: Vec::new() }, SAFE);
        let before = net.peer(2).rpc.counters().executed;
        net.run(2);
        net.peer(2).rpc.counters().executed > before
    };
    assert!(send(1 << 30));
    assert!(send((1 << 30) + (1 << 30)));
    assert!(send(3 << 30));
    assert!(send(u32::MAX));
    assert!(!send(u32::MAX), "again");
    assert!(send(0));
    assert!(send(1));
    assert!(!send(0), "old");
    assert!(!send(u32::MAX), "old");
}
