//! Descriptions of files: they are in the headers of objects after a checkpoint, whatever happens to the server, and
//! never wrong.

use crate::common::*;
use stripe::{Description, FileRef, Kept};
use wire::{Errno, ObjectId, Wall};

fn described(path: &str) -> Description {
    Description {
        size: 10_000,
        used: 12_288,
        mtime: Wall { seconds: 1_800_000_000, nanos: 5 },
        mode: 0o640,
        uid: 1000,
        layout: vec![1, 2, 3],
        path: path.into(),
        ..Description::default()
    }
}

fn kept(file: &FileRef) -> Kept {
    let object = ObjectId { volume: VOLUME, file: file.file, column: 0 };
    Kept { object, disk: file.layout.home(0).disk }
}

fn tell(world: &mut World, file: &FileRef, description: Description) -> Result<(), Errno> {
    let (client, home, object) = (world.client.clone(), file.layout.home(0), kept(file).object);
    world.run(async move { client.describe(home, &[(object, description)]).await.1.remove(0) })
}

fn ask(world: &mut World, file: &FileRef) -> Result<Option<Description>, Errno> {
    let (client, server, kept) = (world.client.clone(), file.layout.home(0).server, kept(file));
    world.run(
        async move { client.description(server, kept).await.map(|(_, told)| told.description) },
    )
}

fn put(world: &mut World, file: &FileRef) {
    world.write(file, 0, &pattern(file.file.0, 10_000)).unwrap();
    world.commit(file).unwrap();
}

fn has_its_bytes(world: &mut World, file: &FileRef) {
    assert_eq!(world.read(file, 0, 10_000).unwrap(), pattern(file.file.0, 10_000));
}

#[test]
fn a_description_is_kept_by_the_next_checkpoint_and_by_everything_after_it() {
    let mut world = World::new(1, 1);
    let file = world.single(1);
    assert_eq!(tell(&mut world, &file, described("/a")), Err(Errno::ENOENT));
    assert_eq!(ask(&mut world, &file), Err(Errno::ENOENT));
    put(&mut world, &file);
    assert_eq!(ask(&mut world, &file), Ok(None));
    tell(&mut world, &file, described("/a")).unwrap();
    assert_eq!(ask(&mut world, &file), Ok(Some(described("/a"))));
    world.flush(0);
    world.servers[0].crash();
    assert_eq!(ask(&mut world, &file), Ok(Some(described("/a"))));
    // One that comes long after everything else is written by a header of its own.
    tell(&mut world, &file, described("/b/c")).unwrap();
    world.flush(0);
    world.servers[0].crash();
    assert_eq!(ask(&mut world, &file), Ok(Some(described("/b/c"))));
    // Later commits keep it, in place and when the log is replayed.
    world.write(&file, 0, &pattern(1, 10_000)).unwrap();
    world.commit(&file).unwrap();
    world.servers[0].crash();
    assert_eq!(ask(&mut world, &file), Ok(Some(described("/b/c"))));
    world.flush(0);
    world.servers[0].kill();
    assert_eq!(ask(&mut world, &file), Ok(Some(described("/b/c"))));
    has_its_bytes(&mut world, &file);
}

/// A description with a layout of this epoch.
fn of_epoch(path: &str, epoch: u32) -> Description {
    Description { layout: [&epoch.to_le_bytes()[..], &[9; 200]].concat(), ..described(path) }
}

