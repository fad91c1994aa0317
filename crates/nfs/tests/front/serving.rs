//! Mounts, files, duplicates and datagrams through a front.

use super::*;

#[test]
fn clients_mount_write_and_read_in_any_pieces() {
    for step in [1, 7, 1000, 1 << 20] {
        let mut world = World::new("/ *(rw)", 4096);
        let (one, file) = world.with_file(1);
        let data: Vec<u8> = (0..100_003u32).map(|at| (at % 251) as u8).collect();
        let record = world.write_record(&file, 0, &data);
        assert_eq!(world.send(one, &record, step), Ok(record.len()));
        world.run();
        assert_eq!(world.read(one).len(), 1);
        let two = world.connect(2);
        let record = world.read_record(&file, 3, 200_000);
        let results = world.call(two, &record);
        let data = &data[3..];
        assert!(results.windows(data.len()).any(|part| part == data));
        let clients: Vec<_> = world.front.counters().clients().collect();
        assert_eq!((clients.len(), clients[0].1.calls, clients[1].1.connections), (2, 3, 1));
    }
}

/// Windows believes a mount that succeeded (ganesha#618), and `showmount` waits for each procedure (go-nfs#152).
#[test]
fn every_procedure_of_mount_answers_and_a_refusal_comes_at_once() {
    let mut world = World::new("/ 10.0.0.0/24(rw)\n/docs 10.0.0.1(ro)", 64);
    let (one, two) = (world.connect(1), world.connect(2));
    let root = world.mount(one, "/").unwrap();
    let docs = world.make(one, &root, "docs", true);
    world.make(one, &docs, "deep", true);
    world.make(one, &root, "file", false);
    let refused = |world: &mut World, id, path: &str| world.mount(id, path).unwrap_err();
    assert_eq!(refused(&mut world, one, "/missing"), mount::Status::NoEnt);
    assert_eq!(refused(&mut world, one, "/file"), mount::Status::NotDir);
    assert_eq!(refused(&mut world, one, "/docs/../docs"), mount::Status::Inval);
    assert_eq!(refused(&mut world, one, "/file/below"), mount::Status::NotDir);
    world.mount(two, "/docs").expect("by the export of all");
    world.mount(one, "//docs//deep/").unwrap();
    let stranger = world.front.connect(Origin { to: SERVER, ..origin(1, 1) }).unwrap();
    world.mount(stranger, "/docs").unwrap();
    let mut other = World::new("/ 10.0.0.1(rw)", 64);
    let far = other.connect(2);
    assert_eq!(refused(&mut other, far, "/"), mount::Status::Acces);

    let ask = |world: &mut World, version, procedure: mount::Procedure, arguments: &[u8]| {
        let record = world.record(mount::PROGRAM, version, procedure as u32, arguments);
        world.call(one, &record)
    };
    use mount::Procedure::*;
    assert!(ask(&mut world, 3, Null, &[]).is_empty());
    let dumped = ask(&mut world, 3, Dump, &[]);
    let all: Vec<Mounted<'_>> = decoded(&dumped).unwrap();
    let of = |client: &[u8]| all.iter().filter(|one| one.client.0 == client).count();
    assert_eq!((of(b"10.0.0.1"), of(b"10.0.0.2")), (3, 1));
    ask(&mut world, 1, Umnt, &encoded(&DirPath(b"/docs")));
    let left = ask(&mut world, 1, Dump, &[]);
    assert_eq!(decoded::<Vec<Mounted<'_>>>(&left).unwrap().len(), 3);
    ask(&mut world, 3, UmntAll, &[]);
    let left = ask(&mut world, 3, Dump, &[]);
    assert_eq!(decoded::<Vec<Mounted<'_>>>(&left).unwrap().len(), 1, "another client's");
    let exports = ask(&mut world, 3, Export, &[]);
    let exports: Vec<Exported<'_>> = decoded(&exports).unwrap();
    let shown = |export: &Exported<'_>| (export.directory.0.to_vec(), export.groups.len());
    assert_eq!(
        exports.iter().map(shown).collect::<Vec<_>>(),
        [(b"/".to_vec(), 1), (b"/docs".to_vec(), 1)]
    );
}

/// A client of an export never gets a handle of what is above it.
#[test]
fn an_exports_directory_is_its_own_parent() {
    let mut world = World::new("/ 10.0.0.1(rw)\n/docs 10.0.0.2(rw)", 64);
    let (one, two) = (world.connect(1), world.connect(2));
    let root = world.mount(one, "/").unwrap();
    let docs = world.make(one, &root, "docs", true);
    world.make(one, &docs, "deep", true);
    let top = world.mount(two, "/docs").unwrap();
    assert_eq!(world.lookup(two, &top, "..").as_ref(), Ok(&top));
    let deep = world.lookup(two, &top, "deep").unwrap();
    assert_eq!(world.lookup(two, &deep, ".."), Ok(top.clone()));
    assert_eq!(
        world.lookup(one, &docs, ".."),
        Ok(root.clone()),
        "all of it is exported to that one"
    );
    assert_eq!(
        world.lookup(two, &docs, "deep"),
        Err(Status::Acces),
        "a handle of the other export"
    );
    let args = ReaddirplusArgs {
        dir: Handle(&top),
        cookie: 0,
        verifier: [0; 8],
        dircount: 4096,
        maxcount: 4096,
    };
    let record = world.nfs_record(Args::Readdirplus(args), &[]);
    let results = world.call(two, &record);
    let listed: Outcome<ReaddirplusOk<'_>, AttrFailure> = decoded(&results).unwrap();
    let Outcome::Ok(listed) = listed else { panic!("{listed:?}") };
    let handles = listed.entries.iter().map(|entry| (entry.name.0, entry.handle.is_some()));
    let wanted: [(&[u8], bool); 3] = [(b".", true), (b"..", false), (b"deep", true)];
    assert!(handles.eq(wanted));
}

/// dittofs#1002: `before` is there only where nothing else changed the directory meanwhile.
#[test]
fn attributes_of_before_are_those_right_before_the_change() {
    let mut world = World::new("/ *(rw)", 64);
    let (one, two) = (world.connect(1), world.connect(2));
    let root = world.mount(one, "/").unwrap();
    let results = |world: &mut World, id| {
        let replies = world.read(id);
        let results = Reply::parse(&replies[0]).unwrap().2.to_vec();
        match decoded::<Outcome<CreateOk<'_>, WccData>>(&results).unwrap() {
            Outcome::Ok(ok) => (Status::Ok, ok.wcc),
            Outcome::Err(status, wcc) => (status, wcc),
        }
    };
    let record = world.make_record(&root, "late", false);
    world.send(one, &record, 1000).unwrap();
    let creating = world.front.poll_request().unwrap();
    // another client's change comes before it is executed
    let record = world.make_record(&root, "quicker", false);
    world.send(two, &record, 1000).unwrap();
    world.run();
    let (_, quicker) = results(&mut world, two);
    world.answer(creating);
    world.run();
    let (status, late) = results(&mut world, one);
    assert_eq!((status, quicker.before.is_some()), (Status::Ok, true));
    assert_eq!(late.before.unwrap().ctime, quicker.after.unwrap().ctime);
    assert_ne!(late.before.unwrap().ctime, late.after.unwrap().ctime);
    let record = world.make_record(&root, "late", false);
    world.send(one, &record, 1000).unwrap();
    world.run();
    let (status, wcc) = results(&mut world, one);
    let after = wcc.after.unwrap().ctime;
    assert_eq!((status, wcc.before, after), (Status::Exist, None, late.after.unwrap().ctime));
}

/// chimera#1375: the entry exists while the call is in progress.
#[test]
fn a_call_that_comes_again_over_another_connection_is_executed_once() {
    let mut world = World::new("/ *(rw)", 64);
    let first = world.connect(1);
    let root = world.mount(first, "/").unwrap();
    let record = world.make_record(&root, "new", false);
    world.send(first, &record, 1000).unwrap();
    let request = world.front.poll_request().unwrap();
    world.front.disconnect(first);
    let second = world.front.connect(origin(1, 701)).unwrap();
    world.send(second, &record, 1000).unwrap();
    assert!(world.front.poll_request().is_none(), "it is in progress");
    world.answer(request);
    world.run();
    let reply = world.read(second);
    assert_eq!(reply.len(), 1, "it is answered where it came from last");
    let third = world.front.connect(origin(1, 702)).unwrap();
    world.send(third, &record, 1000).unwrap();
    assert!(world.front.poll_request().is_none(), "it was executed");
    assert_eq!(world.read(third), reply);
    assert_eq!((world.memory.changes, world.front.counters().duplicates), (1, 2));
    let other = world.connect(2);
    world.send(other, &record, 1000).unwrap();
    world.run();
    assert_ne!(world.read(other), reply, "another client's is another call");
}

#[test]
fn a_file_that_is_read_on_is_opened_once() {
    let mut world = World::new("/ *(rw)", 64);
    let (id, file) = world.with_file(1);
    let mut opens = 0;
    for offset in 0..20 {
        let record = world.read_record(&file, offset, 10);
        world.send(id, &record, 1000).unwrap();
        while let Some(request) = world.front.poll_request() {
            opens += usize::from(matches!(request.op, FileOp::Open { .. }));
            world.answer(request);
        }
        world.read(id);
        world.pass(OPEN_SPAN / 4);
    }
    assert_eq!((opens, world.memory.open_handles()), (1, 1));
    world.pass(OPEN_SPAN);
    assert_eq!(world.memory.open_handles(), 0);
}

#[test]
fn the_port_mapper_and_mount_answer_datagrams() {
    let mut world = World::new("/ *(rw)", 64);
    let udp = |port| Origin { over: UDP, port, ..origin(1, 700) };
    let wanted = Mapping { program: PROGRAM, version: 3, protocol: TCP, port: 0 };
    let arguments = encoded(&wanted);
    let get = portmap::version2::GETPORT;
    let record = world.record(portmap::PROGRAM, portmap::PORTMAP, get, &arguments);
    world.front.datagram(udp(Port::Portmap), &record[4..]);
    let reply = world.front.poll_datagram().unwrap();
    assert_eq!(reply.origin, udp(Port::Portmap));
    let (_, _, results) = Reply::parse(&reply.bytes).unwrap();
    assert_eq!(decoded(results), Ok(2049u32));
    let record = world.record(mount::PROGRAM, 3, mount::Procedure::Export as u32, &[]);
    world.front.datagram(udp(Port::Mount), &record[4..]);
    assert!(world.front.poll_datagram().is_some());
    let record = world.record(PROGRAM, VERSION, 0, &[]);
    world.front.datagram(udp(Port::Mount), &record[4..]);
    let reply = world.front.poll_datagram().unwrap();
    let refused = Reply::Accepted(Acceptance::NoProgram);
    assert_eq!(Reply::parse(&reply.bytes).unwrap().1, refused, "NFS is served over TCP");
    world.front.datagram(udp(Port::Mount), b"garbage");
    assert_eq!(world.front.poll_datagram(), None);
}
