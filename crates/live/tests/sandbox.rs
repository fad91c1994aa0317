//! Where a sandbox forbids io_uring, disks work all the same: a system call filter of this test's thread does what
//! container runtimes do.

mod disk_rig;

use disk_rig::{Rig, object, pattern};
use live::disk::{DiskConfig, Disks, DisksError, Engine};
use node::rings::DiskFile;
use tempfile::TempDir;

/// From now on this thread and those it starts get EPERM from `io_uring_setup`.
fn forbid_io_uring() {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the first call takes numbers only, the second reads a filter program that lives through it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
    };
    assert!(installed, "{}", std::io::Error::last_os_error());
}

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