#[test]
fn what_is_told_for_good_survives_a_crash_at_once_and_a_restart_in_the_middle_of_a_checkpoint() {
    for turns in [0, 5, 20, 60, 200] {
        let mut world = World::new(1, 1);
        let file = world.single(1);
        put(&mut world, &file);
        tell(&mut world, &file, of_epoch("/a", 1)).unwrap();
        world.flush(0);
        let (client, told) = (world.client.clone(), of_epoch("", 2));
        world.run(async move { client.describe_all(&file, &told).await }).unwrap();
        // A description of an earlier layout does not take it back; the rest counts.
        tell(&mut world, &file, of_epoch("/b", 1)).unwrap();
        let server = world.servers[0].server.clone().unwrap();
        world.servers[0].node.cx().spawn("flush", async move {
            let _ = server.flush().await;
        });
        world.turns(turns);
        world.servers[0].crash();
        for _ in 0..2 {
            let told = ask(&mut world, &file).unwrap().unwrap();
            assert!([of_epoch("/a", 2), of_epoch("/b", 2)].contains(&told), "{turns}: {told:?}");
            has_its_bytes(&mut world, &file);
            world.servers[0].crash();
        }
        world.flush(0);
        world.servers[0].kill();
        assert_eq!(ask(&mut world, &file).unwrap().unwrap().layout, of_epoch("", 2).layout);
    }
}

#[test]
fn nothing_is_told_for_good_of_an_object_that_is_not_there() {
    let mut world = World::new(1, 1);
    let file = world.single(1);
    let (client, told) = (world.client.clone(), of_epoch("", 2));
    let none = world.run(async move { client.describe_all(&file, &told).await });
    assert_eq!(none, Err(Errno::ENOENT));
}

#[test]
fn many_descriptions_bring_a_checkpoint_and_travel_together() {
    let mut world = World::new(1, 1);
    let files: Vec<FileRef> = (1..=300).map(|file| world.single(file)).collect();
    files.iter().for_each(|file| put(&mut world, file));
    world.flush(0);
    let before = world.servers[0].server.as_ref().unwrap().counters().checkpoints;
    let (client, home) = (world.client.clone(), files[0].layout.home(0));
    let name = |file: &FileRef| format!("/dir/{}", file.file.0);
    let told: Vec<_> =
        files.iter().map(|file| (kept(file).object, described(&name(file)))).collect();
    let (_, results) = world.run(async move { client.describe(home, &told).await });
    assert!(results.len() == 300 && results.iter().all(Result::is_ok));
    world.turns(2000);
    assert!(world.servers[0].server.as_ref().unwrap().counters().checkpoints > before);
    world.servers[0].crash();
    let known = files.iter().filter(|file| {
        ask(&mut world, file).unwrap().is_some_and(|told| told == described(&name(file)))
    });
    assert!(known.count() >= stripe::limits::DESCRIBED_MAX);
}

#[test]
fn a_crash_at_any_time_leaves_the_old_description_or_the_new_one_and_no_damage() {
    for seed in 1..=60 {
        let mut world = World::with(1, 1, seed, small);
        world.disk_turns = 4;
        let files: Vec<FileRef> = (1..=4).map(|file| world.single(file)).collect();
        for file in &files {
            put(&mut world, file);
            tell(&mut world, file, described("/old")).unwrap();
        }
        world.flush(0);
        for file in &files {
            tell(&mut world, file, described("/new")).unwrap();
        }
        let server = world.servers[0].server.clone().unwrap();
        world.servers[0].node.cx().spawn("flush", async move {
            let _ = server.flush().await;
        });
        world.turns(seed as usize);
        world.servers[0].crash();
        for file in &files {
            let told = ask(&mut world, file).unwrap().unwrap();
            assert!([described("/old"), described("/new")].contains(&told), "{seed}: {told:?}");
            has_its_bytes(&mut world, file);
        }
        assert_eq!(world.servers[0].server.as_ref().unwrap().damaged(), [], "{seed}");
    }
}

#[test]
fn a_damaged_description_is_an_error_and_never_another_one() {
    for at in [512, 514, 530, 570, 600] {
        let mut world = World::new(1, 1);
        let file = world.single(1);
        put(&mut world, &file);
        tell(&mut world, &file, described("/a/long/enough/path/to/be/hit/by/this/flipped/bit"))
            .unwrap();
        world.flush(0);
        world.servers[0].kill();
        let bytes = world.servers[0].disks[0].bytes_mut(World::object(1, 0));
        let slots: Vec<usize> =
            [0, 4096].into_iter().filter(|slot| bytes[slot + 512] != 0).collect();
        assert!(!slots.is_empty());
        slots.iter().for_each(|slot| bytes[slot + at] ^= 4);
        assert_eq!(ask(&mut world, &file), Err(Errno::EIO), "{at}");
        assert_eq!(world.read(&file, 0, 10_000), Err(Errno::EIO), "{at}");
    }
}

