//! NLM: a lock is asked of the front ring, and what its client was told is noted.

use super::execution::{Answered, Asker};
use super::{Origin, Server, export};
use crate::exports::Access;
use crate::handle::Named;
use crate::locks::{Blocked, NoRoom, OwnerId, set_lock};
use crate::nlm::{self, Answer, Args, Holder, LockArgs, NetObject, NlmLock, Procedure, Status};
use crate::rpc::{Acceptance, Call, Credential};
use crate::v3::Handle;
use crate::xdr::encoded;
use node::rings::{Caller, FileOp, FileReply, Lock, LockKind};
use wire::{Errno, FileId};

/// Permissions of access(2).
const READ: u32 = 4;
const WRITE: u32 = 2;

/// Answers a call. The result of one that is asynchronous goes out as a call of its own.
pub(super) async fn answer(
    server: &Server,
    origin: Origin,
    asker: &Asker,
    call: &Call<'_>,
) -> Answered {
    if call.version != nlm::VERSION {
        return Err(Acceptance::Versions { low: nlm::VERSION, high: nlm::VERSION });
    }
    let procedure = Procedure::of(call.procedure).ok_or(Acceptance::NoProcedure)?;
    let args = Args::decode(procedure, call.arguments).map_err(|_| Acceptance::GarbageArguments)?;
    let locking = Locking { server, origin, asker, credential: &call.credential };
    let (results, failed) = locking.results(args).await;
    let Some(told_by) = result_of(procedure) else { return Ok(Some((results, failed))) };
    server.locks.borrow_mut().answer((origin.from.ip(), origin.to), told_by, results);
    Ok(Some((Vec::new(), failed)))
}

/// The call that an asynchronous call's result is sent by.
fn result_of(procedure: Procedure) -> Option<Procedure> {
    use Procedure::*;
    Some(match procedure {
        TestMsg => TestRes,
        LockMsg => LockRes,
        CancelMsg => CancelRes,
        UnlockMsg => UnlockRes,
        GrantedMsg => GrantedRes,
        _ => return None,
    })
}

/// A file that a lock is asked on.
struct Target {
    file: FileId,
    may_write: bool,
    caller: Caller,
}

struct Locking<'s> {
    server: &'s Server,
    origin: Origin,
    asker: &'s Asker,
    credential: &'s Credential<'s>,
}

fn simple(cookie: NetObject<'_>, status: Status) -> (Vec<u8>, bool) {
    let failed = !matches!(status, Status::Granted | Status::Blocked);
    (encoded(&Answer { cookie, status }), failed)
}

fn kind(exclusive: bool) -> LockKind {
    if exclusive { LockKind::Write } else { LockKind::Read }
}

/// The status of an operation that failed.
fn status(errno: Errno) -> Status {
    match errno {
        Errno::EAGAIN => Status::Denied,
        Errno::ENOLCK => Status::DeniedNoLocks,
        Errno::EROFS => Status::Rofs,
        Errno::ESTALE => Status::StaleHandle,
        _ => Status::Failed,
    }
}

