//! Pages in the memory of other nodes: GET and PUT of `netmem::protocol`, asked by the faulting thread itself.

pub mod holder;
mod line;

pub use line::{Answer, Line, LineConfig, LineError, Question};

use super::backing::{Backing, FetchError, Fetched, Source, StoreError};
use super::limits::LINE_PAGES;
use crate::link::Address;
use endpoint::FrameMut;
use endpoint::limits::PAGE_BYTES;
use netmem::protocol::{Get, GetReply, Message, Put, PutReply, op};
use netmem::{Age, PageId, PageStamp, SpaceId, Version, Wanted};
use std::io;
use wire::{Encoder, NodeId, mix};

/// How a region's pages are kept by others.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Nodes that keep pages. Each fault context has a link to each of them.
    pub holders: Vec<Address>,
    /// Holders that each version is kept by before it may leave this memory; what fewer have taken counts as refused.
    pub copies: u8,
    /// The space that the pages belong to, this region's alone.
    pub space: SpaceId,
    /// Of the links.
    pub line: LineConfig,
}

/// The backing.
#[derive(Clone, Debug)]
pub struct Peers(PeerConfig);

impl Peers {
    /// Connects to nobody yet.
    pub fn new(config: PeerConfig) -> io::Result<Peers> {
        let (holders, copies) = (config.holders.len(), usize::from(config.copies));
        if copies == 0 || copies > holders {
            let what = format!("{copies} copies with {holders} holders: take 1 to {holders}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Peers(config))
    }
}

impl Backing for Peers {
    fn source(&self, page_bytes: usize) -> io::Result<Box<dyn Source>> {
        let pages = LINE_PAGES + 4 * page_bytes / PAGE_BYTES;
        let connect = |address: &Address| -> io::Result<Holder> {
            let line = Line::connect(address, self.0.line.clone(), pages)?;
            let frame = line.frames().alloc_exact(page_bytes);
            Ok(Holder { line, frame })
        };
        let holders = self.0.holders.iter().map(connect).collect::<io::Result<Vec<_>>>()?;
        Ok(Box::new(PeerSource { holders, copies: self.0.copies, space: self.0.space }))
    }
}

struct Holder {
    line: Line,
    /// Where pages land; `None` after a call that has not given it back.
    frame: Option<FrameMut>,
}

struct PeerSource {
    holders: Vec<Holder>,
    copies: u8,
    space: SpaceId,
}

// SAFETY: a holder's frame belongs to the pool of the line beside it, and both are used by the thread that has the
// source, see `Line`.
unsafe impl Send for PeerSource {}

/// What one holder says of a page.
enum Found {
    /// It is in the holder's frame, with this checksum.
    Here(u32),
    /// It does not have this version.
    Not,
    /// It does not say.
    Silent(i32),
}

impl PeerSource {
    fn id(&self, page: u64) -> PageId {
        PageId { space: self.space, index: page }
    }

    /// The order in which holders are asked and offered a page: different pages begin with different ones.
    fn order(&self, page: u64) -> impl Iterator<Item = usize> + use<> {
        let (count, first) = (self.holders.len(), mix(page) as usize);
        (0..count).map(move |n| first.wrapping_add(n) % count)
    }
}

impl Holder {
    fn get(&mut self, id: PageId, version: Version, page_bytes: usize) -> Found {
        let bytes = page_bytes as u32;
        let wanted = Wanted { id, at_least: version, bytes };
        let body = Get::new(id, version, bytes, self.line.node()).encode();
        let into = self.frame.take().or_else(|| self.line.frames().alloc_exact(page_bytes));
        let question =
            Question { op: op::GET, once: false, body: &body, data: None, trailer: &[], into };
        let answer = match self.line.ask(question) {
            Ok(answer) => answer,
            Err(error) => return Found::Silent(errno_of(&error)),
        };
        self.frame = answer.data;
        let landed = self.frame.as_deref().map_or(&[][..], |frame| &frame[..answer.bytes]);
        match GetReply::decode(&answer.body) {
            Ok(GetReply::Data(data)) if data.stamp.check(wanted, [landed]).is_ok() => {
                Found::Here(data.stamp.checksum)
            }
            Ok(GetReply::Data(_)) | Err(_) => Found::Silent(libc::EBADMSG),
            Ok(GetReply::Unknown { settled: false } | GetReply::NotHome(_)) => {
                Found::Silent(libc::EAGAIN)
            }
            Ok(_) => Found::Not,
        }
    }

    fn put(&mut self, stamp: PageStamp, copies: u8, from: &[u8]) -> Result<NodeId, i32> {
        let data = Some(self.line.frames().copy_of(from).ok_or(libc::ENOMEM)?);
        let mut trailer = [0; PageStamp::BYTES];
        stamp.encode(&mut Encoder::new(&mut trailer));
        let (life, view, age) = (0, 0, Age::NEWEST);
        let put = Put { stamp, life, age, chances: 0, copies, reused: true, view };
        let body = put.encode();
        let question =
            Question { op: op::PUT, once: true, body: &body, data, trailer: &trailer, into: None };
        let answer = self.line.ask(question).map_err(|error| errno_of(&error))?;
        let reply = PutReply::decode(&answer.body).map_err(|_| libc::EBADMSG)?;
        reply.stored.map_err(|_| libc::ENOSPC)
    }
}

fn errno_of(error: &LineError) -> i32 {
    match error {
        LineError::Call(error) => i32::from(wire::Errno::from(*error).0),
        LineError::Status(status) => i32::from(*status),
        LineError::Link(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

impl Source for PeerSource {
    fn fetch<'a>(
        &'a mut self,
        page: u64,
        version: u64,
        into: &'a mut [u8],
    ) -> Result<Fetched<'a>, FetchError> {
        let (id, mut silent) = (self.id(page), None);
        for at in self.order(page) {
            match self.holders[at].get(id, Version(version), into.len()) {
                Found::Here(checksum) => {
                    let frame = self.holders[at].frame.as_deref().expect("it has landed there");
                    return Ok(Fetched { bytes: &frame[..into.len()], checksum });
                }
                Found::Not => {}
                Found::Silent(errno) => silent = Some(errno),
            }
        }
        Err(silent.map_or(FetchError::Lost, FetchError::Unavailable))
    }

    fn store(&mut self, page: u64, version: u64, from: &[u8]) -> Result<(), StoreError> {
        let stamp = PageStamp::of(self.id(page), Version(version), [from]);
        let (mut left, mut refused) = (self.copies, libc::ENOSPC);
        for at in self.order(page) {
            match self.holders[at].put(stamp, self.copies, from) {
                Ok(_) => left -= 1,
                Err(errno) => refused = errno,
            }
            if left == 0 {
                return Ok(());
            }
        }
        Err(StoreError(refused))
    }
}
