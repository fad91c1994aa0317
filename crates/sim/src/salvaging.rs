//! Names that are lost for good, and salvaged from the disks as `trapeze salvage` does it ([`files::salvage`]).
//!
//! Checks: a file whose objects had a description on stable storage is back, whole, by the name that the
//! latest of them says or a later one of it; nothing is back by a name that it never had. After a clean stop all
//! described files are back by their last names. One that was written without a sync may have lost an object in a crash
//! before: it need not be whole. One of which an object is lost together with the names must not be, where another
//! object was told of that one. That the bytes of all others are right is then checked by reading them.

use crate::machine::Images;
use crate::name_check::NameCheck;
use crate::random::Random;
use files::salvage::Failure;
use names::{Client, LOST_FOUND, ListingEntry, Plus, Span, Who};
use node::Cx;
use node::rings::DiskFile;
use std::collections::{BTreeMap, BTreeSet};
use stripe::object::{HEADER_BYTES, Head, Header};
use stripe::protocol::Role;
use stripe::{Description, Kept};
use wire::{Errno, FileId, FileKind, NodeId, ObjectId};

/// Bytes of one part of a listing.
const LISTED_BYTES: usize = 32 << 10;

/// A file under `/lost+found`.
#[derive(Clone, Debug)]
pub struct Back {
    file: FileId,
    /// Below that directory.
    path: Vec<u8>,
    /// Nothing of it is missing.
    whole: bool,
}

/// Paths that objects of a file have on stable storage.
pub type Described = BTreeMap<FileId, BTreeSet<Vec<u8>>>;

/// Parameters of a salvage.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Number of servers.
    pub servers: usize,
    /// An object that is lost without a trace before that.
    pub loses: Option<(NodeId, Kept)>,
}

