//! Links between bare endpoints: what crosses them, in which order, and who dies or stands still.

use crate::sides::*;
use live::clock;
use live::link::limits::{SHARED_SLOTS, SILENCE_SPAN};
use live::link::{Address, LinkEvent, Security, SocketAccess};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::{Kind, NodeId, Time, Token};

#[test]
fn payloads_of_every_size_cross_in_order_with_their_trailers() {
    for transport in transports() {
        let (mut a, mut b, _directory) = pair(transport);
        let sizes = [0, 1, 127, 4095, 4096, 8192, 10_000, 61_440, 61_441, 65_536, 1 << 20];
        for bytes in sizes {
            let data = pattern(bytes);
            let trailer: Vec<u8> = pattern(bytes.div_ceil(4096).div_ceil(2) * 8);
            a.post(2, Kind::Request, Token::NONE, &data, 32 << 10, &trailer);
            let mut got = None;
            until(&mut a, &mut b, |_, b| {
                got = b.take();
                got.is_some()
            });
            assert!(got.unwrap() == (data, trailer), "{transport:?} {bytes} bytes");
        }
        until(&mut a, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
        assert_eq!(b.frames.free_pages(), POOL_PAGES, "{transport:?}");
        assert_eq!(a.events, [LinkEvent::Up(NodeId(2))]);
        assert_eq!(b.events, [LinkEvent::Up(NodeId(1))]);
    }
}

#[test]
fn a_reply_lands_in_the_frames_of_its_token_and_a_stale_one_nowhere() {
    for transport in transports() {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"read");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        let data = pattern(100_000);
        // 25 frames of a page each: more pieces than one run.
        let mut frames: Vec<_> = (0..25).map(|_| a.frames.alloc(4096).unwrap()).collect();
        let first = frames[0].offset();
        let token = a.endpoint.get_replytoken(&mut frames).unwrap();
        for _ in 0..2 {
            b.post(1, Kind::Reply, token, &data, 4096, &[]);
        }
        until(&mut a, &mut b, |a, _| a.endpoint.waiting() == 2);
        let message = a.endpoint.get_rcvmsg().unwrap();
        assert_eq!(a.endpoint.arrived(&message).landed[0].offset(), first);
        let landed: Vec<u8> = a
            .endpoint
            .detach_rcvmsg(&message)
            .flat_map(|frame| frame.to_vec())
            .take(data.len())
            .collect();
        assert!(landed == data, "{transport:?}");
        a.endpoint.release_rcvmsg(message);
        assert_eq!(a.take().unwrap().0.len(), 0, "a token is good once");
        assert_eq!(a.endpoint.counters().discarded_token, 1);
    }
}

#[test]
fn many_messages_both_ways_keep_their_order_on_each_connection() {
    for transport in transports() {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"first");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        let (mut sent, mut at_a, mut at_b) = (0u32, 0u32, 0u32);
        let mut longest = pattern(4 + 9000);
        until(&mut a, &mut b, |a, b| {
            if sent < 3000 && a.endpoint.send_room() > 490 && b.endpoint.send_room() > 490 {
                let size = 4 + sent as usize * 37 % 9000;
                let data = &mut longest[..size];
                data[..4].copy_from_slice(&sent.to_le_bytes());
                a.post_request(2, data);
                b.post_request(1, data);
                sent += 1;
            }
            for (side, count) in [(a, &mut at_a), (b, &mut at_b)] {
                while let Some((data, _)) = side.take() {
                    assert_eq!(data[..4], count.to_le_bytes(), "{transport:?}");
                    assert_eq!(data.len(), 4 + *count as usize * 37 % 9000);
                    *count += 1;
                }
            }
            (at_a, at_b) == (3000, 3000)
        });
        let status = &a.directory().status()[&NodeId(2)];
        assert!(status.tally.drops == 0, "{status:?}");
    }
}

