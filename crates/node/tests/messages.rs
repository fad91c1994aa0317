//! Messages that are no calls, beside calls on the same endpoint.

use node::limits::MESSAGES_MAX;
use node::{Answer, Call, Cx};
use rig::Net;
use std::time::Duration;
use wire::{CallHeader, Channel, Control, ControlView, Header, Kind, NodeId, Token};

fn post(cx: &Cx, to: u16, content: u8, data: &[u8], token: Token) {
    let message = cx.with_endpoint(|endpoint| endpoint.get_sendmsg()).unwrap();
    let mut header = Header::new(Kind::Message, cx.id(), NodeId(to));
    header.payload_bytes = data.len() as u32;
    header.token = token;
    let frame = (!data.is_empty()).then(|| cx.frames().copy_of(data).unwrap());
    header.payload_checksum = endpoint::payload_checksum(frame.as_slice(), &[]);
    let mut control = Control::new(&header, &CallHeader::default());
    control.content_mut().fill(content);
    control.seal();
    cx.with_endpoint(|endpoint| {
        endpoint.outgoing(&message).control = control;
        frame.into_iter().for_each(|frame| endpoint.attach_sendmsg(&message, frame, None));
    });
    cx.release_sendmsg(message, NodeId(to));
}

/// First byte of the content and the payload, of the oldest message.
fn take(cx: &Cx) -> Option<(u8, Vec<u8>)> {
    let message = cx.take_message()?;
    let taken = cx.with_endpoint(|endpoint| {
        let bytes = endpoint.get_payload_len(&message);
        let entry = endpoint.arrived(&message);
        let header = ControlView::new(&entry.control).unwrap().header();
        assert_eq!(
            (header.kind, entry.control.content()[79]),
            (Kind::Message, entry.control.content()[0])
        );
        let data: Vec<u8> = entry.landed.iter().flat_map(|f| f.iter().copied()).collect();
        (entry.control.content()[0], data[..bytes].to_vec())
    });
    cx.release_message(message);
    Some(taken)
}

#[test]
fn they_arrive_in_order_and_payloads_land_where_the_token_says() {
    let mut net = Net::new(2);
    let (one, two) = (net.nodes[0].cx().clone(), net.nodes[1].cx().clone());
    two.accept_messages();
    let frame = two.frames().alloc(4096).unwrap();
    let at = frame.offset();
    let token = two.with_endpoint(|endpoint| endpoint.get_replytoken(&mut vec![frame])).unwrap();
    post(&one, 2, 1, b"anywhere", Token::NONE);
    post(&one, 2, 2, b"there", token);
    post(&one, 2, 3, b"a token works once", token);
    net.run(5);
    assert_eq!(take(&two), Some((1, b"anywhere".to_vec())));
    let message = two.take_message().unwrap();
    let landed = two.with_endpoint(|endpoint| endpoint.detach_rcvmsg(&message).next()).unwrap();
    assert_eq!((landed.offset(), &landed[..5]), (at, &b"there"[..]));
    two.release_message(message);
    assert_eq!(take(&two), Some((3, vec![])), "the message, not the payload");
    assert_eq!(take(&two), None);
    post(&two, 2, 4, b"myself", Token::NONE);
    net.run(1);
    assert_eq!(take(&two), Some((4, b"myself".to_vec())));
}

/// Without a reader half of the ring fills up, the rest is dropped, and calls go on.
#[test]
fn a_reader_that_is_gone_stops_no_call() {
    let mut net = Net::new(2);
    let (one, two) = (net.nodes[0].cx().clone(), net.nodes[1].cx().clone());
    post(&one, 2, 0, b"", Token::NONE);
    net.run(5);
    assert_eq!((two.messages_waiting(), two.messages_dropped()), (0, 1), "nobody asked");
    two.accept_messages();
    for round in 0..4 {
        (0..MESSAGES_MAX / 2).for_each(|_| post(&one, 2, round, b"", Token::NONE));
        net.run(10);
    }
    assert_eq!(two.messages_waiting(), MESSAGES_MAX);
    assert_eq!(two.messages_dropped(), 1 + MESSAGES_MAX as u64);
    let server = two.clone();
    two.spawn("service", async move {
        let request = server.accept(Channel::USER).await;
        server.reply(request, Answer::body(&[7]));
    });
    let call = Call {
        to: NodeId(2),
        channel: Channel::USER,
        op: 1,
        once: false,
        deadline: Some(Duration::from_secs(1)),
        body: &[],
        data: one.pieces(),
        trailer: &[],
        into: one.pieces(),
    };
    let answered = std::rc::Rc::new(std::cell::Cell::new(0));
    let slot = answered.clone();
    one.call_then(call, move |reply| slot.set(reply.unwrap().body[0]));
    net.run(50);
    assert_eq!(answered.get(), 7);
}