/// Loses the object that is lost together with the names. Its server is to be started anew after that: it remembers for
/// a while that there was one, as no disk does that lost it. Whether its file cannot be whole without it: there is no
/// other of its column, as a move leaves one, and one of another column knows of it.
pub async fn lose(
    (names, stripe): (&Client, &stripe::Client),
    servers: usize,
    (server, lost): (NodeId, Kept),
) -> Result<bool, Errno> {
    let there = names.servers().await?;
    if there.len() != servers {
        return Err(Errno::EAGAIN);
    }
    let is_of_it = |kept: &&Kept| {
        let ObjectId { volume, file, .. } = kept.object;
        (volume, file) == (lost.object.volume, lost.object.file)
    };
    let (mut is_only, mut is_known) = (true, false);
    for other in there.iter().map(|server| server.id) {
        let mut of_it = Vec::new();
        stripe.list_all(other, |some| of_it.extend(some.iter().filter(is_of_it).copied())).await?;
        for kept in of_it.into_iter().filter(|kept| (other, *kept) != (server, lost)) {
            is_only &= kept.object != lost.object;
            let (_, told) = stripe.description(other, kept).await?;
            let known = told.description.map_or(0, |description| description.present);
            is_known |= known >> lost.object.column & 1 == 1;
        }
    }
    match stripe.quarantine(server, lost).await {
        Ok(_) => Ok(is_only && is_known),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Salvages when all servers are there, and looks at what is back. After an error it is to be called again.
pub async fn salvage(
    cx: &Cx,
    names: &Client,
    stripe: &stripe::Client,
    wanted: Wanted,
) -> Result<Vec<Back>, Errno> {
    let are_there = async || names.servers().await.map(|there| there.len() == wanted.servers);
    if !are_there().await? {
        return Err(Errno::EAGAIN);
    }
    let salvaged = files::salvage::salvage(cx, names, stripe, &|_| ()).await;
    salvaged.map_err(|(Failure::Server(_, errno) | Failure::Manager(errno))| errno)?;
    if !are_there().await? {
        return Err(Errno::EAGAIN);
    }
    let mut directories = match names.lookup(&Who::ROOT, FileId::ROOT, LOST_FOUND).await {
        Err(Errno::ENOENT) => Vec::new(),
        found => vec![(found?.attr.file, Vec::new())],
    };
    let mut back = Vec::new();
    while let Some((directory, above)) = directories.pop() {
        for ListingEntry { file, kind, name, .. } in list(names, directory).await? {
            let path = [&above[..], b"/", &name].concat();
            if kind == FileKind::Directory {
                directories.push((file, path));
                continue;
            }
            let whole = match names.compare(file).await {
                Err(Errno::EIO) => false,
                compared => compared.map(|()| true)?,
            };
            back.push(Back { file, path, whole });
        }
    }
    Ok(back)
}

async fn list(names: &Client, directory: FileId) -> Result<Vec<ListingEntry>, Errno> {
    let (mut all, mut span) = (Vec::new(), Span::default());
    loop {
        let part =
            names.read_directory(&Who::ROOT, directory, span, LISTED_BYTES, Plus::Nothing).await?;
        let cookie = part.entries.last().map_or(span.cookie, |entry| entry.cookie);
        span = Span { cookie, until: part.until };
        let others = part.entries.into_iter();
        all.extend(others.filter(|entry| !matches!(&*entry.name, b"." | b"..")));
        if part.end {
            return Ok(all);
        }
    }
}

/// An object in place on a disk.
struct Placed {
    server: NodeId,
    kept: Kept,
    head: Head,
    description: Option<Description>,
}

fn placed(images: &Images) -> impl Iterator<Item = Placed> {
    let disks = images.iter().flat_map(|(node, image)| {
        (0..).zip(&image.disks).map(|(disk, volume)| (*node, disk, volume))
    });
    disks.flat_map(|(server, disk, volume)| {
        volume.names_from(DiskFile::Label).filter_map(move |file| {
            let (DiskFile::Object(object), Some(inode)) = (file, volume.get(file)) else {
                return None;
            };
            let mut bytes = inode.bytes.bytes();
            bytes.truncate(HEADER_BYTES as usize);
            let header = Header::read(object, &bytes).ok().flatten()?;
            let kept = Kept { object, disk };
            Some(Placed {
                server,
                kept,
                head: header.head,
                description: header.description(&bytes),
            })
        })
    })
}

/// Descriptions of files by the objects on these disks. An object lost with the names says nothing: it may be the only
/// one that was told of a name, for instance when the server of another was down since the file was renamed.
pub fn described(images: &Images, loses: Option<(NodeId, Kept)>) -> Described {
    told_to(placed(images), loses)
}

fn told_to(objects: impl Iterator<Item = Placed>, loses: Option<(NodeId, Kept)>) -> Described {
    let mut described = Described::new();
    let kept = objects.filter(|object| loses != Some((object.server, object.kept)));
    // The rest of a moved column is empty, and may be of before the file had its name.
    for object in kept.filter(|object| object.head.length > 0) {
        if let Some(description) = object.description.filter(|known| !known.path.is_empty()) {
            described.entry(object.kept.object.file).or_default().insert(description.path);
        }
    }
    described
}

/// A column of which another object of its file was told that it has an object: when that is lost, it is missed.
pub fn missable(images: &Images, random: &mut Random) -> Option<(NodeId, Kept)> {
    let all: Vec<Placed> = placed(images).collect();
    let is_known = |lost: &&Placed| {
        let column = lost.kept.object.column;
        let knows = |other: &Placed| {
            let of_it = other.kept.object.file == lost.kept.object.file;
            let told =
                other.description.as_ref().is_some_and(|told| told.present >> column & 1 == 1);
            of_it && other.kept.object.column != column && told
        };
        let is_column = lost.head.shape.role == Role::Column && lost.head.length > 0;
        is_column && all.iter().any(knows)
    };
    let known: Vec<&Placed> = all.iter().filter(is_known).collect();
    (!known.is_empty()).then(|| *random.pick(&known)).map(|lost| (lost.server, lost.kept))
}

/// Checks that a file with a lost object is not back as if it were whole. The error names the violation.
pub fn check_broken(back: &[Back], broken: FileId) -> Result<(), String> {
    match back.iter().find(|one| one.file == broken && one.whole) {
        Some(one) => Err(format!("{one:?} is back whole, though an object of it is lost")),
        None => Ok(()),
    }
}

/// Checks, and returns, the files that are back and whole. The error names the violation.
pub fn check(
    back: &[Back],
    described: &Described,
    unsynced: &BTreeSet<FileId>,
    (names, is_clean): (&NameCheck, bool),
) -> Result<Vec<FileId>, String> {
    let mut found: BTreeMap<FileId, &Back> = BTreeMap::new();
    for one in back {
        if found.insert(one.file, one).is_some() {
            return Err(format!("{one:?} is back by two names"));
        }
        if named(one).is_some_and(|path| !names.had_path(one.file, path)) {
            let path = String::from_utf8_lossy(&one.path);
            return Err(format!("{:?} is back as {path}, which was no name of it", one.file));
        }
    }
    for file in names.live() {
        let Some(paths) = described.get(&file) else { continue };
        let Some(one) = found.get(&file).filter(|one| one.whole || unsynced.contains(&file)) else {
            return Err(format!("{file:?} is not back though its objects were told {paths:?}"));
        };
        let path = String::from_utf8_lossy(&one.path);
        let Some(name) = named(one) else {
            return Err(format!(
                "{file:?} is back as {path}, though its objects were told {paths:?}"
            ));
        };
        // One of a file that no reply had told of yet.
        let Some(at) = names.last_at(file, name) else { continue };
        let least = paths.iter().filter_map(|path| names.first_at(file, path)).max();
        if least.is_some_and(|least| at < least) {
            return Err(format!("{file:?} is back as {path}, older than one of {paths:?}"));
        }
        if is_clean && at + 1 < names.path_count(file) {
            return Err(format!("{file:?} is back as {path} after a clean stop, an older name"));
        }
    }
    Ok(back.iter().filter(|one| one.whole).map(|one| one.file).collect())
}

/// Its path, unless that is only its number; without the number that was put behind a name which was taken.
fn named(back: &Back) -> Option<&[u8]> {
    let number = format!("#{:x}", back.file.0).into_bytes();
    let path = &back.path[..];
    let Some(before) = path.strip_suffix(&number[..]) else { return Some(path) };
    before.strip_suffix(b".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name_check::{Change, Value};
    use crate::queue::Picos;

    const FILE: FileId = FileId(0x2a);
    const HOME: FileId = FileId(9);

    fn back(path: &str, whole: bool) -> Back {
        Back { file: FILE, path: path.into(), whole }
    }

    fn renamed() -> NameCheck {
        let mut names = NameCheck::default();
        let name = |text: &str| text.as_bytes().into();
        let change = |text: &str, value| (HOME, name(text), value);
        let file = Value::File(FILE);
        names.succeeded(&Change(vec![change("a", file)]), Picos::ZERO);
        let renamed = vec![change("a", Value::Nothing), change("b", file)];
        names.succeeded(&Change(renamed), Picos::ZERO);
        names
    }

    #[test]
    fn a_file_is_back_by_the_latest_name_that_its_objects_were_told_or_a_later_one() {
        let names = renamed();
        let told = |paths: &[&str]| {
            Described::from([(FILE, paths.iter().map(|path| path.as_bytes().to_vec()).collect())])
        };
        let check = |one: Back, paths: &[&str], is_clean| {
            check(&[one], &told(paths), &BTreeSet::new(), (&names, is_clean)).is_ok()
        };
        assert!(check(back("/home0/a", true), &["/home0/a"], false));
        assert!(check(back("/home0/b", true), &["/home0/a"], true));
        assert!(!check(back("/home0/a", true), &["/home0/a"], true), "the last one was known");
        assert!(!check(back("/home0/a", true), &["/home0/a", "/home0/b"], false));
        assert!(!check(back("/home0/b", false), &["/home0/b"], false), "not whole");
        assert!(!check(back("/home0/c", true), &["/home0/b"], false), "no name of it");
        assert!(!check(back("/#2a", true), &["/home0/b"], false), "its objects know a name");
        assert!(check(back("/home0/b.#2a", true), &["/home0/b"], true));
        let all = |back: &[Back], told: &Described, unsynced: &BTreeSet<FileId>| {
            super::check(back, told, unsynced, (&names, true))
        };
        let lacking = [back("/home0/b", false)];
        assert!(
            all(&lacking, &told(&["/home0/b"]), &BTreeSet::from([FILE])).is_ok(),
            "never synced"
        );
        assert!(all(&[], &told(&["/home0/b"]), &BTreeSet::new()).is_err(), "not back");
        assert!(all(&[], &Described::new(), &BTreeSet::new()).is_ok(), "it had no bytes");
    }

    #[test]
    fn a_name_that_only_the_lost_object_was_told_is_not_expected() {
        let kept = |column| Kept {
            object: ObjectId { file: FILE, column, ..ObjectId::default() },
            disk: 0,
        };
        let object = |column, path: &str| {
            let head = Head { length: 9, ..Head::default() };
            let description = Some(Description { path: path.into(), ..Description::default() });
            Placed { server: NodeId(column + 2), kept: kept(column), head, description }
        };
        // The server of column 1 was down when the file was renamed.
        let told =
            |loses| told_to([object(0, "/home0/b"), object(1, "/home0/a")].into_iter(), loses);
        let check = |path, loses| {
            let one = back(path, false);
            check(&[one], &told(loses), &BTreeSet::from([FILE]), (&renamed(), false)).is_ok()
        };
        let (new, old) = ((NodeId(2), kept(0)), (NodeId(3), kept(1)));
        assert!(check("/home0/a", Some(new)) && check("/home0/b", Some(new)));
        assert!(!check("/home0/a", None), "both are there");
        assert!(!check("/home0/a", Some(old)), "the one that was told is there");
        assert!(!check("/#2a", Some(new)), "the other knows a name");
    }
}
