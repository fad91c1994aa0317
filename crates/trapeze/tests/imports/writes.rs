//! Changes through an import to its origin.

use super::*;
use node::rings::FileOp;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use trapeze::import::As;

pub fn writable(plan: Plan) -> Plan {
    Plan { changes: Some(As::Caller), ..plan }
}

pub fn write(volume: &mut Volume, path: &str, data: &[u8]) -> Result<(), VolumeError> {
    volume.write_file(Path::new(path), 0o644, &mut &data[..], &mut |_| ()).map(drop)
}

fn read_at(volume: &mut Volume, path: &str) -> Result<Vec<u8>, VolumeError> {
    let mut data = Vec::new();
    volume.read_file(Path::new(path), &mut data, &mut |_| ())?;
    Ok(data)
}

#[test]
fn changes_go_through_to_the_origin_before_they_are_answered() {
    let origin = Origin::start();
    origin.write("/there", b"before");
    let cache = Cache::start(writable(origin.plan()));
    let (mut ours, mut theirs) = (cache.volume(), origin.cluster.volume().unwrap());
    let data = pattern((2 << 20) + 4_321, 1);
    write(&mut ours, &at("new"), &data).unwrap();
    assert!(read_at(&mut theirs, "/new").unwrap() == data);
    assert!(read(&mut ours, "new").unwrap() == data);
    assert_eq!(read(&mut ours, "there").unwrap(), b"before");
    write(&mut ours, &at("there"), b"after").unwrap();
    assert_eq!(read(&mut ours, "there").unwrap(), b"after");
    assert_eq!(read_at(&mut theirs, "/there").unwrap(), b"after");

    ours.make_directory(Path::new(&at("dir")), 0o750).unwrap();
    ours.symlink(Path::new(&at("dir/link")), b"target").unwrap();
    ours.rename(Path::new(&at("new")), Path::new(&at("dir/moved"))).unwrap();
    assert_eq!(theirs.stat(Path::new("/dir")).unwrap().mode & 0o777, 0o750);
    assert_eq!(theirs.read_link(Path::new("/dir/link")).unwrap(), b"target");
    assert!(read_at(&mut theirs, "/dir/moved").unwrap() == data);
    assert!(read(&mut ours, "dir/moved").unwrap() == data);
    assert_eq!(names(&mut ours, ""), ["dir", "there"]);
    assert_eq!(names(&mut ours, "dir"), ["link", "moved"]);

    ours.remove(Path::new(&at("dir/moved"))).unwrap();
    ours.remove(Path::new(&at("dir/link"))).unwrap();
    ours.remove(Path::new(&at("dir"))).unwrap();
    assert_eq!(errno(theirs.stat(Path::new("/dir"))), Errno::ENOENT);
    assert_eq!(names(&mut ours, ""), ["there"]);
}

#[test]
fn errors_of_the_origin_come_through() {
    let origin = Origin::start();
    origin.write("/file", b"bytes");
    let mut theirs = origin.cluster.volume().unwrap();
    theirs.make_directory(Path::new("/dir"), 0o755).unwrap();
    origin.write("/dir/inside", b"");
    let cache = Cache::start(writable(origin.plan()));
    let mut ours = cache.volume();
    let (file, dir, root) = (at("file"), at("dir"), Path::new(DIRECTORY));
    assert_eq!(errno(ours.new_directory(Path::new(&dir), 0o755)), Errno::EEXIST);
    assert_eq!(errno(ours.remove(Path::new(&dir))), Errno::ENOTEMPTY);
    assert_eq!(errno(ours.rename(Path::new(&file), Path::new("/outside"))), Errno::EXDEV);
    let id = ours.stat(Path::new(&file)).unwrap().file;
    let xattr =
        FileOp::SetXattr { file: id, name: b"user.x"[..].into(), value: [].into(), flags: 0 };
    assert_eq!(errno(ours.ask(root, xattr)), Errno::EOPNOTSUPP);
    // the origin does not know it any more, and the importer has not heard of that
    theirs.remove(Path::new("/file")).unwrap();
    assert_eq!(errno(ours.remove(Path::new(&file))), Errno::ENOENT);
    assert_eq!(names(&mut ours, ""), ["dir"]);
}

