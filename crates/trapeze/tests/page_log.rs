//! Nodes of a program that keep pages in one other node's memory and in a log on a real disk, which is full, and empty
//! again, and whose directory may be somebody else's.

mod common;

use common::{cannot_mount, detach, shell};
use live::host::Host;
use netmem::service::{Config, Hint, Up, View, Weak};
use netmem::{Class, PageId, Service, SpaceId, Version, Wanted};
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use trapeze::join::{Joined, Plan, join};
use trapeze::page_log::{self, PageLogError};
use trapeze::service::{Options, WaitPolicy};
use wire::NodeId;

const PAGE: usize = 16 * 1024;
/// Pages that the log would have room for, and more than its disk has.
const LOG_BYTES: u64 = 64 << 20;
const DISK: &str = "size=1M";
/// Least pages that such a disk has room for.
const FIT: u64 = 48;

/// Nodes 1 to 3 of a program, all on this thread.
struct Nodes {
    hosts: Vec<Option<Host>>,
    services: Vec<Service>,
}

impl Nodes {
    fn new(directory: &Path) -> Nodes {
        let at = |node: u16| format!("unix:{}", directory.join(node.to_string()).display());
        let options =
            Options { memory_bytes: 16 << 20, wait: WaitPolicy::Block, ..Options::default() };
        let (mut hosts, mut services) = (Vec::new(), Vec::new());
        for node in 1..=3 {
            let plan = Plan { node: NodeId(node), listen: Some(&at(node)), connect: None };
            let Joined { host, directory, .. } = join(plan, &options).unwrap();
            for other in (1..=3).filter(|other| *other != node) {
                directory.set(NodeId(other), vec![at(other).parse().unwrap()]);
            }
            let config = Config { patience: Duration::from_millis(300), ..Config::new(4 << 20) };
            services.push(Service::start(host.node().cx(), config));
            hosts.push(Some(host));
        }
        let mut nodes = Nodes { hosts, services };
        nodes.view(1);
        nodes
    }

    fn view(&mut self, number: u64) {
        let up = |host: &Host| Up {
            node: host.node().cx().id(),
            incarnation: host.node().cx().incarnation(),
            weight: 1,
            machine: 0,
        };
        let view = View::new(number, self.hosts.iter().flatten().map(up).collect());
        let live: Vec<usize> = (0..3).filter(|at| self.hosts[*at].is_some()).collect();
        live.iter().for_each(|at| self.services[*at].set_view(view.clone()));
        self.until(|nodes| live.iter().all(|at| nodes.services[*at].is_settled()));
    }

    fn until(&mut self, done: impl Fn(&Nodes) -> bool) {
        while !done(self) {
            self.turn();
        }
    }

    fn turn(&mut self) {
        for host in self.hosts.iter_mut().flatten() {
            host.turn_until(Some(wire::Time::ZERO)).unwrap();
        }
    }

    fn run<T: 'static>(&mut self, node: usize, task: impl Future<Output = T> + 'static) -> T {
        let output = Rc::new(RefCell::new(None));
        let (slot, host) = (output.clone(), self.hosts[node - 1].as_mut().unwrap());
        host.catch_up();
        let cx = host.node().cx().clone();
        cx.spawn("test", async move {
            let value = task.await;
            *slot.borrow_mut() = Some(value);
        });
        self.until(|_| output.borrow().is_some());
        output.take().unwrap()
    }

    /// Node 1 writes a page and makes it durable.
    fn write(&mut self, index: u64, version: u64) -> Result<(), Weak> {
        let service = self.services[0].clone();
        let data =
            self.hosts[0].as_ref().unwrap().node().cx().frames().copy_of(&content(index, version));
        self.run(1, async move {
            let (id, version) = (page(index), Version(version));
            service.put(id, version, Class::MirroredAndLogged, data.unwrap()).await.unwrap();
            service.flush(id).await
        })
    }

    /// Whether a page is there as it was written.
    fn reads(&mut self, node: usize, index: u64, version: u64) -> bool {
        let service = self.services[node - 1].clone();
        let wanted = Wanted { id: page(index), at_least: Version(version), bytes: PAGE as u32 };
        let got = self.run(node, async move { service.get(wanted).await });
        got.is_ok_and(|got| got.data[..] == content(index, version)[..])
    }

    fn keep_log(&mut self, directory: &Path) -> Result<(), PageLogError> {
        let host = self.hosts[0].as_mut().unwrap();
        page_log::keep(host, &self.services[0], directory, LOG_BYTES)
    }
}

