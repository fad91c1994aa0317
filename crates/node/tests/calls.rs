//! Calls between nodes: what NetRPC promises, over a link that keeps nothing.

use node::{Answer, Call, CallError, Cx};
use proptest::prelude::*;
use rig::Net;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wire::{Channel, NodeId};

const ECHO: u16 = 1;
const COUNT: u16 = 2;
const NEVER: u16 = 3;
const PASS_ON: u16 = 4;

/// A service that echoes data, counts once-calls, never answers, or passes calls on to node 3.
fn serve(cx: &Cx, executed: Rc<Cell<u64>>) {
    for _ in 0..4 {
        let (cx, executed) = (cx.clone(), executed.clone());
        cx.clone().spawn("service", async move {
            loop {
                let mut request = cx.accept(Channel::USER).await;
                match request.op {
                    ECHO => {
                        let data: Vec<_> =
                            request.data.drain(..).map(|frame| frame.freeze()).collect();
                        let trailer = request.trailer().to_vec();
                        let body = request.body;
                        let answer =
                            Answer { body: &body, data: &data, trailer: &trailer, status: 0 };
                        cx.reply(request, answer);
                    }
                    COUNT => {
                        executed.set(executed.get() + 1);
                        let count = executed.get().to_le_bytes();
                        cx.reply(request, Answer::body(&count));
                    }
                    PASS_ON => {
                        let body = request.body;
                        cx.forward(request, NodeId(3), &body);
                    }
                    _ => drop(request),
                }
            }
        });
    }
}

/// As `serve`, for the node that calls are passed on to.
fn serve_last(cx: &Cx) {
    let cx = cx.clone();
    cx.clone().spawn("last", async move {
        loop {
            let request = cx.accept(Channel::USER).await;
            let frame = cx.frames().copy_of(b"from the third").unwrap();
            cx.reply(request, Answer { data: &[frame], ..Answer::DONE });
        }
    });
}

fn call<'a>(cx: &Cx, op: u16, body: &'a [u8]) -> Call<'a> {
    Call {
        to: NodeId(2),
        channel: Channel::USER,
        op,
        once: op == COUNT,
        deadline: Some(Duration::from_secs(30)),
        body,
        data: cx.pieces(),
        trailer: &[],
        into: cx.pieces(),
    }
}

/// Runs `task` on node 1 until it ends; its output.
fn run<T: 'static>(net: &mut Net, task: impl Future<Output = T> + 'static) -> T {
    let output = Rc::new(RefCell::new(None));
    let slot = output.clone();
    net.nodes[0].cx().spawn("test", async move {
        let value = task.await;
        *slot.borrow_mut() = Some(value);
    });
    net.until(|| output.borrow().is_some());
    output.take().unwrap()
}

async fn echo(cx: Cx, data: Vec<u8>, trailer: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let frame = cx.frames().copy_of(&data).unwrap();
    let into = cx.frames().alloc(data.len()).unwrap();
    let call = Call {
        data: cx.piece(frame),
        into: cx.piece(into),
        trailer: &trailer,
        ..call(&cx, ECHO, b"hello")
    };
    let reply = cx.call(call).await.unwrap().ok().unwrap();
    assert_eq!(&reply.body[..5], b"hello");
    (reply.data[0][..reply.bytes].to_vec(), reply.trailer().to_vec())
}

#[test]
fn data_goes_there_and_back() {
    let mut net = Net::new(2);
    serve(net.nodes[1].cx(), Rc::default());
    for bytes in [1, 4096, 8192, 1 << 20] {
        let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        let task = echo(net.nodes[0].cx().clone(), data.clone(), vec![7; 16]);
        let got = run(&mut net, task);
        // with a trailer the link leaves the data's check to the service
        assert_eq!(got, (data, vec![7; 16]));
    }
    net.run(10);
    assert_eq!(net.nodes[0].cx().frames().free_pages(), 2048);
    assert_eq!(net.nodes[1].cx().frames().free_pages(), 2048);
}

#[test]
fn a_call_to_oneself_works() {
    let mut net = Net::new(1);
    serve(net.nodes[0].cx(), Rc::default());
    let cx = net.nodes[0].cx().clone();
    let got = run(&mut net, async move {
        let into = cx.frames().alloc(64).unwrap();
        let data = cx.frames().copy_of(b"myself").unwrap();
        let to = NodeId(1);
        let call = Call { to, data: cx.piece(data), into: cx.piece(into), ..call(&cx, ECHO, &[]) };
        let reply = cx.call(call).await.unwrap();
        reply.data[0][..reply.bytes].to_vec()
    });
    assert_eq!(got, b"myself");
}

#[test]
fn sixty_four_calls_are_in_flight_from_one_task() {
    let mut net = Net::new(2);
    serve(net.nodes[1].cx(), Rc::default());
    let cx = net.nodes[0].cx().clone();
    let turns = Rc::new(Cell::new(0));
    let counted = turns.clone();
    let task = async move {
        let calls: Vec<_> = (0..64u8).map(|i| cx.call(call(&cx, ECHO, &[i]))).collect();
        for (i, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().body[0] as usize, i);
        }
        counted.set(cx.now().0 / 1_000_000);
    };
    run(&mut net, task);
    assert!(turns.get() < 8, "not one after the other: {} turns", turns.get());
}

