//! Cost of a command in this layer: no allocation for a get of any length.

mod talk;

use kv::Protocol;
use rig::Counting;
use talk::Server;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_get_allocates_nothing() {
    let mut server = Server::usual();
    for (protocol, set, get) in [
        (Protocol::Memcached, "set key 0 0 LEN\r\n", "get key\r\n"),
        (
            Protocol::Resp,
            "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$LEN\r\n",
            "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
        ),
    ] {
        for len in [100, 8192, 1 << 20] {
            let mut client = server.client(protocol);
            let text =
                [set.replace("LEN", &len.to_string()), "v".repeat(len), "\r\n".into()].concat();
            server.ask(&mut client, &text);
            // The longest one fills the output alone.
            let gets = get.repeat(if len > 8192 { 1 } else { 16 });
            let mut before = 0;
            for round in 0..100 {
                if round == 10 {
                    before = Counting::in_thread(); // it is warm
                }
                server.read(&mut client, gets.as_bytes());
                assert!(client.out.len() >= len);
                while !client.out.is_empty() {
                    let count = client.out.pieces().take(64).map(<[u8]>::len).sum();
                    client.out.written(count);
                }
            }
            assert_eq!(Counting::in_thread(), before, "{protocol:?}, {len} bytes");
        }
    }
}
