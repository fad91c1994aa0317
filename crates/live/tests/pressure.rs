//! Nodes that lend memory, on threads of their own with links between them: one whose machine is short of memory lends
//! less, and gives it back to the system, while every page that it kept is still there.

use endpoint::{Frames, Region as _};
use live::host::Host;
use live::link::{LinkConfig, Links, Security, SharedPool};
use live::memory::MemfdRegion;
use live::pressure::{Pressure, PressureConfig, Sources};
use live::wait::WaitPolicy;
use netmem::service::{Config, Hint, Share, Up, View};
use netmem::{Class, PageId, Service, SpaceId, Version, Wanted};
use node::{Node, NodeConfig};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::NodeId;

const PAGE: usize = 4096;
const NODES: u16 = 4;
/// Pages that each node lends, and frames for messages.
const LENT: usize = 2048;
const SPARE: usize = 2048;
/// Pages of node 1 that only others have.
const PAGES: u64 = 1500;
const MIB: usize = 1 << 20;

/// State that a node tells the test.
#[derive(Clone, Copy, Default)]
struct Told {
    share: Share,
    handed_on: u64,
    mirrors: u32,
    /// Bytes of its payload memory that are backed.
    backed: usize,
}

struct Machine {
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn meminfo(directory: &Path, node: u16) -> PathBuf {
    directory.join(format!("meminfo-{node}"))
}

fn say_available(directory: &Path, node: u16, mib: usize) {
    let (path, new) = (meminfo(directory, node), directory.join(format!("new-{node}")));
    fs::write(&new, format!("MemAvailable: {} kB\n", mib << 10)).unwrap();
    fs::rename(new, path).unwrap();
}

fn page(index: u64) -> PageId {
    PageId { space: SpaceId::private(NodeId(1), 3), index }
}

fn content(index: u64) -> Vec<u8> {
    (0..PAGE as u64 / 8).flat_map(|at| wire::mix(index << 16 | at).to_le_bytes()).collect()
}

fn address(directory: &Path, node: u16) -> String {
    format!("unix:{}", directory.join(format!("{node}.sock")).display())
}

/// A node that knows of the others.
fn host(directory: &Path, id: u16) -> (Host, Service, std::fs::File) {
    let region = MemfdRegion::create_returnable("pressure", LENT + SPARE).unwrap();
    region.touch().unwrap();
    let backed = fs::File::from(region.fd().try_clone_to_owned().unwrap());
    let pool = SharedPool { fd: region.share().unwrap(), bytes: region.len() };
    let config =
        LinkConfig { node: NodeId(id), incarnation: 1, cluster: 1, security: Security::Insecure };
    let mut links = Links::new(config, Some(pool), Box::new(|_| {})).unwrap();
    links.listen(&address(directory, id).parse().unwrap()).unwrap();
    for other in (1..=NODES).filter(|other| *other != id) {
        links.directory().set(NodeId(other), vec![address(directory, other).parse().unwrap()]);
    }
    let node = Node::new(NodeConfig::new(NodeId(id), 1, u64::from(id)), Frames::new(region));
    let mut host = Host::new(node, WaitPolicy::Block).unwrap();
    host.add(links).unwrap();
    let directory_bytes = 2 * PAGES as usize * netmem::Directory::ENTRY_BYTES;
    let config = Config { local_min_bytes: 0, directory_bytes, ..Config::new(LENT * PAGE) };
    let service = Service::start(host.node().cx(), config);
    let up =
        (1..=NODES).map(|node| Up { node: NodeId(node), incarnation: 1, weight: 1, machine: 0 });
    service.set_view(View::new(1, up.collect()));
    let sources = Sources {
        meminfo: meminfo(directory, id),
        pressure: directory.join("none"),
        groups: vec![],
    };
    let quiet = Duration::from_millis(500);
    let config = PressureConfig { quiet, ..PressureConfig::new(64 * MIB as u64) };
    host.add(Pressure::new(sources, service.clone(), config)).unwrap();
    (host, service, backed)
}

fn told(service: &Service, backed: &fs::File) -> Told {
    use std::os::unix::fs::MetadataExt;
    let backed = backed.metadata().unwrap().blocks() as usize * 512;
    let (share, counters) = (service.share(), service.counters());
    Told { share, handed_on: counters.handed_on, mirrors: service.counts().mirror, backed }
}

impl Machine {
    fn start(directory: &Path, id: u16) -> Machine {
        let (news, stop) =
            (Arc::new(Mutex::new(Told::default())), Arc::new(AtomicBool::new(false)));
        let (tells, stops, directory) = (news.clone(), stop.clone(), directory.to_path_buf());
        let thread = std::thread::spawn(move || {
            let (mut host, service, backed) = host(&directory, id);
            // the service looks at the clock often enough for all of this
            let done = || {
                *tells.lock().unwrap() = told(&service, &backed);
                stops.load(Ordering::Relaxed)
            };
            host.run(done).unwrap();
        });
        Machine { told: news, stop, thread: Some(thread) }
    }

