//! A peer that says anything: no panic, no byte in frames it was not given, no call that hangs, nothing left behind.

use crate::common::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use wire::limits::BODY_BYTES;
use wire::{
    CallHeader, Channel, Control, ControlView, Flags, Header, Kind, NodeId, SessionEpoch, Token,
};

/// A message made of what was overheard (`base`), with some fields bent.
#[derive(Clone, Debug)]
struct Forgery {
    to: u16,
    base: prop::sample::Index,
    kind: Option<Kind>,
    source: Option<u16>,
    flags: Option<u8>,
    epoch: Option<u32>,
    sequence: Option<u32>,
    slot: Option<u16>,
    call: Option<u32>,
    status: Option<u16>,
    origin: Option<u16>,
    credits: Option<(u16, u16)>,
    token: Option<(u16, u64)>,
    payload: Option<(usize, u8, bool)>,
    channel: Option<u16>,
    body: Option<u64>,
    copies: usize,
    filling: u64,
}

fn kinds() -> impl Strategy<Value = Kind> {
    use Kind::*;
    prop::sample::select(&[Request, Reply, Done, Hello, Welcome, Reset, Credit][..])
}

/// Mostly leaves the field as it was, else something small, a border or anything.
fn bent<T: std::fmt::Debug + Clone + 'static>(
    values: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop_oneof![3 => Just(None), 1 => values.prop_map(Some)]
}

fn number32() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..4, any::<u32>(), Just(u32::MAX), Just(1 << 31), Just(1 << 16)]
}

fn number16() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..5, any::<u16>(), Just(u16::MAX)]
}

fn forgery() -> impl Strategy<Value = Forgery> {
    let first =
        (1u16..3, any::<prop::sample::Index>(), bent(kinds()), bent(0u16..5), bent(any::<u8>()));
    let second = (
        bent(number32()),
        bent(number32()),
        bent(number16()),
        bent(number32()),
        bent(number16()),
        bent(0u16..5),
    );
    let third = (
        bent((number16(), number16())),
        bent((number16(), any::<u64>())),
        bent((0usize..9000, 0u8..4, any::<bool>())),
        bent(0..Channel::COUNT as u16),
        bent(any::<u64>()),
    );
    (first, second, third, 0usize..3, 0u64..4).prop_map(|(a, b, c, copies, filling)| Forgery {
        to: a.0,
        base: a.1,
        kind: a.2,
        source: a.3,
        flags: a.4,
        epoch: b.0,
        sequence: b.1,
        slot: b.2,
        call: b.3,
        status: b.4,
        origin: b.5,
        credits: c.0,
        token: c.1,
        payload: c.2,
        channel: c.3,
        body: c.4,
        copies,
        filling,
    })
}

