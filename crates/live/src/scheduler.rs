//! What the kernel's scheduler is asked and told about this thread.

/// The shortest slice that the kernel takes (`kernel/sched/syscalls.c`). A node runs for some us at a time.
const SLICE_NS: u64 = 100_000;

/// How often this thread lost its processor to another that wanted it too. A yield that nobody takes does not count.
pub fn switches() -> u64 {
    // SAFETY: all of the structure is integers, for which zero is a value, and the kernel writes no more than it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_nivcsw as u64
}

/// Asks for short slices: no more of the processor than others, but soon after a wake. A thread that computes on the
/// same processor is then interrupted, where a node would else wait for the end of its slice, some ms, at each message.
/// Kernels before Linux 6.12 have one slice for all; there nothing changes.
pub fn shorten_slices() {
    let Some(attr) = attributes().filter(|attr| attr.sched_policy == libc::SCHED_OTHER as u32)
    else {
        return;
    };
    let attr = libc::sched_attr { sched_runtime: SLICE_NS, ..attr };
    // SAFETY: it reads the structure. Where it is refused, everything is as before.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0) };
}

fn attributes() -> Option<libc::sched_attr> {
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: all of the structure is integers, for which zero is a value, and the kernel writes no more than `bytes`.
    unsafe {
        let mut attr = std::mem::zeroed::<libc::sched_attr>();
        (libc::syscall(libc::SYS_sched_getattr, 0, &mut attr, bytes, 0) == 0).then_some(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_thread_has_short_slices_and_others_keep_theirs() {
        let runtime = || attributes().unwrap().sched_runtime;
        let before = runtime();
        let in_node = move || {
            shorten_slices();
            runtime()
        };
        let of_node = std::thread::spawn(in_node).join().unwrap();
        // An older kernel has one slice for all, and says 0.
        assert_eq!(of_node, if before == 0 { 0 } else { SLICE_NS });
        assert_eq!(runtime(), before);
    }
}
