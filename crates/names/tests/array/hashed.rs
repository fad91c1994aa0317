//! Hashed directories: each name at one manager, all of them one directory.

use super::Seen;
use crate::common::ROOT;
use crate::common::array::Array;
use crate::common::cluster::WHO;
use crate::model::Space;
use names::limits::RETRY_PAUSE;
use names::{Client, How, Plus};
use proptest::prelude::*;
use wire::{Errno, FileId, SetAttr};

/// A directory that all managers have names of.
fn hashed(array: &mut Array, names: usize) -> FileId {
    let one = array.client(0);
    array.run_client(0, async move {
        let d = one.make_directory(&WHO, ROOT, b"hot", 0o755).await.unwrap().attr.file;
        one.hash_directory(&WHO, d).await.unwrap();
        for i in 0..names {
            let name = format!("f{i}");
            one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
        }
        one.sync().await.unwrap();
        d
    })
}

#[test]
fn a_hashed_directory_is_at_all_managers_and_one_directory() {
    let mut array = Array::spread(3, 2);
    let d = hashed(&mut array, 0);
    let sites = array.seats[0].handle.as_ref().unwrap().sites();
    let (one, two) = (array.client(0), array.client(1));
    let made = array.run_client(0, async move {
        let mut made = Vec::new();
        let begun = one.get_attr(d).await.unwrap().attr;
        for i in 0..60 {
            let name = format!("f{i}");
            let f = one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
            made.push((name, f.0.attr.file));
        }
        let after = one.get_attr(d).await.unwrap().attr;
        assert!(after.mtime > begun.mtime && after.change >= begun.change + 60);
        made
    });
    for (name, file) in &made {
        assert_eq!(file.site(), names::site_of_name(d, name.as_bytes()), "{name}");
    }
    let managers: std::collections::BTreeSet<_> =
        made.iter().map(|(_, file)| sites.manager_of(*file)).collect();
    assert_eq!(managers.len(), 3);
    array.run_client(1, async move {
        let other = names::Who::new(7, 7, &[]);
        let chmod = |mode| wire::SetAttr { mode: Some(mode), ..wire::SetAttr::default() };
        let closed = two.set_attr(&WHO, d, chmod(0o700), false).await.unwrap().attr;
        assert_eq!(closed.mode & 0o777, 0o700);
        for (name, file) in &made {
            let refused = two.lookup(&other, d, name.as_bytes()).await;
            assert_eq!(refused.map(drop), Err(Errno::EACCES), "at every site");
            assert_eq!(two.lookup(&WHO, d, name.as_bytes()).await.unwrap().attr.file, *file);
        }
        two.set_attr(&WHO, d, chmod(0o755), false).await.unwrap();
        for i in 0..5 {
            let name = format!("d{i}");
            two.make_directory(&WHO, d, name.as_bytes(), 0o755).await.unwrap();
        }
        assert_eq!(two.lookup(&WHO, ROOT, b"hot").await.unwrap().attr.links, 2 + 5);
        two.rename(&WHO, d, b"f0", d, b"g0", 0).await.unwrap();
        two.rename(&WHO, d, b"f1", d, b"f2", 2).await.unwrap();
        two.rename(&WHO, d, b"d0", ROOT, b"d0", 0).await.unwrap();
        let there = two.rename(&WHO, d, b"d1", d, b"g0", 1).await;
        assert_eq!(there.map(drop), Err(Errno::EEXIST));
        assert_eq!(two.lookup(&WHO, ROOT, b"hot").await.unwrap().attr.links, 2 + 4);
        assert_eq!(two.lookup(&WHO, d, b"f2").await.unwrap().attr.file, made[1].1);
        let full = two.remove_directory(&WHO, ROOT, b"hot").await;
        assert_eq!(full.map(drop), Err(Errno::ENOTEMPTY));
        let again = two.hash_directory(&WHO, ROOT).await;
        assert_eq!(again, Err(Errno::ENOTEMPTY), "only what is empty");
        two.rename(&WHO, d, b"g0", d, b"f0", 0).await.unwrap();
        for (name, _) in &made {
            two.unlink(&WHO, d, name.as_bytes()).await.unwrap();
        }
        for i in 1..5 {
            let name = format!("d{i}");
            two.remove_directory(&WHO, d, name.as_bytes()).await.unwrap();
        }
        two.remove_directory(&WHO, ROOT, b"hot").await.unwrap();
        assert_eq!(two.space().await.unwrap().files, 2);
    });
    let one = array.client(0);
    array.run_client(0, async move {
        assert_eq!(one.lookup(&WHO, d, b"f0").await, Err(Errno::ESTALE));
        assert_eq!(one.get_attr(d).await, Err(Errno::ESTALE));
    });
}

