//! Whole nodes on threads of their own.
#![allow(dead_code)] // each test file uses its part

use endpoint::{Frame, Frames};
use live::host::Host;
use live::link::{Address, Keys, LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use live::wait::WaitPolicy;
use live::xdp::XdpSocket;
use node::{Answer, Call, Cx, Node, NodeConfig};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{Channel, NodeId};

pub const POOL_PAGES: usize = 8192;
pub const ECHO: u16 = 1;
pub const FETCH: u16 = 2;

/// A host with links and nothing else.
pub fn host(id: u16, security: &Security, policy: WaitPolicy) -> (Host, Links) {
    host_over(id, security, policy, None)
}

/// The same, with an interface for frames.
pub fn host_over(
    id: u16,
    security: &Security,
    policy: WaitPolicy,
    interface: Option<&str>,
) -> (Host, Links) {
    let region = MemfdRegion::create("test", POOL_PAGES).unwrap();
    region.touch().unwrap();
    let pool = SharedPool { fd: region.share().unwrap(), bytes: POOL_PAGES * 4096 };
    let node = NodeId(id);
    let config =
        LinkConfig { node, incarnation: u64::from(id), cluster: 1, security: security.clone() };
    let mut links = Links::new(config, Some(pool), Box::new(|_| {})).unwrap();
    if let Some(interface) = interface {
        let socket = XdpSocket::open(&interface.parse().unwrap()).unwrap();
        links.set_ethernet(Box::new(socket)).unwrap();
    }
    let frames = Frames::new(region);
    (Host::new(Node::new(NodeConfig::new(node, 1, u64::from(id)), frames), policy).unwrap(), links)
}

/// Answers ECHO with the data and trailer that came, FETCH with `body` (little-endian, 4 bytes) bytes of data.
async fn serve(cx: Cx) {
    loop {
        let mut request = cx.accept(Channel::USER).await;
        let bytes = request.bytes;
        let mut data = cx.pieces::<Frame>();
        if request.op == FETCH {
            let wanted = u32::from_le_bytes(request.body[..4].try_into().unwrap()) as usize;
            data.push(cx.frames().alloc_exact(wanted).unwrap().freeze());
        }
        for mut frame in request.data.drain(..) {
            frame.truncate(bytes);
            data.push(frame.freeze());
        }
        let (body, trailer) = (request.body, request.trailer().to_vec());
        let answer = Answer { status: 0, body: &body, data: &data, trailer: &trailer };
        cx.reply(request, answer);
    }
}

/// A serving node on a thread.
pub struct Server {
    pub address: Address,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// With the echoing service.
    pub fn start(address: Address, security: Security, policy: WaitPolicy) -> Server {
        Server::start_with(address, security, policy, || {}, 4, |cx| Box::pin(serve(cx)))
    }

    /// With the echoing service, and an interface for frames.
    pub fn start_over(
        address: Address,
        security: Security,
        policy: WaitPolicy,
        interface: Option<&'static str>,
    ) -> Server {
        let host = move || host_over(2, &security, policy, interface);
        Server::start_host(address, host, 4, |cx| Box::pin(serve(cx)))
    }

    /// With any service; `prepare` runs on its thread first.
    pub fn start_with(
        address: Address,
        security: Security,
        policy: WaitPolicy,
        prepare: impl FnOnce() + Send + 'static,
        services: usize,
        service: fn(Cx) -> Pin<Box<dyn Future<Output = ()>>>,
    ) -> Server {
        let host = move || {
            prepare();
            host(2, &security, policy)
        };
        Server::start_host(address, host, services, service)
    }

    fn start_host(
        address: Address,
        make: impl FnOnce() -> (Host, Links) + Send + 'static,
        services: usize,
        service: fn(Cx) -> Pin<Box<dyn Future<Output = ()>>>,
    ) -> Server {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, ready) = std::sync::mpsc::channel();
        let flag = stop.clone();
        let run = move || {
            let (mut host, mut links) = make();
            let address = links.listen(&address).unwrap();
            host.add(links).unwrap();
            for _ in 0..services {
                let cx = host.node().cx().clone();
                host.node().cx().spawn("serve", service(cx));
            }
            // Wakes a sleeping server at the latest after this, so that it sees the flag.
            let cx = host.node().cx().clone();
            host.node().cx().spawn("tick", async move {
                loop {
                    cx.sleep(Duration::from_millis(200)).await;
                }
            });
            told.send(address).unwrap();
            host.run(|| flag.load(Ordering::Relaxed)).unwrap();
            assert!(host.stop().unwrap(), "everything is drained");
        };
        let thread = Some(std::thread::spawn(run));
        Server { address: ready.recv().unwrap(), stop, thread }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().unwrap().join();
        assert!(joined.is_ok() || std::thread::panicking());
    }
}

pub fn encrypted() -> Security {
    Security::Encrypted(Keys::generate([9; 32]))
}

/// One call with `data` and `into_bytes` of room; the reply's data and trailer.
pub async fn call(
    cx: &Cx,
    op: u16,
    body: &[u8],
    data: &[u8],
    trailer: &[u8],
    into_bytes: usize,
) -> (Vec<u8>, Vec<u8>) {
    let (mut list, mut into) = (cx.pieces(), cx.pieces());
    for part in data.chunks(32 << 10) {
        list.push(cx.frames().copy_of(part).unwrap());
    }
    if into_bytes > 0 {
        into.push(cx.frames().alloc(into_bytes).unwrap());
    }
    let call = Call {
        to: NodeId(2),
        channel: Channel::USER,
        op,
        once: true,
        deadline: Some(Duration::from_secs(20)),
        body,
        data: list,
        trailer,
        into,
    };
    let reply = cx.call(call).await.unwrap();
    let mut bytes: Vec<u8> = reply.data.iter().flat_map(|frame| frame.to_vec()).collect();
    bytes.truncate(reply.bytes);
    (bytes, reply.trailer().to_vec())
}
