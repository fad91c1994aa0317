//! Small files, a tree, and small reads and writes through a mount.

use super::compare::{Compare, Op, Unit};
use super::pass::{Meter, Pass};
use super::place::Target;
use crate::arguments;
use crate::trees::{self, FoundFiles};
use live::baseline::Blocks;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FOLDERS: usize = 20;
const FILE_BYTES: usize = 4096;
/// The tree that is copied: the first so many files of the first of these directories.
const TREE_FILES: usize = 4000;
const TREE_BYTES_MAX: u64 = 256 << 20;
const TREES: [&str; 3] = ["/usr/include", "/usr/share", "/etc"];
const BLOCK_BYTES: usize = 8192;
/// Blocks of the file for random reads: each is read once, so none is in the client's cache.
const BLOCKS: u64 = 32 * 1024;
const READERS: u64 = 16;
const OVERWRITES: usize = 1000;

fn path_of(root: &Path, number: usize) -> PathBuf {
    root.join(format!("small/{}/{number}", number % FOLDERS))
}

fn create(root: &Path, count: usize) -> io::Result<Pass> {
    let content = [b'x'; FILE_BYTES];
    for folder in 0..FOLDERS {
        fs::create_dir_all(root.join(format!("small/{folder}")))?;
    }
    each(root, count, |path| File::create(path)?.write_all(&content).map(|()| FILE_BYTES as u64))
}

fn each(root: &Path, count: usize, op: impl Fn(&Path) -> io::Result<u64>) -> io::Result<Pass> {
    let mut meter = Meter::start();
    for number in 0..count {
        let path = path_of(root, number);
        meter.time(|| op(&path))?;
    }
    Ok(meter.end())
}

/// Names per second: an op is an entry.
fn list(root: &Path) -> io::Result<Pass> {
    let mut meter = Meter::start();
    for folder in 0..FOLDERS {
        let mut entries = fs::read_dir(root.join(format!("small/{folder}")))?.peekable();
        while entries.peek().is_some() {
            meter.time(|| entries.next().expect("it was seen").map(|_| 0))?;
        }
    }
    Ok(meter.end())
}

fn read_file(path: &Path) -> io::Result<u64> {
    let mut content = [0; FILE_BYTES];
    File::open(path)?.read_exact(&mut content).map(|()| FILE_BYTES as u64)
}

fn copy_tree(source: &Path, root: &Path, found: &FoundFiles) -> io::Result<Pass> {
    let mut meter = Meter::start();
    meter.time(|| {
        trees::copy(source, &root.join("tree"), found, &mut |_| {})?;
        rustix::fs::sync();
        Ok(found.bytes)
    })?;
    Ok(meter.end())
}

fn compare_tree(source: &Path, root: &Path, found: &FoundFiles) -> io::Result<Pass> {
    let mut meter = Meter::start();
    meter.time(|| match trees::compare(source, &root.join("tree"), found, &mut |_| {})? {
        None => Ok(found.bytes),
        Some(difference) => Err(io::Error::other(difference.to_string())),
    })?;
    let pass = meter.end();
    fs::remove_dir_all(root.join("tree"))?;
    Ok(pass)
}

fn blocks_path(root: &Path) -> PathBuf {
    root.join("blocks")
}

fn write_blocks(root: &Path) -> io::Result<()> {
    let content = [7; BLOCK_BYTES * 16];
    let mut file = File::create(blocks_path(root))?;
    (0..BLOCKS / 16).try_for_each(|_| file.write_all(&content))?;
    file.sync_all()
}

