//! A system call filter of the test's thread, which does what container runtimes do.
#![allow(dead_code)] // each test file uses its part

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

/// From now on this thread and those it starts get EPERM from a call for io_uring.
pub fn forbid_io_uring() {
    filter(&mut [load(NUMBER), unless_leave_out(libc::SYS_io_uring_setup as u32, 1), refuse()]);
}

/// From now on this thread and those it starts get EPERM from both ways to a userfaultfd.
pub fn forbid_userfaultfd() {
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