#[test]
fn nobody_serves_refused_and_nobody_answers_deadline() {
    let mut net = Net::new(2);
    let cx = net.nodes[0].cx().clone();
    let error = run(&mut net, async move { cx.call(call(&cx, ECHO, &[])).await.unwrap_err() });
    assert_eq!(error, CallError::Refused);
    serve(net.nodes[1].cx(), Rc::default());
    net.turn();
    let cx = net.nodes[0].cx().clone();
    let error = run(&mut net, async move {
        let deadline = Some(Duration::from_millis(700));
        cx.call(Call { deadline, ..call(&cx, NEVER, &[]) }).await.unwrap_err()
    });
    assert_eq!(error, CallError::Deadline);
    let cx = net.nodes[0].cx().clone();
    let error = run(&mut net, async move {
        let (to, deadline) = (NodeId(9), Some(Duration::from_secs(3)));
        cx.call(Call { to, deadline, ..call(&cx, ECHO, &[]) }).await.unwrap_err()
    });
    assert_eq!(error, CallError::Deadline, "an absent peer");
    assert_eq!(net.nodes[0].counters().open_calls, 0);
}

#[test]
fn a_peer_that_stays_away_is_lost_before_the_deadline() {
    let mut net = Net::new(2);
    let cx = net.nodes[0].cx().clone();
    net.fate = Box::new(|_| (0, 0));
    net.turn();
    net.nodes[0].link_down(NodeId(2));
    let turned = Rc::new(RefCell::new(None));
    let slot = turned.clone();
    cx.clone().spawn("caller", async move {
        let deadline = None;
        let result = cx.call(Call { deadline, ..call(&cx, ECHO, &[]) }).await;
        *slot.borrow_mut() = Some(result.unwrap_err());
    });
    net.turn();
    net.nodes[0].link_down(NodeId(2));
    net.until(|| turned.borrow().is_some());
    assert_eq!(turned.take(), Some(CallError::PeerLost));
}

#[test]
fn a_dropped_call_frees_its_frames_and_late_data_writes_nothing() {
    let mut net = Net::new(2);
    serve(net.nodes[1].cx(), Rc::default());
    let cx = net.nodes[0].cx().clone();
    net.fate = Box::new(|_| (1, 20)); // the reply comes long after
    run(&mut net, async move {
        let (data, into) =
            (cx.frames().copy_of(&[9; 4096]).unwrap(), cx.frames().alloc(4096).unwrap());
        let call =
            cx.call(Call { data: cx.piece(data), into: cx.piece(into), ..call(&cx, ECHO, &[]) });
        assert!(cx.with_deadline(Duration::from_millis(70), call).await.is_err());
        let mut other = cx.frames().alloc(4096).unwrap();
        other.fill(1);
        cx.sleep(Duration::from_millis(300)).await;
        assert!(other.iter().all(|byte| *byte == 1));
    });
    net.run(300);
    let counters = net.nodes[0].counters();
    assert_eq!((counters.open_calls, counters.tickets), (0, 0));
    assert!(counters.rpc.stale_replies > 0, "the late reply is counted");
    assert_eq!(net.nodes[0].cx().frames().free_pages(), 2048);
}

#[test]
fn a_restarted_server_ends_once_calls_and_repeats_the_others() {
    let mut net = Net::new(2);
    serve(net.nodes[1].cx(), Rc::default());
    let cx = net.nodes[0].cx().clone();
    run(&mut net, async move { cx.call(call(&cx, ECHO, &[])).await.unwrap() });
    let cx = net.nodes[0].cx().clone();
    let results = Rc::new(RefCell::new(Vec::new()));
    for op in [ECHO, COUNT] {
        let (cx, results) = (cx.clone(), results.clone());
        cx.clone().spawn("caller", async move {
            let result = cx.call(call(&cx, op, &[])).await;
            results.borrow_mut().push((op, result.map(|reply| reply.status)));
        });
    }
    net.nodes[0].step(net.now); // the requests are on the ring when the server dies
    net.restart(2, 2);
    serve(net.nodes[1].cx(), Rc::default());
    net.until(|| results.borrow().len() == 2);
    results.borrow_mut().sort_by_key(|(op, _)| *op);
    assert_eq!(*results.borrow(), [(ECHO, Ok(0)), (COUNT, Err(CallError::PeerLost))]);
}

#[test]
fn the_third_node_answers_a_delegated_call_into_the_callers_frames() {
    let mut net = Net::new(3);
    serve(net.nodes[1].cx(), Rc::default());
    serve_last(net.nodes[2].cx());
    let cx = net.nodes[0].cx().clone();
    let got = run(&mut net, async move {
        let into = cx.frames().alloc(4096).unwrap();
        let at = into.offset();
        let reply =
            cx.call(Call { into: cx.piece(into), ..call(&cx, PASS_ON, &[]) }).await.unwrap();
        assert_eq!(reply.data[0].offset(), at);
        reply.data[0][..reply.bytes].to_vec()
    });
    assert_eq!(got, b"from the third");
    net.run(10);
    assert_eq!(net.nodes[1].counters().open_calls, 0, "the forwarder's record is done");
}

