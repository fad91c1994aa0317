//! One connection to an NFSv3 server, with many calls in progress at a time.

use crate::pass::histogram;
use hdrhistogram::Histogram;
use live::clock;
use nfs::client::{Called, Caller, Client as Calls, Reply, Request};
use nfs::mount::{self, DirPath, MntResult};
use nfs::v3::Status;
use nfs::xdr::{Input, Xdr};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use wire::Time;

/// A reply that does not come in this time never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub struct Client {
    stream: TcpStream,
    calls: Calls,
    output: Vec<u8>,
}

fn other(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(what.to_string())
}

impl Client {
    /// To the server on this port of this machine.
    pub fn connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let caller = Caller { machine: b"bench".to_vec(), ..Caller::default() };
        Ok(Client { stream, calls: Calls::new(caller, 0), output: Vec::new() })
    }

    /// The handle of an export, by MNT.
    pub fn mount(&mut self, path: &str) -> io::Result<Vec<u8>> {
        self.send(&mount::Args::Mnt(DirPath(path.as_bytes())).into());
        self.flush()?;
        self.reply(|reply| match reply.decoded().map_err(other)? {
            MntResult::Ok(handle, _) => Ok(handle.0.to_vec()),
            MntResult::Err(status) => Err(other(format!("MNT of {path}: {status:?}"))),
        })
    }

    /// Makes one call; what `with` makes of its reply. An error unless that is `NFS3_OK`.
    pub fn call<T>(
        &mut self,
        request: &Request<'_>,
        with: impl FnOnce(&Reply<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.send(request);
        self.flush()?;
        self.reply(|reply| succeeded(reply).and_then(|()| with(reply)))
    }

    /// Makes `count` calls, `depth` of them in progress; how long each took.
    pub fn calls<'a>(
        &mut self,
        depth: usize,
        count: usize,
        mut request: impl FnMut(usize) -> Request<'a>,
    ) -> io::Result<Histogram<u64>> {
        let (mut times, mut begun) = (histogram(), BTreeMap::<u32, Time>::new());
        let (mut sent, mut done) = (0, 0);
        while done < count {
            let now = clock::now();
            while sent < count && sent < done + depth {
                begun.insert(self.send(&request(sent)), now);
                sent += 1;
            }
            self.flush()?;
            let xid = self.reply(|reply| succeeded(reply).map(|()| reply.xid))?;
            let asked = begun.remove(&xid).expect("a call in flight has begun");
            times.saturating_record(clock::now().since(asked).as_nanos() as u64);
            done += 1;
        }
        Ok(times)
    }

    fn send(&mut self, request: &Request<'_>) -> u32 {
        self.calls.call(request, &mut self.output)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output)?;
            self.output.clear();
        }
        Ok(())
    }

    /// Waits for the next reply, and passes it to `with`.
    fn reply<T>(&mut self, with: impl FnOnce(&Reply<'_>) -> io::Result<T>) -> io::Result<T> {
        loop {
            if let Some(reply) = self.calls.poll_reply().map_err(other)? {
                return with(&reply);
            }
            if self.calls.unmatched_replies() > 0 {
                return Err(other("a reply to no call"));
            }
            match self.stream.read(self.calls.space())? {
                0 => return Err(other("the server has closed the connection")),
                more => self.calls.filled(more),
            }
        }
    }
}

/// Only the status is decoded, so that the client takes little of the time that is measured.
fn succeeded(reply: &Reply<'_>) -> io::Result<()> {
    let called = reply.called;
    let status = Status::take(&mut Input::new(reply.results().map_err(other)?)).map_err(other)?;
    match (called, status) {
        (_, Status::Ok) => Ok(()),
        (Called::Nfs(procedure), status) => Err(other(format!("{procedure:?}: {status:?}"))),
        (called, status) => Err(other(format!("{called:?}: {status:?}"))),
    }
}
