//! A server that keeps 8 KiB blocks by a 64-bit key, in 50 lines, and a client that stores and fetches one.
//!
//! `cargo run --release --example key_block`

use std::cell::RefCell;
use std::collections::BTreeMap;
use trapeze::scratch::Scratch;
use trapeze::service::{Call, Channel, Client, Errno, Frame, Options, Response, Server, take_data};

const GET: u16 = 1;
const PUT: u16 = 2;
const BLOCK_BYTES: usize = 8192;
/// Most blocks kept: half of the server's memory, so that requests always find room.
const BLOCKS_MAX: usize = 4096;

fn serve_blocks(server: &mut Server) {
    let blocks: RefCell<BTreeMap<u64, Vec<Frame>>> = RefCell::default();
    server.serve(Channel::USER, async move |_cx, request| {
        let key = u64::from_le_bytes(request.body[..8].try_into().expect("8 of 64 bytes"));
        let mut blocks = blocks.borrow_mut(); // no await follows
        match request.op {
            // The reply's data is the kept frames themselves.
            GET => blocks.get(&key).cloned().map(Response::from).ok_or(Errno::ENOENT),
            PUT if request.bytes != BLOCK_BYTES => Err(Errno::EINVAL),
            PUT if blocks.len() >= BLOCKS_MAX && !blocks.contains_key(&key) => Err(Errno::ENOSPC),
            PUT => {
                // So is what is kept: the frames into which the request's data has landed.
                blocks.insert(key, take_data(request));
                Ok(Response::DONE)
            }
            _ => Err(Errno::ENOSYS),
        }
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new(None, false)?;
    let address = format!("unix:{}", scratch.path().join("blocks").display());
    let options = Options::default();
    let server = Server::start(&address, &options, serve_blocks)?;

    let mut client = Client::connect(&server.address(), &options)?;
    let cx = client.cx().clone();
    let key = 42u64.to_le_bytes();
    let block = cx.frames().copy_of(&[7; BLOCK_BYTES]).ok_or("no memory for a block")?;
    // PUT changes something: `once`, so that it is never executed twice.
    let put = Call { body: &key, once: true, data: cx.piece(block), ..client.new_call(PUT) };
    client.call(put)?.ok()?;

    let landing = cx.frames().alloc_exact(BLOCK_BYTES).ok_or("no memory for a block")?;
    let get = Call { body: &key, into: cx.piece(landing), ..client.new_call(GET) };
    let reply = client.call(get)?.ok()?;
    assert_eq!(reply.data[0][..], [7; BLOCK_BYTES]);
    println!("block 42 is there, all {} bytes of it", reply.bytes);
    Ok(())
}
