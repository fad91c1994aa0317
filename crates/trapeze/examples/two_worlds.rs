//! One service and one conversation, run in the simulator and then over shared memory. The code is the same; only what
//! holds the far end of the nodes' rings differs.
//!
//! `cargo run --release --example two_worlds`

use sim::machine::MachineConfig;
use sim::network::LinkModel;
use sim::queue::Picos;
use sim::trace::Trace;
use sim::world::World;
use std::cell::Cell;
use std::rc::Rc;
use trapeze::scratch::Scratch;
use trapeze::service::{self, Call, CallError, Channel, Client, Cx, Errno, NodeId};
use trapeze::service::{Options, Request, Response, Server};

const ADD: u16 = 1;

async fn add(_cx: &Cx, request: &mut Request) -> Result<Response, Errno> {
    let sum: u32 = request.body.iter().map(|byte| u32::from(*byte)).sum();
    Ok(Response::body(&sum.to_le_bytes()))
}

/// Ten sums, one after the other; the last one, and how long all took by the node's own clock, in microseconds.
async fn converse(cx: Cx, server: NodeId) -> Result<(u32, f64), CallError> {
    let (start, mut sum) = (cx.now(), 0);
    for number in 1..=10u8 {
        let body = [number; 4];
        let call = Call { body: &body, ..service::new_call(&cx, server, ADD) };
        let reply = cx.call(call).await?;
        sum = u32::from_le_bytes(reply.body[..4].try_into().expect("4 bytes"));
    }
    Ok((sum, cx.now().since(start).as_nanos() as f64 / 1000.0))
}

fn simulated(seed: u64) -> Result<(u32, f64), CallError> {
    let mut world = World::new(seed, LinkModel::default(), Trace::default());
    let (server, client) = (NodeId(1), NodeId(2));
    let result = Rc::new(Cell::new(None));
    let slot = result.clone();
    world.add(
        MachineConfig::new(server),
        Rc::new(|boot| {
            service::serve(&boot.cx, Channel::USER, add);
            Ok(Box::new(()))
        }),
    );
    world.add(
        MachineConfig::new(client),
        Rc::new(move |boot| {
            let (cx, slot) = (boot.cx.clone(), slot.clone());
            boot.cx.spawn("client", async move { slot.set(Some(converse(cx, server).await)) });
            Ok(Box::new(()))
        }),
    );
    world.start(server);
    world.start(client);
    world.advance(Picos::seconds(60));
    result.take().expect("every call ends")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sum, span) = simulated(7)?;
    println!("simulated:     the last sum is {sum}, {span:.1} us; the same in every run");

    let scratch = Scratch::new(None, false)?;
    let address = format!("unix:{}", scratch.path().join("add").display());
    let options = Options::default();
    let server = Server::start(&address, &options, |server| server.serve(Channel::USER, add))?;
    let mut client = Client::connect(&server.address(), &options)?;
    let (real, span) = client.block_on(converse(client.cx().clone(), client.server()))??;
    println!("shared memory: the last sum is {real}, {span:.1} us");
    assert_eq!(sum, real);
    Ok(())
}
