//! Imports over what ends an importer or loses its cache: a kill, a disk, damage.

use crate::common::{Cluster, json_lines, pattern, program, said, soaks, text, trapeze};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trapeze::ask::ask_once;
use trapeze::children::Process;
use trapeze::client::Reach;
use trapeze::embedded::{Embedded, NfsServer};
use trapeze::local::Shape;
use trapeze::nfs::NfsOptions;

const PATIENCE: Duration = Duration::from_secs(120);
const BYTES: usize = (6 << 20) + 4_321;

/// A cluster with a file, which is exported.
struct Origin {
    cluster: Embedded,
    _server: NfsServer,
    source: String,
    dir: TempDir,
}

impl Origin {
    fn start() -> Origin {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Embedded::start(dir.path(), 1).unwrap();
        let exports = vec!["/:127.0.0.1(rw,no_root_squash)".to_string()];
        let options = NfsOptions { exports, ..NfsOptions::default() };
        let bound = options.plan("127.0.0.1:0").unwrap().bind().unwrap();
        let source = format!("nfs://{}/", bound.address());
        let server = cluster.serve_nfs(bound).unwrap();
        let origin = Origin { cluster, _server: server, source, dir };
        origin.write("file", &pattern(1, BYTES));
        origin
    }

    fn write(&self, name: &str, data: &[u8]) {
        let (mut volume, path) = (self.cluster.volume().unwrap(), format!("/{name}"));
        volume.write_file(Path::new(&path), 0o644, &mut &data[..], &mut |_| ()).unwrap();
        volume.close().unwrap();
    }

    /// READs so far.
    fn reads(&self) -> u64 {
        let cluster = self.dir.path().display().to_string();
        let told = ask_once(&Reach { cluster, key: None, insecure: false }).unwrap();
        let servers = told.iter().filter_map(|told| told.report()?.nfs.as_ref());
        let all = servers.flat_map(|nfs| &nfs.procedures);
        all.filter(|it| it.name == "READ").map(|it| it.calls).sum()
    }
}

/// Takes so many bytes and no more.
struct First {
    left: usize,
}

impl Write for First {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(self.left);
        self.left -= taken;
        if taken == 0 { Err(io::Error::other("enough")) } else { Ok(taken) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A cluster of processes that imports.
struct Cache {
    cluster: Cluster,
    importer: Option<Process>,
    incarnation: u32,
    source: String,
}

impl Cache {
    fn start(origin: &Origin, shape: &Shape) -> Cache {
        let cluster = Cluster::shaped(shape);
        let source = origin.source.clone();
        let mut cache = Cache { cluster, importer: None, incarnation: 0, source };
        cache.import();
        cache
    }

    fn import(&mut self) {
        self.incarnation += 1;
        let (target, source) = (self.cluster.processes.target(), self.source.clone());
        let arguments = ["import", &source, "/imported", "-c", &target, "--write", "through"];
        let log = self.cluster.beside(&format!("importer{}.log", self.incarnation));
        let arguments = arguments.map(str::to_string);
        let started = Process::start_program(program(), "importer", &arguments, &log);
        self.importer = Some(started.unwrap());
    }

    /// kill -9, and another one.
    fn restart(&mut self) {
        self.importer.take().unwrap().kill().unwrap();
        self.import();
    }

    /// The file's bytes, or the error that a reader is told.
    fn read(&self) -> Result<Vec<u8>, String> {
        self.read_named("file")
    }

    fn read_named(&self, name: &str) -> Result<Vec<u8>, String> {
        let path = format!("/imported/{name}");
        let done = trapeze(&["cat", "-c", &self.cluster.processes.target(), &path]);
        if done.status.success() { Ok(done.stdout) } else { Err(said(&done)) }
    }

    /// Reads the beginning of the file and goes away.
    fn read_first(&self, bytes: usize) {
        let cluster = self.cluster.processes.target();
        let reach = Reach { cluster, key: None, insecure: false };
        let mut volume = reach.volume("reader").unwrap();
        let mut first = First { left: bytes };
        let read = volume.read_file(Path::new("/imported/file"), &mut first, &mut |_| ());
        assert!(read.is_err() && first.left == 0);
        volume.close().unwrap();
    }

    /// Changes some bytes of the largest object of the first server.
    fn damage(&mut self, at: usize, bytes: usize) {
        self.without(1, |dir| {
            let object = largest(&dir.join("disk0/objects"));
            let mut data = fs::read(&object).unwrap();
            data[at..at + bytes].iter_mut().for_each(|byte| *byte ^= 0x55);
            fs::write(&object, data).unwrap();
        });
    }

    /// Stops a server, changes its directory and starts it.
    fn without(&mut self, server: usize, change: impl FnOnce(&Path)) {
        let dir = self.cluster.beside(&format!("cluster/io{server}"));
        self.cluster.processes.take_server(server).unwrap().stop().unwrap();
        change(&dir);
        self.cluster.processes.start_server(server).unwrap();
    }
}

/// Repeats until `done`.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(200));
    }
}

