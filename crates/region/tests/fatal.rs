//! Errors that end a process, in processes of its own: this program started again with the name of a case.

use crate::region_rig::{Moody, PAGE, map};
use region::{Faults, LocalMemory, RegionConfig};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

const CASE: &str = "TRAPEZE_REGION_CASE";
const SKIPPED: i32 = 77;

/// Runs the case in a child and returns what came of it; `None` where regions are not allowed.
fn child(case: &str) -> Option<Output> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "fatal::the_child", "--nocapture", "--ignored"])
        .env(CASE, case)
        .env_remove(rig::SKIPS);
    let output = command.output().unwrap();
    if output.status.code() == Some(SKIPPED) {
        rig::skip("userfaultfd is not allowed here");
        return None;
    }
    Some(output)
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn the_child() {
    match std::env::var(CASE).as_deref() {
        Ok("lost in the thread") => touch_lost(Faults::InThread),
        Ok("lost, handlers") => touch_lost(Faults::Handlers(1)),
        Ok("elsewhere") => fault_elsewhere(),
        Ok("small stack") => fault_on_a_small_stack(),
        Ok("forked") => touch_in_a_child(),
        _ => {} // run with all ignored tests
    }
}

fn touch_lost(faults: Faults) {
    let backing = Moody::new(256 * PAGE);
    let config = RegionConfig { faults, ..RegionConfig::new(64) };
    let Some(region) = map(256 * PAGE, config, &backing) else { std::process::exit(SKIPPED) };
    // SAFETY: no memory is involved; a core file of what is meant to die is of no use. Before, an ordinary user's
    // region would find its files in /proc closed.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    // SAFETY: nothing else uses the region.
    let all = unsafe { region.as_mut_slice() };
    all.fill(1);
    backing.moods.lost.store(true, Ordering::SeqCst);
    println!("the sum is {}", all.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    std::process::exit(0);
}

#[test]
fn a_lost_page_ends_who_touches_it_with_a_message() {
    for case in ["lost in the thread", "lost, handlers"] {
        let Some(output) = child(case) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{case}: {said}");
        assert!(said.contains("trapeze: page 0 of the region, at 0x"), "{said}");
        assert!(said.contains("no copy of the page is left"), "{said}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("the sum is"));
    }
}

static HANDED_ON: AtomicUsize = AtomicUsize::new(0);

/// The program's own handler: counts, and makes the address readable.
extern "C" fn own(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    HANDED_ON.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the kernel passes the information; the mapping is replaced by one of zeros, which nothing else uses.
    unsafe {
        let page = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut _;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0);
    }
}

fn fault_elsewhere() {
    // SAFETY: the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = own as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
    let backing = LocalMemory::new(256 * PAGE).unwrap();
    let Some(region) = map(256 * PAGE, RegionConfig::new(64), &backing) else {
        std::process::exit(SKIPPED)
    };
    region.write(0, b"region").unwrap();
    let file = tempfile::tempfile().unwrap();
    // SAFETY: a mapping behind the end of a file: touching it is a SIGBUS, which the handler mends.
    let byte = unsafe {
        use std::os::fd::AsRawFd;
        let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let at = libc::mmap(std::ptr::null_mut(), PAGE, access, flags, file.as_raw_fd(), 0);
        at.cast::<u8>().read_volatile()
    };
    assert_eq!((byte, HANDED_ON.load(Ordering::SeqCst)), (0, 1));
    for page in 1..256 {
        region.write(page * PAGE, &[1]).unwrap();
    }
    // SAFETY: nothing else uses the region.
    assert_eq!(&unsafe { region.as_mut_slice() }[..6], b"region");
    assert!(region.counters().faults > 0);
    assert_eq!(HANDED_ON.load(Ordering::SeqCst), 1, "the region's faults are not the program's");
    println!("handed on");
    std::process::exit(0);
}

#[test]
fn faults_elsewhere_are_the_programs() {
    let Some(output) = child("elsewhere") else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("handed on"));
}

fn fault_on_a_small_stack() {
    let backing = LocalMemory::new(256 * PAGE).unwrap();
    let Some(region) = map(256 * PAGE, RegionConfig::new(64), &backing) else {
        std::process::exit(SKIPPED)
    };
    // The handler's frame with all registers takes up to 11 KiB; the thread's alternate stack has it.
    let start = region.as_ptr() as usize;
    let thread = std::thread::Builder::new().stack_size(16 << 10).spawn(move || {
        (0..256 * PAGE).step_by(PAGE).for_each(|at| {
            // SAFETY: inside the region, which outlives the thread.
            unsafe { ((start + at) as *mut u8).write_volatile(7) };
        });
    });
    thread.unwrap().join().unwrap();
    // SAFETY: nothing else uses the region any more.
    assert!(unsafe { region.as_mut_slice() }.chunks(PAGE).all(|page| page[0] == 7));
    println!("stack enough");
    std::process::exit(0);
}

#[test]
fn a_thread_with_a_small_stack_may_fault() {
    let Some(output) = child("small stack") else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} {said}", output.status);
}

fn touch_in_a_child() {
    let backing = LocalMemory::new(256 * PAGE).unwrap();
    let Some(region) = map(256 * PAGE, RegionConfig::new(64), &backing) else {
        std::process::exit(SKIPPED)
    };
    region.write(0, b"parent").unwrap();
    // SAFETY: the child only touches memory, and the parent waits for it.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            let byte = region.as_ptr().read_volatile();
            libc::_exit(i32::from(byte));
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        status
    };
    assert!(libc::WIFSIGNALED(status), "the child has no region: {status:x}");
    for page in 0..256 {
        region.write(page * PAGE + 6, &[page as u8]).unwrap();
    }
    let mut text = [0; 7];
    region.read(0, &mut text).unwrap();
    assert_eq!(&text, b"parent\0");
    std::process::exit(0);
}

#[test]
fn a_forked_child_has_no_region_and_the_parent_keeps_it() {
    let Some(output) = child("forked") else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} {said}", output.status);
}
