//! The client's end of a stream, against records made and parsed by the server's codecs.

use crate::material::{Material, material};
use nfs::client::{Called, Caller, Client, ReplyError, Request, StreamError};
use nfs::mount::{self, DirPath, MntResult, MountHandle};
use nfs::nlm;
use nfs::record::{Outgoing, begin};
use nfs::rpc::{Acceptance, Call, Credential, Denial, Reply};
use nfs::v3::*;
use nfs::xdr::encoded;
use proptest::prelude::*;

fn client() -> Client {
    let caller = Caller { machine: b"tester".to_vec(), uid: 7, gid: 8, ..Caller::default() };
    Client::new(caller, 100)
}

/// A reply's record, as the server makes it.
fn reply_record(xid: u32, head: Reply, results: &[u8]) -> Vec<u8> {
    let mut bytes = begin(64);
    head.put(xid, &mut bytes);
    bytes.extend_from_slice(results);
    let record = Outgoing::of(bytes);
    let mut out = (record.head().len() as u32 | 1 << 31).to_be_bytes().to_vec();
    out.extend_from_slice(record.head());
    out
}

fn succeeded(xid: u32, results: &[u8]) -> Vec<u8> {
    reply_record(xid, Reply::Accepted(Acceptance::Success), results)
}

/// The calls in so many bytes of a stream.
fn calls(mut stream: &[u8]) -> Vec<Call<'_>> {
    let mut calls = Vec::new();
    while let Some((mark, rest)) = stream.split_first_chunk() {
        let (record, later) = rest.split_at((u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize);
        calls.push(Call::parse(record).unwrap());
        stream = later;
    }
    calls
}

fn all_results(m: &Material) -> Vec<(Procedure, Results<'_>)> {
    use Outcome::Ok;
    let (attributes, wcc, verifier, eof) = (m.after(0), m.wcc(1), m.verifier, m.flags[4]);
    let data = &m.names[1][..];
    let (count, data_bytes) = (data.len() as u32, data.len() as u32);
    let made = CreateOk { object: m.flags[3].then(|| m.handle(0)), attributes, wcc };
    let name = Path(&m.names[0]);
    let entry = Entry { fileid: 1, name, cookie: 2 };
    let handle = Some(m.handle(1));
    let plus = EntryPlus { fileid: 1, name, cookie: 2, attributes, handle };
    let read = ReadOk { attributes, count, eof, data_bytes };
    let found = LookupOk { object: m.handle(0), attributes, directory: m.after(1) };
    let listed = ReaddirOk { attributes, verifier, entries: vec![entry; 3], eof };
    let listed_plus = ReaddirplusOk { attributes, verifier, entries: vec![plus; 3], eof };
    let written = WriteOk { wcc, count, committed: m.stable(), verifier };
    vec![
        (Procedure::Null, Results::Null),
        (Procedure::Getattr, Results::Getattr(Ok(m.fattr()))),
        (Procedure::Setattr, Results::Setattr(Outcome::Err(m.status(), wcc))),
        (Procedure::Lookup, Results::Lookup(Ok(found))),
        (Procedure::Access, Results::Access(Ok(AccessOk { attributes, access: 1 }))),
        (Procedure::Readlink, Results::Readlink(Ok(ReadlinkOk { attributes, target: name }))),
        (Procedure::Read, Results::Read(Ok(ReadData { ok: read, data }))),
        (Procedure::Write, Results::Write(Ok(written))),
        (Procedure::Create, Results::Create(Ok(made.clone()))),
        (Procedure::Mkdir, Results::Mkdir(Outcome::Err(m.status(), wcc))),
        (Procedure::Symlink, Results::Symlink(Ok(made.clone()))),
        (Procedure::Mknod, Results::Mknod(Ok(made))),
        (Procedure::Remove, Results::Remove(Ok(wcc))),
        (Procedure::Rmdir, Results::Rmdir(Outcome::Err(m.status(), wcc))),
        (Procedure::Rename, Results::Rename(Ok(RenameWcc { from: wcc, to: m.wcc(5) }))),
        (Procedure::Link, Results::Link(Ok(LinkResult { attributes, wcc }))),
        (Procedure::Readdir, Results::Readdir(Ok(listed))),
        (Procedure::Readdirplus, Results::Readdirplus(Ok(listed_plus))),
        (Procedure::Fsstat, Results::Fsstat(Outcome::Err(m.status(), attributes))),
        (Procedure::Fsinfo, Results::Fsinfo(Outcome::Err(m.status(), attributes))),
        (Procedure::Pathconf, Results::Pathconf(Outcome::Err(m.status(), attributes))),
        (Procedure::Commit, Results::Commit(Ok(CommitOk { wcc, verifier }))),
    ]
}

