//! Many clients of one front, over streams and datagrams in memory; the file system is one in memory too.

mod bounds;
mod garbage;
mod lossy;
mod serving;

use crate::memory::Memory;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use endpoint::{Frames, HeapRegion};
use nfs::exports;
use nfs::front::{ConnectionId, Ended, Front};
use nfs::handle::Key;
use nfs::limits::*;
use nfs::mount::{self, DirPath, Exported, MntResult, Mounted};
use nfs::portmap::{self, Mapping, Service, TCP, UDP};
use nfs::record::RecordError;
use nfs::rpc::{Acceptance, Call, Credential, Reply, System};
use nfs::server::{Origin, Port, Server};
use nfs::v3::*;
use nfs::xdr::{decoded, encoded, padding};
use node::rings::{FileDone, FileOp, FileRequest};
use proptest::prelude::*;
use std::rc::Rc;
use std::time::Duration;
use wire::{FileId, Time, VolumeId, Wall};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100));

fn origin(client: u8, port: u16) -> Origin {
    let from = SocketAddr::new(Ipv4Addr::new(10, 0, 0, client).into(), port);
    Origin { from, to: SERVER, over: TCP, port: Port::Nfs }
}

struct World {
    front: Front,
    memory: Memory,
    frames: Frames,
    now: Time,
    xid: u32,
}

impl World {
    fn new(text: &str, pages: usize) -> World {
        let frames = Frames::new(HeapRegion::new(pages));
        let exports = exports::parse(text).unwrap();
        let mut server = Server::new(VolumeId(4), Key([3; 16]), exports, *b"started1");
        let service = |program, version, port| Service { program, version, protocol: TCP, port };
        server.services =
            vec![service(PROGRAM, 3, 2049), service(mount::PROGRAM, mount::VERSION, 2049)];
        let front = Front::new(Rc::new(server), frames.clone());
        let memory = Memory::new(frames.clone());
        World { front, memory, frames, now: Time(1), xid: 0 }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.front.set_now(self.now, Wall::default());
        self.front.look_after();
        self.run();
    }

    fn connect(&mut self, client: u8) -> ConnectionId {
        self.front.connect(origin(client, 700)).unwrap()
    }

    /// Hands over as many of the bytes as the front takes, `step` at a time; how many.
    fn send(&mut self, id: ConnectionId, bytes: &[u8], step: usize) -> Result<usize, Ended> {
        let mut sent = 0;
        while sent < bytes.len() {
            let mut taken = 0;
            for mut slice in self.front.slices(id) {
                let rest = &bytes[sent + taken..];
                let part = slice.len().min(rest.len()).min(step - taken);
                slice[..part].copy_from_slice(&rest[..part]);
                taken += part;
            }
            if taken == 0 {
                return Ok(sent);
            }
            sent += taken;
            self.front.filled(id, taken)?;
        }
        Ok(sent)
    }

    fn answer(&mut self, request: FileRequest) {
        let FileRequest { front, caller, op } = request;
        let result = self.memory.serve(&caller, op);
        self.front.done(FileDone { front, result });
    }

    /// Serves until nothing is asked.
    fn run(&mut self) {
        while let Some(request) = self.front.poll_request() {
            self.answer(request);
        }
    }

