//! Records that the cluster keeps of its servers of NFS: the key of handles, and of each server its clients' locks from
//! one incarnation to the next (see [`nfs::locks::Kept`]), as attributes of the volume's root.

use crate::random;
use crate::serve::ServeError;
use files::Files;
use nfs::handle::{KEY_ATTRIBUTE, Key};
use nfs::locks::{self, Beginning};
use node::rings::{Caller, FileOp, FileReply};
use rustix::system::uname;
use std::net::SocketAddr;
use wire::{Errno, FileId};

/// Prefix of the attribute with a server's locks.
const PREFIX: &str = "trusted.nfs3.clients.";

/// The records that a server begins with.
pub(super) struct Kept {
    /// Of the volume's handles.
    pub(super) key: Key,
    /// Clients with locks.
    pub(super) locks: Beginning,
}

/// The attribute of the server at this address. One that listens at all addresses is known by its machine's name, for
/// others may do so too.
pub(super) fn attribute(at: SocketAddr) -> Box<[u8]> {
    let host = match at.ip() {
        any if any.is_unspecified() => uname().nodename().to_string_lossy().into_owned(),
        ip => ip.to_string(),
    };
    format!("{PREFIX}{host}:{}", at.port()).into_bytes().into()
}

/// What the last incarnation left. That this is another one is on stable storage before any client hears of it.
pub(super) async fn begin(files: &Files, attribute: Option<Box<[u8]>>) -> Result<Kept, ServeError> {
    Ok(Kept { key: volume_key(files).await?, locks: begin_locks(files, attribute).await? })
}

/// The first server of all makes it.
async fn volume_key(files: &Files) -> Result<Key, ServeError> {
    let refused = |done| refused("the key of the volume's NFS handles", done);
    for _ in 0..2 {
        if let Some(bytes) = read(files, KEY_ATTRIBUTE.into()).await.map_err(refused("read"))? {
            let key = bytes.try_into().map_err(|_| refused("used")(Errno::EINVAL))?;
            return Ok(Key(key));
        }
        let value = random::bytes::<16>().into();
        match write(files, KEY_ATTRIBUTE.into(), value, names::xattr::CREATE).await {
            // another server may have been quicker
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(refused("written")(errno)),
        }
    }
    Err(refused("read")(Errno::ENODATA))
}

async fn begin_locks(files: &Files, attribute: Option<Box<[u8]>>) -> Result<Beginning, ServeError> {
    let nothing = locks::Kept::default().restarted();
    let Some(name) = attribute else {
        return Ok(Beginning { attribute: None, kept: nothing });
    };
    let refused = |done| refused("the list of NFS clients with locks", done);
    let before = read(files, name.clone()).await.map_err(refused("read"))?;
    let Some(before) = before.and_then(|bytes| locks::Kept::decode(&bytes).ok()) else {
        return Ok(Beginning { attribute: Some(name), kept: nothing });
    };
    let kept = before.restarted();
    write(files, name.clone(), kept.encode().into(), 0).await.map_err(refused("written"))?;
    let sync = FileOp::FsyncDirectory { file: FileId::ROOT };
    files.ask(Caller::default(), sync).await.map_err(refused("written"))?;
    Ok(Beginning { attribute: Some(name), kept })
}

fn refused(what: &str, done: &str) -> impl Fn(Errno) -> ServeError {
    let text = format!("{what} cannot be {done}");
    move |errno| ServeError::Refused(format!("{text}: {errno}"))
}

async fn read(files: &Files, name: Box<[u8]>) -> Result<Option<Vec<u8>>, Errno> {
    let op = FileOp::GetXattr { file: FileId::ROOT, name };
    match files.ask(Caller::default(), op).await {
        Ok(FileReply::Bytes(bytes)) => Ok(Some(bytes)),
        Err(Errno::ENODATA) => Ok(None),
        Err(errno) => Err(errno),
        Ok(_) => Err(Errno::EPROTO),
    }
}

async fn write(files: &Files, name: Box<[u8]>, value: Box<[u8]>, flags: u32) -> Result<(), Errno> {
    let op = FileOp::SetXattr { file: FileId::ROOT, name, value, flags };
    files.ask(Caller::default(), op).await.map(drop)
}
