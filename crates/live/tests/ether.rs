//! Messages as Ethernet frames, in memory and over a veth: when they go that way, what an enemy on the wire can do,
//! and what happens when the way is gone. What crosses is tried with all links in `links.rs`.

use crate::sides::ethernet::*;
use crate::sides::*;
use live::link::{LinkEvent, Security};
use live::xdp::{Queue, XdpError, XdpSocket};
use std::cell::RefCell;
use std::rc::Rc;
use wire::NodeId;

fn two(security: &Security) -> (Side, Side) {
    let (a, mut b) = (Side::new(1, security), Side::new(2, security));
    let address = b.links.listen(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    a.directory().set(NodeId(2), vec![address]);
    (a, b)
}

fn transport(side: &Side, peer: u16) -> &'static str {
    side.directory().status()[&NodeId(peer)].transport
}

fn exchange(a: &mut Side, b: &mut Side, data: &[u8]) {
    a.post_request(2, data);
    let mut got = None;
    until(a, b, |_, b| {
        got = b.take();
        got.is_some()
    });
    assert!(got.unwrap().0 == data);
}

#[test]
fn frames_are_used_when_both_have_an_ethernet_and_tcp_otherwise() {
    for security in [Security::Insecure, encrypted(1)] {
        let (mut a, mut b) = two(&security);
        in_memory(&mut a, &mut b);
        connect(&mut a, &mut b);
        let expected = if matches!(security, Security::Insecure) { "xdp" } else { "xdp+noise" };
        assert_eq!((transport(&a, 2), transport(&b, 1)), (expected, expected));
        exchange(&mut a, &mut b, &pattern(100_000));
        until(&mut a, &mut b, |a, _| {
            a.directory().ethernet().is_some_and(|ethernet| ethernet.frames.sent > 30)
        });
        let (mut a, mut b) = two(&security);
        let wire = Rc::new(RefCell::new(rig::Ethernet::new(1)));
        a.links.set_ethernet(Box::new(MemoryPort::new(&wire, 1))).unwrap();
        exchange(&mut a, &mut b, b"the other has none");
        assert!(transport(&a, 2).starts_with("tcp"));
        assert_eq!(wire.borrow().sent(), 0);
    }
}

#[test]
fn two_that_are_on_different_ethernets_use_tcp() {
    let (mut a, mut b) = two(&encrypted(1));
    let wire = in_memory(&mut a, &mut b);
    wire.borrow_mut().down = true;
    for _ in 0..20 {
        exchange(&mut a, &mut b, &pattern(10_000));
    }
    assert_eq!(transport(&a, 2), "tcp+noise");
    wire.borrow_mut().down = false;
    until(&mut a, &mut b, |a, b| a.logged("frames reach") && b.logged("frames reach"));
    exchange(&mut a, &mut b, b"by frames");
}

#[test]
fn a_way_that_breaks_is_left_for_tcp_and_taken_again() {
    let (mut a, mut b) = two(&encrypted(1));
    let wire = in_memory(&mut a, &mut b);
    connect(&mut a, &mut b);
    wire.borrow_mut().down = true;
    let token = {
        let frames = &mut vec![b.frames.alloc(1 << 20).unwrap()];
        b.endpoint.get_replytoken(frames).unwrap()
    };
    a.post(2, wire::Kind::Reply, token, &pattern(1 << 20), 1 << 20, &[]);
    until(&mut a, &mut b, |a, _| a.events.contains(&LinkEvent::Down(NodeId(2))));
    assert!(a.logged("has acknowledged no frame for 2 s"), "{:?}", a.log.borrow());
    until(&mut a, &mut b, |_, b| b.events.contains(&LinkEvent::Down(NodeId(1))));
    assert_eq!(a.frames.free_pages(), POOL_PAGES, "what was under way is given up");
    // The same token is good again, over TCP.
    a.post(2, wire::Kind::Reply, token, &pattern(1 << 20), 1 << 20, &[]);
    let mut got = None;
    until(&mut a, &mut b, |_, b| {
        got = b.take();
        got.is_some()
    });
    assert!(got.unwrap().0 == pattern(1 << 20));
    assert_eq!(transport(&a, 2), "tcp+noise");
    wire.borrow_mut().down = false;
    until(&mut a, &mut b, |a, b| transport(a, 2) == "xdp+noise" && transport(b, 1) == "xdp+noise");
    exchange(&mut a, &mut b, &pattern(50_000));
}

