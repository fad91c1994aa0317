//! Names on one client.

use super::client::{Ask, Client, READ_ONLY, READ_WRITE, WRITE_ONLY, pattern};
use node::rings::{Caller, Rights};
use std::collections::BTreeSet;
use wire::{Errno, FileId, FileKind, SetAttr};

/// An open file stays what it was when another is renamed over its name.
pub async fn rename_over_an_open_file<A: Ask>(client: &Client<A>, dir: FileId) {
    let old = client.put(dir, b"target", b"old bytes").await.expect("put");
    let new = client.put(dir, b"source", b"new").await.expect("put");
    let open = client.open(old, READ_WRITE).await.expect("open");
    client.rename((dir, b"source"), (dir, b"target"), 0).await.expect("rename");
    assert_eq!(client.lookup(dir, b"source").await, Err(Errno::ENOENT));
    assert_eq!(client.lookup(dir, b"target").await.expect("lookup").file, new);
    assert_eq!(client.get(dir, b"target").await, Ok(b"new".to_vec()));
    assert_eq!(client.read(open, 0, 100).await, Ok(b"old bytes".to_vec()));
    client.write(open, 0, b"OLD").await.expect("write");
    client.fsync(open).await.expect("fsync");
    assert_eq!(client.read(open, 0, 100).await, Ok(b"OLD bytes".to_vec()));
    assert_eq!(client.stat(old).await.expect("stat").links, 0);
    client.close(open).await.expect("close");
    assert_eq!(client.get(dir, b"target").await, Ok(b"new".to_vec()));
}

/// A file without a name stays until it is closed.
pub async fn unlinked_files_go_on<A: Ask>(client: &Client<A>, dir: FileId) {
    let file = client.put(dir, b"f", &pattern(1, 0, 100_000)).await.expect("put");
    let reader = client.open(file, READ_ONLY).await.expect("open");
    let writer = client.open(file, WRITE_ONLY).await.expect("open");
    client.unlink(dir, b"f").await.expect("unlink");
    assert_eq!(client.lookup(dir, b"f").await, Err(Errno::ENOENT));
    client.write(writer, 100_000, &pattern(1, 100_000, 50_000)).await.expect("write");
    client.fsync(writer).await.expect("fsync");
    client.close(writer).await.expect("close");
    let all = client.read(reader, 0, 1 << 20).await.expect("read");
    assert!(all == pattern(1, 0, 150_000));
    client.put(dir, b"f", b"another").await.expect("the name is free");
    client.close(reader).await.expect("close");
    assert_eq!(client.get(dir, b"f").await, Ok(b"another".to_vec()));
}

/// A file that is made without a name goes with its last close, or stays when it is given one.
pub async fn files_are_made_without_a_name<A: Ask>(client: &Client<A>, dir: FileId) {
    let (kept, lost) = (pattern(1, 0, 150_000), pattern(2, 0, 50_000));
    // Whether a file without a name may be given one is its kernel's decision.
    let caller = Caller { rights: Rights::Kernel, ..client.caller.clone() };
    let client = &Client { ask: &client.ask, frames: client.frames.clone(), caller };
    let one = client.create_unnamed(dir, READ_WRITE).await.expect("create");
    let two = client.create_unnamed(dir, READ_WRITE).await.expect("create");
    client.write(one, 0, &kept).await.expect("write");
    client.write(two, 0, &lost).await.expect("write");
    client.fsync(two).await.expect("fsync");
    client.flush(two).await.expect("a descriptor is closed");
    assert_eq!(client.list(dir, 4096).await, Ok(Vec::new()));
    assert_eq!(client.stat(two.file).await.expect("stat").links, 0);
    assert!(client.read(two, 0, 1 << 20).await == Ok(lost));
    assert_eq!(client.link(one.file, dir, b"kept").await.expect("link").links, 1);
    client.close(one).await.expect("close");
    client.close(two).await.expect("close");
    assert!(client.get(dir, b"kept").await == Ok(kept));
    assert_eq!(client.link(two.file, dir, b"lost").await.map(drop), Err(Errno::ESTALE));
    assert_eq!(client.create_unnamed(one.file, READ_WRITE).await.map(drop), Err(Errno::ENOTDIR));
    client.unlink(dir, b"kept").await.expect("unlink");
    assert_eq!(client.stat(one.file).await, Err(Errno::ESTALE));
}

