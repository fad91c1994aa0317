//! The disk device beside plain system calls on the same files, in turns. As a test it moves little and asserts nothing
//! about time; `TRAPEZE_BENCH=1 cargo test --release -p live --test speed -- --nocapture --test-threads 1` measures.
//! `TRAPEZE_BENCH_DIR` chooses the disk.

mod disk_rig;

use disk_rig::{Rig, each_engine, object};
use endpoint::FrameMut;
use live::clock;
use live::disk::{DiskConfig, Engine};
use node::rings::{DiskFile, DiskOp, DiskReply};
use rustix::fs::{Mode, OFlags};
use rustix::io::{IoSlice, ReadWriteFlags};
use std::os::fd::OwnedFd;
use std::path::Path;
use tempfile::TempDir;

/// Bytes of the file that is read.
fn file_bytes() -> u64 {
    if is_measured() { 1 << 30 } else { 16 << 20 }
}

fn is_measured() -> bool {
    std::env::var_os("TRAPEZE_BENCH").is_some()
}

fn count(measured: usize) -> usize {
    if is_measured() { measured } else { measured / 100 }
}

fn directory() -> TempDir {
    match std::env::var_os("TRAPEZE_BENCH_DIR") {
        Some(path) => TempDir::new_in(path).unwrap(),
        None => TempDir::new().unwrap(),
    }
}

/// One shape of load: `count` operations of `bytes` bytes with `depth` under way.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    count: usize,
    bytes: usize,
    depth: usize,
    random: bool,
}

impl Load {
    fn offset(&self, n: usize) -> u64 {
        let places = file_bytes() / self.bytes as u64;
        let n = n as u64;
        let place = if self.random { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 } else { n };
        place % places * self.bytes as u64
    }

    fn report(&self, engine: Engine, device: f64, raw: f64) {
        let rate = |seconds: f64| self.count as f64 / seconds;
        let megabytes = |seconds: f64| rate(seconds) * self.bytes as f64 / 1e6;
        println!(
            "{:32} {engine:8?} depth {:2}: {:8.0}/s {:7.0} MB/s {:7.1} us, raw {:8.0}/s {:7.0} MB/s, ratio {:.2}",
            self.name,
            self.depth,
            rate(device),
            megabytes(device),
            1e6 * device * self.depth as f64 / self.count as f64,
            rate(raw),
            megabytes(raw),
            raw / device,
        );
    }
}

const FILE: DiskFile = DiskFile::Label;
const LOG: DiskFile = DiskFile::Log(1);

fn seconds(work: impl FnOnce()) -> f64 {
    let start = clock::now();
    work();
    clock::now().since(start).as_secs_f64()
}

/// Keeps `depth` reads under way as a node would, looking again and again.
fn read_through_device(rig: &mut Rig, load: Load) {
    let mut frames: Vec<FrameMut> =
        (0..load.depth).map(|_| rig.frames.alloc(load.bytes).unwrap()).collect();
    let (mut started, mut finished) = (0, 0);
    while finished < load.count {
        while started < load.count {
            let Some(into) = frames.pop() else { break };
            rig.start(DiskOp::Read { file: FILE, offset: load.offset(started), into });
            started += 1;
        }
        let done = rig.wait();
        let Ok(DiskReply::Read { into, bytes }) = done.result else { panic!("{done:?}") };
        assert_eq!(bytes, load.bytes);
        frames.push(into);
        finished += 1;
    }
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT, Mode::RUSR | Mode::WUSR)
        .unwrap()
}

/// The same reads by one thread each, as many as the depth.
fn read_raw(path: &Path, load: Load) {
    std::thread::scope(|scope| {
        for thread in 0..load.depth {
            scope.spawn(move || {
                let frames = endpoint::Frames::new(endpoint::HeapRegion::new(256));
                let mut into = frames.alloc(load.bytes).unwrap();
                let file = open(path);
                for n in (thread..load.count).step_by(load.depth) {
                    let bytes = rustix::io::pread(&file, &mut into[..], load.offset(n)).unwrap();
                    assert_eq!(bytes, load.bytes);
                }
            });
        }
    });
}

