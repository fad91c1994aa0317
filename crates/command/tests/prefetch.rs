//! `trapeze prefetch`, through a mount and without one, and the ioctl that it uses.

use crate::common::{Cluster, cannot_mount, pattern, refusal, text, trapeze};
use std::fs::{self, File};

const FILES: u64 = 60;
const BYTES: usize = 20_000;

fn said(arguments: &[&str]) -> String {
    let output = trapeze(arguments);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complained}");
    String::from_utf8(output.stdout).unwrap()
}

fn name(number: u64) -> String {
    format!("files/f{number:03}")
}

/// Makes files through the mount that are in no cache afterwards.
fn cold(cluster: &mut Cluster) {
    fs::create_dir_all(cluster.at("files/empty")).unwrap();
    for number in 0..FILES {
        fs::write(cluster.at(&name(number)), pattern(number, BYTES)).unwrap();
    }
    File::open(cluster.at("files")).unwrap().sync_all().unwrap();
    cluster.processes.unmount().unwrap();
    cluster.processes.restart_servers().unwrap();
    cluster.processes.mount().unwrap();
}

fn read_all(cluster: &Cluster) {
    for number in 0..FILES {
        assert!(fs::read(cluster.at(&name(number))).unwrap() == pattern(number, BYTES));
    }
}

#[test]
fn files_that_were_named_read_as_they_are() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    cold(&mut cluster);
    let whole = format!("{FILES} files, {} bytes noted\n", FILES * BYTES as u64);
    assert_eq!(said(&["prefetch", text(&cluster.at("files"))]), whole);
    read_all(&cluster);
    let one = cluster.at(&name(7));
    assert_eq!(said(&["prefetch", text(&one)]), format!("1 files, {BYTES} bytes noted\n"));
    let file = File::open(&one).unwrap();
    assert_eq!(live::fuse::hint::prefetch(&file, 5000..6000).unwrap(), 1000);
    assert_eq!(live::fuse::hint::prefetch(&file, 1 << 40..1 << 41).unwrap(), 0);
    fs::write(&one, b"new").unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"new");
    let target = cluster.processes.target();
    fs::remove_file(&one).unwrap();
    let noted = said(&["prefetch", "-c", &target, ":/files", "--json"]);
    let bytes = (FILES - 1) * BYTES as u64;
    assert_eq!(noted, format!("{{\"files\":{},\"bytes\":{bytes}}}\n", FILES - 1));
    cluster.stop();
}

#[test]
fn what_is_in_no_cluster_is_refused_by_name() {
    let cluster = Cluster::bare(1);
    let (file, target) = (cluster.beside("local"), cluster.processes.target());
    fs::write(&file, b"x").unwrap();
    let text_of_error = refusal(&["prefetch", text(&file)]);
    assert!(text_of_error.contains("not in a mount of a cluster"), "{text_of_error}");
    let text_of_error = refusal(&["prefetch", text(&cluster.beside("nothing"))]);
    assert!(text_of_error.contains("nothing: No such file"), "{text_of_error}");
    let text_of_error = refusal(&["prefetch", "-c", &target, ":/nothing"]);
    assert!(text_of_error.contains("/nothing: "), "{text_of_error}");
}
