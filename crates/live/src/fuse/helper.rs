//! Mounting through `fusermount3`, for users who may not mount: it opens /dev/fuse, mounts, and passes the descriptor
//! back over a socket that it is told of in `_FUSE_COMMFD`.

use rustix::io::{Errno as OsError, FdFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = "fusermount3";

/// Why there is no descriptor.
#[derive(Debug)]
pub enum Failure {
    /// It is not installed.
    Missing,
    /// It said no, in these words.
    Refused(String),
    /// It could not be asked.
    System(io::Error),
}

impl From<OsError> for Failure {
    fn from(error: OsError) -> Failure {
        Failure::System(error.into())
    }
}

/// Mounts on `path` with these options.
pub fn mount(options: &str, path: &Path) -> Result<OwnedFd, Failure> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    let child = Command::new(PROGRAM)
        .args(["-o", options, "--"])
        .arg(path)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::Missing,
            _ => Failure::System(error),
        })?;
    // With our copy closed, a helper that ends without an answer ends the conversation.
    drop(theirs);
    let received = receive(&ours);
    let output = child.wait_with_output().map_err(Failure::System)?;
    match received? {
        Some(descriptor) => Ok(descriptor),
        None => Err(Failure::Refused(words(&output.stderr))),
    }
}

/// Unmounts, also when in use.
pub fn unmount(path: &Path) -> io::Result<()> {
    let output = Command::new(PROGRAM)
        .args(["-u", "-z", "-q", "--"])
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{PROGRAM} refused: {}", words(&output.stderr))))
}

fn words(bytes: &[u8]) -> String {
    let said = String::from_utf8_lossy(bytes);
    let said = said.trim().trim_start_matches("fusermount3: ");
    if said.is_empty() { "it gave no reason".into() } else { said.into() }
}

fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>, Failure> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}
