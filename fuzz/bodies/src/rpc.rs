//! NetRPC under messages that a hostile peer made, sealed as the link would have checked them.

use crate::control_of;
use endpoint::{Endpoint, Frames, HeapRegion, Placement};
use netrpc::{Config, Event, Rpc, Start};
use std::time::Duration;
use wire::limits::CONTROL_BYTES;
use wire::{Channel, ControlView, NodeId, Time};

const PAGES: usize = 64;
const STEP_BYTES: usize = CONTROL_BYTES + 2;

/// Messages of 130 bytes: the control message, whether to seal it, and whether its payload is whole. A call waits
/// all the while; at its deadline nothing of it is left.
pub fn rpc(bytes: &[u8]) {
    let frames = Frames::new(HeapRegion::new(PAGES));
    let mut endpoint = Endpoint::with_entries(frames.clone(), 7, 8);
    let mut rpc = Rpc::new(Config::new(NodeId(1), 1, 1));
    let mut now = Time(0);
    let start = Start {
        to: NodeId(2),
        channel: Channel::USER,
        op: 1,
        once: bytes.first().is_some_and(|byte| byte % 2 == 0),
        deadline: now + Duration::from_secs(60),
        body: &[],
        trailer: &[],
        ticket: 1,
    };
    let mut into: Vec<_> = frames.alloc(4096).into_iter().collect();
    rpc.call(now, &mut endpoint, &start, &mut Vec::new(), &mut into).expect("the first call");
    let mut ended = 0;
    for step in bytes.chunks(STEP_BYTES).take(256) {
        now = now + Duration::from_millis(50);
        arrive(&mut endpoint, step);
        ended += turn(now, &mut rpc, &mut endpoint);
    }
    ended += turn(start.deadline + Duration::from_secs(1), &mut rpc, &mut endpoint);
    assert_eq!(ended, 1, "the call ends once");
    assert_eq!((rpc.open_calls(), endpoint.replytokens()), (0, 0));
    drop(rpc);
    assert_eq!(frames.free_pages(), PAGES);
}

fn arrive(endpoint: &mut Endpoint, step: &[u8]) {
    let control = control_of(step);
    let Ok(view) = ControlView::new(&control) else { return };
    let header = view.header();
    match endpoint.place(&control, &header) {
        Placement::Fill(message) if step.last().is_some_and(|byte| byte % 4 == 3) => {
            endpoint.abandon(message);
        }
        Placement::Fill(message) | Placement::Skip(message) => endpoint.deliver(message, &header),
        Placement::Wait => {}
    }
}

/// Handles what arrived, answers requests, takes what is sent; how many calls have ended.
fn turn(now: Time, rpc: &mut Rpc, endpoint: &mut Endpoint) -> usize {
    let mut events = Vec::new();
    while let Some(message) = endpoint.get_rcvmsg() {
        events.extend(rpc.handle_message(now, endpoint, message));
    }
    rpc.handle_timeout(now, endpoint);
    events.extend(std::iter::from_fn(|| rpc.poll_event()));
    let mut ended = 0;
    for event in events {
        match event {
            Event::Request { key, message } => {
                endpoint.release_rcvmsg(message);
                rpc.reply(endpoint, &key, 0, b"done", &[], &[]);
            }
            Event::Reply { ticket, message, .. } => {
                endpoint.release_rcvmsg(message);
                ended += usize::from(ticket == 1);
            }
            Event::Failed { ticket, .. } => ended += usize::from(ticket == 1),
        }
    }
    while let Some(message) = endpoint.next_send() {
        endpoint.transmitted(message);
    }
    ended
}
