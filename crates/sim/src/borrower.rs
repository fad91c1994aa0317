//! A program on each node of a cluster that lends memory: it keeps pages of its own in the others', and knows what it
//! wrote.

use endpoint::Frame;
use endpoint::limits::PAGE_BYTES;
use netmem::service::GetError;
use netmem::{Class, PageId, Service, SpaceId, Version, Wanted};
use node::Cx;
use std::time::Duration;
use wire::mix;

/// Pages of each program.
const PAGES: u64 = 48;
/// Longest pause between two of its steps, in milliseconds.
const PAUSE_MS_MAX: u64 = 40;

/// The program. A wrong page ends the run by a panic, which says the page and both versions.
pub struct Borrower {
    cx: Cx,
    service: Service,
    space: SpaceId,
    /// The newest version of each page that was written; 0 before the first.
    versions: Vec<u64>,
    written: u64,
}

impl Borrower {
    /// For a node's incarnation: each has a space of its own.
    pub fn new(cx: &Cx, service: &Service) -> Borrower {
        let space = SpaceId::private(cx.id(), cx.incarnation() & 0xffff);
        let versions = vec![0; PAGES as usize];
        Borrower { cx: cx.clone(), service: service.clone(), space, versions, written: 0 }
    }

    /// Works as long as the node runs.
    pub async fn run(mut self) {
        loop {
            self.cx.sleep(Duration::from_millis(1 + self.cx.random() % PAUSE_MS_MAX)).await;
            let index = self.cx.random() % PAGES;
            match self.cx.random() % 4 {
                0 => self.write(index).await,
                1 => {
                    let _ = self.service.flush(self.id(index)).await; // too few nodes are up
                }
                2 => self.service.hint(self.id(index), netmem::service::Hint::DontNeed),
                _ => self.read(index).await,
            }
        }
    }

    fn id(&self, index: u64) -> PageId {
        PageId { space: self.space, index }
    }

    fn content(&self, index: u64, version: u64) -> Vec<u8> {
        let seed = mix(mix(self.space.0 ^ version) ^ index);
        (0..PAGE_BYTES as u64 / 8).flat_map(|at| mix(seed ^ at).to_le_bytes()).collect()
    }

    async fn write(&mut self, index: u64) {
        self.written += 1;
        let version = self.written;
        let frame: Option<Frame> = self.cx.frames().copy_of(&self.content(index, version));
        let Some(data) = frame else { return };
        let put = self.service.put(self.id(index), Version(version), Class::Mirrored, data).await;
        if put.is_ok() {
            self.versions[index as usize] = version;
        }
    }

    /// The newest version comes, with its bytes, or is said to be gone; a node that was given up loses what only others
    /// had.
    async fn read(&mut self, index: u64) {
        let (id, version) = (self.id(index), self.versions[index as usize]);
        let wanted = Wanted { id, at_least: Version(version), bytes: PAGE_BYTES as u32 };
        match self.service.get(wanted).await {
            Ok(got) => {
                assert_eq!(got.version, Version(version), "{id} is not what was written last");
                assert!(got.data[..] == self.content(index, version)[..], "{id} has other bytes");
            }
            Err(GetError::Unknown) => assert_eq!(version, 0, "{id} is forgotten"),
            Err(GetError::Freed) => panic!("{id} was never freed"),
            Err(_) => (),
        }
    }
}
