//! READ, WRITE and COMMIT: the data stays in the frames that it came in, or that the file system gave.
//!
//! NFS has no open files and the front ring has: each of these opens, and closes when it is done.

use super::execution::Results;
use super::{Context, Failed};
use crate::limits::IO_BYTES_MAX;
use crate::v3::{
    AttrFailure, CommitArgs, CommitOk, Outcome, ReadArgs, ReadOk, StableHow, Status, WccData,
    WriteArgs, WriteOk,
};
use crate::xdr::Xdr;
use endpoint::Frame;
use node::rings::{FileOp, FileReply, Handle, WriteFlags};
use wire::FileId;

/// Flags of open(2).
const READ_ONLY: u32 = 0;
const WRITE_ONLY: u32 = 1;

async fn open(context: &Context<'_>, file: FileId, flags: u32) -> Result<Handle, Status> {
    match context.ask(FileOp::Open { file, flags }).await? {
        FileReply::Opened { handle, .. } => Ok(handle),
        _ => Err(Status::ServerFault),
    }
}

async fn close(context: &Context<'_>, file: FileId, handle: Handle) {
    // an error of closing is an error of writing, which a COMMIT tells
    let _ = context.raw(FileOp::Release { file, handle, owner: None }).await;
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
    let handle = match open(context, file, READ_ONLY).await {
        Ok(handle) => handle,
        Err(status) => return Err((status, context.post(file).await)),
    };
    let bytes = args.count.min(IO_BYTES_MAX as u32);
    let op = FileOp::Read { file, handle, offset: args.offset, bytes };
    let read = context.ask(op).await;
    close(context, file, handle).await;
    let attributes = context.post(file).await;
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

/// Section 3.3.7. What is to be stable is synced before it is answered; the answer never says more than that.
pub(super) async fn write(
    context: &Context<'_>,
    args: WriteArgs<'_>,
    data: Vec<Frame>,
) -> Outcome<WriteOk, WccData> {
    let file = match context.file(args.file) {
        Ok(file) => file,
        Err(status) => return Outcome::Err(status, WccData::default()),
    };
    let written = write_data(context, file, args, data).await;
    let wcc = context.wcc(file).await;
    match written {
        Ok(count) => {
            let committed = match args.stable {
                StableHow::Unstable => StableHow::Unstable,
                _ => StableHow::FileSync,
            };
            let verifier = context.server.write_verifier;
            Outcome::Ok(WriteOk { wcc, count, committed, verifier })
        }
        Err(status) => Outcome::Err(status, wcc),
    }
}

async fn write_data(
    context: &Context<'_>,
    file: FileId,
    args: WriteArgs<'_>,
    data: Vec<Frame>,
) -> Result<u32, Status> {
    context.writable()?;
    let there: usize = data.iter().map(|frame| frame.len()).sum();
    if args.count as usize != there {
        return Err(Status::Inval);
    }
    if args.offset.checked_add(u64::from(args.count)).is_none() {
        return Err(Status::Fbig);
    }
    if args.count == 0 {
        return context.attr(file).await.map(|_| 0);
    }
    let handle = open(context, file, WRITE_ONLY).await?;
    let (offset, flags) = (args.offset, WriteFlags::default());
    let written = context.ask(FileOp::Write { file, handle, offset, data, flags }).await;
    let synced = match (&written, args.stable) {
        (Ok(_), StableHow::DataSync | StableHow::FileSync) => {
            let data_only = args.stable == StableHow::DataSync;
            context.ask(FileOp::Fsync { file, handle, data_only }).await.map(|_| ())
        }
        _ => Ok(()),
    };
    close(context, file, handle).await;
    match written? {
        FileReply::Written(count) => synced.map(|()| count),
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
    let synced = sync(context, file).await;
    let wcc = context.wcc(file).await;
    match synced {
        Ok(()) => Outcome::Ok(CommitOk { wcc, verifier: context.server.write_verifier }),
        Err(status) => Outcome::Err(status, wcc),
    }
}

async fn sync(context: &Context<'_>, file: FileId) -> Result<(), Status> {
    context.writable()?;
    let handle = open(context, file, WRITE_ONLY).await?;
    let synced = context.ask(FileOp::Fsync { file, handle, data_only: false }).await;
    close(context, file, handle).await;
    synced.map(|_| ())
}
