//! Operations over several managers, each of which is killed, or loses power, at each moment of them.

use crate::common::ROOT;
use crate::common::array::{Array, FIRST};
use crate::common::cluster::WHO;
use names::rename::EXCHANGE;
use names::{Client, How, Who, site_of_name};
use std::collections::BTreeMap;
use wire::{Errno, FileId, NodeId};

/// Three directories, each at another manager, and a file of the first that has a name in the second, too.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scene {
    at: [FileId; 3],
    file: FileId,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Rename,
    RenameOfAThird,
    RenameOverALastName,
    Exchange,
    Link,
    Unlink,
    UnlinkOfALastName,
    MakeDirectory,
    RemoveDirectory,
}

/// Each with the managers that it concerns.
const ACTS: [(Act, &[usize]); 9] = [
    (Act::Rename, &[0, 1]),
    (Act::RenameOfAThird, &[0, 1, 2]),
    (Act::RenameOverALastName, &[0, 1, 2]),
    (Act::Exchange, &[0, 1, 2]),
    (Act::Link, &[0, 2]),
    (Act::Unlink, &[0, 1]),
    (Act::UnlinkOfALastName, &[1, 2]),
    (Act::MakeDirectory, &[1, 2]),
    (Act::RemoveDirectory, &[0, 2]),
];

/// Names of the directories of the root that the scene has.
const ROOMS: [&str; 4] = ["first", "second", "third", "empty"];

/// A name in a directory whose hash is of this site.
fn name_at(parent: FileId, site: u8) -> String {
    (0..)
        .map(|i| format!("n{i}"))
        .find(|name| site_of_name(parent, name.as_bytes()) == site)
        .unwrap()
}

async fn act(act: Act, one: Client, scene: Scene) -> Result<(), Errno> {
    let [first, second, third] = scene.at;
    match act {
        Act::Rename => one.rename(&WHO, first, b"f", second, b"g", 0).await.map(drop),
        Act::RenameOfAThird => one.rename(&WHO, second, b"l", third, b"g", 0).await.map(drop),
        Act::RenameOverALastName => one.rename(&WHO, second, b"l", third, b"o", 0).await.map(drop),
        Act::Exchange => one.rename(&WHO, second, b"l", third, b"o", EXCHANGE).await.map(drop),
        Act::Link => one.link(&WHO, scene.file, third, b"n").await.map(drop),
        Act::Unlink => one.unlink(&WHO, second, b"l").await.map(drop),
        Act::UnlinkOfALastName => one.unlink(&WHO, second, b"moved").await.map(drop),
        Act::MakeDirectory => {
            let name = name_at(second, third.site());
            one.make_directory(&WHO, second, name.as_bytes(), 0o755).await.map(drop)
        }
        Act::RemoveDirectory => {
            let name = name_at(ROOT, third.site());
            one.remove_directory(&WHO, ROOT, name.as_bytes()).await.map(drop)
        }
    }
}

/// Makes the scene.
fn set() -> (Array, Scene) {
    let mut array = Array::new(3, 1);
    let one = array.client(0);
    let (scene, sites) = array.run_client(0, async move {
        one.set_switching(&Who::ROOT, Some(1000)).await.unwrap();
        let mut at = Vec::new();
        for name in ROOMS.iter().take(3) {
            let d = one.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            at.push(d.attr.file);
        }
        let at: [FileId; 3] = at.try_into().unwrap();
        let [first, second, third] = at;
        let empty = name_at(ROOT, third.site());
        let empty = one.make_directory(&WHO, ROOT, empty.as_bytes(), 0o755).await.unwrap();
        assert_eq!(empty.attr.file.site(), third.site());
        let file = one.create(&WHO, first, b"f", 0o644, How::Guarded, None).await.unwrap().0.attr;
        one.link(&WHO, file.file, second, b"l").await.unwrap();
        for name in [&b"o"[..], b"moved"] {
            one.create(&WHO, third, name, 0o644, How::Guarded, None).await.unwrap();
        }
        one.rename(&WHO, third, b"moved", second, b"moved", 0).await.unwrap();
        one.sync().await.unwrap();
        (Scene { at, file: file.file }, [second.site(), third.site()])
    });
    for (site, to) in sites.into_iter().zip([NodeId(2), NodeId(3)]) {
        array.give(0, site, to).unwrap();
    }
    // All managers have heard where sites are, and how new directories switch.
    array.turns(6_000);
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    assert_eq!(scene.at.map(|d| sites.manager_of(d)), [FIRST, NodeId(2), NodeId(3)]);
    (array, scene)
}