/// Making, finding and removing names of files needs no other manager: no part, and so no sync.
#[test]
fn a_name_in_a_hashed_directory_needs_one_manager() {
    let mut array = Array::spread(3, 2);
    let d = hashed(&mut array, 9);
    array.turns(12_000);
    let before: u64 = array.seats.iter().map(|seat| seat.syncs).sum();
    let one = array.client(0);
    array.run_client(0, async move {
        for i in 0..40 {
            let name = format!("n{i}");
            one.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
            one.lookup(&WHO, d, name.as_bytes()).await.unwrap();
            one.unlink(&WHO, d, name.as_bytes()).await.unwrap();
        }
    });
    let after: u64 = array.seats.iter().map(|seat| seat.syncs).sum();
    assert!(after - before <= 6, "{} syncs: one a second at each manager", after - before);
}

/// Names come and go and the directory is removed as soon as that is possible: never with a name in it.
#[test]
fn no_name_comes_into_a_hashed_directory_that_goes() {
    for pause in [0, 3, 9, 20, 40, 80, 160] {
        let mut array = Array::spread(3, 3);
        let d = hashed(&mut array, 0);
        let (one, two, three) = (array.client(0), array.client(1), array.client(2));
        let making = array.begin(4, async move {
            let mut made = 0;
            for i in 0..400 {
                let name = format!("n{i}");
                match two.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await {
                    Ok(_) => made += 1,
                    Err(errno) => {
                        assert_eq!(errno, Errno::ESTALE);
                        break;
                    }
                }
                match two.unlink(&WHO, d, name.as_bytes()).await {
                    Ok(_) => made -= 1,
                    Err(errno) => panic!("{errno}: the directory went with a name in it"),
                }
            }
            made
        });
        array.turns(pause);
        let removing = array.begin(5, async move {
            loop {
                match three.remove_directory(&WHO, ROOT, b"hot").await {
                    Ok(_) => return,
                    Err(errno) => assert_eq!(errno, Errno::ENOTEMPTY),
                }
            }
        });
        assert_eq!(array.finish(making), 0);
        array.finish(removing);
        let files = array.run_client(0, async move { one.space().await.unwrap().files });
        assert_eq!(files, 1, "after {pause}");
    }
}

/// Power fails at each moment while a directory becomes hashed, at the manager of it or another one.
#[test]
fn a_directory_is_hashed_everywhere_or_nowhere_whenever_power_fails() {
    let (mut hashed, mut not_hashed) = (0, 0);
    for (at, after) in (0..2).flat_map(|at| (0..36).step_by(3).map(move |after| (at, after))) {
        let mut array = Array::spread(2, 1);
        let one = array.client(0);
        let setting = one.clone();
        let d = array.run_client(0, async move {
            let d = setting.make_directory(&WHO, ROOT, b"d", 0o755).await.unwrap().attr.file;
            setting.sync().await.unwrap();
            d
        });
        let task = array.begin(2, async move { one.hash_directory(&WHO, d).await });
        array.turns(after);
        array.cut(at);
        array.turns(20);
        let answered = task.borrow().is_some();
        if !answered {
            array.net.nodes[2] = rig::node(3, 2);
        }
        array.start_again(at);
        array.turns(8_000);
        let client = array.client(0);
        let sites = array.run_client(0, async move {
            let mut sites = std::collections::BTreeSet::new();
            for i in 0..12 {
                let name = format!("f{i}");
                let f = client.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await;
                sites.insert(f.unwrap().0.attr.file.site());
                assert!(client.lookup(&WHO, d, name.as_bytes()).await.is_ok());
            }
            client.get_attr(d).await.unwrap();
            sites
        });
        let is = sites.len() > 1;
        assert!(is || !answered, "answered, and lost at {at} after {after}");
        (hashed, not_hashed) = (hashed + u32::from(is), not_hashed + u32::from(!is));
    }
    assert!(hashed > 0 && not_hashed > 0, "{hashed} hashed, {not_hashed} not");
}