const PIECES: u64 = (BYTES as u64).div_ceil(1 << 20);

#[test]
fn pieces_outlive_an_importer_that_is_killed() {
    let origin = Origin::start();
    let mut cache = Cache::start(&origin, &Shape::of(2));
    cache.read_first(3 << 20);
    let before = origin.reads();
    assert!((3..PIECES).contains(&before), "{before} of {PIECES} pieces");
    cache.restart();
    assert!(cache.read().unwrap() == pattern(1, BYTES));
    let all = origin.reads();
    // one was on its way, perhaps
    assert!((PIECES..=PIECES + 1).contains(&all), "{all} READs of {PIECES} pieces");
    cache.restart();
    assert!(cache.read().unwrap() == pattern(1, BYTES));
    assert_eq!(origin.reads(), all, "all of it was there");
    // another version, while no importer runs
    cache.importer.take().unwrap().kill().unwrap();
    origin.write("file", &pattern(2, BYTES));
    cache.import();
    until("the new bytes are read", || cache.read().unwrap() == pattern(2, BYTES));
    assert_eq!(origin.reads(), all + PIECES, "no piece of the old version was used");
}

/// A server without its disk serves the others; what was on it comes from the origin.
#[test]
fn pieces_on_a_lost_disk_are_fetched_again() {
    let origin = Origin::start();
    let mut cache = Cache::start(&origin, &Shape { stores: 2, ..Shape::of(2) });
    assert!(cache.read().unwrap() == pattern(1, BYTES));
    assert_eq!(origin.reads(), PIECES);
    let away = cache.cluster.beside("away");
    cache.without(2, |dir| fs::rename(dir.join("disk1"), &away).unwrap());
    assert!(cache.read().unwrap() == pattern(1, BYTES));
    assert_eq!(origin.reads(), 2 * PIECES);
    assert!(cache.read().unwrap() == pattern(1, BYTES));
    assert_eq!(origin.reads(), 2 * PIECES, "they are on other disks now");
    // what is written through is cached there too
    let (target, local) = (cache.cluster.processes.target(), cache.cluster.beside("local"));
    fs::write(&local, pattern(3, BYTES)).unwrap();
    let copied = trapeze(&["cp", "-c", &target, text(&local), ":/imported/file"]);
    assert!(copied.status.success(), "{}", said(&copied));
    assert!(cache.read().unwrap() == pattern(3, BYTES));
}

#[test]
fn pieces_on_a_lost_machine_are_fetched_again() {
    let origin = Origin::start();
    let mut cache = Cache::start(&origin, &Shape { stores: 2, ..Shape::of(2) });
    assert!(cache.read().unwrap() == pattern(1, BYTES));
    let target = cache.cluster.processes.target();
    cache.cluster.processes.kill_server(2).unwrap();
    until("io2 is declared gone", || trapeze(&["forget", "-c", &target, "io2"]).status.success());
    until("all of it is read", || cache.read().is_ok_and(|data| data == pattern(1, BYTES)));
    let reads = origin.reads();
    assert!(cache.read().unwrap() == pattern(1, BYTES));
    assert_eq!(origin.reads(), reads);
}

#[test]
fn pieces_that_are_damaged_are_fetched_again() {
    let origin = Origin::start();
    let mut cache = Cache::start(&origin, &Shape::of(2));
    // data, checksums, the header: of one file after the other, the largest of all
    for (round, (at, bytes)) in [(250_000, 1), (8_192, 4_096), (0, 8_192)].into_iter().enumerate() {
        let (name, data) = (format!("file{round}"), pattern(1, BYTES + (round + 1 << 21)));
        let pieces = data.len().div_ceil(1 << 20) as u64;
        origin.write(&name, &data);
        let begun = origin.reads();
        until("the new name is shown", || cache.read_named(&name).is_ok_and(|read| read == data));
        assert_eq!(origin.reads(), begun + pieces);
        cache.damage(at, bytes);
        assert!(cache.read_named(&name).unwrap() == data);
        assert_eq!(origin.reads(), begun + 2 * pieces, "after damage at {at}");
        let target = cache.cluster.processes.target();
        let rows = json_lines(&trapeze(&["status", "--json", "-c", &target]));
        let io1 = rows.iter().find(|row| row["name"] == "io1").unwrap();
        assert_eq!(io1["report"]["io"]["damaged_objects"], 0, "{io1}");
        if soaks() {
            cache.damage(at, bytes);
            // soon after the last time it is an error
            until("it is fetched a third time", || match cache.read_named(&name) {
                Ok(read) => read == data || panic!("other bytes"),
                Err(_) => false,
            });
            assert_eq!(origin.reads(), begun + 3 * pieces, "after more damage at {at}");
        }
    }
}

/// The largest file below a directory.
fn largest(dir: &Path) -> PathBuf {
    let (mut dirs, mut files) = (vec![dir.to_path_buf()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}