#[test]
fn a_full_receive_ring_stops_the_sender_and_loses_nothing() {
    for transport in transports() {
        let (mut a, mut b, _directory) = pair(transport);
        let total = 2000u32;
        let mut sent = 0u32;
        // 512 entries at the receiver, which takes nothing out, and 128 queued.
        for _ in 0..20_000 {
            if sent < total && a.endpoint.send_room() > 400 {
                a.post_request(2, &sent.to_le_bytes());
                sent += 1;
            }
            a.step();
            b.step();
        }
        assert!(b.endpoint.waiting() == 512, "{transport:?}: {}", b.endpoint.waiting());
        let mut taken = 0u32;
        until(&mut a, &mut b, |a, b| {
            if sent < total && a.endpoint.send_room() > 400 {
                a.post_request(2, &sent.to_le_bytes());
                sent += 1;
            }
            while let Some((data, _)) = b.take() {
                assert_eq!(data, taken.to_le_bytes(), "{transport:?}");
                taken += 1;
            }
            taken == total
        });
    }
}

#[test]
fn a_large_payload_does_not_block_small_messages() {
    let (mut a, mut b, _directory) = pair(Transport::Tcp);
    a.post_request(2, b"hello");
    until(&mut a, &mut b, |_, b| b.take().is_some());
    until(&mut a, &mut b, |a, b| {
        // Both connections are there when a large payload overtakes nothing any more.
        a.post_request(2, &pattern(1 << 20));
        a.post_request(2, b"small");
        let mut order = Vec::new();
        until_two(a, b, &mut order);
        order == [5, 1 << 20]
    });
}

fn until_two(a: &mut Side, b: &mut Side, order: &mut Vec<usize>) {
    let late = clock::now() + Duration::from_secs(20);
    while order.len() < 2 {
        a.step();
        b.step();
        order.extend(b.take().map(|(data, _)| data.len()));
        assert!(clock::now() < late);
    }
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_payload_leaves_nothing_behind() {
    for transport in [Transport::Tcp, Transport::Noise] {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"hello");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        let token = a.endpoint.get_replytoken(&mut vec![a.frames.alloc(1 << 20).unwrap()]).unwrap();
        b.post(1, Kind::Reply, token, &pattern(1 << 20), 1 << 20, &[]);
        // Some of it is under way when it dies.
        while a.frames.free_pages() == POOL_PAGES || a.endpoint.waiting() > 0 {
            b.step();
            a.step();
        }
        b.step();
        drop(b);
        let late = clock::now() + Duration::from_secs(20);
        while !a.events.contains(&LinkEvent::Down(NodeId(2))) {
            a.step();
            a.take();
            assert!(clock::now() < late);
        }
        assert_eq!(a.frames.free_pages(), POOL_PAGES, "{transport:?}");
    }
}

#[test]
fn the_death_of_a_shared_memory_peer_shows_and_a_new_life_is_found() {
    for transport in NEIGHBOURS {
        let (mut a, mut b, directory) = pair(transport);
        a.post_request(2, b"hello");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        drop(b);
        a.post_request(2, b"lost");
        while !a.events.contains(&LinkEvent::Down(NodeId(2))) {
            a.step();
        }
        assert_eq!(a.frames.free_pages(), POOL_PAGES);
        let mut b = Side::new(2, &Security::Insecure);
        b.links.listen(&transport.address(directory.path(), 2)).unwrap();
        a.post_request(2, b"again");
        let mut got = None;
        until(&mut a, &mut b, |_, b| {
            got = b.take();
            got.is_some()
        });
        assert_eq!(got.unwrap().0, b"again");
    }
}

#[test]
fn a_peer_that_stops_reading_costs_a_bounded_queue() {
    for transport in transports() {
        let (mut a, mut b, _directory) = pair(transport);
        a.post_request(2, b"hello");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        let data = pattern(32 << 10);
        for _ in 0..3000 {
            if a.endpoint.send_room() > 0 && a.frames.free_pages() > 64 {
                a.post_request(2, &data);
            }
            a.step();
        }
        assert!(a.endpoint.send_room() >= 512 - 2 * 128 - 1, "{transport:?}");
        // The counters are told now and then.
        step_until(&mut a, |a| a.directory().status()[&NodeId(2)].tally.drops > 0);
    }
}