/// A directory with names that is hashed, and whose own record is at the manager at `at`, after a backup of before it
/// was hashed; a client that knows it as hashed. One manager is lost, and restored from the backup.
fn restored(at: usize, lost: usize) -> (Array, FileId, Client) {
    let mut array = Array::spread(3, 2);
    let client = array.client(0);
    let [(_, one), (_, two), (_, three)] = array.one_of_each(0, &client);
    let d = [one, two, three][at];
    let backup = array.back_up(0);
    let maker = client.clone();
    array.run_client(0, async move {
        maker.hash_directory(&WHO, d).await.unwrap();
        for i in 0..NAMES {
            let name = format!("f{i}");
            maker.create(&WHO, d, name.as_bytes(), 0o644, How::Guarded, None).await.unwrap();
        }
        maker.sync().await.unwrap();
    });
    array.kill(lost);
    array.restore_from(lost, &backup);
    array.start_again(lost);
    array.turns(6_000);
    (array, d, client)
}

const NAMES: usize = 24;

/// The names that are found, and those of which it is told that they are lost.
async fn look(client: &Client, d: FileId) -> (usize, usize) {
    let (mut found, mut lost) = (0, 0);
    for i in 0..NAMES {
        match client.lookup(&WHO, d, format!("f{i}").as_bytes()).await.map(drop) {
            Ok(()) => found += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::ENOTRECOVERABLE);
                lost += 1;
            }
        }
    }
    (found, lost)
}

/// One that was hashed after the backup has lost its names of the restored manager, and says so at once, whatever is
/// asked; it is listed without them when it was hashed once more.
#[test]
fn what_is_lost_of_a_hashed_directory_is_told_at_once_and_made_anew() {
    for lost in [1, 2] {
        let (mut array, d, old) = restored(0, lost);
        let fresh = array.client(1);
        let begun = array.net.now;
        for (number, client) in [(0, old), (1, fresh)] {
            array.run_client(number, async move {
                let told = Err(Errno::ENOTRECOVERABLE);
                assert_eq!(client.get_attr(d).await.map(drop), told);
                let (found, lost) = look(&client, d).await;
                assert!(found > 0 && lost > 0 && found + lost == NAMES, "{found}, {lost}");
                assert_eq!(listing(&client, d).await.map(drop), told);
                let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
                let changed = client.set_attr(&WHO, d, mode, false).await;
                assert_eq!(changed.map(drop), told);
                let policy = client.directory_layout(d).await.unwrap();
                assert_eq!(client.set_directory_layout(&WHO, d, policy).await, told);
                assert!(client.is_directory_hashed(d).await.unwrap());
            });
        }
        assert!(array.net.now.since(begun) < RETRY_PAUSE * 100, "somebody waited");
        let client = array.client(1);
        array.run_client(1, async move {
            let (found, _) = look(&client, d).await;
            client.hash_directory(&WHO, d).await.unwrap();
            let names = listing(&client, d).await.unwrap();
            assert_eq!(names, found);
            client.get_attr(d).await.unwrap();
            for i in 0..NAMES {
                let name = format!("f{i}");
                let made = client.create(&WHO, d, name.as_bytes(), 0o644, How::Unchecked, None);
                made.await.unwrap();
            }
            assert_eq!(listing(&client, d).await, Ok(NAMES));
            assert_eq!(look(&client, d).await, (NAMES, 0));
            client.hash_directory(&WHO, d).await.unwrap();
            assert_eq!(listing(&client, d).await, Ok(NAMES));
            for i in 0..NAMES {
                client.unlink(&WHO, d, format!("f{i}").as_bytes()).await.unwrap();
            }
        });
    }
}

/// How many names are listed.
async fn listing(client: &Client, d: FileId) -> Result<usize, Errno> {
    let (mut count, mut cookie) = (0, 0);
    loop {
        let part = client.read_directory(&WHO, d, cookie, 4096, Plus::Nothing).await?;
        count += part.entries.len();
        cookie = part.entries.last().map_or(cookie, |entry| entry.cookie);
        if part.end {
            return Ok(count - 2);
        }
    }
}

