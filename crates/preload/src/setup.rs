//! The region of this process, and its beginning and end.

use crate::arena::{Arena, PAGE_BYTES};
use region::peer::{PeerConfig, Peers};
use region::{Backing, Faults, FileBacking, Region, RegionConfig};
use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Bytes that the program may have in memory.
const MEMORY: &str = "TRAPEZE_RUN_MEMORY";
/// Bytes that it may have in all.
const ROOM: &str = "TRAPEZE_RUN_ROOM";
/// Directory of the file that has the rest, if no nodes have it.
const SPILL: &str = "TRAPEZE_RUN_SPILL";
/// Addresses of nodes that have the rest instead, with blanks between them.
const HOLDERS: &str = "TRAPEZE_RUN_HOLDERS";
/// File with their cluster's key, if links to them are encrypted.
const KEY: &str = "TRAPEZE_RUN_KEY";
/// The program that has the nodes forget this process's pages when it has ended.
const ENDED_BY: &str = "TRAPEZE_RUN_END";
/// Bytes from which on memory is the region's.
const FROM: &str = "TRAPEZE_RUN_FROM";
/// Say at the end what happened.
const REPORT: &str = "TRAPEZE_RUN_REPORT";
/// Threads that serve faults.
const HANDLERS: usize = 2;

struct State {
    region: Region,
    arena: Arena,
}

static STATE: OnceLock<State> = OnceLock::new();
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static LARGE: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Descriptor for the report: the standard error, which programs close before they end. -1 is none.
static REPORTS_TO: AtomicI32 = AtomicI32::new(-1);
/// Requests that found the region full.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// False before the beginning, and in children.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether the region has this address; also in a child, which must not touch it.
pub fn has(address: usize) -> bool {
    address >= START.load(Ordering::Relaxed) && address < END.load(Ordering::Relaxed)
}

/// Whether memory of so many bytes is the region's.
pub fn is_large(bytes: usize) -> bool {
    bytes >= LARGE.load(Ordering::Relaxed) && ACTIVE.load(Ordering::Relaxed)
}

/// The region and what of it is used, unless this is a child.
pub fn parts() -> Option<(&'static Region, &'static Arena)> {
    let state = STATE.get().filter(|_| ACTIVE.load(Ordering::Relaxed))?;
    Some((&state.region, &state.arena))
}

/// Counts a request that found the region full.
pub fn note_refused() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// With nodes that lend memory, where there are some; else in a file.
fn backing(room: usize) -> Result<Box<dyn Backing>, String> {
    if let Ok(holders) = std::env::var(HOLDERS) {
        let peers = peers(&holders).map_err(|error| format!("{holders}: {error}"))?;
        return Ok(Box::new(peers));
    }
    let spill = std::env::var(SPILL).unwrap_or("/var/tmp".into());
    let file = FileBacking::scratch(Path::new(&spill), room as u64);
    Ok(Box::new(file.map_err(|error| format!("a file in {spill}: {error}"))?))
}

fn peers(holders: &str) -> io::Result<Peers> {
    let key = std::env::var_os(KEY).map(PathBuf::from);
    let config = PeerConfig::told(holders, key.as_deref())?;
    if let Ok(program) = std::env::var(ENDED_BY) {
        // without it they are forgotten some minutes later
        let _ = watch_end(&program, config.space.0);
    }
    Peers::new(config)
}

/// Starts a process that has the nodes forget this one's pages when it has ended, however it does: by themselves they
/// cannot tell it from one that was stopped, and keep them for minutes. It is no child of the program when this
/// returns, so that the program does not wait for one that it has not started.
fn watch_end(program: &str, space: u64) -> io::Result<()> {
    // SAFETY: pidfd_open(2) takes numbers.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) } as c_int;
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and belongs to this call alone.
    let own = unsafe { OwnedFd::from_raw_fd(own) };
    let mut command = Command::new(program);
    command.args(["run-end", &format!("{space:x}")]).current_dir("/").env_remove("LD_PRELOAD");
    command.stdin(own).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: it makes system calls only.
    unsafe { command.pre_exec(detach) }.status().map(drop)
}

/// Leaves the program's session and its descriptors.
fn detach() -> io::Result<()> {
    // SAFETY: system calls on numbers; the first process ends at once, and nothing of it is run.
    unsafe {
        libc::setsid();
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => (),
            _ => libc::_exit(0),
        }
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    Ok(())
}

fn begin() -> Result<(), String> {
    let Some(memory) = number(MEMORY) else { return Ok(()) };
    let room = number(ROOM).unwrap_or(memory.saturating_mul(16)).next_multiple_of(PAGE_BYTES);
    let backing = backing(room)?;
    let faults = Faults::Handlers(HANDLERS);
    let config = RegionConfig { faults, ..RegionConfig::new(memory / PAGE_BYTES) };
    let region = Region::map(room, config, &*backing).map_err(|error| error.to_string())?;
    let start = region.as_ptr() as usize;
    let arena = Arena::new(start, room);
    if STATE.set(State { region, arena }).is_err() {
        return Err("it began twice".into());
    }
    START.store(start, Ordering::Relaxed);
    END.store(start + room, Ordering::Relaxed);
    LARGE.store(number(FROM).unwrap_or(1 << 20), Ordering::Relaxed);
    // SAFETY: both are functions that may run at their time; they only set a flag and write a line.
    unsafe {
        if number(REPORT).is_some() {
            let output = libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, 100);
            REPORTS_TO.store(output, Ordering::Relaxed);
        }
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(report);
    }
    ACTIVE.store(true, Ordering::SeqCst);
    Ok(())
}

extern "C" fn in_child() {
    ACTIVE.store(false, Ordering::SeqCst);
}

extern "C" fn report() {
    let output = REPORTS_TO.load(Ordering::Relaxed);
    if let Some((region, _)) = parts().filter(|_| output >= 0) {
        let counters = region.counters();
        let full = match REFUSED.load(Ordering::Relaxed) {
            0 => String::new(),
            count => format!("; {count} requests found no room (--room)"),
        };
        // A shell before the program, say, had nothing in it.
        if counters.faults == 0 && full.is_empty() {
            return;
        }
        let process = std::process::id();
        let line = format!("trapeze run: pages of process {process}: {counters}{full}\n");
        // SAFETY: the line lives through the call. A failure cannot be told any more.
        unsafe { libc::write(output, line.as_ptr().cast(), line.len()) };
    }
}

/// Before the program's own code.
extern "C" fn at_start() {
    if let Err(error) = begin() {
        eprintln!("trapeze run: {error}");
        std::process::exit(125);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
