//! Locks of clients of NFS beside those of a mount.

use crate::common::{Up, cannot_mount, detach, ended_by_signals, free_ports, program};
use crate::nfs::{Client, OPEN, Server};
use nfs::client::Request;
use nfs::nlm::{Answer, Args, Host, LockArgs, NetObject, NlmLock, Procedure, Status, UnlockArgs};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trapeze::children::Process;

const PATIENCE: Duration = Duration::from_secs(60);
const OWNER: &str = "7@tester";

/// A mount beside; it is taken out of the file tree after a failed test too.
struct Mount {
    process: Option<Process>,
    path: PathBuf,
}

impl Mount {
    fn new(up: &Up) -> Mount {
        let path = up.at("mnt");
        std::fs::create_dir(&path).unwrap();
        let mut command = ended_by_signals(program());
        command.arg("mount").arg(up.at("data")).arg(&path);
        let process = Process::start_command("mount", command, &up.at("mount.log")).unwrap();
        Mount { process: Some(process), path }
    }

    fn open(&self, name: &str) -> File {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(self.path.join(name)).unwrap()
    }

    fn stop(mut self) {
        self.process.take().unwrap().stop().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let _ = process.stop();
            detach(Path::new(&self.path));
        }
    }
}

fn lock_of<'a>(handle: &'a [u8], owner: &'a str) -> NlmLock<'a> {
    let (host, handle, owner) = (Host(b"tester"), NetObject(handle), NetObject(owner.as_bytes()));
    NlmLock { host, handle, owner, process: 7, offset: 0, bytes: 10 }
}

impl Client {
    fn nlm(&mut self, procedure: Procedure, args: Args<'_>) -> Status {
        let request = Request::Lock(procedure, args);
        self.call(request, |reply| reply.decoded::<Answer<'_>>().unwrap().status)
    }

    fn lock(&mut self, handle: &[u8], block: bool, reclaim: bool) -> Status {
        self.lock_as(OWNER, handle, (block, reclaim))
    }

    pub fn lock_as(
        &mut self,
        owner: &str,
        handle: &[u8],
        (block, reclaim): (bool, bool),
    ) -> Status {
        let (cookie, lock) = (NetObject(b"c"), lock_of(handle, owner));
        let args = LockArgs { cookie, block, exclusive: true, lock, reclaim, state: 1 };
        self.nlm(Procedure::Lock, Args::Lock(args))
    }

    fn unlock(&mut self, handle: &[u8]) -> Status {
        self.unlock_as(OWNER, handle)
    }

    pub fn unlock_as(&mut self, owner: &str, handle: &[u8]) -> Status {
        let args = UnlockArgs { cookie: NetObject(b"u"), lock: lock_of(handle, owner) };
        self.nlm(Procedure::Unlock, Args::Unlock(args))
    }
}

/// Whether fcntl(2) on the mount gets an exclusive lock.
fn takes(file: &File) -> bool {
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => true,
        Err(Errno::ACCESS | Errno::AGAIN) => false,
        Err(errno) => panic!("{errno}"),
    }
}

/// One space of locks, over a killed server too: the next one at its address gives the lock back to its client, and
/// no other client had it in between.
#[test]
fn locks_of_nfs_and_of_a_mount_exclude_each_other() {
    if cannot_mount() {
        return;
    }
    let mut up = Up::new("1");
    let mount = Mount::new(&up);
    let file = mount.open("file");
    let listen = format!("127.0.0.1:{}", free_ports(1));
    let server = Server::start(&up, &listen, &[OPEN]);
    let mut client = Client::connect(server.address);
    let root = client.mount("/").unwrap();
    let handle = client.lookup(&root, "file");
    assert!(takes(&file));
    assert_eq!(client.lock(&handle, false, false), Status::Denied);
    assert_eq!(client.lock(&handle, true, false), Status::Blocked);
    let status = up.told(&["status", "--all"]);
    assert!(status.contains("exclusive, waits") && status.contains("NLM LOCK"), "{status}");
    fcntl_lock(&file, FlockOperation::Unlock).unwrap();
    let start = Instant::now();
    while client.lock(&handle, true, false) != Status::Granted {
        assert!(start.elapsed() < PATIENCE, "it is free");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!takes(&file), "it is the other's");
    server.process.kill().unwrap();
    assert!(!takes(&file), "its client is there still");
    let server = Server::start(&up, &listen, &[OPEN]);
    assert!(!takes(&file), "nor does a restart release it");
    let mut client = Client::connect(server.address);
    assert_eq!(client.lock(&handle, false, false), Status::DeniedGracePeriod);
    assert_eq!(client.lock(&handle, false, true), Status::Granted);
    assert!(!takes(&file), "it was reclaimed");
    let status = up.told(&["status", "--all"]);
    assert!(status.contains("NFS locks of") && status.contains("tester"), "{status}");
    assert_eq!(client.unlock(&handle), Status::Granted);
    assert!(takes(&file));
    fcntl_lock(&file, FlockOperation::Unlock).unwrap();
    assert_eq!(client.lock(&handle, false, true), Status::Granted, "as long as clients reclaim");
    let released = up.told(&["nfs", "--release-locks", "127.0.0.1"]);
    assert!(released.contains("1 locks of 127.0.0.1 released"), "{released}");
    let start = Instant::now();
    while !takes(&file) {
        assert!(start.elapsed() < PATIENCE, "an operator has released it");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(file);
    mount.stop();
    server.process.stop().unwrap();
    up.stop();
}
