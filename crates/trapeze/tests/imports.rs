//! Imports of exports of other servers: of a cluster of ours, which counts what is asked of it.

mod ganesha;
mod hostile;
mod listing;
mod scripted;
mod telling;
mod writes;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trapeze::ask::{Told, ask_once};
use trapeze::client::Reach;
use trapeze::embedded::{Embedded, Importer, NfsServer};
use trapeze::import::{Plan, Source};
use trapeze::nfs::NfsOptions;
use trapeze::status::import::Import;
use trapeze::volume::{Volume, VolumeError};
use wire::Errno;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const DIRECTORY: &str = "/imported";

/// A cluster whose volume is exported.
struct Origin {
    cluster: Embedded,
    server: Option<NfsServer>,
    source: Source,
    dir: TempDir,
}

fn serve(cluster: &Embedded, listen: &str) -> (NfsServer, Source) {
    let exports = vec!["/:127.0.0.1(rw,no_root_squash)".to_string()];
    let options = NfsOptions { exports, ..NfsOptions::default() };
    let bound = options.plan(listen).unwrap().bind().unwrap();
    let source = Source::parse(&format!("nfs://{}/", bound.address())).unwrap();
    (cluster.serve_nfs(bound).unwrap(), source)
}

impl Origin {
    fn start() -> Origin {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Embedded::start(dir.path(), 1).unwrap();
        let (server, source) = serve(&cluster, "127.0.0.1:0");
        Origin { cluster, server: Some(server), source, dir }
    }

    fn write(&self, path: &str, data: &[u8]) {
        let mut volume = self.cluster.volume().unwrap();
        volume.write_file(Path::new(path), 0o644, &mut &data[..], &mut |_| ()).unwrap();
        volume.close().unwrap();
    }

    fn all_calls(&self) -> u64 {
        let told = told(&self.dir);
        let servers = told.iter().filter_map(|told| told.report()?.nfs.as_ref());
        servers.flat_map(|nfs| &nfs.procedures).map(|it| it.calls).sum()
    }

    /// Calls of a procedure so far.
    fn calls(&self, procedure: &str) -> u64 {
        let told = told(&self.dir);
        let servers = told.iter().filter_map(|told| told.report()?.nfs.as_ref());
        let procedures = servers.flat_map(|nfs| &nfs.procedures);
        procedures.filter(|it| it.name == procedure).map(|it| it.calls).sum()
    }

    fn plan(&self) -> Plan {
        plan(self.source.clone())
    }
}

fn plan(source: Source) -> Plan {
    Plan {
        source,
        directory: DIRECTORY.into(),
        attributes: Duration::from_secs(2),
        stale_ok: false,
        changes: None,
        space: None,
        user: (0, 0),
        listen: None,
    }
}

/// A cluster that imports.
struct Cache {
    cluster: Embedded,
    importer: Option<Importer>,
    dir: TempDir,
}

impl Cache {
    fn start(plan: Plan) -> Cache {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Embedded::start(dir.path(), 2).unwrap();
        let importer = Some(cluster.import(plan).unwrap());
        Cache { cluster, importer, dir }
    }

    fn volume(&self) -> Volume {
        self.cluster.volume().unwrap()
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let mut volume = self.volume();
        let data = read(&mut volume, path).unwrap();
        volume.close().unwrap();
        data
    }

    /// The importer's report of the origin.
    fn status(&self) -> Import {
        let told = told(&self.dir);
        let mut imports = told.iter().filter_map(|told| told.report()?.import.clone());
        imports.next().expect("an importer")
    }

    fn restart(&mut self, plan: Plan) {
        self.importer.take().unwrap().stop().unwrap();
        self.importer = Some(self.cluster.import(plan).unwrap());
    }
}

fn told(dir: &TempDir) -> Vec<Told> {
    let cluster = dir.path().display().to_string();
    ask_once(&Reach { cluster, key: None, insecure: false }).unwrap()
}

fn at(path: &str) -> String {
    format!("{DIRECTORY}/{path}")
}

fn read(volume: &mut Volume, path: &str) -> Result<Vec<u8>, VolumeError> {
    let mut data = Vec::new();
    volume.read_file(Path::new(&at(path)), &mut data, &mut |_| ())?;
    Ok(data)
}

fn names(volume: &mut Volume, path: &str) -> Vec<String> {
    let listed = volume.list(Path::new(&at(path))).unwrap();
    let names = listed.into_iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
    names.sort();
    names
}

fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    let words = (0..bytes.div_ceil(4) as u32).map(|at| at.wrapping_mul(0x9e37_79b1) ^ seed);
    let mut data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    data.truncate(bytes);
    data
}

/// Repeats until `done`.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn errno<T: std::fmt::Debug>(result: Result<T, VolumeError>) -> Errno {
    match result {
        Err(VolumeError::File { errno, .. }) => errno,
        other => panic!("an error of a file was expected, {other:?} came"),
    }
}

