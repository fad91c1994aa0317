//! The manager's half: calls of a filter's clients, executed on the node of the manager that owns their site.

use super::message::{EXECUTE, Ended, SITES, decode};
use super::{Forward, Outcome, Part, target};
use crate::exports::{Export, Exports, Network, Rule};
use crate::handle;
use crate::limits::{EXECUTORS, JOINED_MAX};
use crate::portmap::TCP;
use crate::record::Record;
use crate::replies::{Key, Replies, Verdict};
use crate::rpc::Call;
use crate::server::{Execution, Origin, Port, Server, Step};
use crate::v3::{self, Args, Procedure};
use core::net::{IpAddr, Ipv4Addr};
use node::rings::{Caller, FileOp, FileReply};
use node::{Answer, Bug, Cx, Request};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::field::encoded;
use wire::{Channel, Errno, FileId, NodeId, Sites, VolumeId};

/// The manager's node, as its calls see it.
pub trait FileSystem: 'static {
    /// Whether a node is a member of the cluster: others hold a key at most, and are refused.
    fn is_member(&self, node: NodeId) -> impl Future<Output = bool>;
    /// Owners of sites; of those of its own the manager is sure. `None`: it is ending.
    fn sites(&self) -> Option<Sites>;
    /// The route of a call about a file, or about a part of that directory. `None`: the manager is ending.
    fn route(&self, file: FileId, part: &Part) -> Option<Route>;
    /// Executes an operation as a front ring does.
    fn ask(&self, caller: Caller, op: FileOp) -> impl Future<Output = Result<FileReply, Errno>>;
}

/// Where a call is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The site is the manager's.
    pub is_here: bool,
    /// The directory is hashed.
    pub is_hashed: bool,
}

/// Calls that filters forwarded here.
struct Executor<F> {
    cx: Cx,
    volume: VolumeId,
    files: F,
    /// Made when the first call comes: the key of handles stands in the volume.
    server: RefCell<Option<Rc<Server>>>,
    replies: RefCell<Replies>,
    /// Requests of calls that are being executed: a duplicate gets the same reply.
    running: RefCell<BTreeMap<Key, Vec<Request>>>,
}

/// Serves filters on [`Channel::NFS`].
pub fn serve<F: FileSystem>(cx: &Cx, volume: VolumeId, files: F) {
    let executor = Rc::new(Executor {
        cx: cx.clone(),
        volume,
        files,
        server: RefCell::default(),
        replies: RefCell::default(),
        running: RefCell::default(),
    });
    for _ in 0..EXECUTORS {
        let executor = executor.clone();
        cx.spawn("nfs", async move {
            loop {
                let request = executor.cx.accept(Channel::NFS).await;
                executor.serve(request).await;
            }
        });
    }
}

/// Whether a call is to be executed now.
enum Begun {
    Execute(Option<Key>),
    Answered(Outcome),
    /// The one that is being executed answers it.
    Joined,
}

impl<F: FileSystem> Executor<F> {
    async fn serve(&self, request: Request) {
        if !self.files.is_member(request.source).await {
            return self.refuse(request, Errno::EACCES);
        }
        let forward = match request.op {
            SITES => return self.answer_sites(request, false),
            EXECUTE => decode(&request.body, &request.data.copied(request.bytes)),
            _ => return self.refuse(request, Errno::EPROTO),
        };
        let Ok(forward) = forward else { return self.refuse(request, Errno::EPROTO) };
        let Some((call, part)) = executable(&forward.record) else {
            return self.refuse(request, Errno::EPROTO);
        };
        match self.files.route(forward.subject.file, &part) {
            Some(Route { is_here: true, .. }) => {}
            Some(Route { is_hashed, .. }) => return self.answer_sites(request, is_hashed),
            None => return self.refuse(request, Errno::EAGAIN),
        }
        let server = match self.server().await {
            Ok(server) => server,
            Err(errno) => return self.refuse(request, errno),
        };
        let key = Key::of(forward.client.ip(), &call, &forward.record);
        let mut request = Some(request);
        match self.begin(key, &mut request) {
            Ok(Begun::Execute(key)) => {
                let outcome = self.execute(server, key, forward).await;
                self.end(key, request, outcome);
            }
            Ok(Begun::Answered(outcome)) => {
                request.into_iter().for_each(|it| self.reply(it, &outcome))
            }
            Ok(Begun::Joined) => {}
            Err(errno) => request.into_iter().for_each(|it| self.refuse(it, errno)),
        }
    }

