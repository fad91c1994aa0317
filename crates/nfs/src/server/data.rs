//! READ, WRITE and COMMIT: the data stays in the frames that it came in, or that the file system gave.
//!
//! NFS has no open files and the front ring has: each of these uses one of the [`OpenFiles`](super::OpenFiles).

use super::execution::Results;
use super::open_files::{OpenKey, READ_ONLY};
use super::{Context, Failed};
use crate::limits::IO_BYTES_MAX;
use crate::v3::{
    AttrFailure, CommitArgs, CommitOk, Fattr, Outcome, ReadArgs, ReadOk, StableHow, Status,
    WccData, WriteArgs, WriteOk,
};
use crate::xdr::Xdr;
use endpoint::Frame;
use node::Bug;
use node::rings::{FileOp, FileReply, Handle, WriteFlags};
use wire::FileId;

/// Flags of open(2).
const WRITE_ONLY: u32 = 1;

/// An open file that this call uses.
struct Opened {
    key: OpenKey,
    handle: Handle,
}

async fn open(context: &Context<'_>, file: FileId, flags: u32) -> Result<Opened, Status> {
    let key = OpenKey::new(file, flags, &context.asker.caller);
    let open_files = context.server.open_files();
    let known = open_files.borrow_mut().take(&key);
    if let Some(handle) = known {
        return Ok(Opened { key, handle });
    }
    match context.ask(FileOp::Open { file, flags }).await? {
        FileReply::Opened { handle, .. } => {
            let handle = open_files.borrow_mut().keep(key.clone(), handle);
            Ok(Opened { key, handle })
        }
        _ => Err(Status::ServerFault),
    }
}

/// An error of closing is an error of writing, which a COMMIT tells. After an error a fresh one is opened.
fn close(context: &Context<'_>, opened: Opened, is_broken: bool) {
    let Opened { key, handle } = opened;
    let now = context.server.now();
    context.server.open_files().borrow_mut().give_back(&key, handle, is_broken, now);
}

/// Attributes of an open file, as of the last that was heard of them.
async fn post(context: &Context<'_>, file: FileId, handle: Handle) -> Option<Fattr> {
    match context.ask(FileOp::GetAttr { file, handle: Some(handle) }).await {
        Ok(FileReply::Attr(attr)) => Some(context.fattr(&attr)),
        _ => None,
    }
}

/// Section 3.3.6.
pub(super) async fn read(context: &Context<'_>, args: ReadArgs<'_>, mut head: Vec<u8>) -> Results {
    match read_data(context, args).await {
        Ok((ok, frames)) => {
            let bytes = ok.data_bytes as usize;
            Outcome::<_, AttrFailure>::Ok(ok).put(&mut head);
            (head, frames, bytes)
        }
        Err((status, attributes)) => {
            Outcome::<ReadOk, _>::Err(status, attributes).put(&mut head);
            (head, Vec::new(), 0)
        }
    }
}

async fn read_data(
    context: &Context<'_>,
    args: ReadArgs<'_>,
) -> Result<(ReadOk, Vec<Frame>), Failed<AttrFailure>> {
    let file = context.file(args.file).map_err(|status| (status, None))?;
    let opened = match open(context, file, READ_ONLY).await {
        Ok(opened) => opened,
        Err(status) => return Err((status, context.post(file).await)),
    };
    let (handle, bytes) = (opened.handle, args.count.min(IO_BYTES_MAX as u32));
    let op = FileOp::Read { file, handle, offset: args.offset, bytes };
    let read = context.ask(op).await;
    let attributes = post(context, file, handle).await;
    close(context, opened, read.is_err());
    match read {
        Ok(FileReply::Data { frames, bytes }) => {
            let count = bytes as u32;
            // a short read says "end" only where the file ends
            let end = args.offset.saturating_add(u64::from(count));
            let is_end = attributes.is_none_or(|attributes| end >= attributes.size);
            let eof = is_end && (count < args.count || attributes.is_some());
            Ok((ReadOk { attributes, count, eof, data_bytes: count }, frames))
        }
        Ok(_) => Err((Status::ServerFault, attributes)),
        Err(status) => Err((status, attributes)),
    }
}

