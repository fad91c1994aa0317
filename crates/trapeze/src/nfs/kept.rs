//! State that the cluster keeps of its servers of NFS from one incarnation to the next (see [`nfs::start`]).

use crate::random;
use crate::serve::ServeError;
use files::Files;
use nfs::handle::Key;
use nfs::start::{Start, Started};
use node::rings::Caller;
use rustix::system::uname;
use std::net::SocketAddr;

/// Prefix of the attribute with a server's locks.
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
pub(super) async fn begin(
    files: &Files,
    attribute: Option<Box<[u8]>>,
) -> Result<Started, ServeError> {
    let mut start = Start::new(Key(random::bytes()), attribute);
    loop {
        let result = files.ask(Caller::default(), start.op()).await;
        let done = start.done(result).map_err(|refused| ServeError::Refused(refused.to_string()));
        if let Some(started) = done? {
            return Ok(started);
        }
    }
}
