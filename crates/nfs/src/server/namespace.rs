//! Procedures that change names. Each is on stable storage when it is answered (RFC 1813 section 4.8), and an error has
//! the directory's attributes with it too.

use super::{Context, Failed, entry};
use crate::convert::{rdev, set_attr};
use crate::v3::{
    Args, CreateHow, CreateOk, DirOpArgs, Handle, LinkArgs, LinkResult, NodeKind, Outcome,
    RenameArgs, RenameWcc, Sattr, Status, WccData,
};
use crate::xdr::Xdr;
use node::rings::{FileOp, FileReply, Name};
use wire::{Attr, Errno, FileId, FileKind, SetAttr};

/// Permissions that something new has when none are said.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Sections 3.3.8 to 3.3.11: CREATE, MKDIR, SYMLINK, MKNOD.
pub(super) async fn create(context: &Context<'_>, args: Args<'_>, out: &mut Vec<u8>) {
    let (Args::Create(crate::v3::CreateArgs { place, .. })
    | Args::Mkdir(crate::v3::MkdirArgs { place, .. })
    | Args::Symlink(crate::v3::SymlinkArgs { place, .. })
    | Args::Mknod(crate::v3::MknodArgs { place, .. })) = args
    else {
        panic!("the others make nothing");
    };
    let parent = match context.file(place.dir) {
        Ok(parent) => parent,
        Err(status) => {
            return Outcome::<CreateOk<'_>, _>::Err(status, WccData::default()).put(out);
        }
    };
    let before = context.before(parent).await;
    let made = make(context, parent, args).await;
    let changes = made.map_or(0, |(_, changes)| changes);
    let wcc = context.wcc_since(before, parent, changes).await;
    match made {
        Ok((attr, _)) => {
            let handle = context.handle(attr.file);
            let (object, attributes) = (Some(Handle(&handle)), Some(context.fattr(&attr)));
            Outcome::<_, WccData>::Ok(CreateOk { object, attributes, wcc }).put(out);
        }
        Err(status) => Outcome::<CreateOk<'_>, _>::Err(status, wcc).put(out),
    }
}

/// What was made or found, and how often its directory changed for it.
type Made = Result<(Attr, u64), Status>;

async fn make(context: &Context<'_>, parent: FileId, args: Args<'_>) -> Made {
    context.writable()?;
    match args {
        Args::Create(args) => {
            let name = args.place.name.0.into();
            create_file(context, parent, name, args.how).await
        }
        Args::Mkdir(args) => {
            let name = args.place.name.0.into();
            let mode = args.attributes.mode.unwrap_or(DIRECTORY_MODE) & 0o7777;
            let op = FileOp::MakeDirectory { parent, name, mode };
            finish(context, parent, op, args.attributes).await
        }
        Args::Symlink(args) => {
            let (name, target) = (args.place.name.0.into(), args.target.0.into());
            let op = FileOp::Symlink { parent, name, target };
            // a symbolic link has no permissions of its own
            finish(context, parent, op, Sattr { mode: None, ..args.attributes }).await
        }
        Args::Mknod(args) => make_node(context, parent, args.place, args.what).await,
        _ => panic!("the others make nothing"),
    }
}

async fn make_node(
    context: &Context<'_>,
    parent: FileId,
    place: DirOpArgs<'_>,
    what: NodeKind,
) -> Made {
    let (kind, attributes, numbers) = match what {
        NodeKind::Character(attributes, numbers) => (FileKind::CharDevice, attributes, numbers),
        NodeKind::Block(attributes, numbers) => (FileKind::BlockDevice, attributes, numbers),
        NodeKind::Socket(attributes) => (FileKind::Socket, attributes, Default::default()),
        NodeKind::Fifo(attributes) => (FileKind::Fifo, attributes, Default::default()),
        NodeKind::Other(_) => return Err(Status::BadType),
    };
    let rdev = rdev(numbers).ok_or(Status::Inval)?;
    let mode = kind.mode_bits() | attributes.mode.unwrap_or(FILE_MODE) & 0o7777;
    let op = FileOp::MakeNode { parent, name: place.name.0.into(), mode, rdev };
    finish(context, parent, op, attributes).await
}

/// Makes it, sets what the making did not, and syncs.
async fn finish(context: &Context<'_>, parent: FileId, op: FileOp, attributes: Sattr) -> Made {
    let attr = entry(context.ask(op).await?)?;
    let attr = set_rest(context, attr, attributes).await?;
    context.sync_names(parent).await?;
    Ok((attr, 1))
}

async fn set_rest(context: &Context<'_>, attr: Attr, attributes: Sattr) -> Result<Attr, Status> {
    let mut changes = set_attr(&attributes)?;
    changes.mode = changes.mode.filter(|mode| *mode != attr.mode);
    changes.uid = changes.uid.filter(|uid| *uid != attr.uid);
    changes.gid = changes.gid.filter(|gid| *gid != attr.gid);
    changes.size = changes.size.filter(|size| *size != attr.size);
    if changes == SetAttr::default() {
        return Ok(attr);
    }
    let op = FileOp::SetAttr { file: attr.file, handle: None, changes };
    match context.ask(op).await? {
        FileReply::Attr(attr) => Ok(attr),
        _ => context.attr(attr.file).await,
    }
}

