//! NFS over real sockets: bad input and bad luck. The server is a host on a thread of its own; the file system behind
//! it is in memory.

#[path = "nfs/foreign.rs"]
mod foreign;
#[path = "../../nfs/tests/memory.rs"]
mod memory;

use endpoint::Frames;
use live::host::Host;
use live::memory::MemfdRegion;
use live::wait::WaitPolicy;
use live::wakeup::Wakeup;
use memory::Memory;
use nfs::exports;
use nfs::front::Front;
use nfs::handle::Key;
use nfs::mount::{self, DirPath, MntResult};
use nfs::portmap::{self, Mapping, Service, TCP, UDP};
use nfs::rpc::{Acceptance, Call, Credential, Reply, System};
use nfs::server::Server;
use nfs::v3::*;
use nfs::xdr::{decoded, encoded};
use node::rings::FileRequest;
use node::{Node, NodeConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sockets::nfs::{Nfs, NfsPlaces, NfsSockets, register};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{NodeId, VolumeId};

const MEMORY_BYTES: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    nfs: SocketAddr,
    mount: SocketAddr,
    portmap: SocketAddr,
    stop: Wakeup,
    thread: Option<JoinHandle<usize>>,
}

/// Serves the front ring from memory.
fn serve(node: &Node, memory: Rc<RefCell<Memory>>) {
    let cx = node.cx().clone();
    node.cx().spawn("memory", async move {
        loop {
            let FileRequest { front, caller, op } = cx.front().await;
            let result = memory.borrow_mut().serve(&caller, op);
            cx.front_done(front, result);
        }
    });
}

impl Running {
    fn start() -> Running {
        let (tell, told) = std::sync::mpsc::channel();
        let stop = Wakeup::new().unwrap();
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            let frames = Frames::new(MemfdRegion::create("test", MEMORY_BYTES / 4096).unwrap());
            let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let (nfs, mount, portmap) = (vec![any], vec![any], vec![any]);
            let places = NfsPlaces { nfs, mount, portmap, ..NfsPlaces::default() };
            let sockets = NfsSockets::bind(&places).unwrap();
            let nfs = sockets.nfs_addresses().next().unwrap();
            let mount = sockets.mount_addresses().next().unwrap();
            let portmap = sockets.portmap_addresses().next().unwrap();
            let exports = exports::parse("/ 127.0.0.0/8(rw,no_root_squash)").unwrap();
            let mut server = Server::new(VolumeId(4), Key([3; 16]), exports, *b"started1");
            let tcp = |program| Service { program, version: 3, protocol: TCP, port: nfs.port() };
            server.services = [PROGRAM, mount::PROGRAM].map(tcp).to_vec();
            let front = Front::new(Rc::new(server), frames.clone());
            let memory = Rc::new(RefCell::new(Memory::new(frames.clone())));
            let node = Node::new(NodeConfig::new(NodeId(1), 1, 1), frames);
            let mut host = Host::new(node, WaitPolicy::Adaptive).unwrap();
            serve(host.node(), memory.clone());
            host.add(Nfs::new(sockets, front).unwrap()).unwrap();
            host.add(asked.clone()).unwrap();
            tell.send((nfs, mount, portmap)).unwrap();
            host.run(|| asked.is_rung()).unwrap();
            assert!(host.quiesce().unwrap(), "all that was asked is answered");
            memory.borrow().open_handles()
        });
        let (nfs, mount, portmap) = told.recv().unwrap();
        Running { nfs, mount, portmap, stop, thread: Some(thread) }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.nfs).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, xid: 0 }
    }

    /// Stops it; how many files it left open.
    fn stop(mut self) -> usize {
        self.stop.ring();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.ring();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking());
    }
}

struct Client {
    stream: TcpStream,
    xid: u32,
}

fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let credential = Credential::System(System::default());
    let version = if program == portmap::PROGRAM { portmap::PORTMAP } else { 3 };
    let mut bytes = Vec::new();
    Call { xid, program, version, procedure, credential, arguments }.put(&mut bytes);
    bytes
}

fn marked(record: &[u8]) -> Vec<u8> {
    [&(record.len() as u32 | 1 << 31).to_be_bytes(), record].concat()
}