proptest! {
    #[test]
    fn calls_arrive_as_they_were_made(m in material()) {
        let (mut client, mut stream) = (client(), Vec::new());
        let requests: Vec<_> = Procedure::ALL.iter().map(|of| Request::from(m.args(*of))).collect();
        let xids: Vec<_> = requests.iter().map(|request| client.call(request, &mut stream)).collect();
        prop_assert_eq!(&xids, &(101..123).collect::<Vec<u32>>());
        for ((call, procedure), xid) in calls(&stream).iter().zip(Procedure::ALL).zip(xids) {
            prop_assert_eq!((call.xid, call.program, call.version), (xid, PROGRAM, VERSION));
            prop_assert_eq!(call.procedure, *procedure as u32);
            prop_assert_eq!(Args::decode(*procedure, call.arguments), Ok(m.args(*procedure)));
            let Credential::System(system) = call.credential else { panic!("AUTH_SYS") };
            prop_assert_eq!((system.machine, system.uid, system.gid), (&b"tester"[..], 7, 8));
        }
    }

    /// In pieces of any length, the replies in the opposite order of the calls.
    #[test]
    fn replies_are_matched_by_xid(m in material(), piece in 1usize..200) {
        let mut client = client();
        let xid_of = |procedure: Procedure| 101 + procedure as u32;
        for procedure in Procedure::ALL {
            client.call(&m.args(*procedure).into(), &mut Vec::new());
        }
        let all = all_results(&m);
        prop_assert_eq!(all.len(), Procedure::ALL.len());
        let mut stream = Vec::new();
        for (procedure, results) in all.iter().rev() {
            let mut bytes = Vec::new();
            results.put(&mut bytes);
            stream.extend(succeeded(xid_of(*procedure), &bytes));
        }
        let mut expected = all.iter().rev();
        for piece in stream.chunks(piece) {
            client.received(piece);
            while let Some(reply) = client.poll_reply().unwrap() {
                let (procedure, results) = expected.next().unwrap();
                prop_assert_eq!(reply.xid, xid_of(*procedure));
                prop_assert_eq!(reply.called, Called::Nfs(*procedure));
                let decoded = reply.nfs();
                prop_assert_eq!(decoded.as_ref(), Ok(results));
                prop_assert_eq!(decoded.unwrap().status(), results.status());
            }
        }
        prop_assert_eq!((expected.count(), client.in_flight()), (0, 0));
    }

    #[test]
    fn any_bytes_are_replies_or_end_the_stream(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut client = client();
        let xid = client.call(&Args::Null(()).into(), &mut Vec::new());
        client.received(&succeeded(xid + 1, &[]));
        client.received(&bytes);
        while let Ok(Some(reply)) = client.poll_reply() {
            let _ = reply.nfs();
        }
    }
}

#[test]
fn the_data_of_a_write_follows_its_arguments_padded() {
    let (mut client, mut stream) = (client(), Vec::new());
    let file = Handle(&[1; 32]);
    client.call(&Request::write(file, 5, StableHow::FileSync, b"seven b"), &mut stream);
    let call = calls(&stream)[0];
    let (head, data) = call.arguments.split_at(call.arguments.len() - 8);
    assert_eq!(data, b"seven b\0");
    let Ok(Args::Write(args)) = Args::decode(Procedure::Write, head) else { panic!("a WRITE") };
    assert_eq!((args.count, args.data_bytes, args.offset), (7, 7, 5));
}

#[test]
fn a_retransmission_is_the_same_record_with_the_same_xid() {
    let (mut client, mut first) = (client(), Vec::new());
    let place = DirOpArgs { dir: Handle(&[1; 32]), name: Path(b"a") };
    let removed = client.call(&Args::Remove(place).into(), &mut first);
    let asked = client.call(&Args::Getattr(place.dir).into(), &mut first);
    // half a reply comes by the connection that is lost
    client.received(&succeeded(removed, &[0; 12])[..9]);
    assert_eq!(client.poll_reply(), Ok(None));
    client.reconnected();
    let mut second = Vec::new();
    client.retransmit_all(&mut second);
    assert_eq!(first, second);
    client.received(&succeeded(removed, &[0; 12]));
    let reply = client.poll_reply().unwrap().unwrap();
    let nothing = WccData::default();
    assert_eq!(reply.nfs(), Ok(Results::Remove(Outcome::Ok(nothing))));
    assert!(!client.retransmit(removed, &mut second), "its reply is here");
    assert!(client.retransmit(asked, &mut second));
    assert_eq!(client.in_flight(), 1);
}

#[test]
fn a_reply_of_another_xid_is_no_calls_reply() {
    let mut client = client();
    let xid = client.call(&Args::Null(()).into(), &mut Vec::new());
    for other in [xid + 1, xid, xid] {
        client.received(&succeeded(other, &[]));
    }
    assert_eq!(client.poll_reply().unwrap().unwrap().xid, xid);
    assert_eq!(client.poll_reply(), Ok(None));
    assert_eq!(client.unmatched_replies(), 2, "one of another call, one that comes twice");
}

#[test]
fn no_two_calls_in_flight_have_the_same_xid() {
    let mut client = Client::new(Caller::default(), u32::MAX - 1);
    let mut call = || client.call(&Args::Null(()).into(), &mut Vec::new());
    assert_eq!([call(), call(), call()], [u32::MAX, 0, 1]);
}