#[test]
fn bench_reads() {
    let loads = [
        Load {
            name: "random 8 KiB direct",
            count: count(4000),
            bytes: 8192,
            depth: 1,
            random: true,
        },
        Load {
            name: "random 8 KiB direct",
            count: count(20_000),
            bytes: 8192,
            depth: 16,
            random: true,
        },
        Load {
            name: "sequential 1 MiB direct",
            count: count(1000),
            bytes: 1 << 20,
            depth: 1,
            random: false,
        },
        Load {
            name: "sequential 1 MiB direct",
            count: count(1000),
            bytes: 1 << 20,
            depth: 4,
            random: false,
        },
    ];
    let temporary = directory();
    let path = temporary.path().join("label");
    each_engine(|engine| {
        let mut rig = Rig::open(&DiskConfig::new(temporary.path()), engine);
        let chunk = rig.frames.copy_of(&disk_rig::pattern(1 << 20, 1)).unwrap();
        for n in 0..file_bytes() >> 20 {
            let (offset, data) = (n << 20, chunk.clone());
            rig.done(DiskOp::Write { file: FILE, offset, data, durable: false });
        }
        rig.done(DiskOp::Sync { file: FILE });
        for load in loads {
            let (mut device, mut raw) = (0.0, 0.0);
            for _ in 0..3 {
                device += seconds(|| read_through_device(&mut rig, load));
                raw += seconds(|| read_raw(&path, load));
            }
            load.report(engine, device / 3.0, raw / 3.0);
        }
    });
}

#[test]
fn bench_durable_appends() {
    let load = Load {
        name: "4 KiB durable append",
        count: count(2000),
        bytes: 4096,
        depth: 1,
        random: false,
    };
    each_engine(|engine| {
        for prepared in [false, true] {
            let temporary = directory();
            let mut rig = Rig::open(&DiskConfig::new(temporary.path()), engine);
            let data = rig.frames.copy_of(&disk_rig::pattern(4096, 1)).unwrap();
            let (path, other) = (temporary.path().join("log/1"), temporary.path().join("raw"));
            if prepared {
                let zeros = vec![0; load.count * 4096];
                for path in [&path, &other] {
                    std::fs::write(path, &zeros).unwrap();
                    std::fs::File::open(path).unwrap().sync_all().unwrap();
                }
            }
            let device = seconds(|| {
                for n in 0..load.count {
                    let (offset, data) = (load.offset(n), data.clone());
                    rig.done(DiskOp::Write { file: LOG, offset, data, durable: true });
                }
            });
            let file = open(&other);
            let raw = seconds(|| {
                for n in 0..load.count {
                    let data = [IoSlice::new(&data)];
                    let flags = ReadWriteFlags::DSYNC;
                    rustix::io::pwritev2(&file, &data, load.offset(n), flags).unwrap();
                }
            });
            let name = if prepared { "4 KiB durable overwrite" } else { load.name };
            Load { name, ..load }.report(engine, device, raw);
        }
    });
}

#[test]
fn bench_new_small_objects() {
    let load =
        Load { name: "new 4 KiB object", count: count(2000), bytes: 4096, depth: 1, random: false };
    each_engine(|engine| {
        let temporary = directory();
        let mut rig = Rig::open(&DiskConfig::new(temporary.path()), engine);
        let data = rig.frames.copy_of(&disk_rig::pattern(4096, 1)).unwrap();
        let device = seconds(|| {
            for n in 0..load.count as u64 {
                let (file, data) = (DiskFile::Object(object(n)), data.clone());
                rig.done(DiskOp::Write { file, offset: 0, data, durable: false });
            }
        });
        let raw = seconds(|| {
            for n in 0..load.count {
                let file = open(&temporary.path().join(format!("raw{n}")));
                rustix::io::pwrite(&file, &data, 0).unwrap();
            }
        });
        load.report(engine, device, raw);
    });
}