/// Two names, one file.
pub async fn hard_links<A: Ask>(client: &Client<A>, dir: FileId) {
    let file = client.put(dir, b"one", b"1").await.expect("put");
    assert_eq!(client.link(file, dir, b"two").await.expect("link").links, 2);
    assert_eq!(client.link(file, dir, b"two").await, Err(Errno::EEXIST));
    client.put(dir, b"two", b"22").await.expect("put");
    assert_eq!(client.get(dir, b"one").await, Ok(b"22".to_vec()));
    client.unlink(dir, b"one").await.expect("unlink");
    let attr = client.stat(file).await.expect("stat");
    assert_eq!((attr.links, attr.size), (1, 2));
    assert_eq!(client.get(dir, b"two").await, Ok(b"22".to_vec()));
}

/// Extended attributes.
pub async fn extended_attributes<A: Ask>(client: &Client<A>, dir: FileId) {
    let file = client.put(dir, b"f", b"").await.expect("put");
    assert_eq!(client.get_xattr(file, b"user.a").await, Err(Errno::ENODATA));
    client.set_xattr(file, b"user.a", b"1", 1).await.expect("create");
    assert_eq!(client.set_xattr(file, b"user.a", b"2", 1).await, Err(Errno::EEXIST));
    client.set_xattr(file, b"user.a", b"22", 2).await.expect("replace");
    assert_eq!(client.set_xattr(file, b"user.b", b"", 2).await, Err(Errno::ENODATA));
    client.set_xattr(file, b"user.b", &[0, 255], 0).await.expect("set");
    assert_eq!(client.get_xattr(file, b"user.a").await, Ok(b"22".to_vec()));
    assert_eq!(client.get_xattr(file, b"user.b").await, Ok(vec![0, 255]));
    assert_eq!(client.list_xattr(file).await, Ok(b"user.a\0user.b\0".to_vec()));
    client.remove_xattr(file, b"user.a").await.expect("remove");
    assert_eq!(client.remove_xattr(file, b"user.a").await, Err(Errno::ENODATA));
    assert_eq!(client.list_xattr(file).await, Ok(b"user.b\0".to_vec()));
}

/// A listing in parts shows every name once, also while other names come and go.
pub async fn big_directory<A: Ask>(client: &Client<A>, dir: FileId) {
    const COUNT: usize = 300;
    let name = |number: usize| format!("{number:03} a name of some length").into_bytes();
    for number in 0..COUNT {
        client.make_node(dir, &name(number), 0o644, 0).await.expect("mknod");
    }
    let names = |entries: Vec<node::rings::DirectoryEntry>| -> Vec<Vec<u8>> {
        entries.into_iter().map(|entry| entry.name.to_vec()).collect()
    };
    for bytes in [1000, 4096, 1 << 20] {
        let mut listed = names(client.list(dir, bytes).await.expect("list"));
        listed.sort();
        assert_eq!(listed, (0..COUNT).map(name).collect::<Vec<_>>(), "in parts of {bytes}");
    }
    let (first, _) = client.list_part(dir, 0, 4096).await.expect("list");
    let cookie = first.last().expect("some entries").cookie;
    for number in (0..COUNT).step_by(2) {
        client.unlink(dir, &name(number)).await.expect("unlink");
    }
    client.put(dir, b"new", b"").await.expect("put");
    let (mut seen, mut cookie, mut end) = (names(first), cookie, false);
    while !end {
        let (entries, last) = client.list_part(dir, cookie, 4096).await.expect("list");
        cookie = entries.last().map_or(cookie, |entry| entry.cookie);
        seen.extend(names(entries));
        end = last;
    }
    let unique: BTreeSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "no name twice");
    let stayed = (1..COUNT).step_by(2).map(name);
    assert!(stayed.into_iter().all(|name| unique.contains(&name)), "every name that stayed");
}

