//! Holes of files in a mount: every mode of fallocate(2) beside a local file, what cp(1) makes of a hole, and a file
//! system in a file that is trimmed.

use crate::common::{Cluster, cannot_mount, lacks, pattern, skip};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};

const BYTES: usize = 3 << 20;

fn opened(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn every_mode_of_fallocate_does_what_a_local_file_system_does() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(3);
    let local = tempfile::tempfile().unwrap();
    let (file, keep) = (opened(&cluster.at("file")), FallocateFlags::KEEP_SIZE);
    let (punch, zero) = (FallocateFlags::PUNCH_HOLE | keep, FallocateFlags::ZERO_RANGE);
    for file in [&file, &local] {
        file.write_all_at(&pattern(1, BYTES), 0).unwrap();
    }
    file.sync_all().unwrap();
    let full = file.metadata().unwrap().blocks();
    let none = FallocateFlags::empty();
    let steps = [
        (punch, 10_000, 1 << 20),
        (punch, 1, 5),
        (zero | keep, 2_000_000, 90_000),
        (zero | keep, BYTES as u64 - 9_000, 1 << 20),
        (keep, 0, 1 << 23),
        (zero, BYTES as u64 - 20_000, 100_000),
        (none, 1 << 22, 1 << 20),
        (punch, 1 << 22, 1 << 30),
    ];
    for (number, (mode, offset, bytes)) in steps.into_iter().enumerate() {
        for file in [&file, &local] {
            fallocate(file, mode, offset, bytes).unwrap_or_else(|error| panic!("{mode:?} {error}"));
            file.write_all_at(&pattern(number as u64, 5_000), offset + 300_000).unwrap();
        }
        let length = local.metadata().unwrap().len();
        assert_eq!(file.metadata().unwrap().len(), length, "{mode:?} at {offset}");
        let read = |file: &File| {
            let mut bytes = vec![0; length as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(read(&file) == read(&local), "{mode:?} at {offset}");
    }
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP));
    }
    fallocate(&file, punch, 0, 1 << 40).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(77)), Ok(77));
    file.sync_all().unwrap();
    drop(file);
    cluster.remount();
    let left = fs::metadata(cluster.at("file")).unwrap().blocks();
    assert!(left < full / 2, "{left} of {full} blocks are left of a hole");
    cluster.stop();
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let run = Command::new(program).args(arguments).output();
    run.unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn must(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn cp_leaves_out_the_hole_of_three_gibibytes() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let (from, to) = (cluster.at("sparse"), cluster.at("copy"));
    let file = opened(&from);
    file.set_len(3 << 30).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.write_all_at(b"last", (3 << 30) - 4).unwrap();
    drop(file);
    must("cp", &[from.to_str().unwrap(), to.to_str().unwrap()]);
    let copy = File::open(&to).unwrap();
    assert_eq!(copy.metadata().unwrap().len(), 3 << 30);
    let mut ends = [[0; 5], [0; 5]];
    copy.read_exact_at(&mut ends[0], 0).unwrap();
    copy.read_exact_at(&mut ends[1], (3 << 30) - 5).unwrap();
    assert_eq!(ends, [*b"first", *b"\0last"]);
    assert!(seek(&copy, SeekFrom::Hole(0)).unwrap() < 1 << 20);
    assert!(seek(&copy, SeekFrom::Data(1 << 20)).unwrap() > (3 << 30) - (1 << 20));
    cluster.stop();
}

/// A loop device over a file, until it is dropped.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

#[test]
fn a_file_system_in_a_file_gives_its_room_back_when_it_is_trimmed() {
    if cannot_mount() || ["losetup", "mkfs.ext4", "e2fsck", "fstrim"].into_iter().any(lacks) {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let image = cluster.at("image");
    opened(&image).set_len(64 << 20).unwrap();
    let attached = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
    if !attached.status.success() {
        skip(format!("no loop device: {}", String::from_utf8_lossy(&attached.stderr).trim()));
        return cluster.stop();
    }
    let device = Loop(String::from_utf8_lossy(&attached.stdout).trim().to_owned());
    must("mkfs.ext4", &["-q", &device.0]);
    let inside = tempfile::tempdir().unwrap();
    let place = inside.path().to_str().unwrap();
    let mounted = run("mount", &[&device.0, place]);
    if !mounted.status.success() {
        skip(format!("no mount: {}", String::from_utf8_lossy(&mounted.stderr).trim()));
        drop(device);
        return cluster.stop();
    }
    fs::write(inside.path().join("kept"), pattern(2, 1 << 20)).unwrap();
    fs::write(inside.path().join("large"), pattern(1, 30 << 20)).unwrap();
    must("sync", &["-f", place]);
    let used = || {
        let file = opened(&image);
        file.sync_all().unwrap();
        file.metadata().unwrap().blocks() * 512
    };
    let before = used();
    fs::remove_file(inside.path().join("large")).unwrap();
    must("sync", &["-f", place]);
    must("fstrim", &[place]);
    let after = used();
    let kept = fs::read(inside.path().join("kept")).unwrap();
    must("umount", &[place]);
    must("e2fsck", &["-fn", &device.0]);
    drop(device);
    assert!(kept == pattern(2, 1 << 20));
    cluster.remount();
    // By a mount that knows nothing of it, from the servers.
    must("e2fsck", &["-fn", image.to_str().unwrap()]);
    let told = used();
    assert!(
        after + (20 << 20) < before,
        "{before} bytes before, {after} after, {told} as the servers say"
    );
    assert!(told >= kept.len() as u64 && told < 20 << 20, "{told} bytes are left of {before}");
    cluster.stop();
}