#[test]
fn a_mount_writes_through() {
    if !Path::new("/dev/fuse").exists() {
        return rig::skip("no /dev/fuse");
    }
    use std::fs;
    use std::io::Write;
    let origin = Origin::start();
    let cache = Cache::start(writable(origin.plan()));
    let mount = tempfile::tempdir().unwrap();
    let mounted = cache.cluster.mount(mount.path()).unwrap();
    let mut theirs = origin.cluster.volume().unwrap();
    let path = |name: &str| mount.path().join("imported").join(name);

    let data = pattern(3 << 20, 7);
    fs::write(path("file"), &data).unwrap();
    assert!(read_at(&mut theirs, "/file").unwrap() == data);
    assert!(fs::read(path("file")).unwrap() == data);
    let mut log = fs::OpenOptions::new().append(true).create(true).open(path("log")).unwrap();
    (0..10).for_each(|line| writeln!(log, "line {line}").unwrap());
    let lines: String = (0..10).map(|line| format!("line {line}\n")).collect();
    assert_eq!(read_at(&mut theirs, "/log").unwrap(), lines.as_bytes());
    assert_eq!(fs::read_to_string(path("log")).unwrap(), lines);

    let file = fs::OpenOptions::new().write(true).open(path("file")).unwrap();
    file.set_len(1_000_000).unwrap();
    file.set_len(1_500_000).unwrap();
    file.sync_all().unwrap();
    let mut cut = data[..1_000_000].to_vec();
    cut.resize(1_500_000, 0);
    assert!(
        read_at(&mut theirs, "/file").unwrap() == cut && fs::read(path("file")).unwrap() == cut
    );
    let fresh = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(path("once"));
    fresh.unwrap().write_all(b"written though it is read only").unwrap();
    assert_eq!(theirs.stat(Path::new("/once")).unwrap().mode & 0o777, 0o444);
    let again = fs::OpenOptions::new().write(true).create_new(true).open(path("once"));
    assert_eq!(again.unwrap_err().raw_os_error(), Some(17));
    fs::set_permissions(path("file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(theirs.stat(Path::new("/file")).unwrap().mode & 0o777, 0o600);
    fs::hard_link(path("log"), path("log2")).unwrap();
    assert_eq!(theirs.stat(Path::new("/log2")).unwrap().links, 2);
    fs::create_dir_all(path("a/b/c")).unwrap();
    fs::rename(path("log"), path("a/b/c/log")).unwrap();
    // one that knows no earlier name of the file
    let mut other = origin.cluster.volume().unwrap();
    assert_eq!(read_at(&mut other, "/a/b/c/log").unwrap(), lines.as_bytes());
    fs::remove_dir_all(path("a")).unwrap();
    let mut left: Vec<_> =
        theirs.list(Path::new("/")).unwrap().into_iter().map(|it| it.name).collect();
    left.retain(|name| !matches!(&**name, b"." | b".."));
    left.sort();
    assert_eq!(left, [&b"file"[..], b"log2", b"once"].map(Box::from));
    mounted.unmount().unwrap();
}

#[test]
fn a_writer_at_the_origin_and_one_through_the_import_see_each_other() {
    let origin = Origin::start();
    origin.write("/file", &[0; 64]);
    let cache = Cache::start(writable(origin.plan()));
    let (mut ours, mut theirs) = (cache.volume(), origin.cluster.volume().unwrap());
    for round in 1..=4u8 {
        write(&mut ours, &at("file"), &[round; 64]).unwrap();
        assert_eq!(read_at(&mut theirs, "/file").unwrap(), [round; 64]);
        origin.write("/file", &[round + 100; 80]);
        origin.write(&format!("/by-them-{round}"), b"");
        write(&mut ours, &at(&format!("by-us-{round}")), b"").unwrap();
        until("theirs is read", || read(&mut ours, "file").unwrap() == [round + 100; 80]);
        until("all names are there", || names(&mut ours, "").len() == 1 + 2 * usize::from(round));
    }
}

#[test]
fn no_acknowledged_write_is_lost_when_the_origins_server_is_started_anew() {
    let mut origin = Origin::start();
    let cache = Cache::start(writable(origin.plan()));
    let target = origin.source.target.clone();
    let address = format!("{}:{}", target.address, target.nfs_port.unwrap());
    let server = origin.server.take().unwrap();
    let cluster = &origin.cluster;
    let acknowledged = thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut ours = cache.volume();
                    let written = (0..40).filter(|file| {
                        let path = at(&format!("{writer}-{file}"));
                        write(&mut ours, &path, &pattern(100_000 + file, writer)).is_ok()
                    });
                    written.map(|file| (writer, file)).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut server = server;
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(150));
            server.stop().unwrap();
            server = serve(cluster, &address).0;
        }
        let all: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        server.stop().unwrap();
        all
    });
    let mut theirs = cluster.volume().unwrap();
    assert_eq!(acknowledged.len(), 80, "each outage is shorter than the patience");
    for (writer, file) in acknowledged {
        let path = format!("/{writer}-{file}");
        assert!(read_at(&mut theirs, &path).unwrap() == pattern(100_000 + file, writer), "{path}");
    }
}

#[test]
fn clients_of_nfs_write_through_an_import_of_an_import() {
    let origin = Origin::start();
    let cache = Cache::start(writable(origin.plan()));
    let (_server, source) = serve(&cache.cluster, "127.0.0.1:0");
    let second = Cache::start(writable(plan(source)));
    let (mut ours, mut theirs) = (second.volume(), origin.cluster.volume().unwrap());
    let data = pattern(1_300_000, 3);
    write(&mut ours, "/imported/imported/file", &data).unwrap();
    assert!(read_at(&mut theirs, "/file").unwrap() == data);
    ours.make_directory(Path::new("/imported/imported/dir"), 0o755).unwrap();
    ours.rename(Path::new(&at("imported/file")), Path::new(&at("imported/dir/file"))).unwrap();
    assert!(read_at(&mut theirs, "/dir/file").unwrap() == data);
    assert!(read(&mut ours, "imported/dir/file").unwrap() == data);
    let across = ours.rename(Path::new(&at("imported/dir")), Path::new(&at("dir")));
    assert_eq!(errno(across), Errno::EXDEV);
}
