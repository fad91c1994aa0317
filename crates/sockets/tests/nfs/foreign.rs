//! Sessions with a server of ours as the foreign one.

use super::*;
use live::clock;
use nfs::client::session::{Finished, Session, Target, Trouble};
use nfs::client::{Caller, Request};
use node::Notify;
use sockets::foreign::{Foreign, Sessions};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A session and its calls, as tasks of a node.
#[derive(Clone)]
struct Calls {
    cx: node::Cx,
    session: Rc<RefCell<Session>>,
    finished: Rc<Notify>,
}

impl Calls {
    async fn root(&self) -> Vec<u8> {
        loop {
            let round = self.finished.wait();
            if let Some(root) = self.session.borrow().root() {
                return root.to_vec();
            }
            round.await;
        }
    }

    async fn call(&self, request: Request<'_>) -> Finished {
        let (now, caller) = (clock::now(), Caller::default());
        let made = self.session.borrow_mut().call(&caller, &request, now + PATIENCE, now);
        let xid = made.unwrap();
        loop {
            let round = self.finished.wait();
            if let Some(finished) = self.session.borrow_mut().take(xid) {
                return finished;
            }
            round.await;
        }
    }

    /// Makes a file, which must not exist.
    async fn create(&self, name: String) -> Vec<u8> {
        let root = self.root().await;
        let place = DirOpArgs { dir: Handle(&root), name: Path(name.as_bytes()) };
        let how = CreateHow::Guarded(Sattr::default());
        let finished = self.call(Args::Create(CreateArgs { place, how }).into()).await;
        match finished.results().unwrap().unwrap() {
            Results::Create(Outcome::Ok(made)) => made.object.unwrap().0.to_vec(),
            other => panic!("{name}: {other:?}"),
        }
    }

    async fn write(&self, file: &[u8], data: &[u8]) {
        let request = Request::write(Handle(file), 0, StableHow::FileSync, data);
        let finished = self.call(request).await;
        let results = finished.results().unwrap().unwrap();
        let Results::Write(Outcome::Ok(ok)) = results else { panic!("{results:?}") };
        assert_eq!(ok.count as usize, data.len());
    }

    async fn read(&self, file: &[u8], count: u32) -> Vec<u8> {
        let args = ReadArgs { file: Handle(file), offset: 0, count };
        let finished = self.call(Args::Read(args).into()).await;
        let results = finished.results().unwrap().unwrap();
        let Results::Read(Outcome::Ok(read)) = results else { panic!("{results:?}") };
        read.data.to_vec()
    }
}

fn target(nfs: SocketAddr) -> Target {
    let port = Some(nfs.port());
    let path = b"/".to_vec();
    Target { address: nfs.ip(), path, nfs_port: port, mount_port: port, portmap_port: 111 }
}

/// Runs `work` on a node with a session.
fn with_session<T: 'static, F: Future<Output = T> + 'static>(
    target: Target,
    work: impl FnOnce(Calls) -> F,
) -> T {
    let frames = Frames::new(MemfdRegion::create("client", 64).unwrap());
    let node = Node::new(NodeConfig::new(NodeId(2), 1, 1), frames);
    let finished = Rc::new(Notify::new(node.cx()));
    let told = finished.clone();
    let sessions = Sessions::default();
    let mut host = Host::new(node, WaitPolicy::Adaptive).unwrap();
    host.add(Foreign::new(sessions.clone(), move || told.notify_all()).unwrap()).unwrap();
    let session = Session::new(target, Caller::default(), std::process::id(), clock::now());
    let session = sessions.add(session);
    let cx = host.node().cx().clone();
    host.block_on(work(Calls { cx, session, finished })).unwrap()
}

#[test]
fn a_session_writes_and_reads_files_of_another_server() {
    let server = Running::start();
    with_session(target(server.nfs), async |calls| {
        let data = pattern(1 << 20);
        let file = calls.create("file".into()).await;
        calls.write(&file, &data).await;
        assert!(calls.read(&file, 1 << 20).await == data);
        assert_eq!(calls.session.borrow().away(), None);
    });
}