impl Forgery {
    fn packet(&self, overheard: &[Packet]) -> Packet {
        let base = (!overheard.is_empty()).then(|| &overheard[self.base.index(overheard.len())]);
        let (mut header, mut call, mut body) = match base {
            Some(packet) => {
                let view = ControlView::new(&packet.control).unwrap();
                (view.header(), view.call(), *view.body())
            }
            None => (
                Header::new(Kind::Hello, NodeId(3), NodeId(1)),
                CallHeader::default(),
                [0; BODY_BYTES],
            ),
        };
        header.destination = NodeId(self.to);
        header.kind = self.kind.unwrap_or(header.kind);
        header.source = self.source.map_or(header.source, NodeId);
        header.flags = self.flags.map_or(header.flags, Flags);
        header.epoch = self.epoch.map_or(header.epoch, SessionEpoch);
        header.sequence = self.sequence.unwrap_or(header.sequence);
        header.channel = self.channel.map_or(header.channel, Channel);
        header.token = self.token.map_or(header.token, |(index, key)| Token { index, key });
        (header.credit_slots, header.credit_frames) =
            self.credits.unwrap_or((header.credit_slots, header.credit_frames));
        call.slot = self.slot.unwrap_or(call.slot);
        call.call = self.call.unwrap_or(call.call);
        call.status = self.status.unwrap_or(call.status);
        call.origin = self.origin.map_or(call.origin, NodeId);
        if let Some(number) = self.body {
            body[..8].copy_from_slice(&number.to_le_bytes());
        }
        let (mut data, mut trailer) =
            base.map_or_else(Default::default, |p| (p.data.clone(), p.trailer.clone()));
        if let Some((bytes, words, right)) = self.payload {
            (data, trailer) = (vec![0xee; bytes], vec![0xee; usize::from(words) * 8]);
            header.payload_checksum = match (right, words) {
                (false, _) => 1,
                (true, 0) => wire::checksum::crc32c(&data),
                (true, _) => wire::checksum::crc32c(&trailer),
            };
        }
        (header.payload_bytes, header.trailer_words) =
            (data.len() as u32, (trailer.len() / 8) as u8);
        let mut control = Control::new(&header, &call);
        *control.body_mut() = body;
        control.seal();
        Packet { control, data, trailer }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_hostile_peer_breaks_nothing_but_its_own_calls(
        forgeries in prop::collection::vec(forgery(), 1..80),
        calls in prop::collection::vec((any::<bool>(), 0usize..9000, 0usize..9000), 1..12),
        forward: bool,
    ) {
        let mut net = Net::with((1..=3).map(|id| Peer::new(config(id, 1), 16)).collect());
        let overheard: Rc<RefCell<Vec<Packet>>> = Rc::default();
        let ear = overheard.clone();
        net.route = Box::new(move |packet| {
            ear.borrow_mut().push(packet.clone());
            SAFE
        });
        // Frames that belong to no call.
        let mut guards: Vec<_> = (1..=2).map(|id| net.peer(id).frames.alloc(64 * 4096).unwrap()).collect();
        guards.iter_mut().for_each(|guard| guard.fill(0x11));
        let mut made = BTreeSet::new();
        let mut calls = calls.into_iter().enumerate();
        for forgery in &forgeries {
            if let Some((ticket, (once, send_bytes, want_bytes))) = calls.next() {
                let deadline = net.now() + Duration::from_secs(3);
                let ask = Ask { ticket: ticket as u64, once, send_bytes, want_bytes, deadline, ..ASK };
                made.extend(net.call(1, ask).map(|_| ticket as u64));
            }
            let packet = forgery.packet(&overheard.borrow());
            for _ in 0..forgery.copies {
                net.inject(packet.clone(), Fate { filling: forgery.filling, ..SAFE });
            }
            net.step();
            answer(&mut net, forward);
        }
        for _ in 0..8000 {
            net.step();
            answer(&mut net, forward);
        }
        for guard in &guards {
            prop_assert!(guard.iter().all(|byte| *byte == 0x11), "bytes nobody gave away");
        }
        drop(guards);
        let ended: Vec<u64> = net.peer(1).ended.iter().map(|end| end.ticket).filter(|t| *t != u64::MAX).collect();
        prop_assert_eq!(ended.len(), made.len(), "every call ends once");
        prop_assert_eq!(ended.into_iter().collect::<BTreeSet<_>>(), made);
        for id in 1..=2 {
            prop_assert_eq!(net.peer(id).endpoint.replytokens(), 0);
        }
        prop_assert_eq!(net.peer(1).rpc.open_calls(), 0);
        for peer in net.peers {
            drop(peer.rpc); // kept replies
            prop_assert_eq!(peer.frames.free_pages(), PAGES, "frames of {}", peer.id);
        }
    }

    /// Nothing but noise, sealed or not as the link would have checked it.
    #[test]
    fn noise_breaks_nothing(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 128), 1..60)) {
        let mut net = Net::new(2);
        for bytes in messages {
            let mut control = Control(bytes.try_into().unwrap());
            control.0[0] = wire::control::VERSION;
            control.0[1] = 1 + control.0[1] % 7;
            control.0[3] %= 4;
            (control.0[6], control.0[7]) = (1, 0);
            (control.0[8], control.0[9]) = (control.0[8] % 32, 0);
            (control.0[25], control.0[26], control.0[27]) = (control.0[25] % 40, 0, 0);
            control.seal();
            let Ok(view) = ControlView::new(&control) else { continue };
            let header = view.header();
            let data = vec![1; header.payload_bytes as usize];
            net.inject(Packet { control, data, trailer: vec![2; header.trailer_bytes()] }, SAFE);
            net.step();
        }
        net.run(50);
        net.check_nothing_left();
    }
}

fn answer(net: &mut Net, forward: bool) {
    let now = net.now();
    for id in 1..=3 {
        let peer = net.peer(id);
        for asked in std::mem::take(&mut peer.asked) {
            if forward && id == 2 {
                peer.rpc.forward(now, &mut peer.endpoint, &asked.key, NodeId(3), &asked.body);
            } else {
                peer.reply(asked, 0, b"answer");
            }
        }
    }
}