    /// The state that its calls share. Without exports: each call brings its own.
    async fn server(&self) -> Result<Rc<Server>, Errno> {
        if let Some(server) = &*self.server.borrow() {
            return Ok(server.clone());
        }
        let (file, name) = (FileId::ROOT, handle::KEY_ATTRIBUTE.into());
        let asked = self.files.ask(Caller::default(), FileOp::GetXattr { file, name }).await?;
        let FileReply::Bytes(key) = asked else { return Err(Errno::EPROTO) };
        let key = handle::Key(key.try_into().map_err(|_| Errno::EINVAL)?);
        let verifier = self.cx.incarnation().to_be_bytes();
        let mut server = Server::new(self.volume, key, Exports::default(), verifier);
        server.bugs = self.cx.bugs();
        // another call may have been quicker
        Ok(self.server.borrow_mut().get_or_insert_with(|| Rc::new(server)).clone())
    }

    fn begin(&self, key: Key, request: &mut Option<Request>) -> Result<Begun, Errno> {
        if !key.is_kept() || self.cx.has_bug(Bug::ForwardedTwice) {
            return Ok(Begun::Execute(None));
        }
        match self.replies.borrow_mut().begin(key) {
            Verdict::Execute => {
                self.running.borrow_mut().insert(key, Vec::new());
                Ok(Begun::Execute(Some(key)))
            }
            Verdict::Done(reply) => {
                let failed = false; // it was counted when it was executed
                let outcome = Outcome { reply: reply.to_vec(), is_final: true, failed };
                Ok(Begun::Answered(outcome))
            }
            Verdict::InProgress => {
                let mut running = self.running.borrow_mut();
                let joined = running.get_mut(&key).expect("it is in progress");
                if joined.len() >= JOINED_MAX {
                    return Err(Errno::EAGAIN);
                }
                joined.extend(request.take());
                Ok(Begun::Joined)
            }
            Verdict::Full => Err(Errno::EAGAIN),
        }
    }

    async fn execute(
        &self,
        server: Rc<Server>,
        key: Option<Key>,
        forward: Forward,
    ) -> Option<Outcome> {
        server.set_now(self.cx.now(), self.cx.wall());
        let Forward { client, subject, record, .. } = forward;
        let rules = vec![Rule { network: Network::Any, options: subject.options }];
        let exports = Exports::new(vec![Export { path: subject.path, rules }]);
        let to = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let origin = Origin { from: client, to, over: TCP, port: Port::Nfs };
        let record = Record { head: record, data: Vec::new() };
        let call = key.map(|key| key.call_id());
        let mut execution = Execution::begin_in(server, Rc::new(exports), (origin, call), record);
        loop {
            match execution.step() {
                Step::Ask(caller, op) => execution.answer(self.files.ask(caller, op).await),
                Step::Reply(executed) => {
                    let reply = executed.reply?.head().to_vec();
                    let (is_final, failed) = (executed.is_final, executed.failed);
                    return Some(Outcome { reply, is_final, failed });
                }
            }
        }
    }

    fn end(&self, key: Option<Key>, request: Option<Request>, outcome: Option<Outcome>) {
        let joined = key.and_then(|key| self.running.borrow_mut().remove(&key));
        if let Some(key) = key {
            let mut replies = self.replies.borrow_mut();
            match outcome.as_ref().filter(|outcome| outcome.is_final) {
                Some(outcome) => replies.complete(key, &outcome.reply),
                None => replies.forget(key),
            }
        }
        for request in request.into_iter().chain(joined.into_iter().flatten()) {
            match &outcome {
                Some(outcome) => self.reply(request, outcome),
                None => self.refuse(request, Errno::EPROTO),
            }
        }
    }

    fn reply(&self, request: Request, outcome: &Outcome) {
        self.answer(request, Ended::of(outcome), &outcome.reply);
    }

    fn answer_sites(&self, request: Request, is_hashed: bool) {
        let Some(sites) = self.files.sites() else { return self.refuse(request, Errno::EAGAIN) };
        let table = encoded(&sites);
        self.answer(request, Ended::elsewhere(is_hashed, table.len()), &table);
    }

    fn answer(&self, request: Request, ended: Ended, bytes: &[u8]) {
        let Some(frame) = self.cx.frames().copy_of(bytes) else {
            return self.refuse(request, Errno::ENOMEM);
        };
        let answer = Answer { body: &encoded(&ended), data: &[frame], ..Answer::DONE };
        self.cx.reply(request, answer);
    }

    fn refuse(&self, request: Request, errno: Errno) {
        self.cx.reply(request, Answer::error(errno));
    }
}

/// The call of a record and the part of a directory that it is about, if managers execute such calls.
fn executable(record: &[u8]) -> Option<(Call<'_>, Part)> {
    let call = Call::parse(record).ok()?;
    if (call.program, call.version) != (v3::PROGRAM, v3::VERSION) {
        return None;
    }
    let args = Args::decode(Procedure::of(call.procedure)?, call.arguments).ok()?;
    let (_, part) = target(&args)?;
    Some((call, part))
}
