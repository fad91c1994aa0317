//! A server without sockets, and connections to it that are fed text.
#![allow(dead_code)] // every test file uses a part of it

use endpoint::Frames;
use endpoint::memory::HeapRegion;
use kv::{Items, ItemsConfig, Moment, Out, Progress, Protocol, Session, TenantConfig, TenantNo};

/// The date when tests begin.
pub const WALL_MS: u64 = 1_700_000_000_000;

/// Lengths of values around every limit, and the bytes of a read that they come in.
pub const LENGTHS_AND_STEPS: [(usize, usize); 11] = [
    (0, 1),
    (1, 3),
    (2000, 7),
    (2043, 1 << 20),
    (2044, 100),
    (8192, 1),
    (8192, 1 << 20),
    (65_536, 1000),
    (100_000, 1 << 20),
    (1 << 20, 4097),
    (4 << 20, 1 << 20),
];

pub struct Server {
    pub items: Items,
    pub moment: Moment,
    pub frames: Frames,
    input: Vec<u8>,
}

pub struct Client {
    pub session: Session,
    pub out: Out,
    pub ended: bool,
    /// More is to be done when its output is written.
    pub is_full: bool,
}

/// A tenant that may have everything.
pub fn tenant(name: &str) -> TenantConfig {
    TenantConfig {
        name: name.into(),
        min_bytes: 0,
        max_bytes: usize::MAX,
        away_max_bytes: usize::MAX,
    }
}

impl Server {
    pub fn new(memory_bytes: usize, tenants: Vec<TenantConfig>) -> Server {
        let frames = Frames::new(HeapRegion::new(memory_bytes / 4096));
        let config =
            ItemsConfig { memory_bytes, value_bytes_max: memory_bytes / 4, seed: 7, tenants };
        let items = Items::new(config, frames.clone()).unwrap();
        let moment = Moment { now_ms: 10_000, wall_ms: WALL_MS };
        Server { items, moment, frames, input: vec![0; kv::limits::INPUT_BYTES] }
    }

    pub fn usual() -> Server {
        Server::new(16 << 20, vec![tenant("default")])
    }

    pub fn client(&self, protocol: Protocol) -> Client {
        self.client_of(protocol, TenantNo(0))
    }

    pub fn client_of(&self, protocol: Protocol, tenant: TenantNo) -> Client {
        Client {
            session: Session::new(protocol, tenant, 1),
            out: Out::default(),
            ended: false,
            is_full: false,
        }
    }

    pub fn wait_ms(&mut self, span: u64) {
        self.moment.now_ms += span;
        self.moment.wall_ms += span;
    }

    /// One read of the socket: at most what fits behind what the session kept, or into its gap; how many bytes.
    pub fn read(&mut self, client: &mut Client, bytes: &[u8]) -> usize {
        let Client { session, out, .. } = client;
        let (count, progress) =
            session.feed(bytes, &mut self.input, &mut self.items, self.moment, out);
        client.ended = progress == Progress::Ended;
        client.is_full = progress == Progress::Full;
        count
    }

    /// Sends all of `bytes`, reading what is answered meanwhile; all that was answered.
    pub fn send(&mut self, client: &mut Client, bytes: &[u8], step: usize) -> Vec<u8> {
        let (mut answer, mut at) = (Vec::new(), 0);
        while !client.ended && at < bytes.len() {
            let end = bytes.len().min(at + step);
            at += self.read(client, &bytes[at..end]);
            answer.extend(client.take());
        }
        while client.is_full {
            self.read(client, &[]);
            answer.extend(client.take());
        }
        answer
    }

    pub fn ask(&mut self, client: &mut Client, text: &str) -> String {
        String::from_utf8_lossy(&self.send(client, text.as_bytes(), usize::MAX >> 1)).into_owned()
    }
}

impl Client {
    /// The waiting output, as if it had been written in pieces of odd sizes.
    pub fn take(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while !self.out.is_empty() {
            let piece = self.out.pieces().next().unwrap();
            let count = piece.len().min(1_000_003);
            all.extend_from_slice(&piece[..count]);
            self.out.written(count);
        }
        all
    }
}

/// Bytes that tell where they stand.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A command as clients write it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        text.extend_from_slice(word);
        text.extend_from_slice(b"\r\n");
    }
    text
}

pub fn ask(server: &mut Server, client: &mut Client, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let told = server.send(client, &command(&words), 1 << 20);
    String::from_utf8(told).unwrap().replace("\r\n", "|")
}

/// A server with usual limits, and a client of it.
pub fn start(protocol: Protocol) -> (Server, Client) {
    let server = Server::usual();
    let client = server.client(protocol);
    (server, client)
}

/// Sends each command and compares the answer, in which `|` stands for a line's end.
pub fn script_of(server: &mut Server, client: &mut Client, lines: &[(&str, &str)]) {
    for (line, answer) in lines {
        assert_eq!(ask(server, client, line), format!("{answer}|"), "{line}");
    }
}

/// As [`script_of`], in Redis's protocol, with a server of its own.
pub fn script(lines: &[(&str, &str)]) {
    let (mut server, mut client) = start(Protocol::Resp);
    script_of(&mut server, &mut client, lines);
}
