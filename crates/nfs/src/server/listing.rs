//! READDIR and READDIRPLUS: as many entries as the client has room for, from where it stopped.
//!
//! Each call opens the directory anew, so a listing ends where the directory ends now, not where it ended when the
//! client began.

use super::Context;
use super::kept_listings::Request;
use crate::cookies::{self, Listing};
use crate::handle::HANDLE_BYTES;
use crate::v3::{AttrFailure, Handle, Outcome, ReaddirArgs, ReaddirplusArgs, Status};
use crate::xdr::Xdr;
use node::Bug;
use node::rings::{FileOp, FileReply};
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
    let listed = async {
        let file = context.file(dir)?;
        let cookie = cookies::check(file, cookie, verifier)?;
        let is_skipped = cookie != 0 && context.server.bugs.has(Bug::EntrySkipped);
        let cookie = cookie + u64::from(is_skipped);
        fill(context, (file, cookie), &head, (count, dircount)).await
    };
    match listed.await {
        Ok(results) => results,
        Err(status) => refused(context, dir, head, status).await,
    }
}

async fn refused(context: &Context<'_>, dir: Handle<'_>, head: Vec<u8>, status: Status) -> Vec<u8> {
    let attributes = match context.file(dir) {
        Ok(file) => context.post(file).await,
        Err(_) => None,
    };
    let mut results = head;
    Outcome::<(), AttrFailure>::Err(status, attributes).put(&mut results);
    results
}

async fn fill(
    context: &Context<'_>,
    (file, cookie): (FileId, u64),
    head: &[u8],
    (count, dircount): (u32, Option<u32>),
) -> Result<Vec<u8>, Status> {
    let export = context.export.number();
    let request = Request { export, directory: file, cookie, count, dircount };
    let kept = context.server.listings.borrow_mut().get(&request);
    let with_attributes = dircount.is_some();
    // an entry with attributes takes more in the reply than at the manager
    let asked = if with_attributes { count / 5 * 4 } else { count };
    let bytes = asked.clamp(cookies::MIN_LISTING_BYTES, crate::limits::LISTING_BYTES_MAX);
    let known = kept.as_ref().map(|kept| kept.version);
    let op = FileOp::ListDirectory { file, cookie, bytes, with_attributes, known };
    let (entries, end, version, attributes) = match (context.ask_with_wcc(op).await?, kept) {
        ((FileReply::Unchanged, _), Some(kept)) => return Ok([head, &kept.results].concat()),
        ((FileReply::Listed { entries, end, version }, seen), _) => {
            (entries, end, version, seen.first().and_then(|seen| seen.after))
        }
        _ => return Err(Status::ServerFault),
    };
    let mut results = Vec::with_capacity(head.len() + bytes as usize);
    results.extend_from_slice(head);
    let mut listing = match dircount {
        Some(dircount) => Listing::readdirplus(results, attributes, dircount, count)?,
        None => Listing::readdir(results, attributes, count)?,
    };
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
    let results = listing.finish(end && pushed == entries.len())?;
    context.server.listings.borrow_mut().set(request, version, &results[head.len()..]);
    Ok(results)
}
