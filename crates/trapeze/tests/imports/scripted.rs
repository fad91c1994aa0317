//! Servers of NFS whose answers a test decides, call by call.

use nfs::mount::{self, MntResult, MountHandle};
use nfs::rpc::{Acceptance, Call, Reply};
use nfs::v3::{Args, Fattr, FileType, FsinfoOk, NfsTime, NodeNumbers, Outcome, Results};
use nfs::xdr::Xdr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use trapeze::import::Source;

pub const ROOT: &[u8] = b"root";

/// What a server answers.
pub trait Script: Send + 'static {
    /// Puts the results of a call of NFS; whether they are to wait for [`Scripted::release`].
    fn results(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> bool;
}

/// Replies that wait, each with its connection.
type HeldReplies = Arc<Mutex<Vec<(TcpStream, Vec<u8>)>>>;

/// The server. It ends with this.
pub struct Scripted<S> {
    state: Arc<Mutex<S>>,
    held: HeldReplies,
    address: SocketAddr,
    is_stopping: Arc<AtomicBool>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl<S: Script> Scripted<S> {
    pub fn start(state: S) -> Scripted<S> {
        let (state, held) = (Arc::new(Mutex::new(state)), HeldReplies::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let shared = (state.clone(), held.clone(), is_stopping.clone());
        let accepting = thread::spawn(move || {
            for connection in listener.incoming() {
                let (state, held, is_stopping) = shared.clone();
                if is_stopping.load(Ordering::SeqCst) {
                    return;
                }
                // it ends when the importer closes the connection
                thread::spawn(move || serve_calls(connection.unwrap(), &state, &held));
            }
        });
        Scripted { state, held, address, is_stopping, accepting: Some(accepting) }
    }

    pub fn source(&self) -> Source {
        Source::parse(&format!("nfs://{}/", self.address)).unwrap()
    }

    pub fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap()
    }

    /// How many replies wait.
    pub fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Sends the replies that wait.
    pub fn release(&self) {
        let _one_writer = self.state();
        for (mut stream, reply) in self.held.lock().unwrap().drain(..) {
            stream.write_all(&reply).unwrap();
        }
    }
}

impl<S> Drop for Scripted<S> {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.accepting.take().map(thread::JoinHandle::join);
    }
}

fn serve_calls(mut stream: TcpStream, state: &Mutex<impl Script>, held: &HeldReplies) {
    loop {
        let mut mark = [0; 4];
        if stream.read_exact(&mut mark).is_err() {
            return;
        }
        let mut record = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        if stream.read_exact(&mut record).is_err() {
            return;
        }
        let call = Call::parse(&record).unwrap();
        let mut reply = vec![0; 4];
        Reply::Accepted(Acceptance::Success).put(call.xid, &mut reply);
        let mut state = state.lock().unwrap();
        let waits = if call.program == mount::PROGRAM {
            MntResult::Ok(MountHandle(ROOT), vec![mount::AUTH_SYS]).put(&mut reply);
            false
        } else {
            state.results(&call, &mut reply)
        };
        let mark = (reply.len() as u32 - 4 | 1 << 31).to_be_bytes();
        reply[..4].copy_from_slice(&mark);
        if waits {
            held.lock().unwrap().push((stream.try_clone().unwrap(), reply));
        } else if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

/// The arguments of a call; of a WRITE without its data, which follow.
pub fn arguments<'a>(call: &Call<'a>) -> (Args<'a>, &'a [u8]) {
    let procedure = nfs::v3::Procedure::of(call.procedure).unwrap();
    // a handle of 4 bytes, offset, count, how stable, length of the data
    let is_write = procedure == nfs::v3::Procedure::Write;
    let (head, data) = call.arguments.split_at(if is_write { 28 } else { call.arguments.len() });
    (Args::decode(procedure, head).unwrap(), data)
}

/// Attributes of a file, or of a directory that has no `size`.
pub fn attributes(fileid: u64, size: Option<u64>, time: NfsTime) -> Fattr {
    let is_file = size.is_some();
    Fattr {
        kind: if is_file { FileType::Regular } else { FileType::Directory },
        mode: if is_file { 0o644 } else { 0o755 },
        nlink: 1,
        uid: 0,
        gid: 0,
        size: size.unwrap_or(4_096),
        used: 0,
        rdev: NodeNumbers::default(),
        fsid: 1,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

pub fn fsinfo() -> Results<'static> {
    Results::Fsinfo(Outcome::Ok(FsinfoOk {
        attributes: None,
        read_max: 1 << 20,
        read_preferred: 1 << 20,
        read_multiple: 4_096,
        write_max: 100_000,
        write_preferred: 100_000,
        write_multiple: 4_096,
        readdir_preferred: 4_096,
        file_bytes_max: u64::MAX >> 1,
        time_delta: NfsTime { seconds: 0, nseconds: 1 },
        properties: 0,
    }))
}
