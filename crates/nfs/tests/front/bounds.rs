//! Bad, slow and many connections: what each may take.

use super::*;

#[test]
fn bytes_that_are_no_calls_end_their_connection_and_no_other() {
    let mut world = World::new("/ *(rw)", 64);
    let (good, file) = world.with_file(1);
    let mark = |bytes: u32| (bytes | 1 << 31).to_be_bytes().to_vec();
    let long = [mark(1 << 30), vec![0; 20_000]].concat();
    let reply = [mark(8), vec![0, 0, 0, 1, 0, 0, 0, 1]].concat();
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        (long, Some(Ended::Record(RecordError::HeadTooLong(CALL_HEAD_BYTES_MAX)))),
        (reply, Some(Ended::Nonsense)),
        (
            [0, 0, 0, 0].repeat(FRAGMENTS_MAX as usize + 1),
            Some(Ended::Record(RecordError::Fragments)),
        ),
    ];
    for (bytes, ended) in cases {
        let bad = world.connect(2);
        assert_eq!(world.send(bad, &bytes, 4096).err(), ended);
        world.front.disconnect(bad);
        let record = world.read_record(&file, 0, 10);
        world.call(good, &record);
    }
    let record = world.record(999, 1, 0, &[]);
    world.send(good, &record, 1000).unwrap();
    let reply = world.read(good);
    assert_eq!(Reply::parse(&reply[0]).unwrap().1, Reply::Accepted(Acceptance::NoProgram));
}

#[test]
fn a_record_that_never_ends_is_given_up_and_holds_little() {
    let mut world = World::new("/ *(rw)", 4096);
    let (good, file) = world.with_file(1);
    let record = world.write_record(&file, 0, &vec![1; 1 << 20]);
    let slow: Vec<ConnectionId> = (0..10).map(|_| world.connect(2)).collect();
    for id in &slow {
        world.send(*id, &record[..1000], 1000).unwrap();
    }
    world.pass(SHORT_STALL_SPAN);
    let closed = std::iter::from_fn(|| world.front.poll_closed()).count();
    assert!(closed >= 6, "a quarter of the pool is 4 MiB, not 10: {closed} closed");
    let left = slow.iter().filter(|id| world.front.may_read(**id)).count();
    assert_eq!(left, slow.len() - closed);
    for byte in 0..left as u32 {
        world.pass(STALL_SPAN / 4);
        for id in slow.iter().filter(|id| world.front.may_read(**id)).copied().collect::<Vec<_>>() {
            world.send(id, &record[1000 + byte as usize..][..1], 1).unwrap();
        }
    }
    world.pass(STALL_SPAN);
    assert!(slow.iter().all(|id| !world.front.may_read(*id)), "a byte now and then does not help");
    let record = world.read_record(&file, 0, 10);
    world.call(good, &record);
    assert_eq!(world.front.counters().stalled, 10);
}

#[test]
fn a_client_that_reads_nothing_is_not_read_from_and_then_closed() {
    let mut world = World::new("/ *(rw)", 16 << 10);
    let (id, file) = world.with_file(1);
    let data = vec![5; 1 << 20];
    let record = world.write_record(&file, 0, &data);
    world.call(id, &record);
    let record = world.read_record(&file, 0, 1 << 20);
    let mut reads = 0;
    while world.front.may_read(id) {
        world.send(id, &record, 1000).unwrap();
        world.run();
        reads += 1;
        assert!(reads < 100, "it is read on");
    }
    assert!(world.front.writer(id).unwrap().bytes() <= UNREAD_BYTES_MAX + (2 << 20));
    let other = world.connect(2);
    assert!(world.call(other, &record).len() > 1 << 20);
    world.pass(STALL_SPAN - Duration::from_millis(1));
    assert!(world.front.has_output(id));
    world.pass(LOOK_SPAN + Duration::from_millis(1));
    assert_eq!(world.front.poll_closed(), Some(id));
    assert_eq!(world.front.connections(), 1);
}

#[test]
fn calls_of_one_connection_are_bounded_and_go_on() {
    let mut world = World::new("/ *(rw)", 64);
    let (id, file) = world.with_file(1);
    let record = world.nfs_record(Args::Getattr(Handle(&file)), &[]);
    let many = record.repeat(CALLS_MAX * 3);
    let sent = world.send(id, &many, 1000).unwrap();
    let mut waiting: Vec<FileRequest> = Vec::new();
    waiting.extend(std::iter::from_fn(|| world.front.poll_request()));
    assert_eq!(waiting.len(), CALLS_MAX);
    assert!(sent < many.len() && !world.front.may_read(id));
    let mut answered = 0;
    let mut rest = &many[sent..];
    while let Some(request) = waiting.pop() {
        world.answer(request);
        answered += 1;
        if world.front.may_read(id) {
            let taken = world.send(id, rest, 1000).unwrap();
            rest = &rest[taken..];
        }
        waiting.extend(std::iter::from_fn(|| world.front.poll_request()));
        assert!(waiting.len() <= CALLS_MAX);
    }
    assert_eq!((answered, world.read(id).len()), (CALLS_MAX * 3, CALLS_MAX * 3));
}

#[test]
fn a_write_waits_for_frames_and_goes_on() {
    let mut world = World::new("/ *(rw)", 64);
    let (id, file) = world.with_file(1);
    let held: Vec<_> = (0..50).map(|_| world.frames.alloc(4096).unwrap()).collect();
    let data = vec![7; 32 * 4096];
    let record = world.write_record(&file, 0, &data);
    let sent = world.send(id, &record, 1000).unwrap();
    assert!(sent < record.len() && !world.front.may_read(id));
    drop(held);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.send(id, &record[sent..], 1000), Ok(record.len() - sent));
    world.run();
    assert_eq!(world.read(id).len(), 1);
}

#[test]
fn ten_thousand_idle_connections_take_little_and_the_oldest_makes_room() {
    let mut world = World::new("/ *(rw)", 64);
    let mut all = Vec::new();
    for number in 0..CONNECTIONS_MAX {
        all.push(world.front.connect(origin((number % 200) as u8, number as u16)).unwrap());
        let record = world.record(PROGRAM, VERSION, 0, &[]);
        world.call(all[number], &record);
    }
    world.pass(IDLE_SPAN);
    let busy = all[0];
    let record = world.record(PROGRAM, VERSION, 0, &[]);
    world.call(busy, &record);
    let next = world.connect(250);
    assert_eq!(world.front.connections(), CONNECTIONS_MAX);
    assert_eq!(world.front.poll_closed(), Some(all[1]));
    for id in [busy, next, all[CONNECTIONS_MAX - 1]] {
        world.call(id, &record);
    }
}
