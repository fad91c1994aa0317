//! nfs-ganesha as the origin.

use super::writes::{writable, write};
use super::*;
use rig::ganesha::{Ganesha, is_apart};
use std::fs;

fn source(ganesha: &Ganesha) -> Source {
    Source::parse(&format!("nfs://127.0.0.1{}", ganesha.export().display())).unwrap()
}

#[test]
fn an_import_of_nfs_ganesha_is_written_through() {
    if !is_apart("imports::ganesha::an_import_of_nfs_ganesha_is_written_through") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ganesha = Ganesha::start(dir.path());
    let cache = Cache::start(writable(plan(source(&ganesha))));
    let (mut ours, export) = (cache.volume(), ganesha.export());
    let data = pattern((2 << 20) + 1_000, 1);
    for data in [&data[..], &data[..1_000_000], b"short"] {
        write(&mut ours, &at("file"), data).unwrap();
        assert!(fs::read(export.join("file")).unwrap() == data);
        assert!(read(&mut ours, "file").unwrap() == data);
    }
    ours.make_directory(Path::new(&at("dir")), 0o750).unwrap();
    ours.symlink(Path::new(&at("dir/link")), b"file").unwrap();
    ours.rename(Path::new(&at("file")), Path::new(&at("dir/file"))).unwrap();
    assert_eq!(fs::read(export.join("dir/link")).unwrap(), b"short");
    assert_eq!(names(&mut ours, "dir"), ["file", "link"]);
    assert_eq!(errno(ours.remove(Path::new(&at("dir")))), Errno::ENOTEMPTY);
    fs::write(export.join("dir/file"), b"theirs").unwrap();
    until("theirs is read", || read(&mut ours, "dir/file").unwrap() == b"theirs");
    ours.remove(Path::new(&at("dir/file"))).unwrap();
    ours.remove(Path::new(&at("dir/link"))).unwrap();
    ours.remove(Path::new(&at("dir"))).unwrap();
    assert_eq!(fs::read_dir(export).unwrap().count(), 0);
}

#[test]
fn no_acknowledged_write_is_lost_when_nfs_ganesha_is_killed() {
    if !is_apart("imports::ganesha::no_acknowledged_write_is_lost_when_nfs_ganesha_is_killed") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut ganesha = Ganesha::start(dir.path());
    let cache = Cache::start(writable(plan(source(&ganesha))));
    let export = ganesha.export();
    let acknowledged = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut ours = cache.volume();
            let written = (0..60).filter(|file| {
                write(&mut ours, &at(&format!("{file}")), &pattern(200_000 + file, 5)).is_ok()
            });
            written.collect::<Vec<_>>()
        });
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(200));
            ganesha.kill();
            ganesha.serve();
        }
        writer.join().unwrap()
    });
    assert!(!acknowledged.is_empty());
    for file in acknowledged {
        assert!(fs::read(export.join(file.to_string())).unwrap() == pattern(200_000 + file, 5));
    }
}