#[test]
fn a_continuation_runs_when_the_reply_is_there() {
    let mut net = Net::new(2);
    serve(net.nodes[1].cx(), Rc::default());
    let cx = net.nodes[0].cx().clone();
    let got = Rc::new(Cell::new(0));
    let seen = got.clone();
    cx.call_then(call(&cx, ECHO, &[5]), move |reply| seen.set(reply.unwrap().body[0]));
    net.until(|| got.get() == 5);
}

#[test]
fn requests_without_room_for_their_data_wait_and_are_executed_once() {
    let mut net = Net::new(2);
    let executed = Rc::new(Cell::new(0));
    serve(net.nodes[1].cx(), executed.clone());
    let hog: Vec<_> = std::iter::from_fn(|| net.nodes[1].cx().frames().alloc(1 << 20)).collect();
    let cx = net.nodes[0].cx().clone();
    let done = Rc::new(Cell::new(false));
    let slot = done.clone();
    cx.clone().spawn("caller", async move {
        let data = cx.frames().copy_of(&[3; 9000]).unwrap();
        cx.call(Call { data: cx.piece(data), ..call(&cx, COUNT, &[]) }).await.unwrap();
        slot.set(true);
    });
    net.run(200);
    assert!(!done.get());
    drop(hog);
    net.until(|| done.get());
    assert_eq!(executed.get(), 1);
    assert!(net.nodes[0].counters().rpc.overloads > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Over a link that loses, repeats and delays: every once-call is executed exactly once and answered with its
    /// own count, every echo brings its own data, and nothing is left behind.
    #[test]
    fn at_most_once_under_loss_duplication_and_reordering(
        fates in prop::collection::vec(
            prop_oneof![4 => Just((1, 0)), 1 => Just((0, 0)), 1 => Just((2, 1)), 2 => (1usize..2, 0usize..40)],
            40,
        ),
        calls in 1usize..30,
    ) {
        let mut net = Net::new(2);
        let executed = Rc::new(Cell::new(0));
        serve(net.nodes[1].cx(), executed.clone());
        net.fate = Box::new(move |n| fates[n as usize % fates.len()]);
        let counts = Rc::new(RefCell::new(Vec::new()));
        let echoed = Rc::new(Cell::new(0));
        for i in 0..calls {
            let (cx, counts, echoed) = (net.nodes[0].cx().clone(), counts.clone(), echoed.clone());
            cx.clone().spawn("caller", async move {
                if i % 2 == 0 {
                    let reply = cx.call(Call { deadline: None, ..call(&cx, COUNT, &[]) }).await.unwrap();
                    counts.borrow_mut().push(u64::from_le_bytes(reply.body[..8].try_into().unwrap()));
                } else {
                    let data: Vec<u8> = vec![i as u8; 100 * i];
                    assert_eq!(echo(cx, data.clone(), Vec::new()).await.0, data);
                }
                echoed.set(echoed.get() + 1);
            });
        }
        net.until(|| echoed.get() == calls);
        net.fate = Box::new(|_| (1, 0));
        net.run(100);
        let mut counts = counts.take();
        counts.sort_unstable();
        prop_assert_eq!(counts, (1..=executed.get()).collect::<Vec<_>>());
        prop_assert_eq!(executed.get() as usize, calls.div_ceil(2));
        prop_assert_eq!(net.nodes[0].cx().frames().free_pages(), 2048);
        prop_assert_eq!(net.nodes[0].counters().open_calls, 0);
    }
}

#[test]
fn a_trailer_travels_alone_and_every_client_is_another() {
    let mut net = Net::new(3);
    let cx = net.nodes[1].cx().clone();
    cx.clone().spawn("service", async move {
        loop {
            let request = cx.accept(Channel::USER).await;
            let mut trailer = request.trailer().to_vec();
            trailer.extend_from_slice(&request.client.to_le_bytes());
            cx.reply(request, Answer { trailer: &trailer, ..Answer::DONE });
        }
    });
    let hog: Vec<_> = std::iter::from_fn(|| net.nodes[1].cx().frames().alloc(4096)).collect();
    let mut incarnations = Vec::new();
    for node in [0, 2] {
        let cx = net.nodes[node].cx().clone();
        let answer = Rc::new(RefCell::new(None));
        let slot = answer.clone();
        cx.clone().spawn("caller", async move {
            let trailer = [9; 16];
            let reply = cx.call(Call { trailer: &trailer, ..call(&cx, COUNT, &[]) }).await.unwrap();
            *slot.borrow_mut() = Some(reply.trailer().to_vec());
        });
        net.until(|| answer.borrow().is_some());
        let answer = answer.take().unwrap();
        assert_eq!(answer[..16], [9; 16], "without a frame free at the server");
        incarnations.push(answer[16..].to_vec());
    }
    assert_ne!(incarnations[0], incarnations[1]);
    drop(hog);
}