/// Names with their files and how many links these have; and links of the directories.
type NamesFound = BTreeMap<(FileId, Box<[u8]>), (FileId, u32)>;

fn found(array: &mut Array, scene: &Scene) -> NamesFound {
    let (one, scene) = (array.client(0), scene.clone());
    let made = name_at(scene.at[1], scene.at[2].site());
    array.run_client(0, async move {
        let mut found = NamesFound::new();
        for d in scene.at.into_iter().chain([ROOT]) {
            let all = one
                .read_directory(&WHO, d, names::Span::default(), 60_000, names::Plus::Nothing)
                .await;
            for entry in all.unwrap().entries {
                let links = one.get_attr(entry.file).await.unwrap().attr.links;
                // A file made by another attempt has another number.
                let is_new = *entry.name == *made.as_bytes();
                found.insert((d, entry.name), (if is_new { ROOT } else { entry.file }, links));
            }
        }
        let files = one.space().await.unwrap().files;
        found.insert((ROOT, b"files".as_slice().into()), (ROOT, files as u32));
        found
    })
}

/// The names before it and after it, and how many turns it takes.
fn undisturbed(kind: Act) -> (NamesFound, NamesFound, usize) {
    let (mut array, scene) = set();
    let before = found(&mut array, &scene);
    let (mut array, same) = set();
    assert_eq!(scene, same, "each time it is the same");
    let acting = array.begin(3, act(kind, array.client(0), scene.clone()));
    let mut turns = 0;
    while acting.borrow().is_none() {
        array.turn();
        turns += 1;
    }
    assert_eq!(array.finish(acting), Ok(()), "{kind:?}");
    array.turns(8_000);
    let after = found(&mut array, &scene);
    assert_ne!(before, after, "{kind:?}");
    (before, after, turns)
}

/// A kill takes nothing that is in a log, and the client asks again: the operation is made, once.
#[test]
fn an_operation_over_managers_is_made_once_whichever_is_killed_at_any_moment() {
    for (kind, managers) in ACTS {
        let (_, after, turns) = undisturbed(kind);
        for (at, moment) in managers.iter().flat_map(|at| (0..turns + 4).map(move |m| (*at, m))) {
            let (mut array, scene) = set();
            let acting = array.begin(3, act(kind, array.client(0), scene.clone()));
            array.turns(moment);
            array.kill(at);
            array.turns(20);
            array.start_again(at);
            assert_eq!(array.finish(acting), Ok(()), "{kind:?}: {at} killed after {moment}");
            array.turns(2_500);
            let found = found(&mut array, &scene);
            assert_eq!(found, after, "{kind:?}: {at} killed after {moment}");
        }
    }
}

/// Its client is gone, too. An operation that was answered is made.
#[test]
fn an_operation_over_managers_is_made_or_not_whichever_loses_power_at_any_moment() {
    for (kind, managers) in ACTS {
        let (before, after, turns) = undisturbed(kind);
        let (mut made, mut not_made) = (0, 0);
        for (at, moment) in
            managers.iter().flat_map(|at| (0..turns + 4).step_by(2).map(move |m| (*at, m)))
        {
            let (mut array, scene) = set();
            let acting = array.begin(3, act(kind, array.client(0), scene.clone()));
            array.turns(moment);
            array.cut(at);
            array.turns(20);
            let is_answered = acting.borrow().is_some();
            array.net.nodes[3] = rig::node(4, 2);
            array.start_again(at);
            array.turns(8_000);
            let found = found(&mut array, &scene);
            let is_made = found == after;
            assert!(
                is_made || found == before,
                "{kind:?}: half, {at} cut after {moment}: {found:?}"
            );
            assert!(is_made || !is_answered, "{kind:?}: lost, {at} cut after {moment}");
            (made, not_made) = (made + u32::from(is_made), not_made + u32::from(!is_made));
        }
        assert!(made > 0 && not_made > 0, "{kind:?}: {made} made, {not_made} not");
    }
}