    /// The records that wait to be written to a connection.
    fn read(&mut self, id: ConnectionId) -> Vec<Vec<u8>> {
        let writer = self.front.writer(id).expect("it is connected");
        let bytes: Vec<u8> = writer.slices().flat_map(|slice| slice.to_vec()).collect();
        self.front.wrote(id, bytes.len()).unwrap();
        let (mut rest, mut records) = (&bytes[..], Vec::new());
        while let Some((mark, behind)) = rest.split_first_chunk() {
            let (record, behind) =
                behind.split_at((u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize);
            records.push(record.to_vec());
            rest = behind;
        }
        records
    }

    fn record(&mut self, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let system = System { uid: 500, gid: 500, ..System::default() };
        let (xid, credential) = (self.xid, Credential::System(system));
        let call = Call { xid, program, version, procedure, credential, arguments };
        let mut bytes = vec![0; 4];
        call.put(&mut bytes);
        let mark = (bytes.len() - 4) as u32 | 1 << 31;
        bytes[..4].copy_from_slice(&mark.to_be_bytes());
        bytes
    }

    fn nfs_record(&mut self, args: Args<'_>, data: &[u8]) -> Vec<u8> {
        let mut arguments = Vec::new();
        args.put(&mut arguments);
        arguments.extend_from_slice(data);
        arguments.extend_from_slice(&[0; 3][..padding(data.len())]);
        self.record(PROGRAM, VERSION, args.procedure() as u32, &arguments)
    }

    /// The results of a call that succeeds as one.
    fn call(&mut self, id: ConnectionId, record: &[u8]) -> Vec<u8> {
        let xid = u32::from_be_bytes(record[4..8].try_into().unwrap());
        assert_eq!(self.send(id, record, 1000), Ok(record.len()));
        self.run();
        let replies = self.read(id);
        assert_eq!(replies.len(), 1);
        let (of, reply, results) = Reply::parse(&replies[0]).unwrap();
        assert_eq!((of, reply), (xid, Reply::Accepted(Acceptance::Success)));
        results.to_vec()
    }

    fn mount(&mut self, id: ConnectionId, path: &str) -> Result<Vec<u8>, mount::Status> {
        let arguments = encoded(&DirPath(path.as_bytes()));
        let record = self.record(mount::PROGRAM, 3, mount::Procedure::Mnt as u32, &arguments);
        match decoded(&self.call(id, &record)).unwrap() {
            MntResult::Ok(handle, flavors) => {
                assert_eq!(flavors, [mount::AUTH_SYS]);
                Ok(handle.0.to_vec())
            }
            MntResult::Err(status) => Err(status),
        }
    }

    fn make(&mut self, id: ConnectionId, dir: &[u8], name: &str, directory: bool) -> Vec<u8> {
        let record = self.make_record(dir, name, directory);
        let results = self.call(id, &record);
        match decoded::<Outcome<CreateOk<'_>, WccData>>(&results).unwrap() {
            Outcome::Ok(ok) => ok.object.unwrap().0.to_vec(),
            Outcome::Err(status, _) => panic!("{status:?}"),
        }
    }

    fn make_record(&mut self, dir: &[u8], name: &str, directory: bool) -> Vec<u8> {
        let place = DirOpArgs { dir: Handle(dir), name: Path(name.as_bytes()) };
        let attributes = Sattr::default();
        let args = match directory {
            true => Args::Mkdir(MkdirArgs { place, attributes }),
            false => Args::Create(CreateArgs { place, how: CreateHow::Guarded(attributes) }),
        };
        self.nfs_record(args, &[])
    }

    fn lookup(&mut self, id: ConnectionId, dir: &[u8], name: &str) -> Result<Vec<u8>, Status> {
        let place = DirOpArgs { dir: Handle(dir), name: Path(name.as_bytes()) };
        let record = self.nfs_record(Args::Lookup(place), &[]);
        match decoded::<Outcome<LookupOk<'_>, AttrFailure>>(&self.call(id, &record)).unwrap() {
            Outcome::Ok(ok) => Ok(ok.object.0.to_vec()),
            Outcome::Err(status, _) => Err(status),
        }
    }

    fn write_record(&mut self, file: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
        let (count, stable) = (data.len() as u32, StableHow::Unstable);
        let args = WriteArgs { file: Handle(file), offset, count, stable, data_bytes: count };
        self.nfs_record(Args::Write(args), data)
    }

    fn read_record(&mut self, file: &[u8], offset: u64, count: u32) -> Vec<u8> {
        self.nfs_record(Args::Read(ReadArgs { file: Handle(file), offset, count }), &[])
    }

    /// A client that mounted all, and a file.
    fn with_file(&mut self, client: u8) -> (ConnectionId, Vec<u8>) {
        let id = self.connect(client);
        let root = self.mount(id, "/").unwrap();
        let file = self.make(id, &root, "file", false);
        (id, file)
    }
}
