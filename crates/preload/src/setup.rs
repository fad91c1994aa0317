//! The region of this process, and its beginning and end.

use crate::arena::{Arena, PAGE_BYTES};
use live::link::{Address, Keys, Security};
use live::region::peer::{PeerConfig, Peers};
use live::region::{Backing, Faults, FileBacking, Region, RegionConfig};
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Bytes that the program may have in memory.
const MEMORY: &str = "TRAPEZE_RUN_MEMORY";
/// Bytes that it may have in all.
const ROOM: &str = "TRAPEZE_RUN_ROOM";
/// Directory of the file that has the rest, if no nodes have it.
const SPILL: &str = "TRAPEZE_RUN_SPILL";
/// Addresses of nodes that have the rest instead, with blanks between them.
const HOLDERS: &str = "TRAPEZE_RUN_HOLDERS";
/// File with the 32 bytes of their cluster's key, if links to them are encrypted.
const KEY: &str = "TRAPEZE_RUN_KEY";
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
    let parsed = holders.split(' ').map(str::parse).collect::<Result<Vec<Address>, _>>();
    let security = match std::env::var(KEY) {
        Ok(path) => {
            let key = std::fs::read(path)?;
            let key = key.try_into().map_err(|_| io::Error::other("a key has 32 bytes"))?;
            Security::Encrypted(Keys::generate(key))
        }
        Err(_) => Security::Insecure,
    };
    Peers::new(PeerConfig::new(parsed.map_err(io::Error::other)?, security)?)
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
