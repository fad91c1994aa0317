//! Services of your own over Trapeze messages: calls with a 64-byte body and up to 1 MiB of data in frames.
//!
//! ```text
//!   Client ── call(op, body, frames) ──► link ──► Server: handler(cx, request) ──► Response
//!          ◄───────── reply: body, data in the frames that the caller named ◄──────┘
//! ```
//!
//! **Threads.** A [`Server`] and a [`Client`] are each one node on one thread, the one that made it. Nothing runs in
//! the background: a client's node moves while one of its calls waits, a server's while [`Server::run`] does.
//! [`Server::start`] puts a server on a thread of its own. A handler that computes without waiting for anything keeps
//! its node from all else meanwhile, other calls and the links too. Beyond 10 s peers take the node for one that stands
//! still when data is on its way to it: they end the connection, and calls without `once` are made again. Give what
//! takes long to a thread of your own.
//!
//! **Ownership.** A [`FrameMut`] is the only way to its bytes; [`FrameMut::freeze`] makes it a [`Frame`], which any
//! number of holders read. Frames come from the node's own pool ([`Cx::frames`]) and return to it with their last
//! holder. A request's data belongs to the handler and may be kept. Frames to be sent are lent: they are not copied,
//! and are free again when the link has passed them on. `Call::into` is lent until the call ends, however it ends.
//!
//! **Failure.** Every call ends: with a reply, with its deadline, or some 10 s after its peer was lost
//! ([`CallError`] says which). A call with `once` is executed at most once in one incarnation of the server, whatever
//! the network does; one without may be executed again. After a lost peer or a deadline the caller does not know
//! whether a call was executed. A handler's error arrives as the reply's status.
//!
//! It is not a general async runtime: a handler may wait for what [`Cx`] offers (calls, time, disks) and for nothing
//! else.

use crate::join::{Joined, Plan, join, system};

use crate::stopper::Stopper;
use live::host::Host;
use node::Answer;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use wire::limits::BODY_BYTES;

pub use crate::join::{Options, ServiceError};
pub use endpoint::{Frame, FrameMut, Frames};
pub use live::link::{Address, Keys, Security};
pub use live::wait::{WaitCounters, WaitPolicy};
pub use node::{Call, CallError, Cx, Pieces, Reply, Request};
pub use wire::{Channel, Errno, NodeId};

/// The node of every server of this module. Clients get their ids from the server they connect to.
const SERVER_NODE: NodeId = NodeId(1);
/// Requests of a channel that are handled at a time; others wait, and when too many wait they are refused.
const HANDLERS: usize = 16;
/// How long a call may take unless it says otherwise.
const DEADLINE: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, ServiceError>;

/// A handler's reply.
#[derive(Debug)]
pub struct Response {
    /// Results; the caller gets all 64 bytes.
    pub body: [u8; BODY_BYTES],
    /// Data, in order, at most 1 MiB; it lands in the caller's `into`. It must be the server's own frames.
    pub data: Vec<Frame>,
}

impl Response {
    /// Done, nothing to say.
    pub const DONE: Response = Response { body: [0; BODY_BYTES], data: Vec::new() };

    /// Results of at most 64 bytes. Panics when there are more.
    pub fn body(bytes: &[u8]) -> Response {
        let mut response = Response::DONE;
        response.body[..bytes.len()].copy_from_slice(bytes);
        response
    }
}

impl From<Vec<Frame>> for Response {
    fn from(data: Vec<Frame>) -> Response {
        Response { data, ..Response::DONE }
    }
}

/// Takes a request's data out of it, without copying. It counts against the server's memory as long as it is kept.
pub fn take_data(request: &mut Request) -> Vec<Frame> {
    let mut left = request.bytes;
    let mut frames = Vec::with_capacity(request.data.len());
    for mut frame in request.data.drain(..) {
        frame.truncate(left);
        left -= frame.len();
        frames.push(frame.freeze());
    }
    frames
}