#[test]
fn many_clients_cost_the_origin_one_read_of_each_block() {
    let origin = Origin::start();
    let data = pattern((2 << 20) + 12_345, 1);
    origin.write("/file", &data);
    let cache = Cache::start(origin.plan());
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| cache.read("file"))).collect();
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() == data));
    });
    assert_eq!(origin.calls("READ"), 3, "a READ for each piece of 1 MiB");
    assert!(cache.read("file") == data);
    assert_eq!(origin.calls("READ"), 3);
}

#[test]
fn what_was_read_least_recently_makes_room() {
    let origin = Origin::start();
    let all: Vec<_> = (0..4).map(|file| pattern(1_000_000 + file, file as u32)).collect();
    for (file, data) in all.iter().enumerate() {
        origin.write(&format!("/{file}"), data);
    }
    let limited = Plan { space: Some(3_500_000), ..origin.plan() };
    let mut cache = Cache::start(limited.clone());
    let reread = |cache: &Cache, file: usize| {
        let before = origin.calls("READ");
        assert!(cache.read(&file.to_string()) == all[file]);
        origin.calls("READ") - before
    };
    assert_eq!([0, 1, 2].map(|file| reread(&cache, file)), [1, 1, 1]);
    assert_eq!(reread(&cache, 0), 0, "there is room for three");
    assert_eq!(reread(&cache, 3), 1);
    assert_eq!([0, 3].map(|file| reread(&cache, file)), [0, 0]);
    assert_eq!(reread(&cache, 1), 1, "it has made room");
    assert_eq!([3, 1].map(|file| reread(&cache, file)), [0, 0]);
    // what is there is counted
    cache.restart(Plan { space: Some(1_500_000), ..limited });
    until("only one is left", || reread(&cache, 1) + reread(&cache, 3) == 2);
}

#[test]
fn trees_are_shown_as_they_are() {
    let origin = Origin::start();
    let mut theirs = origin.cluster.volume().unwrap();
    theirs.make_directory(Path::new("/a"), 0o755).unwrap();
    theirs.make_directory(Path::new("/a/b"), 0o750).unwrap();
    theirs.symlink(Path::new("/a/link"), b"b/file").unwrap();
    origin.write("/a/b/file", b"deep");
    origin.write("/empty", b"");
    for at in 0..300 {
        let (path, data) = (format!("/a/{at:03}"), [at as u8; 10]);
        theirs.write_file(Path::new(&path), 0o640, &mut &data[..], &mut |_| ()).unwrap();
    }
    let cache = Cache::start(origin.plan());
    let mut ours = cache.volume();
    assert_eq!(names(&mut ours, ""), ["a", "empty"]);
    assert_eq!(names(&mut ours, "a").len(), 302);
    assert_eq!(read(&mut ours, "a/b/file").unwrap(), b"deep");
    assert_eq!(read(&mut ours, "a/217").unwrap(), [217; 10]);
    assert_eq!(read(&mut ours, "empty").unwrap(), b"");
    assert_eq!(ours.read_link(Path::new(&at("a/link"))).unwrap(), b"b/file");
    for path in ["a", "a/b", "a/b/file", "a/300", "empty"] {
        let of = |volume: &mut Volume, path: &str| {
            let attr = volume.stat(Path::new(path)).ok()?;
            Some((attr.kind, attr.mode, attr.uid, attr.gid, attr.mtime))
        };
        let shown = of(&mut ours, &at(path));
        assert_eq!(shown, of(&mut theirs, &format!("/{path}")), "{path}");
        assert_eq!(shown.is_none(), path == "a/300");
    }
}

#[test]
fn a_change_at_the_origin_is_noticed() {
    let origin = Origin::start();
    let (old, new) = (pattern(1_500_000, 1), pattern(1_200_000, 2));
    origin.write("/file", &old);
    origin.write("/gone", b"soon");
    let cache = Cache::start(origin.plan());
    let mut ours = cache.volume();
    assert!(read(&mut ours, "file").unwrap() == old);
    assert_eq!(names(&mut ours, ""), ["file", "gone"]);
    origin.write("/file", &new);
    until("the new bytes are read", || {
        let data = read(&mut ours, "file").unwrap();
        data == new
    });
    let mut theirs = origin.cluster.volume().unwrap();
    theirs.remove(Path::new("/gone")).unwrap();
    origin.write("/come", b"late");
    until("names are those of the origin", || names(&mut ours, "") == ["come", "file"]);
    assert_eq!(read(&mut ours, "come").unwrap(), b"late");
    until("the old name is gone", || read(&mut ours, "gone").is_err());
    assert_eq!(errno(read(&mut ours, "gone")), Errno::ENOENT);
    theirs.rename(Path::new("/come"), Path::new("/file")).unwrap();
    until("the name is the other file's", || read(&mut ours, "file").unwrap() == b"late");
}

