//! What a server of NFS keeps of its clients' locks from one incarnation to the next: see [`nfs::locks::Kept`].

use super::ask;
use crate::machine::Running;
use crate::serve::ServeError;
use nfs::locks::{Beginning, Kept};
use node::rings::{FileOp, FileReply};
use rustix::system::uname;
use std::net::SocketAddr;
use wire::{Errno, FileId};

/// What its attribute begins with.
const PREFIX: &str = "trusted.nfs3.clients.";

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
pub(super) fn begin(
    running: &mut Running,
    attribute: Option<Box<[u8]>>,
) -> Result<Beginning, ServeError> {
    let Some(name) = attribute else {
        return Ok(Beginning { attribute: None, kept: Kept::default().restarted() });
    };
    let refused = |what: &str, errno: Errno| {
        ServeError::Refused(format!("the list of NFS clients with locks cannot be {what}: {errno}"))
    };
    let file = FileId::ROOT;
    let before = match ask(running, FileOp::GetXattr { file, name: name.clone() })? {
        Ok(FileReply::Bytes(bytes)) => Kept::decode(&bytes).ok(),
        Err(Errno::ENODATA) => None,
        Err(errno) => return Err(refused("read", errno)),
        Ok(_) => return Err(refused("read", Errno::EPROTO)),
    };
    let Some(before) = before else {
        return Ok(Beginning { attribute: Some(name), kept: Kept::default().restarted() });
    };
    let kept = before.restarted();
    let (value, flags) = (kept.encode().into(), 0);
    let op = FileOp::SetXattr { file, name: name.clone(), value, flags };
    for op in [op, FileOp::FsyncDirectory { file }] {
        ask(running, op)?.map_err(|errno| refused("written", errno))?;
    }
    Ok(Beginning { attribute: Some(name), kept })
}
