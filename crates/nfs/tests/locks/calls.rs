//! Calls: duplicates, asynchronous ones, unknown ones.

use super::*;

#[test]
fn duplicates_are_not_executed_again() {
    let mut world = World::new();
    let (one, other) = (who(1, 1), who(2, 2));
    let handle = world.handle(FILE);
    let lock = encoded(&one.lock_args(&handle, ALL));
    let of = |procedure: Procedure| (nlm::PROGRAM, nlm::VERSION, procedure as u32);
    world.send(address(1), of(Procedure::Lock), &lock, 7);
    assert_eq!(world.taken_reply(7), Some(answered(Status::Granted)));
    assert_eq!(world.unlock(&one, FILE, 0, 0), Status::Granted);
    assert_eq!(world.lock(&other, FILE, ALL), Status::Granted);
    assert_eq!(world.unlock(&other, FILE, 0, 0), Status::Granted);
    world.send(address(1), of(Procedure::Lock), &lock, 7);
    assert_eq!(world.taken_reply(7), Some(answered(Status::Granted)), "the first reply");
    assert!(world.manager.held.is_empty(), "and no lock");
    // a number that the client chose may be so long that its reply is not kept
    let long = [b'c'; LOCK_OBJECT_BYTES_MAX];
    let args = LockArgs { cookie: NetObject(&long), ..one.lock_args(&handle, ALL) };
    assert_eq!(world.status(&one, Procedure::Lock, Args::Lock(args)), Status::Granted);
}

#[test]
fn asynchronous_calls_are_answered_by_calls() {
    let mut world = World::new();
    let handle = world.handle(FILE);
    let one = who(1, 1);
    let arguments = one.lock_args(&handle, ALL);
    assert!(world.nlm(&one, Procedure::LockMsg, Args::Lock(arguments)).is_empty());
    let test = TestArgs { cookie: NetObject(b"t"), exclusive: true, lock: one.lock(&handle, 0, 0) };
    assert!(world.nlm(&who(2, 2), Procedure::TestMsg, Args::Test(test)).is_empty());
    let calls = world.calls();
    let of = |procedure: Procedure| (nlm::PROGRAM, procedure as u32);
    assert_eq!(calls[0].of, of(Procedure::LockRes));
    assert_eq!(calls[0].arguments, answered(Status::Granted));
    assert_eq!(calls[1].of, of(Procedure::TestRes));
    world.pass(CALL_PAUSE_MAX);
    assert!(world.calls().is_empty(), "once");
    assert!(
        world
            .nlm(
                &one,
                Procedure::GrantedRes,
                Args::Res(Answer { cookie: NetObject(b"c"), status: Status::Granted })
            )
            .is_empty()
    );
}

#[test]
fn other_versions_procedures_and_programs_are_refused_by_name() {
    let mut world = World::new();
    let mut refused = |of: (u32, u32, u32)| {
        world.xid += 1;
        let (program, version, procedure) = of;
        let (xid, credential) = (world.xid, Credential::None);
        let mut bytes = Vec::new();
        Call { xid, program, version, procedure, credential, arguments: b"\0\0\0\x01" }
            .put(&mut bytes);
        let from = SocketAddr::new(address(1), 700);
        let origin = Origin { from, to: SERVER, over: UDP, port: Port::Locks };
        world.front.datagram(origin, &bytes);
        let reply = world.front.poll_datagram().unwrap().bytes;
        Reply::parse(&reply).unwrap().1
    };
    let versions = |low| Reply::Accepted(Acceptance::Versions { low, high: low });
    assert_eq!(refused((nlm::PROGRAM, 3, 0)), versions(4));
    assert_eq!(refused((nsm::PROGRAM, 2, 0)), versions(1));
    assert_eq!(refused((nlm::PROGRAM, 4, 16)), Reply::Accepted(Acceptance::NoProcedure));
    assert_eq!(refused((nlm::PROGRAM, 4, 2)), Reply::Accepted(Acceptance::GarbageArguments));
    assert_eq!(refused((nsm::PROGRAM, 1, 6)), Reply::Accepted(Acceptance::GarbageArguments));
    assert_eq!(refused((100_003, 3, 0)), Reply::Accepted(Acceptance::NoProgram));
}
