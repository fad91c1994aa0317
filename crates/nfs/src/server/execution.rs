//! One call from its record to its reply.

use super::{Context, Origin, Port, Server, export};
use super::{data, listing, locking, monitoring, mounting, namespace, objects};
use crate::exports::Exports;
use crate::record::{MARK_BYTES, Outgoing, Record, begin};
use crate::rpc::{Acceptance, Call, Reply};
use crate::v3::{self, Args, Handle, Procedure, Status};
use crate::xdr::Xdr;
use crate::{mount, nlm, nsm, portmap};
use core::net::IpAddr;
use endpoint::Frame;
use node::rings::{Caller, FileOp, FileReply};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll, Waker};
use wire::{CallId, Errno};

/// Exchange between a procedure and its driver.
#[derive(Default)]
enum Exchange {
    #[default]
    Empty,
    Asked(Caller, FileOp),
    /// The operation is under way.
    Waiting,
    Answered(Result<FileReply, Errno>),
}

/// How a procedure asks the front ring: one operation at a time.
#[derive(Clone, Default)]
pub(super) struct Asker {
    exchange: Rc<RefCell<Exchange>>,
    /// The user that the call counts as.
    pub caller: Caller,
    /// Of a call whose duplicates get the first one's reply, whichever server they come to.
    pub call: Option<CallId>,
}

impl Asker {
    pub(super) async fn ask(&self, op: FileOp) -> Result<FileReply, Errno> {
        self.ask_as(&self.caller, op).await
    }

