//! One connection to an NFSv3 server: calls as bytes, so many of them in progress at a time.

use crate::pass::histogram;
use hdrhistogram::Histogram;
use live::clock;
use nfs::mount;
use nfs::rpc::{Acceptance, Call, Credential, Groups, Reply, System};
use nfs::v3::{self, Args};
use nfs::xdr::{Xdr, padding};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use wire::Time;

/// A reply that does not come in this time never comes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of one read of the client's.
const READ_BYTES: usize = 1 << 20;
/// The mark of a record of one fragment (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;
const MARK_BYTES: usize = 4;

/// A call that is to be made: arguments, and of a WRITE the data.
pub struct Request<'a> {
    /// The arguments.
    pub args: Args<'a>,
    /// What a WRITE writes.
    pub data: &'a [u8],
}

impl<'a> From<Args<'a>> for Request<'a> {
    fn from(args: Args<'a>) -> Request<'a> {
        Request { args, data: &[] }
    }
}

/// Bytes that came and are not consumed.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    xid: u32,
    input: Input,
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
        let input = Input { bytes: vec![0; 2 * READ_BYTES], start: 0, end: 0 };
        Ok(Client { stream, xid: 1, input })
    }

    /// The handle of an export, by MNT.
    pub fn mount(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let mut arguments = Vec::new();
        v3::Path(path.as_bytes()).put(&mut arguments);
        let mut record = Vec::new();
        let mnt = mount::Procedure::Mnt as u32;
        self.append((mount::PROGRAM, mount::VERSION, mnt), &arguments, &[], &mut record);
        self.stream.write_all(&record)?;
        let (_, results) = self.reply()?;
        let mut input = nfs::xdr::Input::new(&results);
        match input.u32() {
            Ok(0) => Ok(input.opaque(64).map_err(other)?.to_vec()),
            status => Err(other(format!("MNT of {path}: {status:?}"))),
        }
    }

    /// Makes one call; its results, from the status on. An error unless that is `NFS3_OK`.
    pub fn call(&mut self, request: &Request<'_>) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        self.append_request(request, &mut record);
        self.stream.write_all(&record)?;
        let (_, results) = self.reply()?;
        succeeded(&results, request.args.procedure())?;
        Ok(results)
    }

    /// Makes `count` calls, `depth` of them in progress; how long each took.
    pub fn calls<'a>(
        &mut self,
        depth: usize,
        count: usize,
        mut request: impl FnMut(usize) -> Request<'a>,
    ) -> io::Result<Histogram<u64>> {
        let (mut times, mut under_way) = (histogram(), BTreeMap::new());
        let (mut sent, mut done, mut record) = (0, 0, Vec::new());
        while done < count {
            record.clear();
            let now = clock::now();
            while sent < count && sent < done + depth {
                let request = request(sent);
                let xid = self.append_request(&request, &mut record);
                under_way.insert(xid, (now, request.args.procedure()));
                sent += 1;
            }
            if !record.is_empty() {
                self.stream.write_all(&record)?;
            }
            let (xid, results) = self.reply()?;
            let (asked, procedure): (Time, _) =
                under_way.remove(&xid).ok_or_else(|| other("a reply to no call"))?;
            succeeded(&results, procedure)?;
            times.saturating_record(clock::now().since(asked).as_nanos() as u64);
            done += 1;
        }
        Ok(times)
    }

    fn append_request(&mut self, request: &Request<'_>, record: &mut Vec<u8>) -> u32 {
        let mut arguments = Vec::with_capacity(128);
        request.args.put(&mut arguments);
        let procedure = request.args.procedure() as u32;
        self.append((v3::PROGRAM, v3::VERSION, procedure), &arguments, request.data, record)
    }

    /// Appends a record with a call; its number.
    fn append(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        arguments: &[u8],
        data: &[u8],
        record: &mut Vec<u8>,
    ) -> u32 {
        self.xid += 1;
        let system = System { stamp: 1, machine: b"bench", uid: 0, gid: 0, groups: Groups::of([]) };
        let credential = Credential::System(system);
        let start = record.len();
        record.extend_from_slice(&[0; MARK_BYTES]);
        Call { xid: self.xid, program, version, procedure, credential, arguments }.put(record);
        record.extend_from_slice(data);
        record.resize(record.len() + padding(data.len()), 0);
        let bytes = (record.len() - start - MARK_BYTES) as u32;
        record[start..start + MARK_BYTES].copy_from_slice(&(LAST_FRAGMENT | bytes).to_be_bytes());
        self.xid
    }

    /// The next reply: its number and the results.
    fn reply(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let record = self.record()?;
        let (xid, reply, results) = Reply::parse(&record).map_err(other)?;
        match reply {
            Reply::Accepted(Acceptance::Success) => Ok((xid, results.to_vec())),
            refused => Err(other(format!("the call is refused: {refused:?}"))),
        }
    }

    fn record(&mut self) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mark = self.take(MARK_BYTES)?;
            let mark = u32::from_be_bytes(mark.try_into().expect("four bytes"));
            record.extend(self.take((mark & !LAST_FRAGMENT) as usize)?);
            if mark & LAST_FRAGMENT != 0 {
                return Ok(record);
            }
        }
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let Input { bytes: buffer, start, end } = &mut self.input;
        if bytes > READ_BYTES {
            return Err(other("a reply of more than 1 MiB"));
        }
        if *start + bytes > buffer.len() || *start == *end {
            buffer.copy_within(*start..*end, 0);
            (*start, *end) = (0, *end - *start);
        }
        while *end - *start < bytes {
            match self.stream.read(&mut buffer[*end..])? {
                0 => return Err(other("the server has closed the connection")),
                more => *end += more,
            }
        }
        let taken = buffer[*start..*start + bytes].to_vec();
        *start += bytes;
        Ok(taken)
    }
}

fn succeeded(results: &[u8], procedure: v3::Procedure) -> io::Result<()> {
    match nfs::xdr::Input::new(results).u32() {
        Ok(0) => Ok(()),
        Ok(status) => Err(other(format!("{procedure:?}: status {status}"))),
        Err(garbage) => Err(other(garbage)),
    }
}