#[test]
fn calls_from_both_sides_at_once_leave_one_connection() {
    for transport in transports() {
        let (mut a, mut b, directory) = pair(transport);
        let address = a.links.listen(&transport.address(directory.path(), 1)).unwrap();
        b.directory().set(NodeId(1), vec![address]);
        let (mut at_a, mut at_b) = (0, 0);
        a.post_request(2, b"a");
        b.post_request(1, b"b");
        // Messages on the connection that is given up are lost; calls above send again, as this does.
        let mut rounds = 0;
        until(&mut a, &mut b, |a, b| {
            rounds += 1;
            if rounds % 1000 == 0 {
                a.post_request(2, b"a");
                b.post_request(1, b"b");
            }
            at_a += usize::from(a.take().is_some());
            at_b += usize::from(b.take().is_some());
            at_a > 2 && at_b > 2
        });
        let last = |side: &Side| *side.events.last().unwrap();
        assert_eq!((last(&a), last(&b)), (LinkEvent::Up(NodeId(2)), LinkEvent::Up(NodeId(1))));
    }
}

#[test]
fn a_node_without_an_id_is_given_one() {
    let (_, mut b, _directory) = pair(Transport::Tcp);
    let address = b.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let running = std::thread::spawn(move || {
        let mut a = Side::new(0, &Security::Insecure);
        let ids = a.links.bootstrap(&mut a.endpoint, &address, Duration::from_secs(20)).unwrap();
        a.post_request(2, b"hello");
        let late = clock::now() + Duration::from_secs(20);
        while a.endpoint.waiting() == 0 && clock::now() < late {
            a.step();
        }
        (ids, a.take().unwrap().0)
    });
    step_until(&mut b, |b| b.endpoint.waiting() > 0);
    assert_eq!(b.take().unwrap().0, b"hello");
    b.post_request(0xF000, b"welcome");
    let late = clock::now() + Duration::from_secs(20);
    while !running.is_finished() {
        b.step();
        assert!(clock::now() < late);
    }
    let (ids, data) = running.join().unwrap();
    assert_eq!((ids, &data[..]), ((NodeId(0xF000), NodeId(2)), &b"welcome"[..]));
}

/// A side whose peer stands still, in time of its own, which begins when they are connected.
struct Alone {
    side: Side,
    now: Time,
}

impl Alone {
    fn pass(&mut self, looks: u32, span: Duration) {
        for _ in 0..looks {
            self.now = self.now + span;
            self.side.step_at(self.now);
        }
    }

    fn is_down(&self) -> bool {
        self.side.events.contains(&LinkEvent::Down(NodeId(2)))
    }
}

#[test]
fn a_shared_memory_peer_that_stands_still_is_given_up_and_may_come_back() {
    NEIGHBOURS.into_iter().for_each(stands_still);
}

