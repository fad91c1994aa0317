//! Two nodes, one call: a server on a thread of its own, a client here, shared memory between them.
//!
//! `cargo run --release --example ping`

use std::time::Instant;
use trapeze::scratch::Scratch;
use trapeze::service::{Call, Channel, Client, Options, Response, Server};

const PING: u16 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new(None, false)?;
    let address = format!("unix:{}", scratch.path().join("ping").display());
    let options = Options::default();

    // The handler's answer is the request's own 64 bytes of arguments.
    let server = Server::start(&address, &options, |server| {
        server.serve(Channel::USER, async |_cx, request| Ok(Response::body(&request.body)));
    })?;

    let mut client = Client::connect(&server.address(), &options)?;
    for round in 1..=3 {
        let start = Instant::now();
        let call = Call { body: b"are you there?", ..client.new_call(PING) };
        let reply = client.call(call)?.ok()?;
        let text = String::from_utf8_lossy(&reply.body);
        println!("{round}: {:?} after {:.1?}", text.trim_end_matches('\0'), start.elapsed());
    }
    Ok(())
}
