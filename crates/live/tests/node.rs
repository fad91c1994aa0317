//! A node with disks and a store, run by a loop such as a host's until its task is done.

use endpoint::Frames;
use live::clock;
use live::device::Poller;
use live::disk::{DiskConfig, Disks, Engine};
use live::host::Device;
use live::memory::MemfdRegion;
use live::meta::{Stores, load};
use node::rings::{DiskFile, DiskId, DiskOp, DiskReply, MetaOp, StoreId};
use node::{Cx, Node, NodeConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;
use wire::{NodeId, Time};

struct Loop {
    node: Node,
    devices: Vec<Box<dyn Device>>,
    poller: Poller,
}

impl Loop {
    fn turn(&mut self) {
        let mut moved = false;
        for device in &mut self.devices {
            moved |= device.poll(&mut self.node, clock::now()).unwrap();
        }
        let next = self.node.step(clock::now());
        let mut awake = moved;
        self.devices.iter_mut().for_each(|device| {
            awake |= device.poll(&mut self.node, clock::now()).unwrap() || device.before_sleep();
        });
        if !awake {
            let span = next.unwrap_or(Time::NEVER).since(clock::now()).min(Duration::from_secs(5));
            self.poller.wait(Some(span), &mut Vec::new()).unwrap();
        }
        self.devices.iter_mut().for_each(|device| device.after_sleep());
    }
}

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
        let poller = Poller::new().unwrap();
        let mut devices: Vec<Box<dyn Device>> = vec![Box::new(disks), Box::new(stores)];
        devices.iter_mut().for_each(|device| device.attach(&poller).unwrap());
        let done = Rc::new(Cell::new(false));
        let cx = node.cx().clone();
        let flag = done.clone();
        node.cx().spawn("test", async move {
            work(cx).await;
            flag.set(true);
        });
        let mut host = Loop { node, devices, poller };
        while !done.get() {
            host.turn();
        }
        let Loop { mut node, devices, .. } = host;
        for mut device in devices {
            while !device.stop(&mut node).unwrap() {}
        }
        let logs = load(meta.path(), StoreId::Names).unwrap().logs;
        assert_eq!(logs, [(1, (0..100).collect::<Vec<u8>>())]);
        assert_eq!(frames.free_pages(), frames.pages());
    }
}