fn page(index: u64) -> PageId {
    PageId { space: SpaceId::private(NodeId(1), 1), index }
}

fn content(index: u64, version: u64) -> Vec<u8> {
    let words = (0..PAGE as u64 / 8).map(|at| (index << 40) ^ (version << 20) ^ at);
    words.flat_map(u64::to_le_bytes).collect()
}

/// What does not fit is refused and stays in memory; what fitted is there when its mirrors are gone; what is freed is
/// room again.
#[test]
fn a_log_on_a_full_disk() {
    if cannot_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    shell(&disk, 10, &format!("mount -t tmpfs -o {DISK} none ."));
    let outcome = std::panic::catch_unwind(|| fill(folder.path(), &disk));
    detach(&disk);
    outcome.unwrap();
}

fn fill(folder: &Path, disk: &Path) {
    let mut nodes = Nodes::new(folder);
    nodes.keep_log(disk).unwrap();
    let fitted = (0..).take_while(|index| nodes.write(*index, 1).is_ok()).count() as u64;
    assert!((FIT..=64).contains(&fitted), "{fitted} pages of 16 KiB on 1 MiB");
    assert_eq!(nodes.write(fitted, 2), Err(Weak { have: 1, needed: 2 }));
    assert!(nodes.reads(1, fitted, 2), "it is kept");
    // a mirror goes with all that it has, of which the writer has nothing in memory either
    (0..fitted).for_each(|index| nodes.services[0].hint(page(index), Hint::DontNeed));
    assert!(nodes.services[2].counts().mirror > 0);
    nodes.hosts[2] = None;
    nodes.view(2);
    (0..fitted).for_each(|index| assert!(nodes.reads(2, index, 1), "page {index}"));
    let service = nodes.services[0].clone();
    nodes.run(1, async move { service.free(page(0).space).await }).unwrap();
    assert_eq!(nodes.services[0].logged_pages(), 0);
    let again = PageId { space: SpaceId::private(NodeId(1), 2), index: 0 };
    let (service, data) = (nodes.services[0].clone(), content(9, 9));
    let data = nodes.hosts[0].as_ref().unwrap().node().cx().frames().copy_of(&data).unwrap();
    let flushed = nodes.run(1, async move {
        service.put(again, Version(1), Class::MirroredAndLogged, data).await.unwrap();
        service.flush(again).await
    });
    assert_eq!(flushed, Ok(()));
}

#[test]
fn a_log_takes_no_directory_that_is_somebody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (Nodes::new(folder.path()), {
        let beside = folder.path().join("beside");
        fs::create_dir(&beside).unwrap();
        Nodes::new(&beside)
    });
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("label"), "an I/O server's").unwrap();
    assert!(matches!(one.keep_log(&disk), Err(PageLogError::Foreign(_))));
    let log = folder.path().join("new/log");
    one.keep_log(&log).unwrap();
    let said = other.keep_log(&log).unwrap_err().to_string();
    assert!(said.contains("in use by"), "{said}");
    assert!(matches!(one.keep_log(&folder.path().join("more")), Err(PageLogError::Taken)));
    assert_eq!(one.write(1, 1), Ok(()));
    let file = fs::metadata(log.join("log/0")).unwrap();
    assert_eq!(file.len(), PAGE as u64);
}