#[test]
fn a_refused_call_has_no_results() {
    let mut client = client();
    let xid = client.call(&Args::Null(()).into(), &mut Vec::new());
    client.received(&reply_record(xid, Reply::Denied(Denial::TooWeak), &[]));
    let reply = client.poll_reply().unwrap().unwrap();
    assert_eq!(reply.nfs(), Err(ReplyError::Refused(Reply::Denied(Denial::TooWeak))));
}

#[test]
fn a_reply_in_fragments_is_one_reply() {
    let mut client = client();
    let xid = client.call(&Args::Getattr(Handle(&[1; 32])).into(), &mut Vec::new());
    let next = client.call(&Args::Null(()).into(), &mut Vec::new());
    let results = encoded(&Outcome::<Fattr, ()>::Err(Status::Stale, ()));
    let record = succeeded(xid, &results);
    for (at, fragment) in record[4..].chunks(7).enumerate() {
        let is_last = (at + 1) * 7 >= record.len() - 4;
        client.received(&(fragment.len() as u32 | u32::from(is_last) << 31).to_be_bytes());
        client.received(fragment);
    }
    client.received(&succeeded(next, &[]));
    let reply = client.poll_reply().unwrap().unwrap();
    assert_eq!(reply.nfs(), Ok(Results::Getattr(Outcome::Err(Status::Stale, ()))));
    assert_eq!(client.poll_reply().unwrap().unwrap().xid, next);
}

#[test]
fn what_is_no_reply_ends_the_stream() {
    let mut client = client();
    let mut own = Vec::new();
    client.call(&Args::Null(()).into(), &mut own);
    client.received(&own);
    assert_eq!(client.poll_reply(), Err(StreamError::NoReply));
    client.reconnected();
    client.received(&u32::MAX.to_be_bytes());
    assert!(matches!(client.poll_reply(), Err(StreamError::TooLong(_))));
    client.reconnected();
    // fragments without an end
    let fragment = [&(1u32 << 16).to_be_bytes()[..], &[0; 1 << 16]].concat();
    let endless = (0..64).find(|_| {
        client.received(&fragment);
        client.poll_reply().is_err()
    });
    assert!(endless.is_some(), "what one reply may take is bounded");
}

#[test]
fn data_that_is_not_as_long_as_it_says_is_garbage() {
    let ok = ReadOk { attributes: None, count: 4, eof: true, data_bytes: 4 };
    let mut bytes = encoded(&Outcome::<_, AttrFailure>::Ok(ReadData { ok, data: b"four" }));
    assert!(Results::decode(Procedure::Read, &bytes).is_ok());
    let count_at = bytes.len() - 16;
    bytes[count_at + 3] = 3;
    assert!(Results::decode(Procedure::Read, &bytes).is_err());
    bytes[count_at + 3] = 4;
    bytes.truncate(bytes.len() - 4);
    assert!(Results::decode(Procedure::Read, &bytes).is_err());
}

#[test]
fn mounts_and_locks_go_over_the_same_client() {
    let (mut client, mut stream) = (client(), Vec::new());
    let mounted = client.call(&mount::Args::Mnt(DirPath(b"/a")).into(), &mut stream);
    let (cookie, handle) = (nlm::NetObject(b"c"), nlm::NetObject(&[1; 32]));
    let (host, owner) = (nlm::Host(b"tester"), nlm::NetObject(b"7"));
    let lock = nlm::NlmLock { host, handle, owner, process: 7, offset: 0, bytes: 10 };
    let args = nlm::Args::Test(nlm::TestArgs { cookie, exclusive: true, lock });
    let tested = client.call(&Request::Lock(nlm::Procedure::Test, args), &mut stream);
    let unlock = nlm::Args::Unlock(nlm::UnlockArgs { cookie, lock });
    let unlocked = client.call(&Request::Lock(nlm::Procedure::Unlock, unlock), &mut stream);
    let calls = calls(&stream);
    let mnt = mount::Args::decode(mount::Procedure::Mnt, calls[0].arguments);
    assert_eq!(mnt, Ok(mount::Args::Mnt(DirPath(b"/a"))));
    assert_eq!(nlm::Args::decode(nlm::Procedure::Test, calls[1].arguments), Ok(args));
    assert_eq!((calls[1].program, calls[1].version), (nlm::PROGRAM, nlm::VERSION));

    let root = MntResult::Ok(MountHandle(&[2; 32]), vec![mount::AUTH_SYS]);
    let holder = nlm::Holder { exclusive: true, process: 9, owner, offset: 0, bytes: 1 };
    let denied = nlm::TestAnswer { cookie, outcome: Err(holder) };
    let answer = nlm::Answer { cookie, status: nlm::Status::Granted };
    client.received(&succeeded(unlocked, &encoded(&answer)));
    client.received(&succeeded(tested, &encoded(&denied)));
    client.received(&succeeded(mounted, &encoded(&root)));
    assert_eq!(client.poll_reply().unwrap().unwrap().decoded(), Ok(answer));
    assert_eq!(client.poll_reply().unwrap().unwrap().decoded(), Ok(denied));
    let reply = client.poll_reply().unwrap().unwrap();
    assert_eq!(reply.decoded(), Ok(root));
    assert_eq!(reply.nfs(), Err(ReplyError::Garbage), "results of another program");
}