#[test]
fn frames_of_an_enemy_are_dropped_and_counted() {
    let (mut a, mut b) = two(&encrypted(1));
    let wire = in_memory(&mut a, &mut b);
    connect(&mut a, &mut b);
    // It sees one message's frames, and sends them again, changed and unchanged.
    a.post_request(2, &pattern(8192));
    a.step();
    let to = [2, 0, 0, 0, 0, 2];
    let seen: Vec<_> = std::iter::from_fn(|| wire.borrow_mut().receive(to)).collect();
    assert_eq!(seen.len(), 3);
    let clear = pattern(8192);
    for frame in &seen {
        let tells = |part: &[u8]| frame.windows(part.len()).any(|window| window == part);
        assert!(!tells(&clear[100..116]) && !tells(&clear[4000..4016]), "nothing is in clear");
        for byte in 6..frame.len() {
            let mut changed = frame.clone();
            changed[byte] ^= 1 << (byte % 8);
            wire.borrow_mut().send(&changed);
        }
        step_until(&mut b, |_| !wire.borrow().has(to));
    }
    assert_eq!(b.endpoint.waiting(), 0);
    (0..3).for_each(|_| seen.iter().for_each(|frame| wire.borrow_mut().send(frame)));
    let mut got = None;
    until(&mut a, &mut b, |_, b| {
        got = b.take();
        got.is_some()
    });
    assert!(got.unwrap().0 == clear);
    until(&mut a, &mut b, |_, b| {
        let ethernet = b.directory().ethernet().unwrap_or_default();
        ethernet.frames.forged > 8000 && ethernet.frames.replayed >= 6 && ethernet.strays >= 6
    });
    assert_eq!(b.endpoint.waiting(), 0);
    exchange(&mut a, &mut b, b"and it goes on");
}

#[test]
fn a_lossy_ethernet_delivers_everything_once() {
    let (mut a, mut b) = two(&encrypted(1));
    let wire = in_memory(&mut a, &mut b);
    connect(&mut a, &mut b);
    wire.borrow_mut().faults = rig::Faults { lost: 50, repeated: 20, late: 50, changed: 10 };
    let (mut sent, mut came) = (0u32, Vec::new());
    until(&mut a, &mut b, |a, b| {
        if sent < 300 && a.endpoint.send_room() > 400 {
            let mut data = pattern(4 + sent as usize * 137 % 30_000);
            data[..4].copy_from_slice(&sent.to_le_bytes());
            a.post_request(2, &data);
            sent += 1;
        }
        while let Some((data, _)) = b.take() {
            let number = u32::from_le_bytes(data[..4].try_into().unwrap());
            assert!(data[4..] == pattern(4 + number as usize * 137 % 30_000)[4..]);
            came.push(number);
        }
        came.len() == 300
    });
    came.sort_unstable();
    assert!(came.into_iter().eq(0..300));
    let drops = |side: &Side, id| side.directory().status()[&NodeId(id)].tally.drops;
    assert_eq!((drops(&a, 2), drops(&b, 1)), (0, 0));
}