/// A listing has an end that was fixed when it began: files that are renamed or moved away and back while they are
/// listed are not listed again, and those that stay, or are renamed before their turn, are all there.
pub async fn a_listing_ends_while_its_files_are_renamed<A: Ask>(client: &Client<A>, dir: FileId) {
    const COUNT: usize = 120;
    let other = client.make_directory(dir, b"other").await.expect("mkdir");
    let listed = client.make_directory(dir, b"listed").await.expect("mkdir");
    for number in 0..COUNT {
        let name = format!("{number:03} a name of some length").into_bytes();
        client.make_node(listed, &name, 0o644, 0).await.expect("mknod");
    }
    let handle = client.open_directory(listed).await.expect("opendir");
    let (mut seen, mut cookie, mut end) = (Vec::new(), 0, false);
    while !end {
        let part = client.list_through((listed, handle), cookie, 1024).await.expect("readdir");
        end = part.1;
        for entry in part.0.iter().filter(|entry| !matches!(&entry.name[..], b"." | b"..")) {
            seen.push(entry.file);
            assert!(seen.len() <= COUNT, "a file is listed again");
            let (from, away) = ((listed, &entry.name[..]), (other, &b"away"[..]));
            match seen.len() % 3 {
                0 => client.rename(from, (listed, &[&entry.name, &b"'"[..]].concat()), 0).await,
                1 => client.rename(from, away, 0).await,
                _ => client.put(listed, format!("+{}", seen.len()).as_bytes(), b"").await.map(drop),
            }
            .expect("a change");
            if seen.len() % 3 == 1 {
                client.rename(away, from, 0).await.expect("back");
            }
        }
        cookie = part.0.last().map_or(cookie, |entry| entry.cookie);
    }
    let unique: BTreeSet<_> = seen.iter().collect();
    assert_eq!((unique.len(), seen.len()), (COUNT, COUNT));
    let (again, _) = client.list_through((listed, handle), 0, 1 << 16).await.expect("rewinddir");
    assert!(again.len() > COUNT + 2, "who begins anew sees what is new");
    client.close_directory(listed, handle).await.expect("closedir");
}

/// Names of any bytes up to 255.
pub async fn any_names<A: Ask>(client: &Client<A>, dir: FileId) {
    let names = [vec![b'x'; 255], vec![0xff, 0xfe, 1, 10], " . ".into(), "…".into(), vec![b'-']];
    for name in &names {
        client.put(dir, name, name).await.expect("put");
        assert_eq!(client.get(dir, name).await.as_ref(), Ok(name));
    }
    assert_eq!(client.list(dir, 1 << 16).await.expect("list").len(), names.len());
    let long = vec![b'x'; 256];
    assert_eq!(client.create(dir, &long, READ_WRITE).await, Err(Errno::ENAMETOOLONG));
    assert_eq!(client.lookup(dir, &long).await, Err(Errno::ENAMETOOLONG));
    assert_eq!(client.make_directory(dir, &long).await, Err(Errno::ENAMETOOLONG));
    let renamed = client.rename((dir, &names[0]), (dir, &long), 0).await;
    assert_eq!(renamed, Err(Errno::ENAMETOOLONG));
}

/// Directories, symbolic links, pipes; attributes in listings.
pub async fn kinds_of_files<A: Ask>(client: &Client<A>, dir: FileId) {
    let sub = client.make_directory(dir, b"sub").await.expect("mkdir");
    let link = client.symlink(dir, b"link", b"../any\xff/where").await.expect("symlink");
    let pipe = client.make_node(dir, b"pipe", 0o010644, 0).await.expect("mknod");
    client.put(dir, b"file", &[7; 5000]).await.expect("put");
    assert_eq!(client.read_link(link.file).await, Ok(b"../any\xff/where".to_vec()));
    assert_eq!((link.kind, pipe.kind), (FileKind::Symlink, FileKind::Fifo));
    let entries = client.list(dir, 1 << 16).await.expect("list");
    for entry in &entries {
        let attr = client.lookup(dir, &entry.name).await.expect("lookup");
        assert_eq!((attr.file, attr.kind), (entry.file, entry.kind));
        if let Some(listed) = entry.attr {
            assert_eq!(listed.size, attr.size);
        }
    }
    assert_eq!(entries.len(), 4);
    assert_eq!(client.stat(dir).await.expect("stat").links, 3);
    assert_eq!(client.remove_directory(dir, b"sub").await, Ok(()));
    assert_eq!(client.stat(dir).await.expect("stat").links, 2);
    assert_eq!(client.stat(sub).await.expect("it may be open").links, 0);
}

