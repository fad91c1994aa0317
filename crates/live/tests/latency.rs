//! Round trips of a 128-byte request and an 8 KiB reply, spinning on two processors, beside the bare ring and the bare
//! socket. It measures, so it is run by hand:
//! `cargo test -p live --release --test latency -- --ignored --nocapture`.

mod common;

use common::{Server, encrypted, host};
use live::clock;
use live::link::{Address, Security};
use live::wait::WaitPolicy;
use node::{Answer, Call, Cx};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::{Channel, NodeId};

const CALLS: usize = 5_000;
const REPLY_BYTES: usize = 8192;
/// 8 MiB of them: a server's cache, larger than the processor's second level.
const BLOCKS: usize = 1024;

fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Prints and returns the median of what `round` takes, in nanoseconds.
fn measure(name: &str, mut round: impl FnMut()) -> u64 {
    for _ in 0..CALLS / 10 {
        round();
    }
    let mut spans: Vec<u64> = (0..CALLS)
        .map(|_| {
            let start = clock::now();
            round();
            clock::now().0 - start.0
        })
        .collect();
    report(name, &mut spans)
}

fn report(name: &str, spans: &mut [u64]) -> u64 {
    spans.sort_unstable();
    let at = |share: usize| spans[spans.len() * share / 1000] as f64 / 1000.0;
    println!(
        "{name:28} p50 {:7.2} us   p99 {:7.2} us   p99.9 {:7.2} us",
        at(500),
        at(990),
        at(999)
    );
    spans[spans.len() / 2]
}

/// One line for requests, one for replies, the payload copied once out of the server's blocks: what no ring can beat.
fn bare_ring() -> u64 {
    let words: Arc<Vec<AtomicU64>> = Arc::new((0..64).map(|_| AtomicU64::new(0)).collect());
    let blocks = vec![7u8; BLOCKS * REPLY_BYTES];
    let server = words.clone();
    let thread = std::thread::spawn(move || {
        pin(1);
        let mut seen = 0;
        while seen != u64::MAX {
            let number = server[0].load(Ordering::Acquire);
            if number != seen {
                seen = number;
                (33..48).for_each(|word| server[word].store(number, Ordering::Relaxed));
                server[32].store(number, Ordering::Release);
            }
            std::hint::spin_loop();
        }
    });
    let (mut number, mut copy) = (0, vec![0; REPLY_BYTES]);
    let median = measure("bare ring, one copy", || {
        number += 1;
        (1..16).for_each(|word| words[word].store(number, Ordering::Relaxed));
        words[0].store(number, Ordering::Release);
        while words[32].load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
        let at = block(number as usize) * REPLY_BYTES;
        copy.copy_from_slice(&blocks[at..at + REPLY_BYTES]);
        std::hint::black_box(&copy);
    });
    words[0].store(u64::MAX, Ordering::Release);
    thread.join().unwrap();
    median
}

/// Blocks are asked for in an order that no prefetcher guesses.
fn block(number: usize) -> usize {
    number.wrapping_mul(389) % BLOCKS
}

fn read_all(socket: &mut TcpStream, into: &mut [u8]) -> bool {
    let mut have = 0;
    while have < into.len() {
        match socket.read(&mut into[have..]) {
            Ok(0) => return false,
            Ok(count) => have += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(_) => return false,
        }
    }
    true
}

fn bare_socket() -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for socket in [&client, &server] {
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
    }
    let thread = std::thread::spawn(move || {
        pin(1);
        let (mut request, header) = ([0; 128], [7; 128]);
        let blocks = vec![7u8; BLOCKS * REPLY_BYTES];
        let mut number = 0;
        while read_all(&mut server, &mut request) {
            number += 1;
            let at = block(number) * REPLY_BYTES;
            let parts = [IoSlice::new(&header), IoSlice::new(&blocks[at..at + REPLY_BYTES])];
            assert_eq!(server.write_vectored(&parts).unwrap(), 128 + REPLY_BYTES);
        }
    });
    let mut reply = vec![0; 128 + REPLY_BYTES];
    let median = measure("bare socket", || {
        client.write_all(&[1; 128]).unwrap();
        assert!(read_all(&mut client, &mut reply));
    });
    drop(client);
    thread.join().unwrap();
    median
}

