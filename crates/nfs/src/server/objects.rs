//! Procedures that ask of one object: attributes, permissions, links, and what a file system says of itself.

use super::{Context, Failed, entry};
use crate::convert::{access_masks, set_attr};
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

/// Section 3.3.2. The guard is compared in a step of its own: between two clients that both guard one may be lost, as
/// with every server whose file system has no such operation.
async fn setattr(context: &Context<'_>, args: SetattrArgs<'_>) -> Outcome<WccData, WccData> {
    let file = match context.file(args.object) {
        Ok(file) => file,
        Err(status) => return Outcome::Err(status, WccData::default()),
    };
    let changed = change(context, file, args).await;
    let wcc = context.wcc(file).await;
    match changed {
        Ok(()) => Outcome::Ok(wcc),
        Err(status) => Outcome::Err(status, wcc),
    }
}

async fn change(
    context: &Context<'_>,
    file: wire::FileId,
    args: SetattrArgs<'_>,
) -> Result<(), Status> {
    context.writable()?;
    let changes = set_attr(&args.attributes)?;
    if let Some(guard) = args.guard {
        let attr = context.attr(file).await?;
        if crate::convert::nfs_time(attr.ctime) != guard {
            return Err(Status::NotSync);
        }
    }
    context.ask(FileOp::SetAttr { file, handle: None, changes }).await?;
    context.sync_names(file).await
}

/// Section 3.3.3.
async fn lookup(context: &Context<'_>, args: DirOpArgs<'_>, out: &mut Vec<u8>) {
    let found = async {
        let parent = context.file(args.dir).map_err(|status| (status, None))?;
        let found = find(context, parent, args.name.0).await;
        let directory = context.post(parent).await;
        Ok::<_, Failed<AttrFailure>>((found.map_err(|status| (status, directory))?, directory))
    };
    match found.await {
        Ok((attr, directory)) => {
            let handle = context.handle(attr.file);
            let attributes = Some(context.fattr(&attr));
            let found = LookupOk { object: Handle(&handle), attributes, directory };
            Outcome::<_, AttrFailure>::Ok(found).put(out);
        }
        Err((status, directory)) => Outcome::<LookupOk<'_>, _>::Err(status, directory).put(out),
    }
}

/// The export's directory is its own parent.
async fn find(context: &Context<'_>, parent: wire::FileId, name: &[u8]) -> Result<Attr, Status> {
    if name == b".." && context.is_top(parent).await? {
        return context.attr(parent).await;
    }
    context.ask(FileOp::Lookup { parent, name: name.into() }).await.and_then(entry)
}

/// Section 3.3.4: which of the permissions that are asked for there are.
async fn access(context: &Context<'_>, args: AccessArgs<'_>) -> Outcome<AccessOk, AttrFailure> {
    let found = match context.file(args.object) {
        Ok(file) => context.attr(file).await.map(|attr| (file, attr)),
        Err(status) => Err(status),
    };
    let (file, attr) = match found {
        Ok(found) => found,
        Err(status) => return Outcome::Err(status, None),
    };
    let attributes = Some(context.fattr(&attr));
    let mut granted = 0;
    // three questions at most, for the masks repeat
    let mut known: Vec<(u32, bool)> = Vec::new();
    for (bit, mask) in access_masks(attr.kind).iter().copied() {
        if args.access & bit == 0 || (mask & 2 != 0 && context.writable().is_err()) {
            continue;
        }
        let answer = known.iter().find(|(its, _)| *its == mask).map(|(_, may)| *may);
        let may = match answer {
            Some(may) => may,
            None => match context.raw(FileOp::Access { file, mask }).await {
                Ok(_) => true,
                Err(wire::Errno::EACCES | wire::Errno::EPERM | wire::Errno::EROFS) => false,
                Err(errno) => return Outcome::Err(crate::convert::status(errno), attributes),
            },
        };
        known.push((mask, may));
        granted |= if may { bit } else { 0 };
    }
    Outcome::Ok(AccessOk { attributes, access: granted })
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
