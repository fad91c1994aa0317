//! The decoders of NFS and of the protocols beside it: whatever is taken comes back when it is written again.

use ::nfs::handle::{Key, Named};
use ::nfs::limits::{CALL_HEAD_BYTES_MAX, IO_BYTES_MAX, STAGING_BYTES};
use ::nfs::record::{Progress, Reader, Record};
use ::nfs::rpc::{Call, Credential, Reply, refusal};
use ::nfs::server::{Execution, Origin, Port, Server, Step};
use ::nfs::v3::{self, AttrFailure, Outcome, Procedure};
use ::nfs::xdr::{Xdr, decoded, encoded};
use ::nfs::{cookies, exports, mount, nlm, nsm, portmap};
use endpoint::{Frames, HeapRegion};
use std::fmt::Debug;
use std::rc::Rc;
use wire::{FileId, VolumeId};

/// Pages of the pool that records land in: one payload of 1 MiB, another that is guessed, and a little.
const POOL_PAGES: usize = 520;

/// A stream of records; its first byte says in what pieces it comes.
pub fn nfs_record(bytes: &[u8]) {
    let Some((step, mut rest)) = bytes.split_first() else { return };
    let step = usize::from(*step) * 16 + 1;
    let frames = Frames::new(HeapRegion::new(POOL_PAGES));
    let mut reader = Reader::new(CALL_HEAD_BYTES_MAX);
    loop {
        match reader.poll(&frames, &mut v3::call_plan) {
            Ok(Progress::Record(record)) => {
                assert!(record.head.len() <= CALL_HEAD_BYTES_MAX);
                assert!(record.data_bytes() <= IO_BYTES_MAX);
            }
            Ok(Progress::Bytes) if !rest.is_empty() => {
                let taken = pour(&mut reader, &frames, &mut rest, step);
                assert!(taken > 0);
            }
            Ok(Progress::Bytes) | Err(_) => break,
            Ok(Progress::Frames) => panic!("there are frames for one record"),
        }
        assert!(reader.memory_bytes() <= 2 * (STAGING_BYTES + CALL_HEAD_BYTES_MAX + IO_BYTES_MAX));
    }
    drop(reader);
    assert_eq!(frames.free_pages(), POOL_PAGES);
}

fn pour(reader: &mut Reader, frames: &Frames, bytes: &mut &[u8], most: usize) -> usize {
    let mut taken = 0;
    for mut slice in reader.slices(frames) {
        let part = slice.len().min(bytes.len()).min(most - taken);
        slice[..part].copy_from_slice(&bytes[..part]);
        *bytes = &bytes[part..];
        taken += part;
    }
    reader.filled(taken);
    taken
}

/// A call with its arguments, or a reply with its results; which procedure's results says the first byte.
pub fn nfs_call(bytes: &[u8]) {
    match Call::parse(bytes) {
        Ok(call) => {
            let mut again = Vec::new();
            call.put(&mut again);
            assert_eq!(Call::parse(&again), Ok(call));
            if let Credential::System(system) = call.credential {
                exports::Options::default().caller(&Credential::System(system));
            }
            if let Some(procedure) = Procedure::of(call.procedure) {
                arguments(procedure, call.arguments);
            }
        }
        Err(no) => drop(refusal(no)),
    }
    execute(bytes);
    v3::read_reply_plan(bytes, |_| true);
    if let (Ok((_, _, results)), [which, ..]) = (Reply::parse(bytes), bytes) {
        check_results(*which, results);
    }
}

/// Whatever a call is, it has a reply, also where the file system fails.
fn execute(bytes: &[u8]) {
    let exports = exports::parse("/ *(rw)").expect("an export for everybody");
    let (volume, key, write_verifier) = (VolumeId(1), Key([7; 16]), [1; 8]);
    let server = Rc::new(Server::new(volume, key, exports, write_verifier));
    let record = Record { head: bytes.to_vec(), data: Vec::new() };
    let client = core::net::Ipv4Addr::LOCALHOST.into();
    let from = core::net::SocketAddr::new(client, 900);
    let origin = Origin { from, to: client, over: portmap::TCP, port: Port::Nfs };
    let mut execution = Execution::begin(server, origin, None, record);
    for count in 0.. {
        match execution.step() {
            Step::Ask(..) => execution.answer(Err(wire::Errno::EIO)),
            Step::Reply(_) => break,
        }
        assert!(count < 100, "a call ends");
    }
}

fn arguments(procedure: Procedure, bytes: &[u8]) {
    if let Ok(args) = v3::Args::decode(procedure, bytes) {
        let mut again = Vec::new();
        args.put(&mut again);
        assert_eq!(v3::Args::decode(procedure, &again), Ok(args));
    }
}

