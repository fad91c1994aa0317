//! Procedures that ask of one object: attributes, permissions, links, and what a file system says of itself.

use super::{Context, Failed, entry};
use crate::convert::{WRITE, access_masks, set_attr};
use crate::limits::{IO_BYTES_MAX, LISTING_BYTES_MAX};
use crate::v3::{
    AccessArgs, AccessOk, Args, AttrFailure, DirOpArgs, Fattr, FsinfoOk, FsstatOk, Handle,
    LookupOk, NfsTime, Outcome, Path, PathconfOk, ReadlinkOk, SetattrArgs, Status, WccData,
    property,
};
use crate::xdr::Xdr;
use node::rings::{FileOp, FileReply};
use wire::Attr;
use wire::limits::{NAME_BYTES_MAX, OBJECT_BYTES_MAX};

/// Bytes that reads and writes are best multiples of: a block.
const MULTIPLE_BYTES: u32 = wire::limits::BLOCK_BYTES as u32;

pub(super) async fn answer(context: &Context<'_>, args: Args<'_>, out: &mut Vec<u8>) {
    match args {
        Args::Getattr(handle) => getattr(context, handle).await.put(out),
        Args::Setattr(args) => setattr(context, args).await.put(out),
        Args::Lookup(args) => lookup(context, args, out).await,
        Args::Access(args) => access(context, args).await.put(out),
        Args::Readlink(handle) => readlink(context, handle, out).await,
        Args::Fsstat(handle) => fsstat(context, handle).await.put(out),
        Args::Fsinfo(handle) => fsinfo(context, handle).await.put(out),
        Args::Pathconf(handle) => pathconf(context, handle).await.put(out),
        _ => panic!("the others are answered elsewhere"),
    }
}

/// Section 3.3.1.
async fn getattr(context: &Context<'_>, handle: Handle<'_>) -> Outcome<Fattr, ()> {
    let found = match context.file(handle) {
        Ok(file) => context.attr(file).await,
        Err(status) => Err(status),
    };
    match found {
        Ok(attr) => Outcome::Ok(context.fattr(&attr)),
        Err(status) => Outcome::Err(status, ()),
    }
}

/// Section 3.3.2. The manager compares the guard in one step with the change.
async fn setattr(context: &Context<'_>, args: SetattrArgs<'_>) -> Outcome<WccData, WccData> {
    let file = match context.file(args.object) {
        Ok(file) => file,
        Err(status) => return Outcome::Err(status, WccData::default()),
    };
    match change(context, file, args).await {
        Ok(wcc) => Outcome::Ok(wcc),
        Err(status) => Outcome::Err(status, context.wcc(file).await),
    }
}

async fn change(
    context: &Context<'_>,
    file: wire::FileId,
    args: SetattrArgs<'_>,
) -> Result<WccData, Status> {
    context.writable()?;
    let changes = set_attr(&args.attributes)?;
    // a time that no file has is none of this one's
    let wall = |guard| crate::convert::wall(guard).ok_or(Status::NotSync);
    let guard = args.guard.map(wall).transpose()?;
    let op = FileOp::SetAttr { file, handle: None, changes };
    let changed = context.ask_guarded(op, guard).await?;
    let (FileReply::Attr(attr), wcc) = changed else { return Err(Status::ServerFault) };
    let before = wcc.first().and_then(|wcc| wcc.before);
    Ok(WccData { before, after: Some(context.fattr(&attr)) })
}

/// Section 3.3.3.
async fn lookup(context: &Context<'_>, args: DirOpArgs<'_>, out: &mut Vec<u8>) {
    let found = async {
        let parent = context.file(args.dir).map_err(|status| (status, None))?;
        match find(context, parent, args.name.0).await {
            Ok(found) => Ok(found),
            Err(status) => Err((status, context.post(parent).await)),
        }
    };
    let found: Result<_, Failed<AttrFailure>> = found.await;
    match found {
        Ok((attr, directory)) => {
            let handle = context.handle(attr.file);
            let attributes = Some(context.fattr(&attr));
            let found = LookupOk { object: Handle(&handle), attributes, directory };
            Outcome::<_, AttrFailure>::Ok(found).put(out);
        }
        Err((status, directory)) => Outcome::<LookupOk<'_>, _>::Err(status, directory).put(out),
    }
}

/// The file and the directory. The export's directory is its own parent.
async fn find(
    context: &Context<'_>,
    parent: wire::FileId,
    name: &[u8],
) -> Result<(Attr, Option<Fattr>), Status> {
    if name == b".." && context.is_top(parent).await? {
        let attr = context.attr(parent).await?;
        return Ok((attr, Some(context.fattr(&attr))));
    }
    let op = FileOp::Lookup { parent, name: name.into() };
    let (found, seen) = context.ask_with_wcc(op).await?;
    Ok((entry(found)?, seen.first().and_then(|seen| seen.after)))
}

