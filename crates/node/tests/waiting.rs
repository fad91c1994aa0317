//! Waiting: no wake-up is lost, whichever side gives up; a dropped wait leaves nothing behind.

use node::rings::{FileOp, FileRequest};
use node::{Answer, Call, CallError, Cx, Notify, Semaphore, race};
use proptest::prelude::*;
use rig::{Net, node};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wire::{Channel, NodeId, Time};

fn request(front: u64) -> FileRequest {
    FileRequest { front, caller: Default::default(), op: FileOp::StatFs }
}

fn call(cx: &Cx) -> Call<'static> {
    Call {
        to: NodeId(2),
        channel: Channel::USER,
        op: 1,
        once: true,
        deadline: None,
        body: &[],
        data: cx.pieces(),
        trailer: &[],
        into: cx.pieces(),
    }
}

/// Of two tasks that wait for the front, the one that was to get the operation gives up: the other gets it.
#[test]
fn a_task_that_gives_up_the_front_leaves_the_operation_to_another() {
    for give_up_at_once in [true, false] {
        let mut node = node(1, 1);
        let cx = node.cx().clone();
        let stop = Rc::new(Notify::new(&cx));
        let (quitter, stopped) = (cx.clone(), stop.clone());
        cx.spawn("quitter", async move {
            race(stopped.wait(), quitter.front()).await;
        });
        let got = Rc::new(Cell::new(0));
        let (server, slot) = (cx.clone(), got.clone());
        cx.spawn("server", async move {
            loop {
                slot.set(server.front().await.front);
            }
        });
        node.step(Time(1));
        if give_up_at_once {
            stop.notify_all();
            node.step(Time(2));
        }
        node.front_push(request(7)).unwrap();
        stop.notify_all(); // the quitter was woken for the operation and finds that it has to stop
        node.step(Time(3));
        assert_eq!(got.get(), 7, "give up first: {give_up_at_once}");
    }
}

#[test]
fn the_time_that_a_link_is_down_begins_when_it_goes_down() {
    let mut net = Net::new(2);
    let cx = net.nodes[0].cx().clone();
    let ended = Rc::new(RefCell::new(None));
    net.turn();
    net.now = net.now + Duration::from_secs(3600); // nothing to do for an hour
    net.nodes[0].link_down(NodeId(2));
    let slot = ended.clone();
    cx.clone().spawn("caller", async move {
        *slot.borrow_mut() = Some(cx.call(call(&cx)).await.unwrap_err());
    });
    net.fate = Box::new(|_| (0, 0));
    net.run(9_000);
    assert_eq!(*ended.borrow(), None, "the link has ten seconds to come back");
    net.run(2_000);
    assert_eq!(*ended.borrow(), Some(CallError::PeerLost));
}

/// A node that is dropped drops what never ran and what waits for an end that will not come.
#[test]
fn a_dropped_node_keeps_nothing_alive() {
    let sentinel = Rc::new(());
    let mut first = node(1, 1);
    let cx = first.cx().clone();
    let (held, inner) = (sentinel.clone(), cx.clone());
    cx.call_then(call(&cx), move |_| drop((held, inner)));
    let (held, inner) = (sentinel.clone(), cx.clone());
    cx.spawn("runs", async move {
        inner.sleep(Duration::from_secs(1)).await;
        drop(held);
    });
    first.step(Time(1));
    let (held, inner) = (sentinel.clone(), cx.clone());
    cx.spawn("never runs", async move { drop((held, inner)) });
    drop(cx);
    drop(first);
    assert_eq!(Rc::strong_count(&sentinel), 1);
}

#[test]
fn waits_that_end_before_their_deadline_keep_no_tickets() {
    let mut node = node(1, 1);
    let cx = node.cx().clone();
    cx.clone().spawn("short waits", async move {
        for _ in 0..5000 {
            cx.with_deadline(Duration::from_secs(30), cx.yield_now()).await.unwrap();
        }
        cx.sleep(Duration::from_secs(60)).await;
    });
    let mut now = Time(1);
    for _ in 0..20 {
        node.step(now);
        now = now + Duration::from_millis(1);
    }
    assert_eq!(node.counters().tickets, 1, "the last sleep");
}