fn returns<'a, T: Xdr<'a> + PartialEq + Debug>(bytes: &'a [u8], again: &'a mut Vec<u8>) {
    let Ok(value) = decoded::<T>(bytes) else { return };
    *again = encoded(&value);
    assert_eq!(decoded::<T>(again), Ok(value));
}

fn check_results(which: u8, bytes: &[u8]) {
    let again = &mut Vec::new();
    match which % 10 {
        0 => returns::<Outcome<v3::Fattr, ()>>(bytes, again),
        1 => returns::<Outcome<v3::LookupOk<'_>, AttrFailure>>(bytes, again),
        2 => returns::<Outcome<v3::ReadOk, AttrFailure>>(bytes, again),
        3 => returns::<Outcome<v3::WriteOk, v3::WccData>>(bytes, again),
        4 => returns::<Outcome<v3::CreateOk<'_>, v3::WccData>>(bytes, again),
        5 => returns::<Outcome<v3::RenameWcc, v3::RenameWcc>>(bytes, again),
        6 => returns::<Outcome<v3::ReaddirOk<'_>, AttrFailure>>(bytes, again),
        7 => returns::<Outcome<v3::ReaddirplusOk<'_>, AttrFailure>>(bytes, again),
        8 => returns::<Outcome<v3::FsinfoOk, AttrFailure>>(bytes, again),
        _ => returns::<Outcome<v3::ReadlinkOk<'_>, AttrFailure>>(bytes, again),
    }
}

/// MOUNT, portmap and rpcbind, NLM, NSM: the first byte says which, the second the procedure.
pub fn nfs_beside(bytes: &[u8]) {
    let [which, procedure, bytes @ ..] = bytes else { return };
    let procedure = u32::from(*procedure);
    let again = &mut Vec::new();
    match which % 8 {
        0 => drop(mount::Procedure::of(procedure).map(|its| mount::Args::decode(its, bytes))),
        1 => returns::<Vec<mount::Exported<'_>>>(bytes, again),
        2 => returns::<mount::MntResult<'_>>(bytes, again),
        3 => locks(procedure, bytes),
        4 => returns::<nsm::Monitor<'_>>(bytes, again),
        5 => returns::<Vec<portmap::Binding<'_>>>(bytes, again),
        _ => {
            let to = core::net::Ipv4Addr::LOCALHOST.into();
            let asked = portmap::Query { to, over: portmap::TCP, unix_seconds: 1 };
            let call = (u32::from(*which) % 3 + 2, procedure);
            portmap::answer(&[], asked, call, bytes);
            portmap::of_universal(bytes);
        }
    }
}

fn locks(procedure: u32, bytes: &[u8]) {
    let Some(procedure) = nlm::Procedure::of(procedure) else { return };
    let Ok(args) = nlm::Args::decode(procedure, bytes) else { return };
    let mut again = Vec::new();
    args.put(&mut again);
    assert_eq!(nlm::Args::decode(procedure, &again), Ok(args));
    if let nlm::Args::Lock(args) = args {
        if let Ok(lock) = args.lock.to_lock(node::rings::LockKind::Write) {
            assert!(lock.start <= lock.end);
        }
    }
}

/// A handle, and a cookie: only what was made by us is taken.
pub fn nfs_handle(bytes: &[u8]) {
    let (volume, key) = (VolumeId(1), Key([7; 16]));
    if let Ok(named) = Named::decode(v3::Handle(bytes), volume, &key) {
        assert_eq!(named.encode(&key)[..], *bytes);
    }
    let [site, cookie @ ..] = bytes else { return };
    let Some(cookie) = cookie.first_chunk().map(|cookie| u64::from_be_bytes(*cookie)) else {
        return;
    };
    let directory = FileId::new(*site, 1);
    if let Some(ours) = cookies::of_client(directory, cookie) {
        let seen = cookies::to_client(directory, ours);
        assert!(seen < 1 << 63);
        assert_eq!(cookies::of_client(directory, seen), Some(ours));
    }
}

/// The text of exports: refused with a line that is there, or each export is found by its path and its number.
pub fn nfs_exports(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match exports::parse(text) {
        Err(error) => assert!((1..=text.lines().count()).contains(&error.line)),
        Ok(all) => {
            for export in all.iter() {
                assert_eq!(all.numbered(export.number()), Some(export));
                let client = core::net::Ipv4Addr::new(10, 1, 2, 3).into();
                let _ = all.find(export.path.as_bytes(), client);
            }
        }
    }
}
