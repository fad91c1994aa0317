//! A node with disks and a store, run by a host until its task is done.

use endpoint::Frames;
use live::disk::{DiskConfig, Disks, Engine};
use live::host::Host;
use live::memory::MemfdRegion;
use live::meta::{Stores, load};
use live::wait::WaitPolicy;
use node::rings::{DiskFile, DiskId, DiskOp, DiskReply, MetaOp, StoreId};
use node::{Cx, Node, NodeConfig};
use tempfile::TempDir;
use wire::NodeId;

async fn work(cx: Cx) {
    let file = DiskFile::Log(1);
    for n in 0..100u8 {
        let mut frame = cx.frames().alloc(8192).unwrap();
        frame.fill(n);
        let offset = u64::from(n) * 8192;
        let write = DiskOp::Write { file, offset, data: frame.freeze(), durable: n % 10 == 0 };
        assert!(matches!(cx.disk(DiskId(0), write).await, Ok(DiskReply::Done)));
        let into = cx.frames().alloc(8192).unwrap();
        match cx.disk(DiskId(0), DiskOp::Read { file, offset, into }).await {
            Ok(DiskReply::Read { into, bytes: 8192 }) => assert!(into.iter().all(|b| *b == n)),
            other => panic!("{other:?}"),
        }
        cx.meta(StoreId::Names, MetaOp::Append { log: 1, bytes: vec![n] }).await.unwrap();
    }
    cx.meta(StoreId::Names, MetaOp::Sync { log: 1 }).await.unwrap();
}

#[test]
fn a_node_uses_its_disks_and_its_log() {
    for engine in [Engine::Auto, Engine::Threads] {
        let (disk, meta) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let frames = Frames::new(MemfdRegion::create("frames", 1024).unwrap());
        let config = NodeConfig { disks: 1, ..NodeConfig::new(NodeId(1), 1, 1) };
        let node = Node::new(config, frames.clone());
        let disks = Disks::open(&[DiskConfig::new(disk.path())], engine).unwrap();
        let stores = Stores::new([(StoreId::Names, meta.path().to_owned())]).unwrap();
        let cx = node.cx().clone();
        let mut host = Host::new(node, WaitPolicy::Adaptive).unwrap();
        host.add(disks).unwrap();
        host.add(stores).unwrap();
        host.block_on(work(cx)).unwrap();
        assert!(host.stop().unwrap());
        drop(host);
        let logs = load(meta.path(), StoreId::Names).unwrap().logs;
        assert_eq!(logs, [(1, (0..100).collect::<Vec<u8>>())]);
        assert_eq!(frames.free_pages(), frames.pages());
    }
}

/// Nothing ever comes: a turn that may wait would not return.
#[test]
fn a_turn_whose_time_has_passed_does_not_wait() {
    let frames = Frames::new(MemfdRegion::create("frames", 64).unwrap());
    let mut host =
        Host::new(Node::new(NodeConfig::new(NodeId(1), 1, 1), frames), WaitPolicy::Block).unwrap();
    for _ in 0..10 {
        host.turn_until(Some(live::clock::now())).unwrap();
    }
}
