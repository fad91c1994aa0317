//! Runs every target over every file of its corpus.

use fuzz_bodies::TARGETS;
use std::fs;
use std::path::PathBuf;
use wire::{
    Attr, CallHeader, Channel, Control, Encoder, FileId, Flags, Header, Kind, Layout, NodeId,
    SessionEpoch, Wall,
};

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus")).join(target)
}

#[test]
fn the_corpus_breaks_no_promise() {
    for (name, run) in TARGETS {
        let files = fs::read_dir(corpus(name)).unwrap_or_else(|e| panic!("corpus of {name}: {e}"));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            run(&fs::read(path).unwrap());
            count += 1;
        }
        assert!(count > 0, "the corpus of {name} is empty");
    }
}

/// Every target stands where cargo-fuzz looks for it.
#[test]
fn every_target_is_a_program() {
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz_targets");
    let mut found: Vec<String> = fs::read_dir(programs)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    let mut named: Vec<String> = TARGETS.iter().map(|(name, _)| name.to_string()).collect();
    found.sort();
    named.sort();
    assert_eq!(found, named);
}

fn sealed(header: &Header, call: &CallHeader, body: &[u8]) -> Vec<u8> {
    let mut control = Control::new(header, call);
    control.body_mut()[..body.len()].copy_from_slice(body);
    control.seal();
    control.0.into_iter().chain([1, 1]).collect()
}

/// A conversation with the node of target `rpc`: a session is granted, a request asks, a reply answers.
fn conversation() -> Vec<Vec<u8>> {
    let header = |kind| Header::new(kind, NodeId(2), NodeId(1));
    let body = 1u64.to_le_bytes();
    let welcome = Header {
        epoch: SessionEpoch(9),
        credit_slots: 4,
        credit_frames: 256,
        ..header(Kind::Welcome)
    };
    // the first epoch that the target's node grants
    let epoch = SessionEpoch((2u64.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 + 1);
    let request = Header {
        epoch,
        sequence: 1,
        channel: Channel::USER,
        flags: Flags::ONCE,
        payload_bytes: 5000,
        payload_checksum: 1,
        ..header(Kind::Request)
    };
    let reply = Header { epoch: SessionEpoch(9), sequence: 1, ..header(Kind::Reply) };
    let call = CallHeader { call: 1 << 16, ..CallHeader::default() };
    vec![
        sealed(&header(Kind::Hello), &CallHeader::default(), &body),
        sealed(&welcome, &CallHeader::default(), &body),
        sealed(&request, &CallHeader::default(), &[]),
        sealed(&Header { payload_bytes: 0, payload_checksum: 0, ..request }, &call, &[]),
        sealed(&reply, &call, b"answer"),
        sealed(&Header { kind: Kind::Reset, ..reply }, &call, &[]),
        sealed(&Header { kind: Kind::Done, ..reply }, &call, &[]),
    ]
}

/// Writes the seeds: `cargo test -p fuzz-bodies -- --ignored seeds`.
#[test]
#[ignore = "writes files"]
fn seeds() {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(corpus(target)).unwrap();
        fs::write(corpus(target).join(name), bytes).unwrap();
    };
    let messages = conversation();
    for (message, name) in
        messages.iter().zip(["hello", "welcome", "request", "small", "reply", "reset", "done"])
    {
        write("control", name, message);
    }
    write("rpc", "conversation", &messages.concat());
    let mut bytes = [0; Layout::BYTES_MAX + 16];
    let layout = Layout::new(1, 32 * 1024, &[NodeId(1), NodeId(2), NodeId(3)]).unwrap();
    let mut out = Encoder::new(&mut bytes);
    layout.encode(&mut out);
    out.u64(100_000).u64(1 << 20);
    let len = out.len();
    write("layout", "three-columns", &bytes[..len]);
    let time = Wall { seconds: -1, nanos: 999_999_999 };
    let attr = Attr { file: FileId::ROOT, mode: 0o755, mtime: time, ..Attr::default() };
    write("attr", "root", &wire::field::encoded(&attr));
    // announce an entry, read it, take the announcement back, release it
    let step = |what: u8, word: u16, value: u64| {
        [&[what][..], &word.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    let taken_back = [step(0, 0, 1), step(1, 0, 0), step(0, 0, 2), step(3, 8, 1), step(4, 16, 3)];
    write("ring", "taken-back", &taken_back.concat());
    let pieces = [step(7, 528, 2), step(7, 530, 4096 << 24 | 4096), step(0, 0, 1), step(1, 1, 0)];
    write("ring", "pieces", &pieces.concat());
    let request = stripe::protocol::ObjectRequest::default();
    write("stripe", "request", &request.encode());
    let member = members::Member {
        id: NodeId(1),
        roles: members::Roles::IO,
        alive: true,
        gone: false,
        incarnation: 3,
        disks: 1,
        gone_disks: 0,
        name: "a".into(),
        addresses: vec!["127.0.0.1:9".into()],
    };
    write("members", "member", &member.to_bytes());
    let page = members::protocol::Page { view: 1, members: vec![member], last: true };
    let (body, data) = page.encode();
    write("members", "page", &[&body[..], &data].concat());
    for (name, opcode, body) in [
        ("lookup", 1u32, &b"name\0"[..]),
        ("getattr", 3, &[0; 16]),
        ("setattr", 4, &[1; 88]),
        ("rename2", 45, b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0old\0new\0"),
        ("setxattr", 21, b"\x05\0\0\0\0\0\0\0user.a\0value"),
        ("batch-forget", 42, &[1; 40]),
        ("init", 26, &[7; 64]),
        ("write", 16, &[3; 40]),
    ] {
        let mut bytes = vec![0; 40];
        bytes[4..8].copy_from_slice(&opcode.to_le_bytes());
        bytes.extend_from_slice(body);
        write("fuse", name, &bytes);
    }
}