/// Section 3.3.4: which of the permissions that are asked for there are.
async fn access(context: &Context<'_>, args: AccessArgs<'_>) -> Outcome<AccessOk, AttrFailure> {
    let found = match context.file(args.object) {
        Ok(file) => context.ask(FileOp::Permissions { file }).await,
        Err(status) => Err(status),
    };
    let (attr, mut granted) = match found {
        Ok(FileReply::Permissions(attr, granted)) => (attr, granted),
        Ok(_) => return Outcome::Err(Status::ServerFault, None),
        Err(status) => return Outcome::Err(status, None),
    };
    if context.writable().is_err() {
        granted &= !WRITE;
    }
    let is_granted = |(_, mask): &&(u32, u32)| mask & !granted == 0;
    let bits = access_masks(attr.kind).iter().filter(is_granted).map(|(bit, _)| bit);
    let access = args.access & bits.sum::<u32>();
    Outcome::Ok(AccessOk { attributes: Some(context.fattr(&attr)), access })
}

/// Section 3.3.5.
async fn readlink(context: &Context<'_>, handle: Handle<'_>, out: &mut Vec<u8>) {
    let found = match context.file(handle) {
        Ok(file) => {
            let read = context.ask(FileOp::ReadLink { file }).await;
            let attributes = context.post(file).await;
            read.map(|reply| (reply, attributes)).map_err(|status| (status, attributes))
        }
        Err(status) => Err((status, None)),
    };
    match found {
        Ok((FileReply::Bytes(target), attributes)) => {
            let found = ReadlinkOk { attributes, target: Path(&target) };
            Outcome::<_, AttrFailure>::Ok(found).put(out);
        }
        Ok((_, attributes)) => {
            Outcome::<ReadlinkOk<'_>, _>::Err(Status::ServerFault, attributes).put(out);
        }
        Err((status, attributes)) => {
            Outcome::<ReadlinkOk<'_>, _>::Err(status, attributes).put(out);
        }
    }
}

/// Attributes of the object that a question about its file system names.
async fn of_system(context: &Context<'_>, handle: Handle<'_>) -> Result<Option<Fattr>, Status> {
    let file = context.file(handle)?;
    context.attr(file).await.map(|attr| Some(context.fattr(&attr)))
}

/// Section 3.3.18.
async fn fsstat(context: &Context<'_>, handle: Handle<'_>) -> Outcome<FsstatOk, AttrFailure> {
    let attributes = match of_system(context, handle).await {
        Ok(attributes) => attributes,
        Err(status) => return Outcome::Err(status, None),
    };
    match context.ask(FileOp::StatFs).await {
        Ok(FileReply::Space(space)) => Outcome::Ok(FsstatOk {
            attributes,
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.free_bytes,
            total_files: space.files + space.free_files,
            free_files: space.free_files,
            available_files: space.free_files,
            invariant_seconds: 0,
        }),
        Ok(_) => Outcome::Err(Status::ServerFault, attributes),
        Err(status) => Outcome::Err(status, attributes),
    }
}

/// Section 3.3.19.
async fn fsinfo(context: &Context<'_>, handle: Handle<'_>) -> Outcome<FsinfoOk, AttrFailure> {
    let attributes = match of_system(context, handle).await {
        Ok(attributes) => attributes,
        Err(status) => return Outcome::Err(status, None),
    };
    let most = IO_BYTES_MAX as u32;
    let kinds = property::LINK | property::SYMLINK;
    Outcome::Ok(FsinfoOk {
        attributes,
        read_max: most,
        read_preferred: most,
        read_multiple: MULTIPLE_BYTES,
        write_max: most,
        write_preferred: most,
        write_multiple: MULTIPLE_BYTES,
        readdir_preferred: LISTING_BYTES_MAX,
        file_bytes_max: OBJECT_BYTES_MAX,
        time_delta: NfsTime { seconds: 0, nseconds: 1 },
        properties: kinds | property::HOMOGENEOUS | property::CAN_SET_TIME,
    })
}

/// Section 3.3.20.
async fn pathconf(context: &Context<'_>, handle: Handle<'_>) -> Outcome<PathconfOk, AttrFailure> {
    match of_system(context, handle).await {
        Ok(attributes) => Outcome::Ok(PathconfOk {
            attributes,
            links_max: u32::MAX,
            name_bytes_max: NAME_BYTES_MAX as u32,
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }),
        Err(status) => Outcome::Err(status, None),
    }
}
