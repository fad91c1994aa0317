//! Cost of a call in this layer: two nodes in one thread, a link that moves entries over, and no allocation.

use node::{Answer, Call, Node};
use rig::{Counting, carry};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use wire::{Channel, NodeId, Time};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `count` fetches of 8 KiB, `depth` at a time.
fn fetch(client: &mut Node, server: &mut Node, count: u64, depth: usize) {
    let left = Rc::new(Cell::new(count));
    let running = Rc::new(Cell::new(depth));
    for _ in 0..depth {
        let (cx, left, running) = (client.cx().clone(), left.clone(), running.clone());
        client.cx().spawn("fetcher", async move {
            let mut frame = cx.frames().alloc(8192);
            while left.get() > 0 {
                left.set(left.get() - 1);
                let into = cx.piece(frame.take().expect("it came back"));
                let (channel, to) = (Channel::USER, NodeId(2));
                let body = left.get().to_le_bytes();
                let (data, trailer) = (cx.pieces(), &[][..]);
                let call = Call {
                    to,
                    channel,
                    op: 1,
                    once: false,
                    deadline: None,
                    body: &body,
                    data,
                    trailer,
                    into,
                };
                let mut reply = cx.call(call).await.unwrap();
                assert_eq!(reply.bytes, 8192);
                frame = reply.data.pop();
            }
            running.set(running.get() - 1);
        });
    }
    let mut now = 1;
    while running.get() > 0 {
        now += 100;
        client.step(Time(now));
        carry(client, server);
        server.step(Time(now));
        carry(server, client);
    }
}

#[test]
fn bench_fetch_8k() {
    let count = if std::env::var_os("TRAPEZE_BENCH").is_some() { 1_000_000 } else { 2_000 };
    let (mut client, mut server) = (rig::node(1, 1), rig::node(2, 1));
    for _ in 0..64 {
        let cx = server.cx().clone();
        server.cx().spawn("server", async move {
            let block = cx.frames().copy_of(&[7; 8192]).unwrap();
            loop {
                let request = cx.accept(Channel::USER).await;
                let (data, trailer) = (&[block.clone()][..], &[1; 8][..]);
                cx.reply(request, Answer { data, trailer, ..Answer::DONE });
            }
        });
    }
    for depth in [1, 16] {
        fetch(&mut client, &mut server, 2_000, depth); // warm-up
        let (before, start) = (Counting::in_process(), Instant::now());
        fetch(&mut client, &mut server, count, depth);
        let allocations = Counting::in_process() - before;
        println!(
            "depth {depth}: {:.0} ns a fetch",
            start.elapsed().as_nanos() as f64 / count as f64
        );
        // starting the tasks allocates, the calls do not
        assert!(
            allocations < 8 * depth as u64 + 64,
            "{allocations} allocations in {count} fetches"
        );
    }
}
