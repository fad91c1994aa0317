//! Calls between two whole nodes over every link, each on a thread of its own.

use crate::common::{ECHO, FETCH, Server, call, encrypted, host, host_over};
use crate::sides::ethernet::{has_xdp, veth};
use live::link::{Address, Security};
use live::wait::WaitPolicy;
use std::time::Duration;
use wire::NodeId;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 13 + n / 509) as u8).collect()
}

fn tcp() -> Address {
    "tcp:127.0.0.1:0".parse().unwrap()
}

/// Echoes payloads of all sizes, then many small ones at once.
fn echo(address: Address, security: Security, policy: WaitPolicy, transport: &str) {
    echo_over(address, security, policy, transport, [None, None]);
}

/// The same, with these interfaces of the server and the client.
fn echo_over(
    address: Address,
    security: Security,
    policy: WaitPolicy,
    transport: &str,
    interfaces: [Option<&'static str>; 2],
) {
    let server = Server::start_over(address, security.clone(), policy, interfaces[0]);
    let (mut host, links) = host_over(1, &security, policy, interfaces[1]);
    links.directory().set(NodeId(2), vec![server.address.clone()]);
    let directory = links.directory().clone();
    host.add(links).unwrap();
    let cx = host.node().cx().clone();
    let free = cx.frames().free_pages();
    let all = async move {
        for bytes in [0, 1, 4096, 8192, 12_345, 65_536, 200_000, 1 << 20] {
            let (data, trailer) = (pattern(bytes), pattern(bytes.div_ceil(8192) * 8));
            let (got, checks) = call(&cx, ECHO, b"echo", &data, &trailer, bytes).await;
            assert!(got == data, "{bytes} bytes");
            assert!(checks == trailer, "{bytes} bytes");
        }
        let many = (0..64u32).map(|n| {
            let cx = cx.clone();
            async move {
                let data = pattern(n as usize * 100);
                assert!(call(&cx, ECHO, b"", &data, &[], data.len()).await.0 == data);
            }
        });
        node::all(many).await;
        assert_eq!(call(&cx, FETCH, &8192u32.to_le_bytes(), &[], &[], 8192).await.0.len(), 8192);
        cx.sleep(Duration::from_millis(250)).await;
        cx.frames().free_pages()
    };
    assert_eq!(host.block_on(all).unwrap(), free, "no frame is lost");
    let status = &directory.status()[&NodeId(2)];
    assert_eq!((status.transport, status.connections, status.tally.drops), (transport, 1, 0));
    assert!(host.stop().unwrap());
}

#[test]
fn calls_over_shared_memory() {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("2.sock"));
    echo(address, Security::Insecure, WaitPolicy::Adaptive, "shm");
}

#[test]
fn calls_over_shared_memory_between_sleepers() {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("2.sock"));
    echo(address, Security::Insecure, WaitPolicy::Block, "shm");
}

#[test]
fn calls_over_tcp() {
    echo(tcp(), Security::Insecure, WaitPolicy::Adaptive, "tcp");
    echo(tcp(), Security::Insecure, WaitPolicy::Block, "tcp");
}

#[test]
fn calls_over_encrypted_tcp() {
    echo(tcp(), encrypted(), WaitPolicy::Adaptive, "tcp+noise");
}

#[test]
fn calls_over_frames_between_spinners_and_sleepers() {
    if !has_xdp() {
        return;
    }
    for policy in [WaitPolicy::Adaptive, WaitPolicy::Block] {
        let ends = || {
            veth();
            [Some("tza"), Some("tzb")]
        };
        echo_over(tcp(), Security::Insecure, policy, "xdp", ends());
        echo_over(tcp(), encrypted(), policy, "xdp+noise", ends());
    }
}

#[test]
fn a_host_name_is_looked_up() {
    echo("tcp:localhost:0".parse().unwrap(), Security::Insecure, WaitPolicy::Adaptive, "tcp");
}

#[test]
fn an_idle_node_sleeps() {
    let server = Server::start(tcp(), Security::Insecure, WaitPolicy::Adaptive);
    let (mut host, links) = host(1, &Security::Insecure, WaitPolicy::Adaptive);
    links.directory().set(NodeId(2), vec![server.address.clone()]);
    host.add(links).unwrap();
    let cx = host.node().cx().clone();
    let warm = cx.clone();
    host.block_on(async move { drop(call(&warm, ECHO, b"", &[], &[], 0).await) }).unwrap();
    let before = host.wait_counters();
    host.block_on(async move { cx.sleep(Duration::from_millis(300)).await }).unwrap();
    let after = host.wait_counters();
    assert!(after.sleeps > before.sleeps);
    let turns = (after.spins + after.yields + after.sleeps)
        - (before.spins + before.yields + before.sleeps);
    println!("{turns} turns while idle");
    assert!(turns < 3000, "{turns} turns in 300 ms of nothing to do");
}
