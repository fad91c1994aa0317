//! Nodes of a program that keep pages in one other node's memory and in a log on a real disk, which is full, and empty
//! again, and whose directory may be somebody else's.

use crate::common::{cannot_mount, detach, shell};
use crate::nodes::Nodes;
use endpoint::Frame;
use netmem::service::{Config, Hint, Weak};
use netmem::{Class, PageId, Service, SpaceId, Version, Wanted};
use std::fs;
use std::path::Path;
use std::time::Duration;
use trapeze::page_log::{self, PageLogError};
use wire::NodeId;

const PAGE: usize = 16 * 1024;
/// Pages that the log would have room for, and more than its disk has.
const LOG_BYTES: u64 = 64 << 20;
const DISK: &str = "size=1M";
/// Least pages that such a disk has room for.
const FIT: u64 = 48;

/// Three nodes, the first of which writes.
struct Pages(Nodes);

impl Pages {
    fn new(directory: &Path) -> Pages {
        let config =
            |_: &_| Config { patience: Duration::from_millis(300), ..Config::new(4 << 20) };
        Pages(Nodes::new(directory, 3, 16 << 20, config))
    }

    fn service(&self, node: usize) -> Service {
        self.0.services[node - 1].clone()
    }

    fn frame(&self, bytes: &[u8]) -> Frame {
        self.0.cx(1).frames().copy_of(bytes).unwrap()
    }

    /// Node 1 writes a page and makes it durable.
    fn write(&mut self, index: u64, version: u64) -> Result<(), Weak> {
        let (service, data) = (self.service(1), self.frame(&content(index, version)));
        self.0.run(1, async move {
            let (id, version) = (page(index), Version(version));
            service.put(id, version, Class::MirroredAndLogged, data).await.unwrap();
            service.flush(id).await
        })
    }

    /// Whether a page is there as it was written.
    fn reads(&mut self, node: usize, index: u64, version: u64) -> bool {
        let service = self.service(node);
        let wanted = Wanted { id: page(index), at_least: Version(version), bytes: PAGE as u32 };
        let got = self.0.run(node, async move { service.get(wanted).await });
        got.is_ok_and(|got| got.data[..] == content(index, version)[..])
    }

    fn keep_log(&mut self, directory: &Path) -> Result<(), PageLogError> {
        let service = self.service(1);
        let host = self.0.hosts[0].as_mut().unwrap();
        page_log::keep(host, &service, directory, LOG_BYTES)
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
    let mut nodes = Pages::new(folder);
    nodes.keep_log(disk).unwrap();
    let fitted = (0..).take_while(|index| nodes.write(*index, 1).is_ok()).count() as u64;
    assert!((FIT..=64).contains(&fitted), "{fitted} pages of 16 KiB on 1 MiB");
    assert_eq!(nodes.write(fitted, 2), Err(Weak { have: 1, needed: 2 }));
    assert!(nodes.reads(1, fitted, 2), "it is kept");
    // a mirror goes with all that it has, of which the writer has nothing in memory either
    (0..fitted).for_each(|index| nodes.service(1).hint(page(index), Hint::DontNeed));
    assert!(nodes.service(3).counts().mirror > 0);
    nodes.0.kill(3);
    nodes.0.next_view();
    (0..fitted).for_each(|index| assert!(nodes.reads(2, index, 1), "page {index}"));
    let service = nodes.service(1);
    nodes.0.run(1, async move { service.free(page(0).space).await }).unwrap();
    assert_eq!(nodes.service(1).logged_pages(), 0);
    let again = PageId { space: SpaceId::private(NodeId(1), 2), index: 0 };
    let (service, data) = (nodes.service(1), nodes.frame(&content(9, 9)));
    let flushed = nodes.0.run(1, async move {
        service.put(again, Version(1), Class::MirroredAndLogged, data).await.unwrap();
        service.flush(again).await
    });
    assert_eq!(flushed, Ok(()));
}

#[test]
fn a_log_takes_no_directory_that_is_somebody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (Pages::new(folder.path()), {
        let beside = folder.path().join("beside");
        fs::create_dir(&beside).unwrap();
        Pages::new(&beside)
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