impl Client {
    fn send(&mut self, program: u32, procedure: u32, arguments: &[u8]) {
        self.xid += 1;
        let record = call(self.xid, program, procedure, arguments);
        self.stream.write_all(&marked(&record)).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut record).unwrap();
        let (_, reply, results) = Reply::parse(&record).unwrap();
        assert_eq!(reply, Reply::Accepted(Acceptance::Success));
        results.to_vec()
    }

    fn ask(&mut self, args: Args<'_>, data: &[u8]) -> Vec<u8> {
        let mut arguments = Vec::new();
        args.put(&mut arguments);
        arguments.extend_from_slice(data);
        self.send(PROGRAM, args.procedure() as u32, &arguments);
        self.receive()
    }

    fn mount(&mut self) -> Vec<u8> {
        let path = encoded(&DirPath(b"/"));
        self.send(mount::PROGRAM, mount::Procedure::Mnt as u32, &path);
        match decoded(&self.receive()).unwrap() {
            MntResult::Ok(handle, _) => handle.0.to_vec(),
            MntResult::Err(status) => panic!("{status:?}"),
        }
    }

    fn create(&mut self, name: &str) -> Vec<u8> {
        let root = self.mount();
        let place = DirOpArgs { dir: Handle(&root), name: Path(name.as_bytes()) };
        let how = CreateHow::Guarded(Sattr::default());
        let results = self.ask(Args::Create(CreateArgs { place, how }), &[]);
        match decoded::<Outcome<CreateOk<'_>, WccData>>(&results).unwrap() {
            Outcome::Ok(ok) => ok.object.unwrap().0.to_vec(),
            Outcome::Err(status, _) => panic!("{status:?}"),
        }
    }

    fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) {
        let (count, stable) = (data.len() as u32, StableHow::Unstable);
        let args = WriteArgs { file: Handle(file), offset, count, stable, data_bytes: count };
        let results = self.ask(Args::Write(args), data);
        let written: Outcome<WriteOk, WccData> = decoded(&results).unwrap();
        assert!(matches!(written, Outcome::Ok(ok) if ok.count == count), "{written:?}");
    }

    fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
        let results = self.ask(Args::Read(ReadArgs { file: Handle(file), offset, count }), &[]);
        let there = results.len().saturating_sub(count as usize);
        results[there..].to_vec()
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 253) as u8).collect()
}

#[test]
fn files_are_written_and_read_by_two_clients() {
    let server = Running::start();
    let mut one = server.connect();
    let file = one.create("file");
    let data = pattern(3 << 20);
    for (at, part) in data.chunks(1 << 20).enumerate() {
        one.write(&file, (at << 20) as u64, part);
    }
    let mut two = server.connect();
    for at in 0..3u64 {
        let wanted = &data[(at << 20) as usize..][..1 << 20];
        assert!(two.read(&file, at << 20, 1 << 20) == wanted);
    }
    assert_eq!(server.stop(), 0, "open files");
}

#[test]
fn many_calls_at_once_are_all_answered() {
    let server = Running::start();
    let mut client = server.connect();
    let file = client.create("file");
    let data = pattern(64 << 10);
    client.write(&file, 0, &data);
    let args = encoded(&ReadArgs { file: Handle(&file), offset: 0, count: 64 << 10 });
    let mut sender = client.stream.try_clone().unwrap();
    let calls: Vec<u8> = (1..=1000).flat_map(|xid| marked(&call(xid, PROGRAM, 6, &args))).collect();
    let sending = std::thread::spawn(move || sender.write_all(&calls).unwrap());
    for _ in 0..1000 {
        let results = client.receive();
        assert!(results[results.len() - data.len()..] == data);
    }
    sending.join().unwrap();
}

