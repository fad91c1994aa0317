//! Cost of the C library beside the Rust library that it is made of: the same 8 KiB from the same server.

use capi::call::{tpz_call_t, tpz_call_wait, tpz_reply_t};
use capi::ep::{TPZ_WAIT_SPIN, tpz_close, tpz_ep_t, tpz_open, tpz_options_t};
use capi::frame::{tpz_frame_alloc, tpz_frame_free, tpz_frame_t};
use std::ffi::CString;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use trapeze::service::{Call, Channel, Client, Options, Response, Server, WaitPolicy};

const BYTES: usize = 8192;

fn p50(mut spans: Vec<Duration>) -> f64 {
    spans.sort_unstable();
    spans[spans.len() / 2].as_secs_f64() * 1e6
}

fn timed(rounds: usize, mut fetch: impl FnMut()) -> Vec<Duration> {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            fetch();
            start.elapsed()
        })
        .collect()
}

fn by_rust(address: &str, options: &Options, rounds: usize) -> Vec<Duration> {
    let mut client = Client::connect(address, options).unwrap();
    let cx = client.cx().clone();
    let mut landing = cx.frames().alloc_exact(BYTES);
    timed(rounds, || {
        let into = cx.piece(landing.take().unwrap());
        let call = Call { into, ..client.new_call(1) };
        let mut reply = client.call(call).unwrap();
        assert_eq!((reply.status, reply.bytes, reply.data[0][BYTES - 1]), (0, BYTES, 7));
        landing = reply.data.pop();
    })
}

fn open(address: &str) -> *mut tpz_ep_t {
    let address = CString::new(address).unwrap();
    // SAFETY: all of both is integers and pointers, for which zero is a value.
    let (mut options, mut ep): (tpz_options_t, _) = (unsafe { zeroed() }, null_mut());
    options.size = size_of::<tpz_options_t>() as u32;
    options.connect = address.as_ptr();
    options.wait = TPZ_WAIT_SPIN;
    // SAFETY: the address stays until the end, and both can be written.
    assert_eq!(unsafe { tpz_open(&options, &mut ep) }, 0);
    ep
}

fn by_c(address: &str, rounds: usize) -> Vec<Duration> {
    let ep = open(address);
    // SAFETY: as in `open`.
    let (mut call, mut reply): (tpz_call_t, tpz_reply_t) = unsafe { (zeroed(), zeroed()) };
    call.size = size_of::<tpz_call_t>() as u32;
    (call.channel, call.op) = (Channel::USER.0, 1);
    // SAFETY: the endpoint is open, the frame is given from hand to hand.
    let mut landing: *mut tpz_frame_t = unsafe { tpz_frame_alloc(ep, BYTES) };
    let spans = timed(rounds, || {
        call.into = landing;
        // SAFETY: as above.
        assert_eq!(unsafe { tpz_call_wait(ep, &call, &mut reply) }, 0);
        assert_eq!((reply.status, reply.bytes), (0, BYTES));
        landing = reply.into;
    });
    // SAFETY: as above; neither is used again.
    unsafe {
        tpz_frame_free(landing);
        assert_eq!(tpz_close(ep), 0);
    }
    spans
}

/// With `TRAPEZE_BENCH` 50,000 fetches each, otherwise a few: what is asserted is that both get the bytes.
#[test]
fn bench_fetch_through_c_and_rust() {
    let rounds = if std::env::var_os("TRAPEZE_BENCH").is_some() { 50_000 } else { 200 };
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("s").display());
    let options = Options { wait: WaitPolicy::Spin, ..Options::default() };
    let server = Server::start(&address, &options, |server| {
        let block = server.cx().frames().copy_of(&[7; BYTES]).unwrap();
        server.serve(Channel::USER, async move |_, _| Ok(Response::from(vec![block.clone()])));
    });
    let server = server.unwrap();
    for turn in 1..=3 {
        let rust = p50(by_rust(&server.address(), &options, rounds));
        let c = p50(by_c(&server.address(), rounds));
        println!(
            "turn {turn}: 8 KiB over shared memory, p50: Rust {rust:.2} us, C {c:.2} us, {:.2} x",
            c / rust
        );
    }
}
