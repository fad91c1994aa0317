//! Where a sandbox forbids io_uring, disks work all the same; where it forbids userfaultfd, a region says what to set.
//! A system call filter of the test's thread does what container runtimes do.

mod disk_rig;

use disk_rig::{Rig, object, pattern};
use live::disk::{DiskConfig, Disks, DisksError, Engine};
use live::region::uffd::OpenError;
use live::region::{Faults, LocalMemory, Region, RegionConfig, RegionError};
use node::rings::DiskFile;
use tempfile::TempDir;

/// Where a system call's number, and the low half of its second argument, are for a filter (struct seccomp_data).
const NUMBER: u32 = 0;
const SECOND: u32 = 16 + 8;
/// `USERFAULTFD_IOC_NEW`: another way to a userfaultfd.
const BY_DEVICE: u32 = 0xaa00;

fn load(place: u32) -> libc::sock_filter {
    let code = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    libc::sock_filter { code, jt: 0, jf: 0, k: place }
}

/// Goes on with the next step if what was loaded is `value`, else leaves out so many.
fn unless_leave_out(value: u32, steps: u8) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: 0, jf: steps, k: value }
}

fn end(what: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: what }
}

fn refuse() -> libc::sock_filter {
    end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32)
}

/// From now on this thread and those it starts get EPERM from a call.
fn forbid_io_uring() {
    filter(&mut [load(NUMBER), unless_leave_out(libc::SYS_io_uring_setup as u32, 1), refuse()]);
}

/// And from both ways to a userfaultfd.
fn forbid_userfaultfd() {
    let call = [load(NUMBER), unless_leave_out(libc::SYS_userfaultfd as u32, 1), refuse()];
    let device = [unless_leave_out(libc::SYS_ioctl as u32, 3), load(SECOND)];
    let device = [&device[..], &[unless_leave_out(BY_DEVICE, 1), refuse()]].concat();
    filter(&mut [&call[..], &device].concat());
}

/// Lets a filter decide; what it does not decide is allowed.
fn filter(steps: &mut [libc::sock_filter]) {
    let mut program = [steps, &mut [end(libc::SECCOMP_RET_ALLOW)]].concat();
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

#[test]
fn without_userfaultfd_a_region_says_what_to_set() {
    forbid_userfaultfd();
    let backing = LocalMemory::new(256 * 4096).unwrap();
    for faults in [Faults::InThread, Faults::Handlers(1)] {
        let config = RegionConfig { faults, ..RegionConfig::new(64) };
        let error = Region::map(256 * 4096, config, &backing).err().unwrap();
        assert!(matches!(error, RegionError::Uffd(OpenError::Forbidden(_))), "{error}");
        let said = error.to_string();
        let to_set = ["vm.unprivileged_userfaultfd=1", "/dev/userfaultfd", "seccomp profile"];
        for part in ["not allowed here", "Operation not permitted"].iter().chain(&to_set) {
            assert!(said.contains(part), "{said}\nwithout {part:?}");
        }
    }
}
