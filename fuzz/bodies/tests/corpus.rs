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
        retired: false,
        drained: false,
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
    let replica = |server| members::groups::Replica { server: NodeId(server), disk: 0, id: 7 };
    let group = members::groups::Group::new(2, &[replica(1), replica(2)]).unwrap();
    let id = wire::GroupId::FIRST;
    let told = members::groups::ToldGroup { version: 3, id, group };
    let page = members::groups::GroupsPage { version: 3, groups: vec![told], last: true };
    let (body, data) = page.encode();
    write("members", "groups", &[&body[..], &data].concat());
    let change = members::groups::Change::Remove(replica(2));
    let proposal = members::groups::Proposal { group: id, by: replica(1), epoch: 1, change };
    write("members", "proposal", &wire::field::encoded(&proposal));
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
    nfs_seeds(&write);
}

fn nfs_seeds(write: &dyn Fn(&str, &str, &[u8])) {
    use nfs::{exports, handle, nlm, rpc, v3, xdr::encoded};
    let system =
        rpc::System { machine: b"client", groups: rpc::Groups::of([4, 20]), ..Default::default() };
    let all = exports::parse("/ *(rw)").unwrap();
    let export = all.iter().next().unwrap().number();
    let named =
        handle::Named { volume: wire::VolumeId(1), file: FileId::ROOT, generation: 0, export };
    let root = named.encode(&handle::Key([7; 16]));
    let file = v3::Handle(&root);
    let call = |procedure: v3::Procedure, arguments: &[u8]| {
        let (program, version) = (v3::PROGRAM, v3::VERSION);
        let credential = rpc::Credential::System(system);
        let procedure = procedure as u32;
        let mut out = Vec::new();
        rpc::Call { xid: 1, program, version, procedure, credential, arguments }.put(&mut out);
        out
    };
    let data = [5; 9000];
    let args = v3::WriteArgs {
        file,
        offset: 0,
        count: data.len() as u32,
        stable: v3::StableHow::Unstable,
        data_bytes: data.len() as u32,
    };
    let record = [call(v3::Procedure::Write, &encoded(&args)), data.to_vec()].concat();
    let record = [&(record.len() as u32 | 1 << 31).to_be_bytes()[..], &record].concat();
    write("nfs_record", "writes", &[&[40][..], &record, &record].concat());
    let place = v3::DirOpArgs { dir: file, name: v3::Path(b"name") };
    let create = v3::CreateArgs { place, how: v3::CreateHow::Guarded(v3::Sattr::default()) };
    write("nfs_call", "create", &call(v3::Procedure::Create, &encoded(&create)));
    write("nfs_call", "lookup", &call(v3::Procedure::Lookup, &encoded(&place)));
    let mut reply = Vec::new();
    rpc::Reply::Accepted(rpc::Acceptance::Success).put(7 << 24, &mut reply);
    let name = v3::Path(b"name");
    let entry = v3::EntryPlus { fileid: 1, name, cookie: 3, attributes: None, handle: Some(file) };
    let listed =
        v3::ReaddirplusOk { attributes: None, verifier: [1; 8], entries: vec![entry], eof: true };
    reply.extend(encoded(&v3::Outcome::<_, v3::AttrFailure>::Ok(listed)));
    write("nfs_call", "listing", &reply);
    let lock = nlm::NlmLock {
        host: nlm::Host(b"client"),
        handle: nlm::NetObject(&root),
        owner: nlm::NetObject(b"owner"),
        process: 1,
        offset: 0,
        bytes: 10,
    };
    let lock = nlm::LockArgs {
        cookie: nlm::NetObject(b"1"),
        block: true,
        exclusive: true,
        lock,
        reclaim: false,
        state: 3,
    };
    write("nfs_beside", "lock", &[&[3, nlm::Procedure::Lock as u8][..], &encoded(&lock)].concat());
    write("nfs_beside", "mount", &[&[0, 1][..], &encoded(&nfs::mount::DirPath(b"/home"))].concat());
    write("nfs_beside", "getport", &[&[6, 3][..], &[0; 16]].concat());
    write("nfs_handle", "root", &root);
    let text = "/ *(ro)\n/home 192.168.1.0/24(rw,all_squash,anonuid=7) fd00::/8\n";
    exports::parse(text).unwrap();
    write("nfs_exports", "two", text.as_bytes());
}