/// What the kernel is told to do with frames that are not ours: they reach it.
#[test]
fn the_interface_goes_on_working_for_all_else() {
    if !has_xdp() {
        return;
    }
    let (mut a, mut b, _directory) = pair(Transport::SealedXdp);
    ip("addr add 10.1.0.1/24 dev tza");
    // The other end in a namespace of its own, with its socket, would be another machine: here ARP to it suffices.
    let sent = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let received = |text: &str| -> u64 {
        let line = text.lines().find(|line| line.contains("tzb:")).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    let before = received(&sent);
    let socket = packet_socket("tzb");
    let out = std::net::UdpSocket::bind("10.1.0.1:0").unwrap();
    out.send_to(b"who is there", "10.1.0.2:9").unwrap();
    let mut frame = [0; 2000];
    let late = live::clock::now() + std::time::Duration::from_secs(20);
    loop {
        let (count, _) =
            rustix::net::recv(&socket, &mut frame, rustix::net::RecvFlags::empty()).unwrap();
        // ARP, which the kernel has got although the program saw it first.
        if count >= 14 && frame[12..14] == [8, 6] {
            break;
        }
        assert!(live::clock::now() < late);
    }
    exchange(&mut a, &mut b, b"beside it");
    let after = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(received(&after) > before);
}

/// A socket that sees what the kernel gets from this interface.
fn packet_socket(name: &str) -> std::os::fd::OwnedFd {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let every = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: calls on numbers and an address whose size is given; the descriptor is only ours.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, every.into());
        assert!(fd >= 0);
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every;
        let name = std::ffi::CString::new(name).unwrap();
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let bytes = size_of_val(&address) as libc::socklen_t;
        assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes), 0);
        socket
    }
}

#[test]
fn an_interface_that_goes_down_is_left_and_taken_again() {
    if !has_xdp() {
        return;
    }
    let (mut a, mut b, _directory) = pair(Transport::SealedXdp);
    exchange(&mut a, &mut b, &pattern(100_000));
    ip("link set tza down");
    a.post_request(2, b"lost");
    until(&mut a, &mut b, |a, b| {
        [a, b].iter().all(|side| matches!(side.events.last(), Some(LinkEvent::Down(_))))
    });
    exchange(&mut a, &mut b, &pattern(9000));
    assert_eq!(transport(&a, 2), "tcp+noise");
    ip("link set tza up");
    until(&mut a, &mut b, |a, b| transport(a, 2) == "xdp+noise" && transport(b, 1) == "xdp+noise");
    exchange(&mut a, &mut b, &pattern(9000));
}

#[test]
fn an_interface_that_cannot_be_used_is_named_with_the_reason() {
    let open = |text: &str| XdpSocket::open(&text.parse::<Queue>().unwrap());
    let error = open("nosuch0").unwrap_err();
    assert!(matches!(error, XdpError::NoInterface(_)), "{error}");
    assert!(error.to_string().contains("`ip link`"), "{error}");
    assert!(matches!(open("lo"), Err(XdpError::NotEthernet(_))));
    if !has_xdp() {
        let error = std::fs::read_dir("/sys/class/net").is_ok().then(|| open("eth0").err());
        println!("without the right: {error:?}");
        return;
    }
    veth();
    ip("link set tza mtu 1400");
    let error = open("tza").unwrap_err();
    assert!(error.to_string().contains("the MTU of tza is 1400: AF_XDP is used from 1500 on"));
    let used = open("tzb").unwrap();
    let error = open("tzb").unwrap_err();
    assert!(error.to_string().contains("tzb:0 is used by another process"), "{error}");
    assert!(matches!(open("tzb:7"), Err(XdpError::NoQueue(_))));
    drop(used);
    open("tzb").expect("it is free again, at once or a moment later");
}

#[test]
fn a_user_without_privilege_is_told_what_is_needed() {
    if !has_xdp() {
        return;
    }
    veth();
    let tried = std::thread::spawn(|| {
        // SAFETY: a system call on numbers, which changes what this thread may, and not the process.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        XdpSocket::open(&"tza".parse().unwrap()).map(drop)
    });
    let error = tried.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("needs root, or the capabilities CAP_NET_RAW"), "{error}");
}
