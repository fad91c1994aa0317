//! Where a sandbox forbids io_uring, disks work all the same.

use crate::disk_rig::{Rig, object, pattern};
use crate::seccomp::forbid_io_uring;
use live::disk::{DiskConfig, Disks, DisksError, Engine};
use node::rings::DiskFile;
use tempfile::TempDir;

#[test]
fn without_io_uring_the_threads_take_over() {
    forbid_io_uring();
    let temporary = TempDir::new().unwrap();
    let config = DiskConfig::new(temporary.path());
    let refused = Disks::open(std::slice::from_ref(&config), Engine::Uring).err().unwrap();
    assert!(matches!(refused, DisksError::NoUring(_)), "{refused}");
    let automatic = Disks::open(std::slice::from_ref(&config), Engine::Auto).unwrap();
    assert_eq!(automatic.engine(), Engine::Threads);
    drop(automatic);
    let mut rig = Rig::open(&config, Engine::Threads);
    rig.write(DiskFile::Object(object(1)), 0, &pattern(9000, 1), true);
    assert_eq!(rig.read(DiskFile::Object(object(1)), 0, 9000).unwrap(), pattern(9000, 1));
}