/// Answers a channel's requests with `handler`, 16 at a time, on any node: of a [`Server`] or of the simulator. State
/// that the handler shares between requests is in an `Rc<RefCell<..>>`, never borrowed across an await.
pub fn serve<H>(cx: &Cx, channel: Channel, handler: H)
where
    H: AsyncFn(&Cx, &mut Request) -> std::result::Result<Response, Errno> + 'static,
{
    let handler = Rc::new(handler);
    for _ in 0..HANDLERS {
        let (cx, handler) = (cx.clone(), handler.clone());
        cx.clone().spawn("service", async move {
            loop {
                let mut request = cx.accept(channel).await;
                match handler(&cx, &mut request).await {
                    Ok(Response { body, data }) => {
                        let answer = Answer { body: &body, data: &data, ..Answer::DONE };
                        cx.reply(request, answer);
                    }
                    Err(errno) => cx.reply(request, Answer::error(errno)),
                }
            }
        });
    }
}

/// A node that answers requests.
pub struct Server {
    host: Host,
    address: Address,
    stopper: Stopper,
}

impl Server {
    /// Listens at `unix:PATH` (shared memory), `adapter:PATH` (adapters over it) or `tcp:HOST:PORT` (port 0: any free
    /// one).
    pub fn listen(address: &str, options: &Options) -> Result<Server> {
        let plan = Plan { node: SERVER_NODE, listen: Some(address), ..Plan::default() };
        let Joined { mut host, address, .. } = join(plan, options)?;
        let address = address.expect("it listens");
        let stopper = Stopper::new().map_err(system("the loop"))?;
        stopper.watch(&mut host).map_err(system("the loop"))?;
        Ok(Server { host, address, stopper })
    }

    /// Sets a server up and runs it on a thread of its own, until the handle is stopped or dropped.
    pub fn start(
        address: &str,
        options: &Options,
        setup: impl FnOnce(&mut Server) + Send + 'static,
    ) -> Result<ServerThread> {
        let (address, options) = (address.to_string(), options.clone());
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = match Server::listen(&address, &options) {
                Ok(server) => server,
                Err(error) => return drop(tell.send(Err(error))),
            };
            setup(&mut server);
            let _ = tell.send(Ok((server.address.clone(), server.stopper.clone())));
            server.run().expect("its sockets and its memory stay");
        });
        let (address, stopper) = told.recv().expect("the thread tells before it ends")?;
        Ok(ServerThread { address, stopper, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its node.
    pub fn cx(&self) -> &Cx {
        self.host.node().cx()
    }

    /// Asks it to stop, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Answers a channel's requests with `handler`: see [`serve`]. Yours are the channels from [`Channel::USER`] on.
    pub fn serve<H>(&mut self, channel: Channel, handler: H)
    where
        H: AsyncFn(&Cx, &mut Request) -> std::result::Result<Response, Errno> + 'static,
    {
        serve(self.cx(), channel, handler);
    }

    /// Serves on this thread until it is asked to stop; replies that are under way are sent first.
    pub fn run(mut self) -> Result<()> {
        let stopper = self.stopper.clone();
        self.host.run(|| stopper.asked()).map_err(system("the loop"))?;
        self.host.stop().map(drop).map_err(system("stopping"))
    }
}

/// A server on a thread of its own. Dropping it stops the server and waits for it.
#[derive(Debug)]
pub struct ServerThread {
    address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Where it listens, as [`Client::connect`] takes it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking(), "a handler panicked");
    }
}

/// A node that calls one server.
pub struct Client {
    host: Host,
    server: NodeId,
}

impl Client {
    /// Connects. When the connection breaks later it is made again by the next call.
    pub fn connect(address: &str, options: &Options) -> Result<Client> {
        let plan = Plan { connect: Some(address), ..Plan::default() };
        let Joined { host, peer, .. } = join(plan, options)?;
        Ok(Client { host, server: peer.expect("it has connected") })
    }

    /// Its node: frames for calls, time, and [`Cx::call`] for calls that do not block.
    pub fn cx(&self) -> &Cx {
        self.host.node().cx()
    }