#[test]
fn bytes_that_are_no_calls_end_their_connection_and_no_other() {
    let server = Running::start();
    let mut good = server.connect();
    let file = good.create("file");
    good.write(&file, 0, b"data");
    let half = &marked(&call(1, PROGRAM, 6, &[0; 100]))[..50];
    let waiting: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for mut client in waiting.iter().map(|client| &client.stream) {
        client.write_all(half).unwrap();
    }
    let fragments = [0; 4 * 2000];
    for bytes in
        [&[0xff; 200_000][..], b"GET / HTTP/1.1\r\n\r\n", &fragments, &marked(&[0; 8])[..8]]
    {
        let mut bad = server.connect();
        let _ = bad.stream.write_all(bytes); // it may be closed half-way
        drop(bad);
        assert_eq!(good.read(&file, 0, 4), b"data");
    }
    let mut bad = server.connect();
    bad.stream.write_all(&marked(&[0, 0, 0, 1, 0, 0, 0, 1])).unwrap();
    assert_eq!(bad.stream.read(&mut [0; 1]).unwrap(), 0, "a reply is no call: it is closed");
    drop(waiting);
}

/// Opens as many connections as this process may, at most 10,000: each takes two descriptors, one at either end.
#[test]
fn ten_thousand_idle_connections_do_not_disturb() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize;
    let count = (may.saturating_sub(2_000) / 2).min(9_900);
    let server = Running::start();
    let idle: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(server.nfs).unwrap()).collect();
    let mut client = server.connect();
    let file = client.create("file");
    client.write(&file, 0, b"data");
    for _ in 0..100 {
        assert_eq!(client.read(&file, 0, 4), b"data");
    }
    drop(idle);
    assert_eq!(client.read(&file, 0, 4), b"data");
}

#[test]
fn a_client_that_reads_nothing_holds_no_other_one_up() {
    let server = Running::start();
    let mut one = server.connect();
    let file = one.create("file");
    let data = pattern(1 << 20);
    one.write(&file, 0, &data);
    let args = encoded(&ReadArgs { file: Handle(&file), offset: 0, count: 1 << 20 });
    let mut greedy = server.connect();
    greedy.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let calls = marked(&call(1, PROGRAM, 6, &args)).repeat(100);
    for _ in 0..1000 {
        if greedy.stream.write_all(&calls).is_err() {
            break; // it is not read from any more
        }
    }
    for _ in 0..10 {
        assert!(one.read(&file, 0, 1 << 20) == data);
    }
}

#[test]
fn mount_answers_datagrams() {
    let server = Running::start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 4096];
    socket.send_to(b"garbage", server.mount).unwrap();
    let export = call(7, mount::PROGRAM, mount::Procedure::Export as u32, &[]);
    socket.send_to(&export, server.mount).unwrap();
    let bytes = socket.recv(&mut answer).unwrap();
    let (xid, reply, results) = Reply::parse(&answer[..bytes]).unwrap();
    assert_eq!((xid, reply), (7, Reply::Accepted(Acceptance::Success)));
    assert!(results.windows(11).any(|part| part == b"127.0.0.0/8"));
}

/// With a program number of its own (transient, RFC 5531 section 13.3), so that no other test or server minds.
#[test]
fn rpcbind_knows_the_ports_of_a_server_until_it_stops() {
    let program = 0x4000_0000 | std::process::id();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let services = [TCP, UDP].map(|protocol| Service { program, version: 3, protocol, port });
    let address = "127.0.0.1".parse().unwrap();
    let Some(registered) = register(&services, address).unwrap() else {
        return rig::skip("no rpcbind runs here");
    };
    assert!(registered.taken.is_empty());
    let asked = |protocol| {
        let mut stream = TcpStream::connect("127.0.0.1:111").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let wanted = encoded(&Mapping { program, version: 3, protocol, port: 0 });
        let get = portmap::version2::GETPORT;
        stream.write_all(&marked(&call(1, portmap::PROGRAM, get, &wanted))).unwrap();
        decoded::<u32>(&Client { stream, xid: 0 }.receive()).unwrap()
    };
    assert_eq!([asked(TCP), asked(UDP)], [port.into(); 2]);
    let other = [Service { port: port ^ 1, ..services[0] }];
    let second = register(&other, address).unwrap().unwrap();
    assert_eq!(second.taken, other, "it is served");
    drop(second);
    assert_eq!(asked(TCP), u32::from(port));
    drop(listener);
    let second = register(&other, address).unwrap().unwrap();
    assert!(second.taken.is_empty(), "its server is gone");
    drop((second, registered));
    assert_eq!(asked(TCP), 0);
}
