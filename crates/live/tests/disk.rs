//! The disk device on real directories: every test body runs over both engines.

use crate::disk_rig::{Rig, each_engine, object, on_both, pattern};
use endpoint::Frame;
use live::clock;
use live::disk::{DiskConfig, Disks, DisksError, Engine, OpenError, Throttle};
use node::rings::{
    DiskError, DiskFile, DiskId, DiskListing, DiskOp, DiskReply, DiskRequest, Ticket,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

#[test]
fn what_is_written_is_read_at_any_alignment() {
    on_both(|rig, _| {
        let file = DiskFile::Object(object(1));
        let mut model = vec![0; 1 << 20];
        let stretches =
            [(0, 1 << 18), (4096, 4096), (5000, 100), (8192, 12_288), (300_001, 70_001), (0, 1)];
        for (round, (offset, count)) in stretches.into_iter().enumerate() {
            let bytes = pattern(count, round as u64);
            rig.write(file, offset as u64, &bytes, round % 2 == 0);
            model[offset..offset + count].copy_from_slice(&bytes);
        }
        let end = 370_002;
        for (offset, count) in [(0, 1 << 20), (4096, 65_536), (4095, 3), (299_008, 81_920)] {
            let wanted = &model[offset..end.min(offset + count)];
            assert_eq!(rig.read(file, offset as u64, count).unwrap(), wanted, "{offset}+{count}");
        }
        assert_eq!(rig.stat(file), Ok(end as u64));
        assert_eq!(rig.read(file, end as u64, 4096).unwrap(), b"");
        assert_eq!(rig.read(file, 1 << 30, 4096).unwrap(), b"");
    });
}

#[test]
fn reads_stop_at_the_end_of_the_file() {
    on_both(|rig, _| {
        for (file, length) in [(1, 4096), (2, 5000), (3, 12_289), (4, 1)] {
            let file = DiskFile::Object(object(file));
            rig.write(file, 0, &pattern(length, 9), false);
            assert_eq!(rig.read(file, 0, 65_536).unwrap(), pattern(length, 9));
            assert_eq!(rig.read(file, 0, 65_535).unwrap(), pattern(length, 9));
        }
    });
}

#[test]
fn many_operations_complete_in_any_order_each_with_its_own_bytes() {
    on_both(|rig, _| {
        let place = |n: u64| (DiskFile::Object(object(n % 20)), (n / 20) * 8192);
        for n in 0..200 {
            let data = rig.frames.copy_of(&pattern(8192, n)).unwrap();
            let (file, offset) = place(n);
            rig.start(DiskOp::Write { file, offset, data, durable: false });
        }
        (0..200).for_each(|_| assert!(matches!(rig.wait().result, Ok(DiskReply::Done))));
        let mut expected = BTreeMap::new();
        for n in 0..200 {
            let into = rig.frames.alloc(8192).unwrap();
            let (file, offset) = place(n);
            expected.insert(rig.start(DiskOp::Read { file, offset, into }), pattern(8192, n));
        }
        for _ in 0..200 {
            let done = rig.wait();
            let Ok(DiskReply::Read { into, bytes: 8192 }) = done.result else {
                panic!("{:?}", done.result)
            };
            assert_eq!(Some(into.to_vec()), expected.remove(&done.ticket));
        }
    });
}

#[test]
fn files_are_where_the_format_says() {
    on_both(|rig, path| {
        let (from, to) = (DiskFile::Object(object(0x123)), DiskFile::Quarantined(object(0x123)));
        rig.write(DiskFile::Label, 0, b"label", true);
        rig.write(DiskFile::Log(3), 0, b"record", true);
        rig.write(from, 0, b"bytes", true);
        rig.done(DiskOp::Sync { file: from });
        assert_eq!(std::fs::read(path.join("label")).unwrap(), b"label");
        assert_eq!(std::fs::read(path.join("log/3")).unwrap(), b"record");
        let name = "objects/d9/00000001.0000000000000123.0000";
        assert_eq!(std::fs::read(path.join(name)).unwrap(), b"bytes");
        rig.done(DiskOp::Rename { from, to });
        assert_eq!(std::fs::read_dir(path.join("quarantine")).unwrap().count(), 1);
        assert_eq!(rig.list(DiskListing::Quarantined), [to]);
        assert_eq!(rig.list(DiskListing::Logs), [DiskFile::Log(3)]);
        rig.done(DiskOp::Sync { file: to });
        match rig.run(DiskOp::Space).unwrap() {
            DiskReply::Space { total, free, device } => {
                assert!(total > free && free > 0 && device != 0);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_missing_file_is_made_by_writing_only() {
    on_both(|rig, _| {
        let file = DiskFile::Object(object(5));
        assert_eq!(rig.read(file, 0, 4096), Err(DiskError::NotFound));
        assert_eq!(rig.stat(file), Err(DiskError::NotFound));
        let ops = [
            DiskOp::Truncate { file, bytes: 5 },
            DiskOp::Sync { file },
            DiskOp::Rename { from: file, to: DiskFile::Quarantined(object(5)) },
        ];
        for op in ops {
            assert_eq!(rig.run(op).unwrap_err(), DiskError::NotFound);
        }
        rig.done(DiskOp::Remove { file });
        rig.write(file, 0, b"", true);
        assert_eq!(rig.stat(file), Ok(0));
    });
}

#[test]
fn truncation_cuts_and_extends_with_zeros() {
    on_both(|rig, _| {
        let file = DiskFile::Object(object(6));
        rig.write(file, 0, &pattern(10_000, 1), false);
        rig.done(DiskOp::Truncate { file, bytes: 5000 });
        rig.done(DiskOp::Truncate { file, bytes: 8192 });
        let mut wanted = pattern(5000, 1);
        wanted.resize(8192, 0);
        assert_eq!(rig.read(file, 0, 65_536).unwrap(), wanted);
    });
}

#[test]
fn a_name_given_to_another_file_is_never_read_through_an_old_descriptor() {
    on_both(|rig, _| {
        let (one, two) = (DiskFile::Log(1), DiskFile::Log(2));
        for round in 0..20 {
            rig.write(one, 0, &pattern(4096, round), false);
            rig.write(two, 0, &pattern(4096, round + 1000), false);
            assert_eq!(rig.read(one, 0, 4096).unwrap(), pattern(4096, round));
            rig.done(DiskOp::Rename { from: two, to: one });
            assert_eq!(rig.read(one, 0, 4096).unwrap(), pattern(4096, round + 1000));
            assert_eq!(rig.read(two, 0, 4096), Err(DiskError::NotFound));
            // A file opened while its name was removed must not be found by a later read.
            let into = rig.frames.alloc(4096).unwrap();
            rig.start(DiskOp::Remove { file: one });
            rig.start(DiskOp::Read { file: one, offset: 0, into });
            drop((rig.wait(), rig.wait()));
            assert_eq!(rig.read(one, 0, 4096), Err(DiskError::NotFound));
        }
    });
}

#[test]
fn objects_are_listed_in_pages() {
    on_both(|rig, _| {
        (0..30).rev().for_each(|n| rig.write(DiskFile::Object(object(n)), 0, b"x", false));
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = rig.list(DiskListing::Objects { after, count: 7 });
            seen.extend_from_slice(&page);
            if page.len() < 7 {
                break;
            }
            let Some(DiskFile::Object(last)) = page.last().copied() else { panic!("{page:?}") };
            after = Some(last);
        }
        assert_eq!(seen, (0..30).map(|n| DiskFile::Object(object(n))).collect::<Vec<_>>());
    });
}

#[test]
fn one_process_at_a_time_and_everything_is_there_for_the_next() {
    each_engine(|engine| {
        let temporary = TempDir::new().unwrap();
        let config = DiskConfig::new(temporary.path());
        let mut first = Rig::open(&config, engine);
        first.write(DiskFile::Object(object(1)), 0, &pattern(9000, 4), true);
        let taken = Disks::open(std::slice::from_ref(&config), engine).err().unwrap();
        let holder = format!("in use by process {}", std::process::id());
        assert!(taken.to_string().contains(&holder), "{taken}");
        drop(first);
        let mut second = Rig::open(&config, engine);
        let read = second.read(DiskFile::Object(object(1)), 0, 9000).unwrap();
        assert_eq!(read, pattern(9000, 4));
    });
}

#[test]
fn a_disk_that_goes_away_is_missing_not_empty() {
    on_both(|rig, path| {
        rig.write(DiskFile::Object(object(1)), 0, b"x", false);
        let aside = path.with_extension("aside");
        std::fs::rename(path, &aside).unwrap();
        assert_eq!(rig.read(DiskFile::Object(object(2)), 0, 4096), Err(DiskError::Missing));
        assert_eq!(rig.stat(DiskFile::Object(object(2))), Err(DiskError::Missing));
        std::fs::rename(&aside, path).unwrap();
        assert_eq!(rig.read(DiskFile::Object(object(2)), 0, 4096), Err(DiskError::NotFound));
        let unknown = DiskRequest { ticket: Ticket(0), disk: DiskId(9), op: DiskOp::Space };
        rig.disks.start(unknown, clock::now());
        assert_eq!(rig.wait().result.unwrap_err(), DiskError::Missing);
    });
}

/// Bytes that an open descriptor still takes are lost once its directory is removed, in whatever order that happens.
#[test]
fn a_disk_that_is_removed_is_missing_and_takes_nothing_more() {
    let all: &[&str] = &[""];
    for removed in [all, &["objects"], &["lock"], &["label", "lock", "log", "quarantine"]] {
        on_both(|rig, path| {
            let (file, new) = (DiskFile::Object(object(1)), DiskFile::Object(object(2)));
            rig.write(file, 0, &pattern(4096, 1), true);
            rig.write(DiskFile::Label, 0, b"label", true);
            rig.write(DiskFile::Log(1), 0, b"log", true);
            assert!(matches!(rig.run(DiskOp::Space), Ok(DiskReply::Space { .. })));
            for name in removed {
                let path = path.join(name);
                if path.is_dir() {
                    std::fs::remove_dir_all(path).unwrap();
                } else {
                    std::fs::remove_file(path).unwrap();
                }
            }
            assert_eq!(rig.read(new, 0, 4096), Err(DiskError::Missing), "{removed:?}");
            let data = rig.frames.copy_of(b"x").unwrap();
            let made = rig.run(DiskOp::Write { file: new, offset: 0, data, durable: false });
            assert_eq!(made.unwrap_err(), DiskError::Missing, "{removed:?}");
            if removed == ["objects"] {
                return; // the log is whole
            }
            let data = rig.frames.copy_of(b"x").unwrap();
            let durable = DiskOp::Write { file, offset: 0, data, durable: true };
            for op in [durable, DiskOp::Sync { file }, DiskOp::SyncAll, DiskOp::Space] {
                let what = format!("{op:?} without {removed:?}");
                assert_eq!(rig.run(op).unwrap_err(), DiskError::Missing, "{what}");
            }
            std::fs::create_dir_all(path).unwrap();
            assert_eq!(rig.read(new, 0, 4096), Err(DiskError::Missing), "made again is another");
        });
    }
}

#[test]
fn dropping_the_disks_waits_for_what_is_under_way() {
    each_engine(|engine| {
        let temporary = TempDir::new().unwrap();
        let config = DiskConfig::new(temporary.path());
        let mut rig = Rig::open(&config, engine);
        rig.write(DiskFile::Log(0), 0, &pattern(4096, 0), false);
        let chunk: Frame = rig.frames.copy_of(&pattern(1 << 18, 1)).unwrap();
        for n in 0..16 {
            let data = chunk.clone();
            let (file, offset) = (DiskFile::Log(n / 8), u64::from(n % 8) << 18);
            rig.start(DiskOp::Write { file, offset, data, durable: false });
        }
        rig.disks.turn(clock::now()).unwrap();
        drop((rig.disks, chunk));
        assert_eq!(rig.frames.free_pages(), rig.frames.pages());
        Disks::open(&[config], engine).expect("the lock is free again");
    });
}

#[test]
fn a_throttled_disk_completes_late_and_wakes_its_sleeper() {
    each_engine(|engine| {
        let temporary = TempDir::new().unwrap();
        let throttle: Throttle = "rate=10M,delay=5ms".parse().unwrap();
        let config = DiskConfig { throttle: Some(throttle), ..DiskConfig::new(temporary.path()) };
        let mut rig = Rig::open(&config, engine);
        let start = clock::now();
        for n in 0..20 {
            let data = rig.frames.alloc(16_384).unwrap().freeze();
            let file = DiskFile::Object(object(n));
            rig.start(DiskOp::Write { file, offset: 0, data, durable: false });
        }
        (0..20).for_each(|_| assert!(rig.wait().result.is_ok()));
        // 20 x 16 KiB at 10 MB/s are 32.7 ms, less a burst of 10 ms, and 5 ms of delay.
        assert!(clock::now().since(start) >= Duration::from_micros(27_700));
    });
}

#[test]
fn a_directory_that_cannot_be_a_disk_is_refused_by_name() {
    let temporary = TempDir::new().unwrap();
    let open = |path: PathBuf| match Disks::open(&[DiskConfig::new(path)], Engine::Threads) {
        Err(DisksError::Open(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    };
    let missing = open(temporary.path().join("nowhere"));
    assert!(matches!(missing, OpenError::Missing(_)), "{missing}");
    let file = temporary.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let file = open(file);
    assert!(matches!(file, OpenError::NotDirectory(_)), "{file}");
    assert!(file.to_string().contains("not a directory"));
}