impl Locking<'_> {
    async fn results(&self, args: Args<'_>) -> (Vec<u8>, bool) {
        match args {
            Args::Null | Args::TestRes(_) | Args::Res(_) => (Vec::new(), false),
            Args::Test(args) => self.test(args).await,
            Args::Lock(args) => simple(args.cookie, self.lock(&args).await),
            Args::Cancel(args) => {
                let status = self.cancel(&args.lock, kind(args.exclusive));
                simple(args.cookie, status)
            }
            Args::Unlock(args) => simple(args.cookie, self.unlock(&args.lock).await),
            // no lock of ours waits at anybody
            Args::Granted(args) => simple(args.cookie, Status::Denied),
            // shares are promises between Windows' programs: as Linux's server, none is enforced against NFS
            Args::Share(args) | Args::Unshare(args) => {
                let status = Status::Granted;
                let answer = nlm::ShareAnswer { cookie: args.cookie, status, sequence: 0 };
                (encoded(&answer), false)
            }
            Args::FreeAll(args) => {
                let client = self.origin.client();
                self.server.locks.borrow_mut().free_all(client, args.host.0);
                (Vec::new(), false)
            }
        }
    }

    /// The file of a handle, and the client's rights there.
    fn target(&self, handle: NetObject<'_>) -> Result<Target, Status> {
        let handle = Handle(handle.0);
        let stale = Status::StaleHandle;
        let export = export(self.server, &self.server.exports, handle).map_err(|_| stale)?;
        let options = export.options(self.origin.client()).ok_or(stale)?;
        let named = Named::decode(handle, self.server.volume, &self.server.key);
        let file = named.map_err(|_| stale)?.file;
        let may_write = options.access == Access::ReadWrite;
        Ok(Target { file, may_write, caller: options.caller(self.credential) })
    }

    /// Permits a lock to users that may read the file, and to its owner; an exclusive one also to users that may write
    /// it.
    async fn permit(&self, target: &Target, kind: LockKind) -> Result<(), Status> {
        let (caller, file) = (&target.caller, target.file);
        let mask = if kind == LockKind::Write { READ | WRITE } else { READ };
        match self.asker.ask_as(caller, FileOp::Permissions { file }).await.map_err(status)? {
            FileReply::Permissions(_, granted) if granted & mask != 0 => Ok(()),
            FileReply::Permissions(attr, _) if attr.uid == caller.uid => Ok(()),
            _ => Err(Status::Failed),
        }
    }

    async fn test(&self, args: nlm::TestArgs<'_>) -> (Vec<u8>, bool) {
        let outcome = match self.tested(&args).await {
            Ok(None) => Ok(Status::Granted),
            Ok(Some(lock)) => {
                let (file, client) = (self.target(args.lock.handle), Holder::of(&lock));
                let known =
                    file.ok().and_then(|it| self.server.locks.borrow().holder(it.file, &lock));
                let Some((process, owner)) = known else {
                    return self.tested_results(args.cookie, Err(client));
                };
                let holder = Holder { process, owner: NetObject(&owner), ..client };
                return self.tested_results(args.cookie, Err(holder));
            }
            Err(status) => Ok(status),
        };
        self.tested_results(args.cookie, outcome)
    }

    fn tested_results(
        &self,
        cookie: NetObject<'_>,
        outcome: Result<Status, Holder<'_>>,
    ) -> (Vec<u8>, bool) {
        let failed = !matches!(outcome, Ok(Status::Granted) | Err(_));
        (encoded(&nlm::TestAnswer { cookie, outcome }), failed)
    }

    /// The lock that is in the way.
    async fn tested(&self, args: &nlm::TestArgs<'_>) -> Result<Option<Lock>, Status> {
        let target = self.target(args.lock.handle)?;
        let lock = args.lock.to_lock(kind(args.exclusive))?;
        if self.server.locks.borrow().in_grace() {
            return Err(Status::DeniedGracePeriod);
        }
        self.permit(&target, lock.kind).await?;
        let owner = self.server.locks.borrow().peek(self.origin.client(), &args.lock);
        let (file, handle) = (target.file, node::rings::Handle(0));
        let op = FileOp::GetLock { file, handle, owner, lock };
        match self.asker.ask_as(&target.caller, op).await.map_err(status)? {
            FileReply::Lock(found) => Ok(Some(found).filter(|it| it.kind != LockKind::Unlock)),
            _ => Err(Status::Failed),
        }
    }

    async fn lock(&self, args: &LockArgs<'_>) -> Status {
        let taken = async {
            let target = self.target(args.lock.handle)?;
            let lock = args.lock.to_lock(kind(args.exclusive))?;
            if args.exclusive && !target.may_write {
                return Err(Status::Rofs);
            }
            let ends = (self.origin.from.ip(), self.origin.to);
            let met = self.server.locks.borrow_mut().meet(ends, &args.lock, args.state);
            let owner = met.map_err(|NoRoom| Status::DeniedNoLocks)?;
            let status = self.lock_as(owner, &target, lock, args).await;
            self.server.locks.borrow_mut().rest(owner);
            status
        };
        taken.await.unwrap_or_else(|status| status)
    }

    async fn lock_as(
        &self,
        owner: OwnerId,
        target: &Target,
        lock: Lock,
        args: &LockArgs<'_>,
    ) -> Result<Status, Status> {
        let locks = &self.server.locks;
        let releases = locks.borrow().releases(owner);
        self.pass_grace(owner, (target.file, &lock), args.reclaim)?;
        self.permit(target, lock.kind).await?;
        if !locks.borrow().has_room() {
            return Err(Status::DeniedNoLocks);
        }
        self.list(owner).await?;
        let (file, pid) = (target.file, lock.pid);
        let caller = Caller { pid, ..Caller::default() };
        let op = match args.reclaim {
            true => FileOp::ReclaimLock { file, owner, lock },
            false => set_lock(owner, file, lock, false),
        };
        let asked = self.asker.ask_as(&caller, op).await;
        let mut locks = locks.borrow_mut();
        if locks.releases(owner) != releases {
            // the client has restarted meanwhile, and knows nothing of the call
            locks.doubt(owner, file);
            return Err(Status::Denied);
        }
        match asked {
            Ok(_) => {
                locks.note(owner, file, lock);
                locks.overtake(owner, file, &lock);
                if args.reclaim {
                    locks.reclaimed();
                }
                Ok(Status::Granted)
            }
            Err(Errno::EAGAIN) if args.block && !args.reclaim => {
                let blocked = Blocked {
                    cookie: args.cookie.0.into(),
                    handle: args.lock.handle.0.into(),
                    file,
                    span: (args.lock.offset, args.lock.bytes),
                    lock,
                };
                let waits = locks.wait(owner, &args.lock, blocked);
                waits.map(|()| Status::Blocked).map_err(|NoRoom| Status::DeniedNoLocks)
            }
            Err(errno) => Err(status(errno)),
        }
    }

    /// After a restart reclaimed locks come first; later there are none to reclaim.
    fn pass_grace(
        &self,
        owner: OwnerId,
        (file, lock): (FileId, &Lock),
        reclaims: bool,
    ) -> Result<(), Status> {
        let mut locks = self.server.locks.borrow_mut();
        match (reclaims, locks.in_grace()) {
            (false, false) => Ok(()),
            (false, true) => {
                locks.refused_in_grace();
                Err(Status::DeniedGracePeriod)
            }
            (true, _) if locks.may_reclaim(owner) || locks.has(owner, file, lock) => Ok(()),
            // another client may have had it since
            (true, _) => Err(Status::Denied),
        }
    }

    /// Puts the client in the list of those that are told of a restart, before it has a lock.
    async fn list(&self, owner: OwnerId) -> Result<(), Status> {
        let locks = &self.server.locks;
        while locks.borrow().is_unlisted(owner) {
            let begun = locks.borrow_mut().begin_list();
            let Some((name, value)) = begun else {
                // another call writes it: its end is waited for by asking for something that is cheap
                let op = FileOp::GetAttr { file: FileId::ROOT, handle: None };
                self.asker.ask_as(&Caller::default(), op).await.map_err(status)?;
                continue;
            };
            let written = self.write(&name, &value).await;
            locks.borrow_mut().end_list(&value, written.is_ok());
            written.map_err(|_| Status::DeniedNoLocks)?;
        }
        Ok(())
    }

    async fn write(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let (root, file) = (Caller::default(), FileId::ROOT);
        let op = FileOp::SetXattr { file, name: name.into(), value: value.into(), flags: 0 };
        self.asker.ask_as(&root, op).await?;
        self.asker.ask_as(&root, FileOp::FsyncDirectory { file }).await.map(drop)
    }

    fn cancel(&self, lock: &NlmLock<'_>, kind: LockKind) -> Status {
        let (target, lock_of) = (self.target(lock.handle), lock.to_lock(kind));
        let (target, wanted) = match (target, lock_of) {
            (Ok(target), Ok(wanted)) => (target, wanted),
            (Err(status), _) | (_, Err(status)) => return status,
        };
        let mut locks = self.server.locks.borrow_mut();
        if let Some(owner) = locks.find(self.origin.client(), lock) {
            locks.cancel(owner, target.file, &wanted);
            locks.rest(owner);
        }
        // one that does not wait is cancelled too
        Status::Granted
    }

    async fn unlock(&self, lock: &NlmLock<'_>) -> Status {
        let (target, lock_of) = (self.target(lock.handle), lock.to_lock(LockKind::Unlock));
        let (file, wanted) = match (target, lock_of) {
            (Ok(target), Ok(wanted)) => (target.file, wanted),
            (Err(status), _) | (_, Err(status)) => return status,
        };
        let found = self.server.locks.borrow_mut().find(self.origin.client(), lock);
        let Some(owner) = found else { return Status::Granted };
        let asked = self.server.locks.borrow().widened(owner, file, wanted);
        let caller = Caller { pid: wanted.pid, ..Caller::default() };
        let done = self.asker.ask_as(&caller, set_lock(owner, file, asked, false)).await;
        let mut locks = self.server.locks.borrow_mut();
        let status = match done {
            // there is no room for the two that it would leave: it is held as before
            Err(Errno::ENOLCK) if asked == wanted => Status::DeniedNoLocks,
            // the front's client lets go at once, and tells the manager when it can
            _ => {
                locks.note(owner, file, asked);
                Status::Granted
            }
        };
        locks.rest(owner);
        status
    }
}