/// Directories, symbolic links, FIFOs and devices go on without a name: processes that have them open see no links.
pub async fn what_has_no_bytes_goes_on_without_a_name<A: Ask>(client: &Client<A>, dir: FileId) {
    let sub = client.make_directory(dir, b"sub").await.expect("mkdir");
    let replaced = client.make_directory(dir, b"replaced").await.expect("mkdir");
    let other = client.make_directory(dir, b"other").await.expect("mkdir");
    let link = client.symlink(dir, b"link", b"to/where").await.expect("symlink").file;
    let pipe = client.make_node(dir, b"pipe", 0o010644, 0).await.expect("mknod").file;
    let handle = client.open_directory(sub).await.expect("opendir");
    client.link(pipe, dir, b"second").await.expect("link");
    client.remove_directory(dir, b"sub").await.expect("rmdir");
    client.rename((dir, b"other"), (dir, b"replaced"), 0).await.expect("rename");
    client.unlink(dir, b"pipe").await.expect("unlink");
    assert_eq!(client.stat(pipe).await.expect("by its other name").links, 1);
    client.unlink(dir, b"second").await.expect("unlink");
    client.put(dir, b"file", b"").await.expect("put");
    client.rename((dir, b"file"), (dir, b"link"), 0).await.expect("rename");
    let kinds = [
        (sub, FileKind::Directory),
        (replaced, FileKind::Directory),
        (link, FileKind::Symlink),
        (pipe, FileKind::Fifo),
    ];
    for (file, kind) in kinds {
        let attr = client.stat(file).await.expect("stat");
        assert_eq!((attr.file, attr.kind, attr.links), (file, kind, 0));
        let changes = SetAttr { mode: Some(0o600), uid: Some(7), ..SetAttr::default() };
        let attr = client.set_attr(file, None, changes).await.expect("chmod");
        assert_eq!((attr.mode, attr.uid, attr.links), (0o600, 7, 0));
        assert_eq!(client.stat(file).await, Ok(attr));
    }
    assert_eq!(client.read_link(link).await, Ok(b"to/where".to_vec()));
    assert_eq!(client.list_through((sub, handle), 0, 4096).await, Ok((Vec::new(), true)));
    assert_eq!(client.fsync_directory(sub).await, Ok(()));
    client.close_directory(sub, handle).await.expect("closedir");
    assert_eq!(client.stat(other).await.expect("stat").links, 2);
    assert_eq!(client.lookup(dir, b"sub").await, Err(Errno::ENOENT));
    assert!(client.put(sub, b"f", b"").await.is_err());
}

/// Refusals that applications rely on.
pub async fn errors<A: Ask>(client: &Client<A>, dir: FileId) {
    let sub = client.make_directory(dir, b"sub").await.expect("mkdir");
    let file = client.put(sub, b"f", b"x").await.expect("put");
    assert_eq!(client.remove_directory(dir, b"sub").await, Err(Errno::ENOTEMPTY));
    assert_eq!(client.unlink(dir, b"sub").await, Err(Errno::EISDIR));
    assert_eq!(client.remove_directory(sub, b"f").await, Err(Errno::ENOTDIR));
    assert_eq!(client.lookup(file, b"x").await, Err(Errno::ENOTDIR));
    assert_eq!(client.make_directory(dir, b"sub").await, Err(Errno::EEXIST));
    assert_eq!(client.open(sub, WRITE_ONLY).await, Err(Errno::EISDIR));
    assert_eq!(client.rename((dir, b"none"), (dir, b"x"), 0).await, Err(Errno::ENOENT));
    assert_eq!(client.rename((dir, b"sub"), (sub, b"x"), 0).await, Err(Errno::EINVAL));
    let open = client.open(file, READ_ONLY).await.expect("open");
    client.close(open).await.expect("close");
    assert_eq!(client.read(open, 0, 1).await, Err(Errno::EBADF));
}