#[test]
fn an_import_is_read_only_and_has_a_border() {
    let origin = Origin::start();
    origin.write("/file", b"bytes");
    let cache = Cache::start(origin.plan());
    let mut ours = cache.volume();
    let (file, outside) = (at("file"), "/outside".to_string());
    let write = ours.write_file(Path::new(&file), 0o644, &mut &b"x"[..], &mut |_| ());
    assert_eq!(errno(write), Errno::EROFS);
    assert_eq!(errno(ours.make_directory(Path::new(&at("d")), 0o755)), Errno::EROFS);
    assert_eq!(errno(ours.remove(Path::new(&file))), Errno::EROFS);
    assert_eq!(errno(ours.rename(Path::new(&file), Path::new(&at("g")))), Errno::EROFS);
    ours.write_file(Path::new(&outside), 0o644, &mut &b"x"[..], &mut |_| ()).unwrap();
    assert_eq!(errno(ours.rename(Path::new(&file), Path::new("/g"))), Errno::EXDEV);
    assert_eq!(errno(ours.rename(Path::new(&outside), Path::new(&at("g")))), Errno::EXDEV);
    assert_eq!(read(&mut ours, "file").unwrap(), b"bytes");
}

#[test]
fn what_is_cached_outlives_the_importer_and_goes_when_the_import_is_removed() {
    let origin = Origin::start();
    let data = pattern(1_100_000, 1);
    origin.write("/file", &data);
    let mut cache = Cache::start(origin.plan());
    assert!(cache.read("file") == data);
    let before = origin.calls("READ");
    cache.restart(origin.plan());
    assert!(cache.read("file") == data);
    assert_eq!(origin.calls("READ"), before, "the pieces were there");
    let mut ours = cache.volume();
    cache.importer.take().unwrap().stop().unwrap();
    cache.cluster.remove_import(Path::new(DIRECTORY)).unwrap();
    assert_eq!(errno(ours.stat(Path::new(DIRECTORY))), Errno::ENOENT);
    assert_eq!(origin.cluster.volume().unwrap().stat(Path::new("/file")).unwrap().size, 1_100_000);
}

#[test]
fn an_origin_that_is_away_is_an_error_unless_stale_bytes_are_welcome() {
    let mut origin = Origin::start();
    origin.write("/file", b"cached");
    origin.write("/other", b"never read");
    let mut cache = Cache::start(origin.plan());
    assert_eq!(cache.read("file"), b"cached");
    let status = cache.status();
    assert_eq!((status.origin, status.read_bytes), (origin.source.to_string(), 6));
    assert!(!status.away && status.calls > 1);
    origin.server.take().unwrap().stop().unwrap();
    let mut ours = cache.volume();
    until("the file is doubted", || read(&mut ours, "file").is_err());
    assert_eq!(errno(read(&mut ours, "file")), Errno::EHOSTDOWN);
    let problem = cache.status().problem().unwrap();
    assert!(problem.starts_with(&format!("{} is away for ", origin.source)), "{problem}");
    let refused = cache.cluster.import(Plan { directory: "/second".into(), ..origin.plan() });
    let text = refused.unwrap_err().to_string();
    assert!(text.starts_with(&origin.source.to_string()), "{text}");
    cache.restart(Plan { stale_ok: true, ..origin.plan() });
    assert_eq!(read(&mut ours, "file").unwrap(), b"cached");
    assert_eq!(errno(read(&mut ours, "other")), Errno::EHOSTDOWN);
    let target = &origin.source.target;
    let address = format!("{}:{}", target.address, target.nfs_port.unwrap());
    let (server, _) = serve(&origin.cluster, &address);
    origin.server = Some(server);
    until("the origin is back", || read(&mut ours, "other").is_ok());
    assert_eq!(read(&mut ours, "other").unwrap(), b"never read");
    assert_eq!(cache.status().problem(), None);
}

#[test]
fn an_import_is_served_to_clients_of_nfs_and_to_mounts() {
    let origin = Origin::start();
    let data = pattern(1_300_000, 1);
    origin.write("/file", &data);
    let cache = Cache::start(origin.plan());
    // another cluster, which reads the import over NFS
    let (_server, source) = serve(&cache.cluster, "127.0.0.1:0");
    let second = Cache::start(plan(source));
    assert!(second.read("imported/file") == data);
    if !Path::new("/dev/fuse").exists() {
        return rig::skip("no /dev/fuse");
    }
    let mount = tempfile::tempdir().unwrap();
    let mounted = second.cluster.mount(mount.path()).unwrap();
    let path = mount.path().join("imported/imported/file");
    assert!(std::fs::read(&path).unwrap() == data);
    assert_eq!(std::fs::write(&path, b"x").unwrap_err().raw_os_error(), Some(30));
    mounted.unmount().unwrap();
}
