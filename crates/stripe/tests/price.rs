//! What a read that memory answers costs: client, messages, service and checksum in one thread, and no allocation.

mod common;

use common::disk::Disk;
use common::{VOLUME, small};
use endpoint::{Frames, HeapRegion};
use node::rings::DiskDone;
use node::{Node, NodeConfig};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use stripe::{Client, FileRef, serve};
use wire::{ControlView, FileId, NodeId, Time};

/// Counts what the program allocates.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Moves every message from one node to the other: one copy of the data, as a shared-memory link does.
fn carry(from: &Node, to: &Node) {
    from.with_endpoint(|source| {
        to.with_endpoint(|target| {
            while let Some(message) = source.next_send() {
                let entry = source.outgoing(&message);
                let header = ControlView::new(&entry.control).unwrap().header();
                let endpoint::Place::Fill(arrived) = target.place(&entry.control, &header) else {
                    panic!("there is room");
                };
                let landed = target.arrived(&arrived);
                let trailer = header.trailer_bytes();
                landed.trailer[..trailer].copy_from_slice(&entry.trailer[..trailer]);
                let (mut frame, mut at) = (0, 0);
                for piece in entry.payload.iter() {
                    let mut piece = &piece[..];
                    while !piece.is_empty() {
                        let into = &mut landed.landed[frame][at..];
                        let count = piece.len().min(into.len());
                        into[..count].copy_from_slice(&piece[..count]);
                        piece = &piece[count..];
                        at += count;
                        if at == landed.landed[frame].len() {
                            (frame, at) = (frame + 1, 0);
                        }
                    }
                }
                target.deliver(arrived, &header);
                source.transmitted(message);
            }
        });
    });
}

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
        reader.write(&file, 0, cx.piece(megabyte.freeze()), None).await.unwrap();
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
    let (before, start) = (ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
    until(11_000);
    let (allocated, span) = (ALLOCATIONS.load(Ordering::Relaxed) - before, start.elapsed());
    println!("{} ns per 8 KiB read, both sides and one copy", span.as_nanos() / 10_000);
    assert_eq!(allocated, 0, "allocations in 10,000 reads");
    assert!(service.counters().hits >= 10_000);
}