async fn create_file(context: &Context<'_>, parent: FileId, name: Name, how: CreateHow) -> Made {
    let made = match how {
        CreateHow::Exclusive(verifier) => {
            let op = FileOp::CreateExclusive { parent, name, mode: 0, verifier };
            close(context, context.ask(op).await?).await?
        }
        CreateHow::Unchecked(attributes) | CreateHow::Guarded(attributes) => {
            let permissions = attributes.mode.unwrap_or(FILE_MODE) & 0o7777;
            let mode = FileKind::Regular.mode_bits() | permissions;
            // it is not opened: the client may never write, and an open would be one more call of the manager's
            let op = FileOp::MakeNode { parent, name: name.clone(), mode, rdev: 0 };
            match (context.raw(op).await, how) {
                (Ok(reply), _) => (set_rest(context, entry(reply)?, attributes).await?, 1),
                (Err(Errno::EEXIST), CreateHow::Unchecked(_)) => {
                    (set_length(context, parent, name, attributes).await?, 0)
                }
                (Err(errno), _) => return Err(crate::convert::status(errno)),
            }
        }
    };
    context.sync_names(parent).await?;
    Ok(made)
}

/// Of a file that is there only the length is set (section 3.3.8).
async fn set_length(
    context: &Context<'_>,
    parent: FileId,
    name: Name,
    attributes: Sattr,
) -> Result<Attr, Status> {
    let attr = look_up(context, parent, name).await?;
    if attr.kind == FileKind::Directory {
        return Err(Status::Exist);
    }
    set_rest(context, attr, Sattr { size: attributes.size, ..Sattr::default() }).await
}

async fn look_up(context: &Context<'_>, parent: FileId, name: Name) -> Result<Attr, Status> {
    entry(context.ask(FileOp::Lookup { parent, name }).await?)
}

/// The ring opens what it creates, and NFS has no open files.
async fn close(context: &Context<'_>, created: FileReply) -> Made {
    let FileReply::Created { attr, handle } = created else { return Err(Status::ServerFault) };
    let _ = context.raw(FileOp::Release { file: attr.file, handle, owner: None }).await;
    // what is new was not changed yet
    Ok((attr, u64::from(attr.change == 0)))
}

/// Sections 3.3.12 and 3.3.13. RMDIR of a file is NOTDIR, REMOVE of a directory ISDIR (chimera#959).
pub(super) async fn remove(
    context: &Context<'_>,
    place: DirOpArgs<'_>,
    directory: bool,
) -> Outcome<WccData, WccData> {
    let parent = match context.file(place.dir) {
        Ok(parent) => parent,
        Err(status) => return Outcome::Err(status, WccData::default()),
    };
    let name = place.name.0.into();
    let op = match directory {
        true => FileOp::RemoveDirectory { parent, name },
        false => FileOp::Unlink { parent, name },
    };
    let before = context.before(parent).await;
    let removed = durably(context, &[parent], op).await;
    let wcc = context.wcc_since(before, parent, u64::from(removed.is_ok())).await;
    match removed {
        Ok(_) => Outcome::Ok(wcc),
        Err(status) => Outcome::Err(status, wcc),
    }
}

async fn durably(
    context: &Context<'_>,
    directories: &[FileId],
    op: FileOp,
) -> Result<FileReply, Status> {
    context.writable()?;
    let reply = context.ask(op).await?;
    for directory in directories {
        context.sync_names(*directory).await?;
    }
    Ok(reply)
}

/// Section 3.3.14.
pub(super) async fn rename(
    context: &Context<'_>,
    args: RenameArgs<'_>,
) -> Outcome<RenameWcc, RenameWcc> {
    let unknown = RenameWcc { from: WccData::default(), to: WccData::default() };
    let both = context.file(args.from.dir).and_then(|from| Ok((from, context.file(args.to.dir)?)));
    let (parent, new_parent) = match both {
        Ok(both) => both,
        Err(status) => return Outcome::Err(status, unknown),
    };
    let (name, new_name) = (args.from.name.0.into(), args.to.name.0.into());
    let op = FileOp::Rename { parent, name, new_parent, new_name, flags: 0 };
    let directories = if parent == new_parent { &[parent][..] } else { &[parent, new_parent] };
    let renamed = durably(context, directories, op).await;
    let wcc = RenameWcc { from: context.wcc(parent).await, to: context.wcc(new_parent).await };
    match renamed {
        Ok(_) => Outcome::Ok(wcc),
        Err(status) => Outcome::Err(status, wcc),
    }
}

/// Section 3.3.15.
pub(super) async fn link(
    context: &Context<'_>,
    args: LinkArgs<'_>,
) -> Outcome<LinkResult, LinkResult> {
    let linked = async {
        let unknown = |status| (status, LinkResult { attributes: None, wcc: WccData::default() });
        let file = context.file(args.file).map_err(unknown)?;
        let new_parent = context.file(args.link.dir).map_err(unknown)?;
        let op = FileOp::Link { file, new_parent, new_name: args.link.name.0.into() };
        let before = context.before(new_parent).await;
        let linked = durably(context, &[new_parent], op).await;
        let wcc = context.wcc_since(before, new_parent, u64::from(linked.is_ok())).await;
        let result = LinkResult { attributes: context.post(file).await, wcc };
        linked.map(|_| result).map_err(|status| (status, result))
    };
    let linked: Result<LinkResult, Failed<LinkResult>> = linked.await;
    match linked {
        Ok(result) => Outcome::Ok(result),
        Err((status, result)) => Outcome::Err(status, result),
    }
}