fn stands_still(transport: Transport) {
    let (mut side, mut b, _directory) = pair(transport);
    side.post_request(2, b"first");
    until(&mut side, &mut b, |_, b| b.take().is_some());
    until(&mut side, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
    let (span, look) = (SILENCE_SPAN, Duration::from_millis(100));
    let mut a = Alone { side, now: clock::now() };
    a.pass(300, look);
    assert!(!a.is_down(), "nothing waits for it");
    a.side.post_request(2, b"lost");
    a.pass(5, span);
    assert!(!a.is_down(), "this side stood still, not the other");
    a.pass(98, look);
    assert!(!a.is_down());
    a.pass(4, look);
    assert!(a.is_down() && a.side.logged("taken nothing for 10 s"), "{:?}", a.side.log.borrow());
    assert_eq!(a.side.frames.free_pages(), POOL_PAGES, "its frames wait for nobody");
    let mut side = a.side;
    side.post_request(2, b"again");
    for _ in 0..200_000 {
        a.now = a.now + Duration::from_millis(1);
        side.step_at(a.now);
        b.step();
        while let Some(message) = b.endpoint.get_rcvmsg() {
            let entry = b.endpoint.arrived(&message);
            let frames = entry.landed.iter().flat_map(|frame| frame.to_vec());
            let data: Vec<u8> = frames.take(entry.payload_bytes).collect();
            // Frames of before may have other data by now, which does not fit the checksum.
            assert!(entry.damaged || data == b"lost" || data == b"again", "{data:?}");
            let came = !entry.damaged && data == b"again";
            b.endpoint.release_rcvmsg(message);
            if came {
                return;
            }
        }
    }
    panic!("{:?} {:?}", side.log.borrow(), b.log.borrow());
}

#[test]
fn a_shared_memory_peer_that_computes_is_not_given_up_while_it_keeps_no_frames() {
    for transport in NEIGHBOURS {
        let (mut side, mut b, _directory) = pair(transport);
        side.post_request(2, b"first");
        until(&mut side, &mut b, |_, b| b.take().is_some());
        until(&mut side, &mut b, |a, _| a.frames.free_pages() == POOL_PAGES);
        let look = Duration::from_millis(100);
        let mut a = Alone { side, now: clock::now() };
        a.side.post_request(2, &[]);
        a.pass(300, look);
        assert!(!a.is_down(), "it is asked again, and what asks keeps no memory");
        (0..SHARED_SLOTS).for_each(|_| a.side.post_request(2, &[]));
        a.side.post_request(2, b"data behind a full ring");
        a.pass(98, look);
        assert!(!a.is_down(), "no memory has waited for so long");
        a.pass(6, look); // a link that waits for room is looked at every second time
        assert!(a.is_down(), "{:?}", a.side.log.borrow());
        assert_eq!(a.side.frames.free_pages(), POOL_PAGES);
    }
}

#[test]
fn who_is_still_filling_a_message_does_not_take_its_reader_for_silent() {
    let (mut side, mut b, _directory) = pair(Transport::Shm);
    let data = pattern(64 << 10);
    let trailer = pattern(16 * 4);
    let filling = side.begin(2, &data, 32 << 10, &trailer);
    until(&mut side, &mut b, |_, b| !b.events.is_empty());
    for _ in 0..100 {
        side.step();
        b.step();
    }
    let mut a = Alone { side, now: clock::now() };
    a.pass(300, Duration::from_millis(100));
    assert!(!a.is_down(), "{:?}", a.side.log.borrow());
    a.side.fill(&filling, &data[32 << 10..]);
    a.pass(105, Duration::from_millis(100));
    assert!(a.is_down(), "now it has everything");
}

#[test]
fn listening_at_a_path_removes_nothing_but_a_socket_that_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let listen = |name: &str| {
        let address = format!("unix:{}", dir.path().join(name).display()).parse().unwrap();
        let mut side = Side::new(2, &Security::Insecure);
        side.links.listen(&address).map(|_| side)
    };
    std::fs::write(dir.path().join("text"), "letters").unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    std::os::unix::fs::symlink("text", dir.path().join("link")).unwrap();
    for name in ["text", "folder", "link"] {
        let error = listen(name).err().expect("it is refused");
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{name}: {error}");
        assert!(error.to_string().contains("no socket"), "{name}: {error}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("text")).unwrap(), "letters");
    let first = listen("socket").unwrap();
    let error = listen("socket").err().expect("it is in use");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    assert!(dir.path().join("socket").exists(), "left behind");
    listen("socket").expect("and taken over");
}

/// Result of `act` in a thread that is nothing but this user and this group.
fn as_user<T: Send>(user: u32, group: u32, act: impl FnOnce() -> T + Send) -> T {
    let become_it = move || {
        // SAFETY: system calls on numbers, which change what this thread may, and not the process.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, 0), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, group, group, group), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, user, user, user), 0);
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(become_it).join().unwrap())
}

/// A listening side, and where, in a directory that all may enter.
fn for_users(access: SocketAccess) -> (Side, tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = dir.path().join("socket");
    let mut side = Side::new(2, &Security::Insecure);
    side.links.listen_for(&Address::Unix(path.clone()), access).unwrap();
    (side, dir, path)
}

#[test]
fn a_unix_socket_is_its_users_unless_it_is_configured_for_others() {
    if !rustix::process::geteuid().is_root() {
        return rig::skip("only root has other users");
    }
    let connect = |path: &Path, user, group| as_user(user, group, || UnixStream::connect(path));
    let (mut side, _dir, path) = for_users(SocketAccess::default());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(connect(&path, 65534, 65534).unwrap_err().kind(), ErrorKind::PermissionDenied);
    // Opened behind the process's back, it is still no other's.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let socket = connect(&path, 65534, 65534).unwrap();
    step_until(&mut side, |side| side.logged("user 65534 called") && side.logged("listen_mode"));
    drop(socket);

    let group = SocketAccess { mode: 0o660, group: Some(4242) };
    let (mut side, _dir, path) = for_users(group);
    assert_eq!(std::fs::metadata(&path).unwrap().gid(), 4242);
    assert_eq!(connect(&path, 65534, 65534).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let _socket = connect(&path, 65534, 4242).unwrap();
    for _ in 0..100 {
        side.step();
    }
    assert!(side.log.borrow().is_empty(), "{:?}", side.log.borrow());
}

/// Two sockets of another user: one in a directory of that user, the other in a directory open to all.
#[test]
fn a_socket_in_everybodys_directory_is_not_believed_to_be_who_was_meant() {
    if !rustix::process::geteuid().is_root() {
        return rig::skip("only root has other users");
    }
    for (mode, is_believed) in [(0o755, true), (0o1777, false)] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(1000), Some(1000)).unwrap();
        let address: Address = format!("unix:{}/s", dir.path().display()).parse().unwrap();
        let (given, done) = (address.clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                as_user(1000, 1000, || {
                    let mut b = Side::new(2, &Security::Insecure);
                    b.links.listen_for(&given, SocketAccess { mode: 0o666, group: None }).unwrap();
                    while !done.load(Ordering::Relaxed) {
                        b.step();
                    }
                })
            });
            let _done = rig::SetOnDrop(&done);
            as_user(1001, 1001, || {
                let mut a = Side::new(1, &Security::Insecure);
                a.directory().set(NodeId(2), vec![address]);
                a.post_request(2, b"hello");
                step_until(&mut a, |a| match is_believed {
                    true => a.events.contains(&LinkEvent::Up(NodeId(2))),
                    false => a.logged("the owner of the socket's directory"),
                });
            });
        });
    }
}

/// The cluster key, a peer's memory, a listening port: none of it is a child's.
#[test]
fn a_child_inherits_no_descriptor_of_a_link() {
    let inherited = || {
        let child = std::process::Command::new("ls").arg("/proc/self/fd").output().unwrap();
        String::from_utf8(child.stdout).unwrap()
    };
    let before = inherited(); // from whatever started the test
    let dir = tempfile::tempdir().unwrap();
    let unix = format!("unix:{}/s", dir.path().display());
    let connected = |address: &str| {
        let (mut a, mut b) = (Side::new(1, &encrypted(1)), Side::new(2, &encrypted(1)));
        let address = b.links.listen(&address.parse().unwrap()).unwrap();
        a.directory().set(NodeId(2), vec![address]);
        a.post_request(2, b"hello");
        until(&mut a, &mut b, |_, b| b.take().is_some());
        (a, b)
    };
    let _links = ["tcp:127.0.0.1:0", &unix].map(connected);
    assert_eq!(inherited(), before);
}