/// Reads blocks in an order that no read-ahead guesses, each at most once; every thread has a part of them.
fn read_blocks(root: &Path, threads: u64, count: u64) -> io::Result<Pass> {
    let path = blocks_path(root);
    let mut meter = Meter::start();
    let readers: Vec<_> = (0..threads)
        .map(|thread| {
            let path = path.clone();
            std::thread::spawn(move || -> io::Result<Meter> {
                let (file, mut content) = (File::open(path)?, [0; BLOCK_BYTES]);
                let mut meter = Meter::start();
                for number in (thread..count).step_by(threads as usize) {
                    // An odd factor visits every block of a power of two once.
                    let block = number.wrapping_mul(0x9e37_79b1) % BLOCKS;
                    let offset = block * BLOCK_BYTES as u64;
                    meter.time(|| {
                        file.read_exact_at(&mut content, offset).map(|()| BLOCK_BYTES as u64)
                    })?;
                }
                Ok(meter)
            })
        })
        .collect();
    for reader in readers {
        meter.add(&reader.join().expect("no panic")?);
    }
    Ok(meter.end())
}

fn overwrite(root: &Path) -> io::Result<Pass> {
    let (content, mut blocks) = ([9; BLOCK_BYTES], Blocks::new());
    let file = File::options().write(true).open(blocks_path(root))?;
    let mut meter = Meter::start();
    for _ in 0..OVERWRITES {
        let offset = blocks.pick() * BLOCK_BYTES as u64;
        meter.time(|| {
            file.write_all_at(&content, offset)?;
            file.sync_all().map(|()| BLOCK_BYTES as u64)
        })?;
    }
    let pass = meter.end();
    fs::remove_file(blocks_path(root))?;
    Ok(pass)
}

/// After the client has forgotten everything; servers keep what they have.
fn cold(name: &'static str, work: impl Fn(&Path) -> io::Result<Pass> + 'static) -> Op {
    Op::new(name, Unit::Ops, move |place| work(place.path()))
        .after(|place| place.forget_client(), 0)
}

fn small(count: usize) -> Vec<Op> {
    vec![
        Op::new("create 4 KiB", Unit::Ops, move |place| create(place.path(), count)),
        cold("stat, client cold", move |root| {
            each(root, count, |path| fs::metadata(path).map(|_| 0))
        }),
        cold("list, client cold", list),
        cold("read 4 KiB, client cold", move |root| each(root, count, read_file)),
        Op::new("delete", Unit::Ops, move |place: &mut Target<'_>| {
            let pass = each(place.path(), count, |path| fs::remove_file(path).map(|()| 0))?;
            fs::remove_dir_all(place.path().join("small"))?;
            Ok(pass)
        }),
    ]
}

fn tree(source: PathBuf, found: FoundFiles) -> Vec<Op> {
    let shared = Rc::new((source, found));
    let compared = shared.clone();
    vec![
        Op::new("copy of a tree + sync", Unit::Whole, move |place| {
            copy_tree(&shared.0, place.path(), &shared.1)
        }),
        Op::new("compare it, client cold", Unit::Whole, move |place| {
            place.forget_client()?;
            compare_tree(&compared.0, place.path(), &compared.1)
        }),
    ]
}

fn blocks() -> Vec<Op> {
    vec![
        Op::new("random 8 KiB reads", Unit::Ops, |place| {
            write_blocks(place.path())?;
            place.forget_client()?;
            read_blocks(place.path(), 1, BLOCKS / 4)
        }),
        cold("the same, 16 threads", |root| read_blocks(root, READERS, BLOCKS / 2)),
        Op::new("8 KiB overwrite + fsync", Unit::Ops, |place| overwrite(place.path())),
    ]
}

/// `trapeze bench files`.
pub fn measure(arguments: &arguments::Files) -> Result<(), Box<dyn std::error::Error>> {
    let source = TREES.iter().map(PathBuf::from).find(|path| path.is_dir());
    let source = source.unwrap_or_else(|| PathBuf::from("."));
    let found = trees::find(&source, TREE_FILES, TREE_BYTES_MAX)?;
    let mut ops = small(arguments.count as usize);
    ops.extend(tree(source, found));
    ops.extend(blocks());
    let compare = Compare {
        name: "files",
        servers: arguments.servers,
        passes: arguments.passes,
        separate: true,
        embedded: false,
        two_copies: arguments.two_copies,
        cpus: arguments.cpu.iter().map(|cpu| cpu.0).collect(),
        json: arguments.json,
        warm_up: None,
    };
    compare.run(&ops)
}