    pub(super) async fn ask_as(&self, caller: &Caller, op: FileOp) -> Result<FileReply, Errno> {
        self.exchange.replace(Exchange::Asked(caller.clone(), op));
        poll_fn(|_| {
            let mut exchange = self.exchange.borrow_mut();
            match std::mem::take(&mut *exchange) {
                Exchange::Answered(result) => Poll::Ready(result),
                other => {
                    *exchange = other;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The next step.
#[derive(Debug)]
pub enum Step {
    /// This is to be asked of the front ring, for this caller; its result is to be given to
    /// [`answer`](Execution::answer).
    Ask(Caller, FileOp),
    /// The call is done.
    Reply(Executed),
}

/// The outcome of a call, and whether the duplicate-request cache keeps it.
#[derive(Debug)]
pub struct Executed {
    /// The reply; none to what is no call.
    pub reply: Option<Outgoing>,
    /// It may be answered again with the same: JUKEBOX may not.
    pub is_final: bool,
    /// The reply tells of an error.
    pub failed: bool,
}

/// A call that is being executed.
pub struct Execution {
    exchange: Rc<RefCell<Exchange>>,
    procedure: Pin<Box<dyn Future<Output = Executed>>>,
}

impl Execution {
    /// Begins the call of a record. One that cannot be executed comes back as its reply at once. `call`: a change of
    /// names is made once for all its duplicates, whichever server they come to.
    pub fn begin(
        server: Rc<Server>,
        origin: Origin,
        call: Option<CallId>,
        record: Record,
    ) -> Execution {
        let exports = server.exports.clone();
        Execution::begin_in(server, exports, (origin, call), record)
    }

    /// The same, of a call of NFS to which these exports apply.
    pub fn begin_in(
        server: Rc<Server>,
        exports: Rc<Exports>,
        (origin, call): (Origin, Option<CallId>),
        record: Record,
    ) -> Execution {
        let caller = caller(&server, &exports, origin.client(), &record.head);
        let asker = Asker { caller, call, ..Asker::default() };
        let exchange = asker.exchange.clone();
        let procedure = Box::pin(execute(server, exports, origin, asker, record));
        Execution { exchange, procedure }
    }

    /// The next step. To be called again only after [`answer`](Execution::answer).
    pub fn step(&mut self) -> Step {
        let mut context = task::Context::from_waker(Waker::noop());
        match self.procedure.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => Step::Reply(outcome),
            Poll::Pending => match self.exchange.replace(Exchange::Waiting) {
                Exchange::Asked(caller, op) => Step::Ask(caller, op),
                _ => panic!("a procedure waits for nothing but its operation"),
            },
        }
    }

    /// Gives the operation's result to the procedure.
    pub fn answer(&mut self, result: Result<FileReply, Errno>) {
        let waiting = self.exchange.replace(Exchange::Answered(result));
        assert!(matches!(waiting, Exchange::Waiting), "one answer to one operation");
    }
}

fn caller(server: &Server, exports: &Exports, client: IpAddr, head: &[u8]) -> Caller {
    let Ok(call) = Call::parse(head) else { return Caller::default() };
    let options = first_handle(call.arguments)
        .and_then(|handle| export(server, exports, handle).ok()?.options(client));
    options.unwrap_or_default().caller(&call.credential)
}

/// Every procedure but NULL begins with a handle.
fn first_handle(arguments: &[u8]) -> Option<Handle<'_>> {
    Handle::take(&mut crate::xdr::Input::new(arguments)).ok()
}

async fn execute(
    server: Rc<Server>,
    exports: Rc<Exports>,
    origin: Origin,
    asker: Asker,
    record: Record,
) -> Executed {
    let call = match Call::parse(&record.head) {
        Ok(call) => call,
        Err(no) => {
            let reply = crate::rpc::refusal(no).map(|refusal| {
                let mut head = begin(refusal.len());
                head.extend(refusal);
                Outgoing::of(head)
            });
            return Executed { reply, is_final: true, failed: true };
        }
    };
    match (origin.port, call.program) {
        (Port::Nfs, v3::PROGRAM) => {
            let parts = (&*server, &*exports);
            execute_nfs(parts, origin, asker, &call, record.data).await
        }
        (Port::Nfs | Port::Mount, mount::PROGRAM) => {
            finished(call.xid, mounting::answer(&server, origin, &asker, &call).await)
        }
        (port, nlm::PROGRAM) if port.has_locks() => {
            finished(call.xid, locking::answer(&server, origin, &asker, &call).await)
        }
        (port, nsm::PROGRAM) if port.has_locks() => {
            finished(call.xid, monitoring::answer(&server, origin, &call))
        }
        (Port::Portmap, portmap::PROGRAM) => finished(call.xid, map_port(&server, origin, &call)),
        _ => plain(call.xid, Reply::Accepted(Acceptance::NoProgram)),
    }
}

/// The results of a call that has no data, and whether they tell of an error; `None`: no reply.
pub(super) type Answered = Result<Option<(Vec<u8>, bool)>, Acceptance>;

fn map_port(server: &Server, origin: Origin, call: &Call<'_>) -> Answered {
    let (to, over, unix_seconds) = (origin.to, origin.over, server.unix_seconds());
    let query = portmap::Query { to, over, unix_seconds };
    let asked = (call.version, call.procedure);
    match portmap::answer(&server.services, query, asked, call.arguments) {
        portmap::Answer::Results(results) => Ok(Some((results, false))),
        portmap::Answer::Refused(refused) => Err(refused),
        portmap::Answer::Silence => Ok(None),
    }
}

fn finished(xid: u32, answered: Answered) -> Executed {
    match answered {
        Ok(Some((results, failed))) => {
            let mut head = begin(MARK_BYTES + 24 + results.len());
            Reply::Accepted(Acceptance::Success).put(xid, &mut head);
            head.extend(results);
            Executed { reply: Some(Outgoing::of(head)), is_final: true, failed }
        }
        Ok(None) => Executed { reply: None, is_final: true, failed: false },
        Err(refused) => plain(xid, Reply::Accepted(refused)),
    }
}

async fn execute_nfs(
    parts: (&Server, &Exports),
    origin: Origin,
    asker: Asker,
    call: &Call<'_>,
    data: Vec<Frame>,
) -> Executed {
    match acceptance(call) {
        Err(refused) => plain(call.xid, Reply::Accepted(refused)),
        Ok((Procedure::Null, _)) => plain(call.xid, Reply::Accepted(Acceptance::Success)),
        Ok((_, args)) => {
            let mut head = begin(256);
            Reply::Accepted(Acceptance::Success).put(call.xid, &mut head);
            let results = head.len();
            let client = origin.client();
            let (head, data, bytes) = results_of(parts, client, asker, (args, head), data).await;
            let status = &head[results..];
            let is_final = !status.starts_with(&(Status::Jukebox as u32).to_be_bytes());
            let failed = !status.starts_with(&(Status::Ok as u32).to_be_bytes());
            Executed { reply: Some(Outgoing::with_data(head, data, bytes)), is_final, failed }
        }
    }
}

fn acceptance<'a>(call: &Call<'a>) -> Result<(Procedure, Args<'a>), Acceptance> {
    if call.version != v3::VERSION {
        return Err(Acceptance::Versions { low: v3::VERSION, high: v3::VERSION });
    }
    let procedure = Procedure::of(call.procedure).ok_or(Acceptance::NoProcedure)?;
    let args = Args::decode(procedure, call.arguments);
    Ok((procedure, args.map_err(|_| Acceptance::GarbageArguments)?))
}

fn plain(xid: u32, reply: Reply) -> Executed {
    let mut head = begin(MARK_BYTES + 28);
    reply.put(xid, &mut head);
    let failed = reply != Reply::Accepted(Acceptance::Success);
    Executed { reply: Some(Outgoing::of(head)), is_final: true, failed }
}

/// A reply's head with its results, and the data behind it.
pub(super) type Results = (Vec<u8>, Vec<Frame>, usize);

async fn results_of(
    (server, exports): (&Server, &Exports),
    client: IpAddr,
    asker: Asker,
    (args, mut head): (Args<'_>, Vec<u8>),
    data: Vec<Frame>,
) -> Results {
    let mut arguments = Vec::new();
    args.put(&mut arguments);
    let handle = first_handle(&arguments).unwrap_or_default();
    let allowed = export(server, exports, handle).and_then(|export| {
        let options = export.options(client).ok_or(Status::Acces)?;
        Ok((options, export))
    });
    let (options, export) = match allowed {
        Ok(allowed) => allowed,
        Err(status) => {
            refuse(args.procedure(), status, &mut head);
            return (head, Vec::new(), 0);
        }
    };
    let context = Context { server, asker, options, export };
    match args {
        Args::Read(args) => return data::read(&context, args, head).await,
        Args::Write(args) => data::write(&context, args, data).await.put(&mut head),
        Args::Commit(args) => data::commit(&context, args).await.put(&mut head),
        Args::Readdir(args) => {
            return (listing::readdir(&context, args, head).await, Vec::new(), 0);
        }
        Args::Readdirplus(args) => {
            return (listing::readdirplus(&context, args, head).await, Vec::new(), 0);
        }
        Args::Create(_) | Args::Mkdir(_) | Args::Symlink(_) | Args::Mknod(_) => {
            namespace::create(&context, args, &mut head).await;
        }
        Args::Remove(place) => namespace::remove(&context, place, false).await.put(&mut head),
        Args::Rmdir(place) => namespace::remove(&context, place, true).await.put(&mut head),
        Args::Rename(args) => namespace::rename(&context, args).await.put(&mut head),
        Args::Link(args) => namespace::link(&context, args).await.put(&mut head),
        args => objects::answer(&context, args, &mut head).await,
    }
    (head, Vec::new(), 0)
}

/// An error before anything is known: without attributes.
fn refuse(procedure: Procedure, status: Status, head: &mut Vec<u8>) {
    use Procedure::*;
    status.put(head);
    // the number of `post_op_attr` and `pre_op_attr`, all of them absent
    let absent = match procedure {
        Null | Getattr => 0,
        Setattr | Write | Create | Mkdir | Symlink | Mknod | Remove | Rmdir | Commit => 2,
        Rename => 4,
        Link => 3,
        _ => 1,
    };
    (0..absent).for_each(|_| false.put(head));
}