    /// The server's node.
    pub fn server(&self) -> NodeId {
        self.server
    }

    /// A call of the server without arguments, to be completed: `Call { body: &key, ..client.new_call(GET) }`. It
    /// may be
    /// executed twice, and waits 30 s at most.
    pub fn new_call(&self, op: u16) -> Call<'static> {
        new_call(self.cx(), self.server, op)
    }

    /// Makes a call and waits for its reply, whose status is the handler's.
    pub fn call(&mut self, call: Call<'_>) -> Result<Reply> {
        self.host.catch_up();
        let reply = self.cx().call(call);
        Ok(self.block_on(reply)??)
    }

    /// Runs `future` on the client's node to its end: with [`node::all`], many calls at a time.
    pub fn block_on<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> Result<T> {
        self.host.block_on(future).map_err(system("the loop"))
    }

    /// How often waiting spun, yielded and slept so far.
    pub fn wait_counters(&self) -> WaitCounters {
        self.host.wait_counters()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Calls under way are finished or given up, so that no server fills frames that are gone.
        let _ = self.host.stop();
    }
}

/// A call on [`Channel::USER`] without arguments, to be completed.
pub fn new_call(cx: &Cx, to: NodeId, op: u16) -> Call<'static> {
    Call {
        to,
        channel: Channel::USER,
        op,
        once: false,
        deadline: Some(DEADLINE),
        body: &[],
        data: cx.pieces(),
        trailer: &[],
        into: cx.pieces(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn double(_: &Cx, request: &mut Request) -> std::result::Result<Response, Errno> {
        match request.op {
            1 => Ok(Response::body(&[request.body[0] * 2])),
            2 => Ok(take_data(request).into()),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn pair(address: &str, options: &Options) -> (ServerThread, Client) {
        let server = Server::start(address, options, |server| server.serve(Channel::USER, double));
        let server = server.unwrap();
        let client = Client::connect(&server.address(), options).unwrap();
        (server, client)
    }

    fn exercise(client: &mut Client) {
        let call = Call { body: &[21], ..client.new_call(1) };
        assert_eq!(client.call(call).unwrap().body[0], 42);
        let bytes: Vec<u8> = (0..50_000u32).map(|n| n as u8).collect();
        let cx = client.cx().clone();
        let data = cx.piece(cx.frames().copy_of(&bytes).unwrap());
        let into = cx.piece(cx.frames().alloc_exact(bytes.len()).unwrap());
        let call = Call { data, into, once: true, ..client.new_call(2) };
        let reply = client.call(call).unwrap();
        assert!(reply.bytes == bytes.len() && reply.data[0][..] == bytes[..]);
        let refused = client.call(client.new_call(9)).unwrap().ok();
        assert_eq!(refused.unwrap_err(), Errno::ENOSYS);
    }

    #[test]
    fn calls_over_both_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("unix:{}", folder.path().join("s").display());
        exercise(&mut pair(&path, &Options::default()).1);
        let security = Some(Security::Encrypted(Keys::generate([3; 32])));
        let options = Options { security, ..Options::default() };
        exercise(&mut pair("tcp:127.0.0.1:0", &options).1);
    }

    #[test]
    fn two_clients_are_two_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("unix:{}", folder.path().join("s").display());
        let (server, mut one) = pair(&path, &Options::default());
        let mut two = Client::connect(&server.address(), &Options::default()).unwrap();
        assert_ne!(one.cx().id(), two.cx().id());
        exercise(&mut one);
        exercise(&mut two);
    }

    #[test]
    fn mistakes_are_named() {
        let text = |result: Result<Client>| result.err().unwrap().to_string();
        let options = Options::default();
        assert!(text(Client::connect("nowhere", &options)).contains("unix:PATH"));
        assert!(text(Client::connect("tcp:127.0.0.1:1", &options)).contains("Options::security"));
        assert!(
            text(Client::connect("unix:/nowhere/at/all", &options)).contains("/nowhere/at/all")
        );
    }
}
