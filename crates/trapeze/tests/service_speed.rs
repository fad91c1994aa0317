//! Cost of a call of the public library: 8 KiB fetched from a server that has it in memory, client and server on
//! threads of one process. `TRAPEZE_BENCH=1` asks for a large count; the figures of docs/src/rpc.md come from it.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;
use trapeze::service::{Call, Channel, Client, Keys, Options, Security, Server, WaitPolicy};

const BLOCK_BYTES: usize = 8192;

fn cpu_seconds() -> f64 {
    let at = clock_gettime(ClockId::ProcessCPUTime);
    at.tv_sec as f64 + at.tv_nsec as f64 / 1e9
}

fn measure(name: &str, address: &str, options: &Options, count: usize) {
    let server = Server::start(address, options, |server| {
        let block = server.cx().frames().copy_of(&[7; BLOCK_BYTES]).expect("memory");
        server.serve(Channel::USER, async move |_cx, _request| Ok(vec![block.clone()].into()));
    });
    let server = server.expect("it starts");
    let mut client = Client::connect(&server.address(), options).expect("it answers");
    let cx = client.cx().clone();
    let to = client.server();
    let work = async move {
        let mut spans = Vec::with_capacity(count);
        let mut landing = cx.frames().alloc_exact(BLOCK_BYTES).expect("memory");
        for _ in 0..count {
            let start = Instant::now();
            let into = cx.piece(landing);
            let call = Call { into, ..trapeze::service::new_call(&cx, to, 1) };
            let mut reply = cx.call(call).await.expect("it answers");
            spans.push(start.elapsed());
            assert_eq!((reply.bytes, reply.data[0][4095]), (BLOCK_BYTES, 7));
            landing = reply.data.pop().expect("the frame comes back");
        }
        spans
    };
    let before = cpu_seconds();
    let mut spans = client.block_on(work).expect("the loop");
    let cpu_us = (cpu_seconds() - before) * 1e6 / count as f64;
    spans.sort_unstable();
    let at = |percent: usize| spans[(spans.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    println!("{name:24} p50 {:7.2} us  p99 {:7.2} us  CPU {cpu_us:6.2} us/call", at(50), at(99));
}

#[test]
fn bench_fetch_of_a_block() {
    let count = if std::env::var_os("TRAPEZE_BENCH").is_some() { 50_000 } else { 200 };
    let folder = tempfile::tempdir().expect("a directory");
    let keys = Security::Encrypted(Keys::generate([5; 32]));
    for wait in [WaitPolicy::Spin, WaitPolicy::Adaptive, WaitPolicy::Block] {
        let unix = format!("unix:{}", folder.path().join(format!("{wait:?}")).display());
        let options = |security| Options { wait, security, ..Options::default() };
        let tcp = "tcp:127.0.0.1:0";
        measure(&format!("shared memory, {wait:?}"), &unix, &options(None), count);
        measure(&format!("tcp, {wait:?}"), tcp, &options(Some(Security::Insecure)), count);
        measure(&format!("tcp+noise, {wait:?}"), tcp, &options(Some(keys.clone())), count);
    }
}
