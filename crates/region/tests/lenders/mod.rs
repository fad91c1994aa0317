//! Nodes that lend memory, for regions: on threads of a test, and as processes that can be killed.
#![allow(dead_code)] // each test file uses its part

use endpoint::Frames;
use live::host::Host;
use live::link::{Address, LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use live::wait::WaitPolicy;
use netmem::Service;
use node::{Node, NodeConfig};
use region::peer::{LineConfig, PeerConfig, Peers};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::NodeId;

const PAGE: usize = 4096;
/// Frames for messages, besides those for pages.
const SPARE_PAGES: usize = 2048;

/// Arguments of a lender's process: its id, address and pages.
const LENDS: &str = "TRAPEZE_TEST_LENDS";

/// Lends so many pages until `done`; `ready` hears the address.
fn lend(
    id: u16,
    address: &Address,
    pages: usize,
    ready: impl FnOnce(&Address),
    done: impl FnMut() -> bool,
) {
    let all = pages + SPARE_PAGES;
    let region = MemfdRegion::create("lender", all).unwrap();
    let pool = SharedPool { fd: region.share().unwrap(), bytes: all * PAGE };
    let (node, incarnation) = (NodeId(id), live::clock::now().0);
    let config = LinkConfig { node, incarnation, cluster: 1, security: Security::Insecure };
    let mut links = Links::new(config, Some(pool), Box::new(|_| {})).unwrap();
    let address = links.listen(address).unwrap();
    let node = Node::new(NodeConfig::new(node, incarnation, 1), Frames::new(region));
    let mut host = Host::new(node, WaitPolicy::Adaptive).unwrap();
    host.add(links).unwrap();
    Service::lend(host.node().cx(), pages * PAGE);
    ready(&address);
    host.run(done).unwrap();
}

/// A lender on a thread.
pub struct Lender {
    pub address: Address,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lender {
    pub fn start(id: u16, address: &str, pages: usize) -> Lender {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, ready) = std::sync::mpsc::channel();
        let (flag, address) = (stop.clone(), address.parse::<Address>().unwrap());
        let thread = std::thread::spawn(move || {
            let ready = |address: &Address| told.send(address.clone()).unwrap();
            // The service looks at the clock often enough for this one to be seen.
            lend(id, &address, pages, ready, || flag.load(Ordering::Relaxed));
        });
        Lender { address: ready.recv().unwrap(), stop, thread: Some(thread) }
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.thread.take().unwrap().join().is_ok() || std::thread::panicking());
    }
}

/// The body of the test that [`Process`] runs: a test of this program that is ignored.
pub fn lend_as_told() {
    let Ok(told) = std::env::var(LENDS) else { return };
    let [id, address, pages] = told.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let ready = |address: &Address| println!("\nlends at {address}");
    lend(id.parse().unwrap(), &address.parse().unwrap(), pages.parse().unwrap(), ready, || false);
}

/// A lender in a process of its own.
pub struct Process {
    pub address: Address,
    id: u16,
    pages: usize,
    child: Child,
}

impl Process {
    /// `test` is the name of the test whose body is [`lend_as_told`].
    pub fn start(test: &str, id: u16, address: &str, pages: usize) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(LENDS, format!("{id} {address} {pages}")).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.filter_map(|line| line.strip_prefix("lends at ").map(str::to_string));
        let said = { said }.next().unwrap();
        Process { address: said.parse().unwrap(), id, pages, child }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Another incarnation at the same address.
    pub fn restart(&mut self, test: &str) {
        let (id, pages) = (self.id, self.pages);
        *self = Process::start(test, id, &self.address.to_string(), pages);
    }

    /// Stands still, when this returns.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        wait_until("it stands still", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        });
    }

    /// Goes on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child is ours and was not waited for, so its number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A backing of its own for each region.
pub fn peers<'a>(holders: impl IntoIterator<Item = &'a Address>, copies: u8) -> Peers {
    static SPACES: AtomicU64 = AtomicU64::new(1);
    let line = LineConfig {
        cluster: 1,
        security: Security::Insecure,
        wait: WaitPolicy::Adaptive,
        deadline: Duration::from_millis(300),
    };
    let serial = u64::from(std::process::id()) << 16 | SPACES.fetch_add(1, Ordering::Relaxed);
    let (holders, space) = (holders.into_iter().cloned().collect(), netmem::SpaceId::guest(serial));
    Peers::new(PeerConfig { holders, copies, space, line }).unwrap()
}

/// Until it is so, but not for ever.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not in a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
