//! Disks that are full, read-only or refuse direct transfers: small file systems in a mount namespace of the test's
//! own, which only root can make. Others skip these tests, said aloud.

use crate::disk_rig::{Rig, each_engine, object, pattern};
use live::disk::{DiskConfig, Disks, DisksError, Engine, OpenError};
use live::meta::{Stores, load};
use node::rings::{
    DiskError, DiskFile, DiskOp, DiskReply, MetaDone, MetaError, MetaOp, MetaRequest, MetaRoom,
    MetaWork, StoreId, Ticket,
};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_remount};
use rustix::thread::UnshareFlags;
use std::path::Path;
use tempfile::TempDir;

/// Runs `body` on a fresh file system of this kind, seen by this thread and those it starts only.
fn on_mounted(kind: &'static str, options: &'static str, body: impl Fn(&Path) + Send + Sync) {
    let temporary = TempDir::new().unwrap();
    let path = temporary.path();
    let ran = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread, which ends with the test, loses its view of the others' mounts.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            let options = std::ffi::CString::new(options).unwrap();
            mount(kind, path, kind, MountFlags::empty(), &*options).unwrap();
            body(path);
            Ok::<_, rustix::io::Errno>(())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if let Err(error) = ran {
        rig::skip(format!("no mount namespace here: {error}"));
    }
}

/// Writes until there is no room; how much there was.
fn fill(rig: &mut Rig, file: DiskFile) -> u64 {
    for n in 0..1000 {
        let data = rig.frames.copy_of(&pattern(16_384, n)).unwrap();
        match rig.run(DiskOp::Write { file, offset: n * 16_384, data, durable: true }) {
            Ok(DiskReply::Done) => {}
            Err(DiskError::NoSpace) => return n * 16_384,
            other => panic!("{other:?}"),
        }
    }
    panic!("a small file system takes 16 MB");
}

#[test]
fn a_full_disk_says_so_and_what_was_acknowledged_stays() {
    each_engine(|engine| {
        on_mounted("tmpfs", "size=1m", |path| {
            let mut rig = Rig::open(&DiskConfig::new(path), engine);
            let file = DiskFile::Object(object(1));
            let bytes = fill(&mut rig, file);
            assert!(bytes > 500_000);
            for n in 0..bytes / 16_384 {
                let wanted = pattern(16_384, n);
                assert_eq!(rig.read(file, n * 16_384, 16_384).unwrap(), wanted);
            }
            rig.done(DiskOp::Remove { file });
            assert_eq!(fill(&mut rig, DiskFile::Object(object(2))), bytes);
        });
    });
}

#[test]
fn a_file_system_without_direct_transfers_serves_all_the_same() {
    each_engine(|engine| {
        on_mounted("ramfs", "", |path| {
            let mut rig = Rig::open(&DiskConfig::new(path), engine);
            let file = DiskFile::Object(object(1));
            rig.write(file, 0, &pattern(65_536, 1), true);
            assert_eq!(rig.read(file, 4096, 8192).unwrap(), pattern(65_536, 1)[4096..12_288]);
        });
    });
}

#[test]
fn a_read_only_disk_is_refused_by_name() {
    on_mounted("tmpfs", "size=1m", |path| {
        mount_remount(path, MountFlags::RDONLY, "").unwrap();
        match Disks::open(&[DiskConfig::new(path)], Engine::Threads).err() {
            Some(DisksError::Open(OpenError::ReadOnly(_))) => {}
            other => panic!("{other:?}"),
        }
        let error = load(path, StoreId::Names).unwrap_err().to_string();
        assert!(error.contains("read-only"), "{error}");
    });
}

#[test]
fn a_disk_that_turns_read_only_says_so() {
    each_engine(|engine| {
        on_mounted("tmpfs", "size=1m", |path| {
            let mut rig = Rig::open(&DiskConfig::new(path), engine);
            mount_remount(path, MountFlags::RDONLY, "").unwrap();
            let data = rig.frames.copy_of(b"x").unwrap();
            let file = DiskFile::Object(object(1));
            let result = rig.run(DiskOp::Write { file, offset: 0, data, durable: false });
            assert_eq!(result.unwrap_err(), DiskError::ReadOnly);
            assert_eq!(rig.run(DiskOp::Remove { file }).unwrap_err(), DiskError::ReadOnly);
        });
    });
}

fn append(stores: &mut Stores, bytes: Vec<u8>) -> Result<(), MetaError> {
    let op = MetaOp::Append { log: 1, bytes };
    stores.start(MetaRequest { ticket: Ticket(1), store: StoreId::Names, op });
    let MetaDone { result, .. } = stores.next_done().expect("appends are done at once");
    result
}

#[test]
fn a_log_on_a_full_disk_holds_whole_records_only() {
    on_mounted("tmpfs", "size=1m", |path| {
        drop(load(path, StoreId::Names).unwrap());
        let mut stores = Stores::new([(StoreId::Names, path.to_owned())]).unwrap();
        let mut records = 0;
        let error = loop {
            match append(&mut stores, vec![records as u8; 50_000]) {
                Ok(()) => records += 1,
                Err(error) => break error,
            }
        };
        assert!(error.full && error.reason.contains("the disk is full"), "{error:?}");
        append(&mut stores, vec![255; 100]).expect("a small record still fits");
        let logs = load(path, StoreId::Names).unwrap().logs;
        assert_eq!(logs[0].1.len(), records * 50_000 + 100);
        assert!(logs[0].1.ends_with(&[255; 100]));
    });
}

