//! Whether a process that waits for an answer still wants it.
//!
//! The kernel tells of the first signal that reaches a waiting process (FUSE_INTERRUPT), whatever the signal, and not
//! of those after it; nor does it tell of a process that closes its files while it dies. So /proc is asked instead. As
//! over NFS, a signal that a program handles and lives on with (an alarm, a child's end) does not break its file
//! operations off; one that ends it does, and so does the keyboard's (SIGINT, SIGQUIT), handled or not.
//!
//! Only /proc/PID/status is read: /proc/PID/stat waits for a process in the middle of execve, which may itself wait for
//! this mount, because execve closes files.

use std::fs;

/// Signals that break a file operation off even when the program handles them.
const KEYBOARD: u64 = bit(libc::SIGINT) | bit(libc::SIGQUIT);
/// Signals that end nothing unless the program says so.
const HARMLESS: u64 = bit(libc::SIGCHLD)
    | bit(libc::SIGURG)
    | bit(libc::SIGWINCH)
    | bit(libc::SIGCONT)
    | bit(libc::SIGSTOP)
    | bit(libc::SIGTSTP)
    | bit(libc::SIGTTIN)
    | bit(libc::SIGTTOU);

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Whether the thread `id` is ending, or has a signal that lets it end. A thread that cannot be looked at goes on.
pub fn has_given_up(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    is_exiting(&status) || is_interrupted(&status)
}

/// A process that dies gives up its memory before it closes its files. Threads of the kernel, children of the second
/// process, have none either.
fn is_exiting(status: &str) -> bool {
    let has = |start: &str| status.lines().any(|line| line.starts_with(start));
    let of_kernel = status.lines().any(|line| line == "PPid:\t2");
    has("Name:") && !has("VmSize:") && !of_kernel
}

fn is_interrupted(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
    };
    let arrived = (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") & !mask("SigIgn");
    let ending = arrived & !mask("SigCgt") & !HARMLESS;
    ending != 0 || arrived & KEYBOARD != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nSigQ:\t1/2\nSigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\n\
             SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n",
            0
        )
    }

    #[test]
    fn only_signals_that_end_a_program_or_come_from_the_keyboard_count() {
        let (kill, alarm, int) = (bit(libc::SIGKILL), bit(libc::SIGALRM), bit(libc::SIGINT));
        assert!(is_interrupted(&status(kill, 0, 0, alarm)));
        assert!(is_interrupted(&status(alarm, 0, 0, 0)), "nobody handles it: it ends the program");
        assert!(!is_interrupted(&status(alarm, 0, 0, alarm)));
        assert!(is_interrupted(&status(int, 0, 0, int)));
        assert!(!is_interrupted(&status(int, int, 0, 0)));
        assert!(!is_interrupted(&status(int, 0, int, 0)));
        assert!(!is_interrupted(&status(bit(libc::SIGCHLD), 0, 0, 0)));
        assert!(!is_interrupted(""));
    }

    #[test]
    fn a_process_without_memory_is_exiting() {
        assert!(is_exiting("Name:\tx\nPPid:\t21\nSigQ:\t1/2\n"));
        assert!(!is_exiting("Name:\tx\nPPid:\t21\nVmSize:\t 8 kB\nSigQ:\t1/2\n"));
        assert!(!is_exiting("Name:\tkworker\nPPid:\t2\nSigQ:\t1/2\n"));
        assert!(!is_exiting(""));
        assert!(!has_given_up(std::process::id()));
    }
}