/// Section 3.3.7. A stable WRITE is synced before it is answered; the answer never claims more than was done.
pub(super) async fn write(
    context: &Context<'_>,
    args: WriteArgs<'_>,
    data: Vec<Frame>,
) -> Outcome<WriteOk, WccData> {
    let file = match context.file(args.file) {
        Ok(file) => file,
        Err(status) => return Outcome::Err(status, WccData::default()),
    };
    let (written, after) = write_data(context, file, args, data).await;
    let wcc = WccData { before: None, after };
    match written {
        Ok(count) => {
            let committed = match args.stable {
                StableHow::Unstable => StableHow::Unstable,
                _ => StableHow::FileSync,
            };
            let verifier = context.server.verifier();
            Outcome::Ok(WriteOk { wcc, count, committed, verifier })
        }
        Err(status) => Outcome::Err(status, wcc),
    }
}

type Changed<T> = (Result<T, Status>, Option<Fattr>);

async fn write_data(
    context: &Context<'_>,
    file: FileId,
    args: WriteArgs<'_>,
    data: Vec<Frame>,
) -> Changed<u32> {
    let there: usize = data.iter().map(|frame| frame.len()).sum();
    let refused = match context.writable() {
        Err(status) => Some(status),
        Ok(()) if args.count as usize != there => Some(Status::Inval),
        Ok(()) => args.offset.checked_add(args.count.into()).is_none().then_some(Status::Fbig),
    };
    if let Some(status) = refused {
        return (Err(status), context.post(file).await);
    }
    if args.count == 0 {
        let attr = context.attr(file).await;
        return (attr.map(|_| 0), attr.ok().map(|attr| context.fattr(&attr)));
    }
    let opened = match open(context, file, WRITE_ONLY).await {
        Ok(opened) => opened,
        Err(status) => return (Err(status), context.post(file).await),
    };
    let written = write_opened(context, &opened, args, data).await;
    let after = post(context, file, opened.handle).await;
    close(context, opened, written.is_err());
    (written, after)
}

async fn write_opened(
    context: &Context<'_>,
    opened: &Opened,
    args: WriteArgs<'_>,
    data: Vec<Frame>,
) -> Result<u32, Status> {
    let (file, handle, offset) = (opened.key.file(), opened.handle, args.offset);
    let flags = WriteFlags::default();
    let written = context.ask(FileOp::Write { file, handle, offset, data, flags }).await?;
    let is_ignored = context.server.bugs.has(Bug::NfsStableIgnored);
    if args.stable != StableHow::Unstable && !is_ignored {
        let data_only = args.stable == StableHow::DataSync;
        context.ask(FileOp::Fsync { file, handle, data_only }).await?;
    }
    match written {
        FileReply::Written(count) => Ok(count),
        _ => Err(Status::ServerFault),
    }
}

/// Section 3.3.21: all of the file, whatever range is asked for; an error of syncing is the answer (chimera#1326).
pub(super) async fn commit(
    context: &Context<'_>,
    args: CommitArgs<'_>,
) -> Outcome<CommitOk, WccData> {
    let file = match context.file(args.file) {
        Ok(file) => file,
        Err(status) => return Outcome::Err(status, WccData::default()),
    };
    let (synced, after) = sync(context, file).await;
    let wcc = WccData { before: None, after };
    match synced {
        Ok(()) => Outcome::Ok(CommitOk { wcc, verifier: context.server.verifier() }),
        Err(status) => Outcome::Err(status, wcc),
    }
}

async fn sync(context: &Context<'_>, file: FileId) -> Changed<()> {
    if let Err(status) = context.writable() {
        return (Err(status), context.post(file).await);
    }
    let opened = match open(context, file, WRITE_ONLY).await {
        Ok(opened) => opened,
        Err(status) => return (Err(status), context.post(file).await),
    };
    let handle = opened.handle;
    let synced = match context.server.bugs.has(Bug::NfsCommitIgnored) {
        true => Ok(FileReply::Done),
        false => context.ask(FileOp::Fsync { file, handle, data_only: false }).await,
    };
    let after = post(context, file, handle).await;
    close(context, opened, synced.is_err());
    (synced.map(|_| ()), after)
}