/// A change that makes room is written although there is none, and the disk is told to be low until there is.
#[test]
fn a_full_disk_has_a_reserve_for_the_log() {
    on_mounted("tmpfs", "size=4m", |path| {
        drop(load(path, StoreId::Names).unwrap());
        let mut stores = Stores::new([(StoreId::Names, path.to_owned())]).unwrap();
        append(&mut stores, vec![1; 100]).unwrap();
        let filler = path.join("filler");
        let _ = std::fs::write(&filler, vec![1; 8 << 20]);
        let done = |stores: &mut Stores, op: MetaOp| {
            stores.start(MetaRequest { ticket: Ticket(1), store: StoreId::Names, op });
            stores.next_done().expect("done at once")
        };
        for _ in 0..10 {
            let found = done(&mut stores, MetaOp::Append { log: 1, bytes: vec![2; 1000] });
            assert_eq!(found.result, Ok(()));
        }
        assert_eq!(done(&mut stores, MetaOp::Room).room, MetaRoom::Low);
        // A start needs none of it either.
        drop(stores);
        let loaded = load(path, StoreId::Names).unwrap();
        assert_eq!(loaded.logs[0].1.len(), 100 + 10 * 1000);
        drop(loaded);
        let mut stores = Stores::new([(StoreId::Names, path.to_owned())]).unwrap();
        let small = || MetaOp::Append { log: 1, bytes: vec![3; 100] };
        assert_eq!(done(&mut stores, small()).room, MetaRoom::Low);
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(done(&mut stores, MetaOp::Room).room, MetaRoom::Plenty);
        assert_eq!(done(&mut stores, small()).room, MetaRoom::Plenty);
        // Long logs wait for the checkpoint first: it must find room also when others take what is free.
        let large = MetaOp::Append { log: 1, bytes: vec![3; 50_000] };
        assert_eq!(done(&mut stores, large).room, MetaRoom::Scarce);
        // Logs of the time before count too.
        drop(stores);
        drop(load(path, StoreId::Names).unwrap());
        let mut stores = Stores::new([(StoreId::Names, path.to_owned())]).unwrap();
        let next = |log| MetaOp::Append { log, bytes: vec![3; 100] };
        assert_eq!(done(&mut stores, next(2)).room, MetaRoom::Scarce);
        stores.start(MetaRequest {
            ticket: Ticket(1),
            store: StoreId::Names,
            op: MetaOp::DropLog { log: 1 },
        });
        while stores.next_done().is_none() {
            stores.turn();
        }
        assert_eq!(done(&mut stores, next(2)).room, MetaRoom::Plenty);
    });
}

/// Turns until an operation has come to its end.
fn until_done(stores: &mut Stores) -> MetaDone {
    loop {
        stores.turn();
        if let Some(done) = stores.next_done() {
            break done;
        }
        std::thread::yield_now();
    }
}

/// A log that was laid out has its room already; the one that is to be next gives its room back.
#[test]
fn a_full_disk_takes_the_spare_log_and_none_of_the_one_in_use() {
    on_mounted("tmpfs", "size=160m", |path| {
        drop(load(path, StoreId::Names).unwrap());
        let mut stores = Stores::new([(StoreId::Names, path.to_owned())]).unwrap();
        let spare = path.join("names.log.spare");
        let done = |stores: &mut Stores, op| {
            stores.start(MetaRequest { ticket: Ticket(1), store: StoreId::Names, op });
            until_done(stores)
        };
        let busy = |stores: &mut Stores, log| {
            for _ in 0..10 {
                let op = MetaOp::Append { log, bytes: vec![log as u8; 1000] };
                assert_eq!(done(stores, op).result, Ok(()));
                assert_eq!(done(stores, MetaOp::Sync { log }).result, Ok(()));
            }
            while !stores.is_idle() {
                stores.turn();
                std::thread::yield_now();
            }
        };
        busy(&mut stores, 1);
        if !spare.exists() {
            return rig::skip("no files past the host's cache here");
        }
        busy(&mut stores, 2);
        assert!(spare.exists());
        let filler = path.join("filler");
        let _ = std::fs::write(&filler, vec![1; 200 << 20]);
        busy(&mut stores, 2);
        assert!(spare.exists() && done(&mut stores, MetaOp::Room).room == MetaRoom::Plenty);
        let op = MetaOp::Append { log: 1, bytes: vec![1; 10_000] };
        assert_eq!(done(&mut stores, op).result, Ok(()));
        assert_eq!(done(&mut stores, MetaOp::Room).room, MetaRoom::Low);
        assert!(!spare.exists());
        let logs = load(path, StoreId::Names).unwrap().logs;
        assert_eq!(logs[1].1.len(), 1 << 20);
        assert!(logs[1].1[..20_000] == [2; 20_000] && logs[1].1[20_000..].iter().all(|b| *b == 0));
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(done(&mut stores, MetaOp::Room).room, MetaRoom::Plenty);
    });
}

struct NoWork;

impl MetaWork for NoWork {
    fn run(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// Also without a change of names in between: what was refused is tried again.
#[test]
fn the_end_of_a_checkpoint_makes_the_reserve_again() {
    on_mounted("tmpfs", "size=4m", |path| {
        drop(load(path, StoreId::Names).unwrap());
        std::fs::remove_file(path.join("names.reserve")).unwrap();
        let filler = path.join("filler");
        let _ = std::fs::write(&filler, vec![1; 8 << 20]);
        let mut stores = Stores::new([(StoreId::Names, path.to_owned())]).unwrap();
        let mut checkpoint = || {
            let op = MetaOp::Checkpoint(Box::new(NoWork));
            stores.start(MetaRequest { ticket: Ticket(1), store: StoreId::Names, op });
            until_done(&mut stores)
        };
        assert_eq!(checkpoint().room, MetaRoom::Low);
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(checkpoint().room, MetaRoom::Plenty);
    });
}