/// The end of a call that was not polled yet does not cancel the call that has its record now.
#[test]
fn a_future_dropped_after_its_end_cancels_nothing_else() {
    let mut net = Net::new(2);
    let (client, server) = (net.nodes[0].cx().clone(), net.nodes[1].cx().clone());
    server.clone().spawn("server", async move {
        loop {
            let request = server.accept(Channel::USER).await;
            server.reply(request, Answer::DONE);
        }
    });
    let done = Rc::new(Cell::new(false));
    let slot = done.clone();
    client.clone().spawn("client", async move {
        let ended = client.call(call(&client));
        client.sleep(Duration::from_millis(20)).await; // it has ended, and was not looked at
        for _ in 0..65_535 {
            let _cancelled = client.call(call(&client)); // the same record, until its generation comes again
        }
        let wanted = client.call(call(&client));
        drop(ended);
        wanted.await.unwrap();
        slot.set(true);
    });
    net.run(50);
    net.run(3000);
    assert!(done.get());
}

#[test]
fn one_step_takes_a_bounded_number_of_messages() {
    let mut net = Net::new(2);
    let (client, server) = (net.nodes[0].cx().clone(), net.nodes[1].cx().clone());
    let got = Rc::new(Cell::new(0));
    for _ in 0..8 {
        let (server, got) = (server.clone(), got.clone());
        server.clone().spawn("server", async move {
            loop {
                let request = server.accept(Channel::USER).await;
                got.set(got.get() + 1);
                server.reply(request, Answer::DONE);
                server.yield_now().await;
            }
        });
    }
    client.clone().spawn("client", async move {
        let calls: Vec<_> = (0..120).map(|_| client.call(call(&client))).collect();
        for call in calls {
            call.await.unwrap();
        }
    });
    for _ in 0..10 {
        let before = net.nodes[1].counters().rpc.executed;
        net.turn();
        let taken = net.nodes[1].counters().rpc.executed - before;
        assert!(taken <= node::limits::MESSAGES_PER_STEP as u64, "{taken} at once");
    }
    net.run(10);
    assert_eq!(got.get(), 120);
}

proptest! {
    /// Tasks take one to three permits, in the order of asking; some give up while they wait. None waits for ever,
    /// there are never more holders than permits, and all permits come back.
    #[test]
    fn a_semaphore_is_fair_and_loses_nothing(
        wants in prop::collection::vec((1usize..4, 0u64..6, 0u64..5), 1..40),
    ) {
        let mut node = node(1, 1);
        let cx = node.cx().clone();
        let semaphore = Rc::new(Semaphore::new(&cx, 3));
        let (held, order) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        for (index, (count, patience, hold)) in wants.iter().copied().enumerate() {
            let (cx, semaphore, held, order) = (cx.clone(), semaphore.clone(), held.clone(), order.clone());
            cx.clone().spawn("taker", async move {
                let wait = Duration::from_millis(if patience == 0 { 1_000_000 } else { patience });
                let Ok(permit) = cx.with_deadline(wait, semaphore.acquire(count)).await else { return };
                if patience == 0 {
                    order.borrow_mut().push(index);
                }
                held.set(held.get() + count);
                assert!(held.get() <= 3);
                cx.sleep(Duration::from_millis(hold)).await;
                held.set(held.get() - count);
                drop(permit);
            });
        }
        let mut now = Time(1);
        for _ in 0..1000 {
            node.step(now);
            now = now + Duration::from_millis(1);
        }
        prop_assert_eq!(node.tasks().count(), 0, "nobody waits any more");
        prop_assert_eq!(semaphore.available(), 3);
        let order = order.borrow();
        prop_assert!(order.is_sorted(), "in the order of asking: {:?}", order);
    }

    /// Servers that come, give up and come again: every request is served.
    #[test]
    fn dropped_accepts_lose_no_request(patience in prop::collection::vec(1u64..5, 1..6), requests in 1usize..60) {
        let mut net = Net::new(2);
        let (client, server) = (net.nodes[0].cx().clone(), net.nodes[1].cx().clone());
        for patience in patience {
            let server = server.clone();
            server.clone().spawn("server", async move {
                loop {
                    let patience = Duration::from_millis(patience);
                    if let Ok(request) = server.with_deadline(patience, server.accept(Channel::USER)).await {
                        server.reply(request, Answer::DONE);
                    }
                }
            });
        }
        let done = Rc::new(Cell::new(0));
        for _ in 0..requests {
            let (client, done) = (client.clone(), done.clone());
            client.clone().spawn("client", async move {
                client.call(call(&client)).await.unwrap();
                done.set(done.get() + 1);
            });
        }
        net.run(200);
        prop_assert_eq!(done.get(), requests);
    }
}
