//! A block there and back: the owners of its bytes, which only the link copies, once each way.
//!
//! `cargo run --release --example block_echo`

use trapeze::scratch::Scratch;
use trapeze::service::{Call, Channel, Client, Options, Server, take_data};

const ECHO: u16 = 1;
const BLOCK_BYTES: usize = 8192;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new(None, false)?;
    let address = format!("unix:{}", scratch.path().join("echo").display());
    let options = Options::default();

    // The data has landed in frames of the server. It sends those very frames back.
    let server = Server::start(&address, &options, |server| {
        server.serve(Channel::USER, async |_cx, request| Ok(take_data(request).into()));
    })?;

    let mut client = Client::connect(&server.address(), &options)?;
    let cx = client.cx().clone();

    // A frame is written by its one owner ...
    let mut block = cx.frames().alloc_exact(BLOCK_BYTES).ok_or("no memory for a block")?;
    block.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    // ... and from now on shared and read-only: we keep one handle, the link gets another.
    let block = block.freeze();

    // The reply's data lands in the frame that we choose here. It is lent until the call has ended.
    let landing = cx.frames().alloc_exact(BLOCK_BYTES).ok_or("no memory for a block")?;
    let chosen = landing.offset();

    let (data, into) = (cx.piece(block.clone()), cx.piece(landing));
    let reply = client.call(Call { data, into, ..client.new_call(ECHO) })?.ok()?;

    assert_eq!(reply.bytes, BLOCK_BYTES);
    assert_eq!(reply.data[0].offset(), chosen, "it landed where we said");
    assert_eq!(reply.data[0][..], block[..], "byte for byte");
    println!("{} bytes came back into the frame at {chosen} of our pool", reply.bytes);
    Ok(())
}