/// It can be removed as it is when the names are gone that are left.
#[test]
fn a_hashed_directory_that_lost_a_part_is_removed_when_the_rest_is_empty() {
    let (mut array, d, _) = restored(0, 1);
    let client = array.client(1);
    array.run_client(1, async move {
        let mut name = None;
        for i in 0..24 {
            let one = format!("d{i}");
            let file = client.lookup(&WHO, ROOT, one.as_bytes()).await.map(|one| one.attr.file);
            // Of others the manager is asked that has lost a part of this one.
            name = name.or((file == Ok(d) || file == Err(Errno::ENOTRECOVERABLE)).then_some(one));
        }
        let name = name.unwrap();
        let full = client.remove_directory(&WHO, ROOT, name.as_bytes()).await;
        assert_eq!(full.map(drop), Err(Errno::ENOTEMPTY));
        for i in 0..NAMES {
            let _lost = client.unlink(&WHO, d, format!("f{i}").as_bytes()).await;
        }
        client.remove_directory(&WHO, ROOT, name.as_bytes()).await.unwrap();
        assert_eq!(client.get_attr(d).await.map(drop), Err(Errno::ESTALE));
    });
}

/// The manager of the directory itself goes on from before it was hashed: it is an ordinary one again, for those that
/// knew it as a hashed one too. Hashed once more it has the names of the others.
#[test]
fn a_directory_whose_own_manager_was_restored_is_as_in_the_backup() {
    let (mut array, d, old) = restored(1, 1);
    let fresh = array.client(1);
    let begun = array.net.now;
    for (number, client) in [(0, old), (1, fresh)] {
        array.run_client(number, async move {
            client.get_attr(d).await.unwrap();
            assert_eq!(listing(&client, d).await, Ok(0));
            assert!(!client.is_directory_hashed(d).await.unwrap());
        });
    }
    assert!(array.net.now.since(begun) < RETRY_PAUSE * 100, "somebody waited");
    let client = array.client(1);
    array.run_client(1, async move {
        client.hash_directory(&WHO, d).await.unwrap();
        let names = listing(&client, d).await.unwrap();
        assert!(names > 0 && names < NAMES, "{names}");
        for i in 0..NAMES {
            let name = format!("f{i}");
            let made = client.create(&WHO, d, name.as_bytes(), 0o644, How::Unchecked, None).await;
            made.unwrap();
        }
        assert_eq!(listing(&client, d).await, Ok(NAMES));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// A listing of a hashed directory goes on right while its sites move and names come and go.
    #[test]
    fn cookies_stay_while_sites_move(
        bytes in 1024usize..3000,
        moves in prop::collection::vec((1u8..=255, 0usize..3), 40),
    ) {
        const STAY: usize = 160;
        let mut seen = Seen::new(Array::spread(3, 2));
        let d = hashed(&mut seen.array, STAY);
        let (mut span, mut listed, mut moves) = (names::Span::default(), Vec::new(), moves.iter());
        for round in 0.. {
            let mut part = seen.run(move |client| async move {
                client.read_directory(&WHO, d, span, bytes, Plus::Nothing).await.unwrap()
            });
            // A kernel has room for some of them only.
            let room = part.entries.len() * 2 / 3 + 1;
            part.end &= room >= part.entries.len();
            part.entries.truncate(room);
            let cookie = part.entries.last().map_or(span.cookie, |entry| entry.cookie);
            span = names::Span { cookie, until: part.until };
            listed.extend(part.entries.into_iter().map(|entry| entry.name));
            if part.end {
                break;
            }
            for (site, to) in moves.by_ref().take(5) {
                seen.give(*site, *to);
            }
            let (name, gone) = (format!("new{round}"), format!("new{}", round / 2));
            seen.create(d, name.as_bytes()).unwrap();
            let _ = seen.unlink(d, gone.as_bytes());
        }
        prop_assert_eq!(&listed[..2], &[Box::from(&b"."[..]), Box::from(&b".."[..])]);
        let mut stayed: Vec<_> = listed.iter().filter(|name| name[0] == b'f').cloned().collect();
        stayed.sort();
        let mut expected: Vec<Box<[u8]>> =
            (0..STAY).map(|i| format!("f{i}").into_bytes().into()).collect();
        expected.sort();
        prop_assert_eq!(stayed, expected);
    }
}
