//! READDIR and READDIRPLUS: as many entries as the client has room for, from where it stopped.
//!
//! Each call opens the directory anew, so a listing ends where the directory ends now, not where it ended when the
//! client began.

use super::Context;
use crate::cookies::{self, Listing};
use crate::handle::HANDLE_BYTES;
use crate::v3::{AttrFailure, Fattr, Handle, Outcome, ReaddirArgs, ReaddirplusArgs, Status};
use crate::xdr::Xdr;
use node::rings::{DirectoryEntry, FileOp, FileReply};
use wire::FileId;

/// Section 3.3.16.
pub(super) async fn readdir(
    context: &Context<'_>,
    args: ReaddirArgs<'_>,
    head: Vec<u8>,
) -> Vec<u8> {
    let from = (args.dir, args.cookie, args.verifier);
    list(context, from, head, args.count, None).await
}

/// Section 3.3.17.
pub(super) async fn readdirplus(
    context: &Context<'_>,
    args: ReaddirplusArgs<'_>,
    head: Vec<u8>,
) -> Vec<u8> {
    let from = (args.dir, args.cookie, args.verifier);
    list(context, from, head, args.maxcount, Some(args.dircount)).await
}

async fn list(
    context: &Context<'_>,
    (dir, cookie, verifier): (Handle<'_>, u64, [u8; 8]),
    head: Vec<u8>,
    count: u32,
    dircount: Option<u32>,
) -> Vec<u8> {
    let (results, attributes, status) = match start(context, dir, cookie, verifier).await {
        Ok((file, cookie, attributes)) => {
            let room = (count, dircount);
            let filled = fill(context, (file, cookie), attributes, head.clone(), room).await;
            match filled {
                Ok(results) => return results,
                Err(status) => (head, attributes, status),
            }
        }
        Err((status, attributes)) => (head, attributes, status),
    };
    let mut results = results;
    Outcome::<(), AttrFailure>::Err(status, attributes).put(&mut results);
    results
}

async fn start(
    context: &Context<'_>,
    dir: Handle<'_>,
    cookie: u64,
    verifier: [u8; 8],
) -> Result<(FileId, u64, Option<Fattr>), (Status, Option<Fattr>)> {
    let file = context.file(dir).map_err(|status| (status, None))?;
    let attr = context.attr(file).await.map_err(|status| (status, None))?;
    let attributes = Some(context.fattr(&attr));
    if attr.kind != wire::FileKind::Directory {
        return Err((Status::NotDir, attributes));
    }
    let cookie = cookies::check(file, cookie, verifier).map_err(|status| (status, attributes))?;
    Ok((file, cookie, attributes))
}

async fn fill(
    context: &Context<'_>,
    (file, cookie): (FileId, u64),
    attributes: Option<Fattr>,
    head: Vec<u8>,
    (count, dircount): (u32, Option<u32>),
) -> Result<Vec<u8>, Status> {
    let mut listing = match dircount {
        Some(dircount) => Listing::readdirplus(head, attributes, dircount, count)?,
        None => Listing::readdir(head, attributes, count)?,
    };
    let with_attributes = dircount.is_some();
    let bytes = count.clamp(cookies::MIN_LISTING_BYTES, crate::limits::LISTING_BYTES_MAX);
    let (entries, end) = read(context, (file, cookie), bytes, with_attributes).await?;
    let mut pushed = 0;
    for listed in &entries {
        // what is above may be above the export too
        let has_handle = with_attributes && *listed.name != *b"..";
        let handle: Option<[u8; HANDLE_BYTES]> = has_handle.then(|| context.handle(listed.file));
        let handle = handle.as_ref().map(|handle| Handle(handle));
        let entry = cookies::entry(file, listed, context.server.fsid(), handle);
        if !listing.push(&entry) {
            break;
        }
        pushed += 1;
    }
    listing.finish(end && pushed == entries.len())
}

async fn read(
    context: &Context<'_>,
    (file, cookie): (FileId, u64),
    bytes: u32,
    with_attributes: bool,
) -> Result<(Vec<DirectoryEntry>, bool), Status> {
    let FileReply::Opened { handle, .. } = context.ask(FileOp::OpenDirectory { file }).await?
    else {
        return Err(Status::ServerFault);
    };
    let op = FileOp::ReadDirectory { file, handle, cookie, bytes, with_attributes };
    let read = context.ask(op).await;
    let _ = context.raw(FileOp::ReleaseDirectory { file, handle }).await;
    match read? {
        FileReply::Entries { entries, end } => Ok((entries, end)),
        _ => Err(Status::ServerFault),
    }
}
