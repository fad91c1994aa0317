//! Cost of a read that memory answers: client, messages, service and checksum in one thread, and no allocation.

mod common;

use common::disk::Disk;
use common::{VOLUME, small};
use endpoint::{Frames, HeapRegion};
use node::rings::DiskDone;
use node::{Node, NodeConfig};
use rig::{Counting, carry};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use stripe::{Client, FileRef, serve};
use wire::{FileId, NodeId, Time};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn turn(now: &mut u64, client: &mut Node, server: &mut Node, disk: &mut Disk) {
    *now += 1000;
    client.step(Time(*now));
    carry(client, server);
    server.step(Time(*now));
    while let Some(request) = server.take_disk() {
        let result = disk.run(request.op);
        server.disk_done(DiskDone { ticket: request.ticket, result });
    }
    carry(server, client);
}

#[test]
fn a_hit_allocates_nothing() {
    let pool = || Frames::new(HeapRegion::new(4096));
    let mut config = NodeConfig::new(NodeId(1), 1, 1);
    config.disks = 1;
    let mut server = Node::new(config, pool());
    let mut client = Node::new(NodeConfig::new(NodeId(2), 1, 2), pool());
    let mut disk = Disk::new(1);
    let mut now = 1;
    let service = serve(server.cx(), small(NodeId(1)));
    while !service.is_ready() {
        turn(&mut now, &mut client, &mut server, &mut disk);
    }
    let layout = wire::Layout::new(1, 32 * 1024, &[NodeId(1)]).unwrap();
    let file = FileRef { file: FileId(9), layout, truncations: 0 };
    let reader = Client::new(client.cx(), VOLUME);
    let (done, cx) = (Rc::new(Cell::new(0u64)), client.cx().clone());
    let reads = done.clone();
    client.cx().spawn("reader", async move {
        let megabyte = cx.frames().alloc(1 << 20).unwrap();
        reader.write(&file, 0, cx.piece(megabyte.freeze()), stripe::Write::Unstable).await.unwrap();
        reader.commit(&file, &common::all_columns(&file)).await.unwrap();
        let mut into = cx.frames().alloc(8192).unwrap();
        loop {
            let offset = reads.get() * 37 % 128 * 8192;
            into = reader.read(&file, offset, into).await.unwrap();
            reads.set(reads.get() + 1);
        }
    });
    let mut until = |count: u64| {
        while done.get() < count {
            turn(&mut now, &mut client, &mut server, &mut disk);
        }
    };
    until(1000);
    let (before, start) = (Counting::in_process(), Instant::now());
    until(11_000);
    let (allocated, span) = (Counting::in_process() - before, start.elapsed());
    println!("{} ns per 8 KiB read, both sides and one copy", span.as_nanos() / 10_000);
    assert_eq!(allocated, 0, "allocations in 10,000 reads");
    assert!(service.counters().hits >= 10_000);
}
