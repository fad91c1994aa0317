//! Directories of imports: files in them know their import, and no name crosses its border.

use crate::common::ROOT;
use crate::common::array::Array;
use crate::common::cluster::WHO;
use crate::posix::{open_world, user};
use names::{Client, How, READ, Transaction, WRITE, Who};
use wire::{Errno, FileId, FileKind, NodeId, SetAttr};

#[test]
fn what_is_made_in_an_import_belongs_to_it_and_stays_in_it() {
    let mut world = open_world();
    let import = |t: &mut Transaction<'_>, who: Who<'_>, parent, number| {
        t.make_node(&who, parent, b"i", 0o040755, number).map(|entry| entry.attr)
    };
    assert_eq!(world.change(|t| import(t, user(5), ROOT, 7)), Err(Errno::EPERM));
    let root = world.change(|t| import(t, WHO, ROOT, 7)).unwrap();
    assert_eq!((root.kind, root.import(), root.device()), (FileKind::Directory, Some(7), 0));
    let d = world.mkdir(&WHO, "i/d", 0o755).unwrap();
    let f = world.touch(&WHO, "i/d/f", 0o644).unwrap();
    world.touch(&WHO, "outside", 0o644).unwrap();
    for path in ["i/d", "i/d/f"] {
        assert_eq!(world.find(path).unwrap().attr.import(), Some(7));
    }
    assert_eq!(world.change(|t| import(t, WHO, d, 8)), Err(Errno::EXDEV));
    let device = world.change(|t| t.make_node(&WHO, d, b"c", 0o020644, 0x103)).unwrap().attr;
    assert_eq!((device.import(), device.device()), (None, 0x103));
    for (from, to) in [("i/d/f", "f"), ("i/d", "d"), ("i/d/c", "c"), ("outside", "i/outside")] {
        assert_eq!(world.rename(&WHO, from, to, 0).map(drop), Err(Errno::EXDEV), "{from}");
    }
    assert_eq!(world.change(|t| t.link(&WHO, f, ROOT, b"l")).map(drop), Err(Errno::EXDEV));
    assert_eq!(world.change(|t| t.hash_directory(&WHO, d)), Err(Errno::EINVAL));
    world.rename(&WHO, "i/d/f", "i/g", 0).unwrap();
    world.rename(&WHO, "i", "j", 0).unwrap();
    let world = world.restart();
    assert_eq!(world.find("j/g").unwrap().attr.import(), Some(7));
}

/// A directory of another that is at another site.
async fn directory_elsewhere(client: &Client, parent: FileId) -> (FileId, String) {
    for number in 0.. {
        let name = format!("d{number}");
        let made = client.make_directory(&WHO, parent, name.as_bytes(), 0o755).await.unwrap();
        if made.attr.file.site() != parent.site() {
            return (made.attr.file, name);
        }
    }
    unreachable!("mkdir switching")
}

/// Clients know that and do not ask; one of before imports does. Also where a site of an import has moved to.
#[test]
fn managers_let_only_an_importer_change_an_import() {
    let mut array = Array::new(2, 2);
    let importer = array.client(0).for_imports();
    let (root, (d, name), f) = array.run_client(0, async move {
        let root = importer.make_node(&WHO, ROOT, b"i", 0o040755, 7).await.unwrap().attr.file;
        let (d, name) = directory_elsewhere(&importer, root).await;
        let f = importer.create(&WHO, d, b"f", 0o644, How::Guarded, None).await.unwrap();
        (root, (d, name), f.0.attr.file)
    });
    array.give(0, d.site(), NodeId(2)).unwrap();
    let client = array.client(1);
    array.run_client(1, async move {
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let size = SetAttr { size: Some(7), ..SetAttr::default() };
        let (with_wcc, _) = client.with_wcc(None, None);
        let refused = [
            client.set_attr(&WHO, f, mode, false).await.map(drop),
            client.set_attr(&WHO, f, size, false).await.map(drop),
            with_wcc.set_attr(&WHO, root, mode, false).await.map(drop),
            client.create(&WHO, d, b"g", 0o644, How::Guarded, None).await.map(drop),
            client.create_unnamed(&WHO, d, 0o644, WRITE).await.map(drop),
            client.make_directory(&WHO, root, b"x", 0o755).await.map(drop),
            client.symlink(&WHO, d, b"s", b"target").await.map(drop),
            client.make_node(&WHO, d, b"p", 0o010600, 0).await.map(drop),
            client.link(&WHO, f, d, b"l").await.map(drop),
            client.unlink(&WHO, d, b"f").await.map(drop),
            client.remove_directory(&WHO, root, name.as_bytes()).await.map(drop),
            client.rename(&WHO, d, b"f", d, b"g", 0).await.map(drop),
            client.rename(&WHO, d, b"f", root, b"g", 0).await.map(drop),
            client.set_xattr(&WHO, f, b"user.x", b"", 0).await,
            client.remove_xattr(&WHO, f, b"user.x").await,
            client.open(&WHO, f, WRITE).await.map(drop),
        ];
        for (number, refused) in refused.iter().enumerate() {
            assert_eq!(*refused, Err(Errno::EROFS), "{number}");
        }
        client.open(&WHO, f, READ).await.unwrap();
        client.close(f, None).await.unwrap();
        let importer = client.for_imports();
        importer.set_attr(&WHO, f, mode, false).await.unwrap();
        importer.rename(&WHO, d, b"f", root, b"g", 0).await.unwrap();
        importer.remove_directory(&WHO, root, name.as_bytes()).await.unwrap();
    });
}