#[test]
fn ports_are_found_by_a_port_mapper() {
    let server = Running::start();
    let portmap_port = server.portmap.port();
    let target = Target { nfs_port: None, mount_port: None, portmap_port, ..target(server.nfs) };
    with_session(target, async |calls| {
        calls.create("file".into()).await;
    });
}

#[test]
fn an_address_where_nothing_listens_is_away_and_says_why() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    with_session(target(closed), async |calls| {
        while !matches!(calls.session.borrow().away().unwrap().trouble, Trouble::Lost(_)) {
            // the session's pauses wake the node
            calls.cx.sleep(Duration::from_millis(1)).await;
        }
    });
}

/// Passes connections on to a server, and cuts each after some bytes.
struct Cutter {
    at: SocketAddr,
    cuts: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Copies until the end, or until so many bytes were copied on this connection.
fn copy(mut from: TcpStream, mut to: TcpStream, left: &AtomicU64, cuts: &AtomicU64) {
    let mut buffer = [0; 512];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let had = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            Some(left.saturating_sub(count as u64))
        });
        // what is over is lost, in the middle of a record
        let may = had.unwrap().min(count as u64) as usize;
        if to.write_all(&buffer[..may]).is_err() {
            break;
        }
        if may < count {
            cuts.fetch_add(1, Ordering::SeqCst);
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

impl Cutter {
    fn start(server: SocketAddr) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (cuts, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, over) = (cuts.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            let mut copies = Vec::new();
            for (number, client) in listener.incoming().enumerate() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let left = Arc::new(AtomicU64::new(3_000 + 137 * (number as u64 % 11)));
                let pairs = [(&client, &server), (&server, &client)];
                copies.extend(pairs.map(|(from, to)| {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (left, count) = (left.clone(), count.clone());
                    std::thread::spawn(move || copy(from, to, &left, &count))
                }));
            }
            copies.into_iter().for_each(|copy| copy.join().unwrap());
        });
        Cutter { at, cuts, is_over, thread: Some(thread) }
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.at));
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking());
    }
}

/// A guarded CREATE that was executed twice would find its own file.
#[test]
fn cut_connections_lose_no_call_and_repeat_none() {
    let server = Running::start();
    let cutter = Cutter::start(server.nfs);
    // mounted at the server itself: only the calls' connections are cut
    let target = Target { nfs_port: Some(cutter.at.port()), ..target(server.nfs) };
    let reconnects = with_session(target, async |calls| {
        for round in 0..20 {
            let created = (0..8).map(|file| calls.create(format!("file {round} {file}")));
            let files = node::all(created).await;
            let distinct: std::collections::BTreeSet<_> = files.into_iter().collect();
            assert_eq!(distinct.len(), 8);
        }
        calls.session.borrow().reconnects()
    });
    assert!(reconnects > 0 && cutter.cuts.load(Ordering::SeqCst) >= reconnects);
}

/// Its ports are found by rpcbind.
#[test]
fn files_of_nfs_ganesha_are_written_and_read() {
    if !rig::ganesha::is_apart("foreign::files_of_nfs_ganesha_are_written_and_read") {
        return;
    }
    let dir = std::env::temp_dir().join(format!("trapeze-foreign-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let server = rig::ganesha::Ganesha::start(&dir);
    let path = dir.join("export").display().to_string().into_bytes();
    let here = target(SocketAddr::from(([127, 0, 0, 1], 2049)));
    let target = Target { path, nfs_port: None, mount_port: None, ..here };
    with_session(target, async |calls| {
        let data = pattern(512 << 10);
        let file = calls.create("file".into()).await;
        calls.write(&file, &data).await;
        assert!(calls.read(&file, 512 << 10).await == data);
    });
    assert!(std::fs::read(dir.join("export/file")).unwrap() == pattern(512 << 10));
    drop(server);
    std::fs::remove_dir_all(&dir).unwrap();
}