#[test]
fn what_was_described_is_in_place_after_a_minute_without_any_other_write() {
    let mut world = World::new(1, 1);
    let file = world.single(1);
    put(&mut world, &file);
    world.flush(0);
    tell(&mut world, &file, described("/a")).unwrap();
    let before = world.servers[0].server.as_ref().unwrap().counters().checkpoints;
    world.now = world.now + stripe::limits::DESCRIBED_SPAN;
    world.turns(2000);
    assert_eq!(world.servers[0].server.as_ref().unwrap().counters().checkpoints, before + 1);
    world.servers[0].crash();
    assert_eq!(ask(&mut world, &file), Ok(Some(described("/a"))));
}

#[test]
fn what_was_described_is_in_place_after_a_clean_stop() {
    let mut world = World::new(1, 1);
    let files: Vec<FileRef> = (1..=3).map(|file| world.single(file)).collect();
    files.iter().for_each(|file| put(&mut world, file));
    files.iter().for_each(|file| tell(&mut world, file, described("/a")).unwrap());
    let server = world.servers[0].server.clone().unwrap();
    let before = server.counters().checkpoints;
    for _ in 0..2 {
        let placed = server.clone();
        world.run_on(0, async move { placed.place_descriptions().await });
        assert_eq!(server.counters().checkpoints, before + 1, "once: then all is in place");
    }
    world.servers[0].crash();
    for file in &files {
        assert_eq!(ask(&mut world, file), Ok(Some(described("/a"))));
        has_its_bytes(&mut world, file);
    }
}

#[test]
fn a_description_without_a_path_leaves_the_path() {
    let mut world = World::new(1, 1);
    let file = world.single(1);
    put(&mut world, &file);
    assert_eq!(tell(&mut world, &file, described("")), Err(Errno::ENODATA));
    assert_eq!(ask(&mut world, &file), Ok(Some(described(""))));
    tell(&mut world, &file, described("/a")).unwrap();
    tell(&mut world, &file, Description { uid: 7, ..described("") }).unwrap();
    let expected = Description { uid: 7, ..described("/a") };
    assert_eq!(ask(&mut world, &file), Ok(Some(expected)));
}

#[test]
fn columns_that_had_objects_are_not_forgotten_when_an_older_manager_describes() {
    let mut world = World::new(1, 1);
    let file = world.single(1);
    put(&mut world, &file);
    let present = |present| Description { present, ..described("/a") };
    for (told, kept) in [(0b110, 0b110), (0b001, 0b111), (0, 0b111)] {
        tell(&mut world, &file, present(told)).unwrap();
        assert_eq!(ask(&mut world, &file), Ok(Some(present(kept))));
    }
}

#[test]
fn a_server_that_started_anew_says_so_and_an_object_knows_its_shape() {
    let mut world = World::new(1, 1);
    let file = world.single(1);
    put(&mut world, &file);
    let (client, home) = (world.client.clone(), file.layout.home(0));
    let verifier = |world: &mut World| {
        let client = client.clone();
        world.run(async move { client.describe(home, &[]).await.0 }).unwrap()
    };
    let before = verifier(&mut world);
    assert_eq!(verifier(&mut world), before);
    world.servers[0].crash();
    assert_ne!(verifier(&mut world), before);
    let kept = kept(&file);
    let (told, known) =
        world.run(async move { client.description(home.server, kept).await }).unwrap();
    assert_eq!((told.length, known.description), (10_000, None));
    assert_eq!((known.shape.width, 1 << known.shape.unit_shift), (1, file.layout.unit_bytes));
}
