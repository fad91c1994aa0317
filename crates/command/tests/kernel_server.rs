//! Linux's kernel NFS server (knfsd), in a guest of QEMU, as the origin of an import.

use crate::common::free_ports;
use crate::guests::{Guest, READY, build, guest_file, lacks_a_guest, one_guest};
use rig::lacks;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trapeze::embedded::Embedded;
use trapeze::import::{As, Plan, Source};
use trapeze::volume::Volume;

const PATIENCE: Duration = Duration::from_secs(120);

/// A guest whose kernel exports `/mnt/export`, where its commands run, and how it is reached.
fn serving(dir: &Path) -> (Guest, Source) {
    let files = dir.join("guest");
    build(&files, "serve", &["nfsd"]);
    let (port, state) = (free_ports(2), dir.join("state"));
    std::fs::create_dir(&state).unwrap();
    let (nfs, mount) = (port.to_string(), (port + 1).to_string());
    let forward = |from: &str, to: u16| format!("hostfwd=tcp:127.0.0.1:{from}-:{to}");
    let netdev = format!("user,{},{}", forward(&nfs, 2049), forward(&mount, 20048));
    let boot = Command::new(guest_file("boot.sh"));
    let mut guest = Guest::start(boot, &files, &netdev, &state, "address=10.0.2.15/24");
    guest.until("GUEST serves 2 threads");
    guest.until(READY);
    let source = format!("nfs://127.0.0.1:{nfs}/mnt/export?mountport={mount}");
    (guest, Source::parse(&source).unwrap())
}

fn plan(source: Source) -> Plan {
    Plan {
        source,
        directory: "/imported".into(),
        attributes: Duration::from_secs(2),
        stale_ok: false,
        changes: Some(As::Caller),
        space: None,
        user: (0, 0),
        listen: None,
    }
}

fn at(path: &str) -> String {
    format!("/imported/{path}")
}

fn read(volume: &mut Volume, path: &str) -> Vec<u8> {
    let mut data = Vec::new();
    volume.read_file(Path::new(&at(path)), &mut data, &mut |_| ()).unwrap();
    data
}

fn write(volume: &mut Volume, path: &str, data: &[u8]) {
    volume.write_file(Path::new(&at(path)), 0o644, &mut &data[..], &mut |_| ()).unwrap();
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn an_import_of_the_kernels_server_is_read_and_written_through() {
    if lacks_a_guest() || ["rpc.nfsd", "rpc.mountd", "exportfs"].into_iter().any(lacks) {
        return;
    }
    let _one = one_guest();
    let dir = tempfile::tempdir().unwrap();
    let (mut guest, source) = serving(dir.path());
    guest.told("mkdir there && echo before > there/file && ln -s file there/link");
    let cluster = Embedded::start(&dir.path().join("cluster"), 2).unwrap();
    let importer = cluster.import(plan(source)).unwrap();
    let mut ours = cluster.volume().unwrap();
    assert_eq!(read(&mut ours, "there/file"), b"before\n");
    assert_eq!(ours.read_link(Path::new(&at("there/link"))).unwrap(), b"file");

    // more than one WRITE, and what is there of it afterwards
    let line = b"0123456789\n";
    let data: Vec<u8> = line.iter().copied().cycle().take(2_200_000).collect();
    write(&mut ours, "long", &data);
    assert!(read(&mut ours, "long") == data);
    guest.told("yes 0123456789 | head -c 2200000 | cmp - long");
    ours.make_directory(Path::new(&at("made")), 0o750).unwrap();
    ours.rename(Path::new(&at("long")), Path::new(&at("made/long"))).unwrap();
    assert_eq!(guest.told("stat -c %a:%s made/long made"), ["644:2200000", "750:60"]);

    // changes in the guest
    guest.told("echo theirs, and longer > there/file");
    until("theirs is read", || read(&mut ours, "there/file") == b"theirs, and longer\n");
    guest.told("rm made/long");
    until("the name is gone", || ours.list(Path::new(&at("made"))).unwrap().is_empty());
    guest.told("sh -c 'for i in $(seq 300); do echo $i > made/$i; done'");
    until("all names are shown", || {
        let listed = ours.list_attributes(Path::new(&at("made"))).unwrap();
        listed.len() == 300 && listed.iter().all(|(_, attr)| attr.size > 1)
    });
    assert_eq!(read(&mut ours, "made/217"), b"217\n");
    drop(importer);
}
