//! The region of this process, and its beginning and end.

use crate::arena::{Arena, PAGE_BYTES};
use live::region::{Faults, FileBacking, Region, RegionConfig};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Bytes that the program may have in memory.
const MEMORY: &str = "TRAPEZE_RUN_MEMORY";
/// Bytes that it may have in all.
const ROOM: &str = "TRAPEZE_RUN_ROOM";
/// Directory of the file that has the rest.
const SPILL: &str = "TRAPEZE_RUN_SPILL";
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
/// Where the report goes: the standard error, which programs close before they end. -1 is nowhere.
static REPORTS_TO: AtomicI32 = AtomicI32::new(-1);
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

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn begin() -> Result<(), String> {
    let Some(memory) = number(MEMORY) else { return Ok(()) };
    let room = number(ROOM).unwrap_or(memory.saturating_mul(16)).next_multiple_of(PAGE_BYTES);
    let spill = std::env::var(SPILL).unwrap_or("/var/tmp".into());
    let backing = FileBacking::scratch(Path::new(&spill), room as u64)
        .map_err(|error| format!("a file in {spill}: {error}"))?;
    let faults = Faults::Handlers(HANDLERS);
    let config = RegionConfig { faults, ..RegionConfig::new(memory / PAGE_BYTES) };
    let region = Region::map(room, config, &backing).map_err(|error| error.to_string())?;
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
        let line = format!("trapeze run: {:?}\n", region.counters());
        // SAFETY: the line lives through the call. Nobody is left to tell of a failure.
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