    fn told(&self) -> Told {
        *self.told.lock().unwrap()
    }

    fn wait(&self, what: &str, so: impl Fn(Told) -> bool) -> Told {
        let begun = Instant::now();
        while !so(self.told()) {
            let Told { share, handed_on, mirrors, backed } = self.told();
            let late = begun.elapsed() > Duration::from_secs(90);
            assert!(!late, "not yet: {what}: {share:?}, {handed_on}, {mirrors}, {backed}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.told()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.thread.take().unwrap().join().is_ok() || std::thread::panicking());
    }
}

/// Writes all pages, and has only their mirrors keep them.
fn write_all(host: &mut Host, service: &Service) {
    let service = service.clone();
    let cx = host.node().cx().clone();
    let written = async move {
        for index in 0..PAGES {
            let data = cx.frames().copy_of(&content(index)).unwrap();
            service.put(page(index), Version(1), Class::Mirrored, data).await.unwrap();
            service.flush(page(index)).await.unwrap();
            service.hint(page(index), Hint::DontNeed);
        }
    };
    host.block_on(written).unwrap();
}

fn check_all(host: &mut Host, service: &Service) {
    let service = service.clone();
    let read = async move {
        for index in 0..PAGES {
            let wanted = Wanted { id: page(index), at_least: Version(1), bytes: PAGE as u32 };
            let got = service.get(wanted).await.unwrap();
            assert_eq!(&got.data[..], &content(index)[..], "page {index}");
            service.hint(page(index), Hint::DontNeed);
        }
    };
    host.block_on(read).unwrap();
}

#[test]
fn a_machine_that_is_short_of_memory_lends_less_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    (1..=NODES).for_each(|node| say_available(directory, node, 1024));
    let (mut own, service, _backed) = host(directory, 1);
    let machines: Vec<Machine> = (2..=NODES).map(|id| Machine::start(directory, id)).collect();
    own.run(|| service.is_settled()).unwrap();
    write_all(&mut own, &service);
    let pressed = &machines[0];
    let before = pressed.told();
    assert!(before.mirrors > 500, "{}", before.mirrors);
    assert_eq!((before.share.bytes, before.share.over), (LENT * PAGE, 0));
    say_available(directory, 2, 0);
    // node 1 is the pages' directory, so it has to run meanwhile
    let least = LENT * PAGE / 16;
    let gone = |told: Told| told.share.bytes == least && told.share.over == 0;
    own.run(|| gone(pressed.told())).unwrap();
    let share = pressed.told().share;
    let returned = (share.most - share.bytes) / MIB * MIB;
    let after = pressed.wait("its memory is the system's again", |t| t.share.returned == returned);
    assert_eq!(after.backed, before.backed - returned);
    assert!(after.handed_on as usize >= before.mirrors as usize - least / PAGE);
    check_all(&mut own, &service);
    say_available(directory, 2, 1024);
    pressed.wait("it lends all of it again", |t| t.share.bytes == LENT * PAGE);
    drop(machines);
}
