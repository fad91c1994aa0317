//! What the fuzz targets run: each function takes any bytes, and panics only when a promise is broken.
//!
//! The targets themselves are one line each; `tests/corpus.rs` runs the same functions over every file of the corpus.
//! Add a target here, in [`TARGETS`], in `fuzz/Cargo.toml` and as a file in `fuzz/fuzz_targets`.

mod nfs_front;
mod nfsv3;
mod ring;
mod rpc;
mod sessions;

pub use nfs_front::nfs_front;
pub use nfsv3::{nfs_beside, nfs_call, nfs_exports, nfs_handle, nfs_record};
pub use ring::ring;
pub use rpc::rpc;
pub use sessions::{memcached, memcached_words, resp, resp_words};

use live::fuse::request;
use members::{Lease, Member, Registration};
use node::rings::FileOp;
use stripe::protocol::{ObjectReply, ObjectRequest};
use wire::field::{Field, Message, encoded};
use wire::limits::{BLOCK_BYTES, BODY_BYTES, CONTROL_BYTES, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX};
use wire::{Attr, Channel, Control, ControlView, Decoder, Encoder, Layout, ObjectId};

/// A target: its name, as in `fuzz/fuzz_targets` and `fuzz/corpus`, and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("control", control),
    ("layout", layout),
    ("attr", attr),
    ("ring", ring),
    ("rpc", rpc),
    ("stripe", stripe),
    ("members", members),
    ("fuse", fuse),
    ("memcached", memcached),
    ("resp", resp),
    ("memcached_words", memcached_words),
    ("resp_words", resp_words),
    ("nfs_record", nfs_record),
    ("nfs_call", nfs_call),
    ("nfs_beside", nfs_beside),
    ("nfs_handle", nfs_handle),
    ("nfs_exports", nfs_exports),
    ("nfs_front", nfs_front),
];

/// The control message in the first bytes, sealed here when the byte behind it is odd; zeros follow what is missing.
fn control_of(bytes: &[u8]) -> Control {
    let mut control = Control::default();
    let len = bytes.len().min(CONTROL_BYTES);
    control.0[..len].copy_from_slice(&bytes[..len]);
    if bytes.get(CONTROL_BYTES).is_some_and(|byte| byte % 2 == 1) {
        control.seal();
    }
    control
}

/// A control message: refused, or all its values are legal and writing them gives the same bytes.
pub fn control(bytes: &[u8]) {
    let control = control_of(bytes);
    let Ok(view) = ControlView::new(&control) else { return };
    let header = view.header();
    assert!(header.payload_bytes as usize <= PAYLOAD_BYTES_MAX);
    assert!(usize::from(header.channel.0) < Channel::COUNT);
    let mut again = Control::new(&header, &view.call());
    *again.body_mut() = *view.body();
    again.seal();
    assert_eq!(again.0, control.0);
}

/// A layout, then two numbers: where an offset lies and back again.
pub fn layout(bytes: &[u8]) {
    let mut input = Decoder::new(bytes);
    let Ok(layout) = Layout::decode(&mut input) else { return };
    let read = bytes.len() - input.rest().len();
    let mut again = [0; Layout::BYTES_MAX];
    let mut out = Encoder::new(&mut again);
    layout.encode(&mut out);
    assert_eq!(out.len(), read);
    assert_eq!(again[..read], bytes[..read]);
    let (Ok(offset), Ok(count)) = (input.u64(), input.u64()) else { return };
    let mut at = offset;
    for extent in layout.extents(offset, count).take(64) {
        assert!(extent.column < layout.width());
        assert_eq!(extent.file_offset, at);
        assert!(extent.bytes > 0);
        at += extent.bytes;
    }
    for column in 0..layout.width() {
        let object_bytes = layout.object_bytes(column, offset);
        assert!(layout.file_bytes(column, object_bytes) <= offset);
        layout.file_bytes(column, count);
    }
}

/// Attributes: refused, or writing them gives the same bytes.
pub fn attr(bytes: &[u8]) {
    let Ok(attr) = Attr::take(&mut Decoder::new(bytes)) else { return };
    assert_eq!(encoded(&attr)[..], bytes[..Attr::BYTES]);
    assert!(attr.mtime.nanos < 1_000_000_000);
}

/// The object protocol's bodies, and what a server reads from its disk: headers and records of the log.
pub fn stripe(bytes: &[u8]) {
    let body = &bytes[..bytes.len().min(BODY_BYTES)];
    if let Ok(request) = ObjectRequest::decode(body) {
        assert_eq!(ObjectRequest::decode(&request.encode()), Ok(request));
    }
    if let Ok(reply) = ObjectReply::decode(body) {
        assert_eq!(ObjectReply::decode(&reply.encode()), Ok(reply));
    }
    let _ = stripe::object::Header::read(ObjectId::default(), bytes);
    let sums = stripe::object::decode_sums(bytes);
    let mut block = [0; BLOCK_BYTES];
    stripe::object::encode_sums(&sums, &mut block);
    assert_eq!(stripe::object::decode_sums(&block), sums);
    if let Ok(start) = stripe::log::Start::read(bytes) {
        if let Ok(record) = start.record(bytes) {
            record.runs.iter().take(64).for_each(|run| {
                std::hint::black_box(run.blocks());
            });
        }
    }
}

/// What members and their registry say to each other.
pub fn members(bytes: &[u8]) {
    let (body, data) = bytes.split_at(bytes.len().min(BODY_BYTES));
    if let Ok(member) = Member::decode(bytes) {
        assert!(member.name.len() <= bytes.len());
    }
    let _ = members::protocol::Join::decode(body, data);
    let _ = members::protocol::Page::decode(body, data);
    if let Ok(page) = members::groups::GroupsPage::decode(body, data) {
        assert!(page.groups.iter().all(|told| told.group.in_sync().count() > 0));
        let _ = page.follows(page.version);
    }
    if let Ok(proposal) = members::groups::Proposal::decode(body) {
        assert_eq!(members::groups::Proposal::decode(&proposal.encode()).as_ref(), Ok(&proposal));
    }
    if let Ok(registration) = Registration::decode(body) {
        assert_eq!(Registration::decode(&registration.encode()).as_ref(), Ok(&registration));
    }
    if let Ok(lease) = Lease::decode(body) {
        assert_eq!(Lease::decode(&lease.encode()).as_ref(), Ok(&lease));
    }
}

/// A request of the kernel: refused, or its names are names.
pub fn fuse(bytes: &[u8]) {
    let Ok(header) = request::Header::parse(bytes) else { return };
    let body = &bytes[live::fuse::abi::IN_HEADER_BYTES..];
    let _ = request::WriteIn::parse(body);
    let Ok(request::KernelRequest::Operation(operation, _)) = request::parse(&header, body) else {
        return;
    };
    let check = |name: &[u8]| {
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()));
        assert!(!name.contains(&0));
        assert!(!name.contains(&b'/'));
    };
    match operation {
        FileOp::Lookup { name, .. } | FileOp::Unlink { name, .. } => check(&name),
        FileOp::Create { name, .. } | FileOp::MakeDirectory { name, .. } => check(&name),
        FileOp::Rename { name, new_name, .. } => [name, new_name].iter().for_each(|n| check(n)),
        FileOp::Link { new_name, .. } => check(&new_name),
        _ => {}
    }
}
