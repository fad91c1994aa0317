//! Real nodes of a program: pages of a file come early to a node with idle memory, and mirrors of a node that is gone
//! are made anew.

use crate::nodes::Nodes;
use endpoint::Frames;
use netmem::service::{Backing, Config, Later, OnStorage};
use netmem::{Class, Directory, EpochConfig, PageId, Service, SpaceId, Version, Wanted};
use node::{Cx, all};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::{Errno, NodeId, mix};

const PAGE: usize = 4096;
/// A page's number in a file.
fn page(index: u64) -> PageId {
    PageId { space: SpaceId::shared(5), index }
}

fn content(index: u64) -> Vec<u8> {
    (0..PAGE as u64 / 8).flat_map(|at| mix(index << 16 ^ at).to_le_bytes()).collect()
}

/// A file that every node can read, of one version.
struct Pages {
    file: File,
    cx: Cx,
}

impl Backing for Pages {
    fn has(&self, space: SpaceId) -> bool {
        space == page(0).space
    }

    fn read(&self, id: PageId, _: Version, bytes: u32) -> Later<OnStorage> {
        let mut data = vec![0; bytes as usize];
        let read = self.file.read_exact_at(&mut data, id.index * PAGE as u64);
        let frame = self.cx.frames().copy_of(&data);
        Box::pin(async move {
            read.map_err(|_| Errno::EIO)?;
            Ok(Some((Version(1), frame.ok_or(Errno::ENOMEM)?)))
        })
    }

    fn write(&self, _: PageId, _: Version, _: endpoint::Frame) -> Later<Result<(), Errno>> {
        Box::pin(async { Err(Errno::EROFS) })
    }
}

/// Room for so many pages; who has joined is trusted soon.
fn config(pages: usize) -> Config {
    let epoch = EpochConfig {
        period: Duration::from_millis(100),
        slow_start: Duration::from_millis(1),
        ..EpochConfig::default()
    };
    let directory_bytes = 2 * pages * Directory::ENTRY_BYTES;
    Config { local_min_bytes: 0, directory_bytes, epoch, ..Config::new(pages * PAGE) }
}

/// Uses planned pages one after the other.
async fn use_all(service: Service, order: Vec<u64>) {
    let plan = service.plan_use(Version(0), PAGE as u32).unwrap();
    let planned: Vec<PageId> = order.iter().copied().map(page).collect();
    assert_eq!(plan.add_list(&planned), order.len());
    for index in order {
        let wanted = Wanted { id: page(index), at_least: Version(0), bytes: PAGE as u32 };
        assert_eq!(service.get(wanted).await.unwrap().data[..], content(index)[..]);
    }
}

#[test]
fn planned_pages_are_read_early_by_nodes_with_idle_memory() {
    const PAGES: u64 = 250;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pages");
    std::fs::write(&path, (0..PAGES).flat_map(content).collect::<Vec<u8>>()).unwrap();
    let backing = |cx: &Cx| {
        let file = File::open(&path).unwrap();
        Some(Rc::new(Pages { file, cx: cx.clone() }) as Rc<dyn Backing>)
    };
    // node 1 has room for a part of them only
    let pages = |cx: &Cx| if cx.id() == NodeId(1) { 128 } else { 4096 };
    let mut nodes = Nodes::new(folder.path(), 3, 32 << 20, |cx| Config {
        backing: backing(cx),
        trends: false,
        ..config(pages(cx))
    });
    // when all have heard of an epoch they know who is idle
    let planned = |service: &Service| service.counters().epochs_planned;
    nodes.until_so(|nodes| nodes.services.iter().map(planned).sum::<u64>() > 2);
    let order: Vec<u64> = (0..PAGES).map(|n| n * 7 % PAGES).collect();
    let service = nodes.services[0].clone();
    nodes.run(1, use_all(service.clone(), order));
    let counters = service.counters();
    assert!(counters.read_early > 0 && counters.prefetched > 0, "{counters:?}");
    let hosted = nodes.services[1..].iter().map(|service| service.counts().hosted).sum::<u32>();
    assert!(hosted > 0 && service.counters().peer_hits > 0);
}

/// Puts pages and makes them durable, eight at a time.
async fn write_all(service: Service, frames: Frames, pages: u64) {
    let own = |index| PageId { space: SpaceId::private(NodeId(1), 1), index };
    for first in (0..pages).step_by(8) {
        for index in first..first + 8 {
            let data = frames.copy_of(&content(index)).unwrap();
            service.put(own(index), Version(1), Class::Mirrored, data).await.unwrap();
        }
        let flushed = all((first..first + 8).map(|index| service.flush(own(index)))).await;
        assert!(flushed.into_iter().all(|flushed| flushed.is_ok()));
    }
}

/// Five nodes on one thread, over shared memory: what making mirrors costs when a page is written, and when a node that
/// had two of five mirrors is gone. `TRAPEZE_BENCH=1` asks for 64 MiB of pages.
#[test]
fn bench_mirrors_made_anew() {
    let pages: u64 = if std::env::var_os("TRAPEZE_BENCH").is_some() { 16 << 10 } else { 256 };
    let folder = tempfile::tempdir().unwrap();
    let room = 3 * pages as usize;
    let memory_bytes = room * PAGE + (32 << 20);
    let mut nodes = Nodes::new(folder.path(), 5, memory_bytes, |_| config(room));
    let (service, frames) = (nodes.services[0].clone(), nodes.cx(1).frames().clone());
    let written = Instant::now();
    nodes.run(1, write_all(service.clone(), frames, pages));
    let rate = |pages: u64, since: Instant| {
        pages as f64 * PAGE as f64 / 1e6 / since.elapsed().as_secs_f64()
    };
    let written = rate(2 * pages, written);
    nodes.kill(5);
    let killed = Instant::now();
    nodes.tell_view();
    let deficit = service.counters().durable_deficit_pages;
    assert!(deficit > pages / 4, "{deficit} of {pages} have lost one");
    nodes.until(|| service.counters().mirrors_again >= deficit);
    let again = rate(deficit, killed);
    println!("mirrors made: {written:.0} MB/s; {deficit} made anew: {again:.0} MB/s");
    let mirrors = |node: &Service| u64::from(node.counts().mirror);
    assert_eq!(nodes.services[1..4].iter().map(mirrors).sum::<u64>(), 2 * pages);
}
