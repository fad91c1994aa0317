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
use wire::{Attr, FileId, FileKind, SetAttr};

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
    match make(context, parent, args).await {
        Ok((attr, wcc)) => {
            let handle = context.handle(attr.file);
            let (object, attributes) = (Some(Handle(&handle)), Some(context.fattr(&attr)));
            Outcome::<_, WccData>::Ok(CreateOk { object, attributes, wcc }).put(out);
        }
        Err(status) => {
            let wcc = context.wcc(parent).await;
            Outcome::<CreateOk<'_>, _>::Err(status, wcc).put(out);
        }
    }
}

/// The file that was made or found, and the attributes around it of its directory.
type Made = Result<(Attr, WccData), Status>;

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
            make_with(context, op, args.attributes).await
        }
        Args::Symlink(args) => {
            let (name, target) = (args.place.name.0.into(), args.target.0.into());
            let op = FileOp::Symlink { parent, name, target };
            // a symbolic link has no permissions of its own
            make_with(context, op, Sattr { mode: None, ..args.attributes }).await
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
    make_with(context, op, attributes).await
}

/// Makes it, and sets what the making did not.
async fn make_with(context: &Context<'_>, op: FileOp, attributes: Sattr) -> Made {
    let made = context.ask_with_wcc(op).await?;
    finish(context, made, attributes).await
}

async fn finish(
    context: &Context<'_>,
    (reply, changed): (FileReply, Vec<WccData>),
    attributes: Sattr,
) -> Made {
    let attr = set_rest(context, entry(reply)?, attributes).await?;
    Ok((attr, first(changed)))
}

/// Of the only directory.
fn first(changed: Vec<WccData>) -> WccData {
    changed.into_iter().next().unwrap_or_default()
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
    match context.ask_with_wcc(op).await? {
        (FileReply::Attr(attr), _) => Ok(attr),
        _ => context.attr(attr.file).await,
    }
}

async fn create_file(context: &Context<'_>, parent: FileId, name: Name, how: CreateHow) -> Made {
    let (op, attributes) = match how {
        CreateHow::Exclusive(verifier) => {
            let name = name.clone();
            (FileOp::CreateExclusive { parent, name, mode: 0, verifier }, Sattr::default())
        }
        CreateHow::Unchecked(attributes) | CreateHow::Guarded(attributes) => {
            let permissions = attributes.mode.unwrap_or(FILE_MODE) & 0o7777;
            let mode = FileKind::Regular.mode_bits() | permissions;
            // it is not opened: the client may never write, and an open would be one more call of the manager's
            (FileOp::MakeNode { parent, name: name.clone(), mode, rdev: 0 }, attributes)
        }
    };
    match (context.ask_with_wcc(op).await, how) {
        (Ok(made), _) => finish(context, made, attributes).await,
        (Err(Status::Exist), CreateHow::Unchecked(_)) => {
            let attr = set_length(context, parent, name, attributes).await?;
            Ok((attr, context.wcc(parent).await))
        }
        (Err(status), _) => Err(status),
    }
}

/// Of a file that is there only the length is set (section 3.3.8).
async fn set_length(
    context: &Context<'_>,
    parent: FileId,
    name: Name,
    attributes: Sattr,
) -> Result<Attr, Status> {
    let attr = entry(context.ask(FileOp::Lookup { parent, name }).await?)?;
    if attr.kind == FileKind::Directory {
        return Err(Status::Exist);
    }
    set_rest(context, attr, Sattr { size: attributes.size, ..Sattr::default() }).await
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
    match change(context, op).await {
        Ok((_, changed)) => Outcome::Ok(first(changed)),
        Err(status) => Outcome::Err(status, context.wcc(parent).await),
    }
}

async fn change(context: &Context<'_>, op: FileOp) -> Result<(FileReply, Vec<WccData>), Status> {
    context.writable()?;
    context.ask_with_wcc(op).await
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
    match change(context, op).await {
        Ok((_, changed)) => {
            let (from, to) = (changed.first(), changed.last());
            let [from, to] = [from, to].map(|it| it.copied().unwrap_or_default());
            Outcome::Ok(RenameWcc { from, to })
        }
        Err(status) => {
            let (from, to) = (context.wcc(parent).await, context.wcc(new_parent).await);
            Outcome::Err(status, RenameWcc { from, to })
        }
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
        match change(context, op).await {
            Ok((reply, changed)) => {
                let attributes = entry(reply).ok().map(|attr| context.fattr(&attr));
                Ok(LinkResult { attributes, wcc: first(changed) })
            }
            Err(status) => {
                let attributes = context.post(file).await;
                Err((status, LinkResult { attributes, wcc: context.wcc(new_parent).await }))
            }
        }
    };
    let linked: Result<LinkResult, Failed<LinkResult>> = linked.await;
    match linked {
        Ok(result) => Outcome::Ok(result),
        Err((status, result)) => Outcome::Err(status, result),
    }
}