/// Blocks out of memory, with their checksums as trailer.
async fn serve(cx: Cx) {
    let blocks: Vec<_> =
        (0..BLOCKS).map(|_| cx.frames().copy_of(&[7; REPLY_BYTES]).unwrap()).collect();
    loop {
        let request = cx.accept(Channel(17)).await;
        let number = u32::from_le_bytes(request.body[..4].try_into().unwrap());
        let data = [blocks[block(number as usize)].clone()];
        cx.reply(request, Answer { status: 0, body: &[], data: &data, trailer: &[1; 8] });
    }
}

async fn fetches(cx: Cx) -> Vec<u64> {
    let mut frame = Some(cx.frames().alloc(REPLY_BYTES).unwrap());
    let mut spans = Vec::with_capacity(CALLS);
    for n in 0..CALLS + CALLS / 10 {
        let mut into = cx.pieces();
        into.extend(frame.take());
        let start = clock::now();
        let call = Call {
            to: NodeId(2),
            channel: Channel(17),
            op: 3,
            once: false,
            deadline: Some(Duration::from_secs(5)),
            body: &(n as u32).to_le_bytes(),
            data: cx.pieces(),
            trailer: &[],
            into,
        };
        let mut reply = cx.call(call).await.unwrap();
        if n >= CALLS / 10 {
            spans.push(clock::now().0 - start.0);
        }
        assert_eq!(reply.bytes, REPLY_BYTES);
        frame = reply.data.pop();
    }
    spans
}

async fn many_fetches(cx: Cx) -> f64 {
    let start = clock::now();
    let all = (0..16).map(|_| fetches(cx.clone()));
    node::all(all).await;
    16.0 * 1.1 * CALLS as f64 / clock::now().since(start).as_secs_f64()
}

fn calls(name: &str, address: Address, security: Security, policy: WaitPolicy) -> u64 {
    let server = Server::start_with(
        address,
        security.clone(),
        policy,
        || pin(1),
        1,
        |cx| Box::pin(serve(cx)),
    );
    let (mut host, links) = host(1, &security, policy);
    links.directory().set(NodeId(2), vec![server.address.clone()]);
    let directory = links.directory().clone();
    host.add(links).unwrap();
    let cx = host.node().cx().clone();
    let mut spans = host.block_on(fetches(cx.clone())).unwrap();
    let median = report(name, &mut spans);
    let rate = host.block_on(many_fetches(cx)).unwrap();
    let tally = directory.status()[&NodeId(2)].tally;
    let each = |count: u64| count as f64 / tally.sent as f64;
    println!(
        "{:28} 16 at once: {:.0} calls/s; calls of the kernel per message: {:.2} send, {:.2} receive; wakes {}",
        "",
        rate,
        each(tally.send_calls),
        each(tally.receive_calls),
        tally.wakes
    );
    host.stop().unwrap();
    median
}

#[test]
#[ignore = "measures; run by hand on an idle machine, with --release"]
fn round_trips() {
    pin(0);
    let directory = tempfile::tempdir().unwrap();
    let unix = || Address::Unix(directory.path().join("2.sock"));
    let tcp = || "tcp:127.0.0.1:0".parse::<Address>().unwrap();
    let ring = bare_ring();
    let shm = calls("call over shm, spin", unix(), Security::Insecure, WaitPolicy::Spin);
    calls("call over shm, adaptive", unix(), Security::Insecure, WaitPolicy::Adaptive);
    calls("call over shm, block", unix(), Security::Insecure, WaitPolicy::Block);
    let socket = bare_socket();
    let plain = calls("call over tcp, spin", tcp(), Security::Insecure, WaitPolicy::Spin);
    calls("call over tcp, adaptive", tcp(), Security::Insecure, WaitPolicy::Adaptive);
    let noise = calls("call over tcp+noise, spin", tcp(), encrypted(), WaitPolicy::Spin);
    let share = |a: u64, b: u64| a as f64 / b as f64;
    println!(
        "shm / ring {:.2}   tcp / socket {:.2}   tcp+noise / socket {:.2}",
        share(shm, ring),
        share(plain, socket),
        share(noise, socket)
    );
}
