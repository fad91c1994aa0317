//! Regions: memory that is larger than what of it is here. See [`region`].

use crate::cluster;
use crate::ep::{on_ep, read_sized, security, text, tpz_ep_t, wait_policy};
use crate::error::*;
use endpoint::limits::PAGE_BYTES;
use netmem::{Service, SpaceId};
use region::peer::{LineConfig, PeerConfig, Peers};
use region::uffd::OpenError;
use region::{
    Access, Advice, Backing, FaultError, Faults, FileBacking, Region, RegionConfig, RegionError,
};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;
use trapeze::service::{Address, ServiceError};
use wire::Channel;

/// Of tpz_region_advise(): it will be used soon, fetch it now.
pub const TPZ_WILL_NEED: u32 = 0;
/// It will not be used soon: it leaves first when room is needed.
pub const TPZ_COLD: u32 = 1;
/// It leaves memory now.
pub const TPZ_PAGE_OUT: u32 = 2;
/// Its content is not needed any more: it reads as zeros from now on.
pub const TPZ_FREE: u32 = 3;
/// Holders that a region may have.
pub const TPZ_HOLDERS: u32 = 16;

/// How a region is made: `tpz_region_options_t options = {.size = sizeof options, .bytes = 1 << 30, .frames = 65536,
/// .file = "/var/tmp/region"};`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tpz_region_options_t {
    /// sizeof(tpz_region_options_t).
    pub size: u32,
    /// Bytes of a page, a power of two from 4096 to 65536; 0 is 4096.
    pub page_bytes: u32,
    /// Bytes of the region, whole pages.
    pub bytes: u64,
    /// Pages that it may have in memory, 64 or more; a tenth of them is on its way out.
    pub frames: u64,
    /// The file that the other pages are in, made and grown where it is shorter; or NULL. Either this or holders.
    pub file: *const c_char,
    /// Addresses of endpoints that keep the other pages in their memory (tpz_hold_pages), `holders_count` of them.
    pub holders: *const *const c_char,
    /// See `holders`; at most TPZ_HOLDERS.
    pub holders_count: u32,
    /// Holders that have a page before it leaves this memory; 0 is two, or one where there is one.
    pub copies: u32,
    /// Threads that serve page faults: system calls on the region work then, and it needs root or a privilege. 0: the
    /// faulting thread itself, which every user may and is faster; use tpz_read() and its like for system calls.
    pub handlers: u32,
    /// Threads that may fault at the same time; 0 is 8.
    pub contexts: u32,
    /// Milliseconds that a fault waits for a file or holders that do not answer; 0 is 30 s.
    pub patience_ms: u32,
    /// How a fault waits for a holder's answer: TPZ_WAIT_...
    pub wait: u32,
    /// For holders at TCP addresses: 32 secret bytes, or NULL.
    pub key: *const u8,
    /// Instead of holders, a cluster whose machines lend memory: its directory on this machine, or its manager's
    /// address; or NULL. Each page is kept by two of them.
    pub cluster: *const c_char,
    /// 0 or TPZ_INSECURE.
    pub flags: u16,
    /// 0.
    pub reserved: [u16; 3],
}

/// A region. All threads may use its memory and its functions, but tpz_region_unmap().
pub struct tpz_region_t(Region);

impl From<FaultError> for Failure {
    fn from(error: FaultError) -> Failure {
        let code = match error {
            FaultError::Lost => TPZ_ENODATA,
            FaultError::Unavailable(errno) => errno,
            FaultError::Full => TPZ_ENOMEM,
            FaultError::System(_) => TPZ_EIO,
        };
        Failure { code, text: error.to_string().into() }
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Failure {
        let code = match &error {
            RegionError::Config(_) => TPZ_EINVAL,
            RegionError::Uffd(OpenError::Forbidden(_)) => TPZ_EACCES,
            RegionError::Uffd(OpenError::Absent | OpenError::Features(_)) => TPZ_ENOSYS,
            RegionError::Uffd(OpenError::Failed(error)) | RegionError::System(error) => {
                error.raw_os_error().unwrap_or(TPZ_EIO)
            }
        };
        Failure { code, text: error.to_string().into() }
    }
}

fn or_default(value: u64, default: usize) -> usize {
    if value == 0 { default } else { usize::try_from(value).unwrap_or(usize::MAX) }
}

fn config(options: &tpz_region_options_t) -> RegionConfig {
    let usual = RegionConfig::new(or_default(options.frames, 0));
    let patience = Duration::from_millis(options.patience_ms.into());
    RegionConfig {
        page_bytes: or_default(options.page_bytes.into(), usual.page_bytes),
        contexts: or_default(options.contexts.into(), usual.contexts),
        patience: if patience.is_zero() { usual.patience } else { patience },
        faults: match options.handlers {
            0 => Faults::InThread,
            count => Faults::Handlers(count as usize),
        },
        ..usual
    }
}

/// The addresses of the holders.
///
/// # Safety
/// `options.holders` has as many texts as its count says.
unsafe fn holders(options: &tpz_region_options_t) -> Outcome<Vec<Address>> {
    let count = options.holders_count;
    if count > TPZ_HOLDERS || (count > 0 && options.holders.is_null()) {
        return Err(invalid(format!(
            "holders_count is {count}: at most {TPZ_HOLDERS}, and holders not NULL"
        )));
    }
    let address = |at: u32| -> Outcome<Address> {
        // SAFETY: the caller's promise.
        let holder = unsafe { text("holders", options.holders.add(at as usize).read())? };
        let holder = holder.ok_or(invalid("one of holders is NULL"))?;
        Ok(holder.parse::<Address>().map_err(ServiceError::from)?)
    };
    (0..count).map(address).collect()
}

fn peers(
    options: &tpz_region_options_t,
    holders: Vec<Address>,
    line: LineConfig,
) -> Outcome<Peers> {
    let usual = holders.len().min(2) as u32;
    let copies = if options.copies == 0 { usual } else { options.copies };
    let copies = u8::try_from(copies)
        .map_err(|_| invalid(format!("copies is {copies}: at most the holders")))?;
    let space = SpaceId::guest(u64::from_le_bytes(trapeze::random::bytes()));
    Ok(Peers::new(PeerConfig { holders, copies, space, line })?)
}

/// Where the pages are that are not here.
///
/// # Safety
/// As for [`tpz_region_map`].
unsafe fn backing(options: &tpz_region_options_t) -> Outcome<Box<dyn Backing>> {
    // SAFETY: the caller's promise, here and below.
    let file = unsafe { text("file", options.file)? };
    // SAFETY: as above.
    let (holders, cluster) = unsafe { (holders(options)?, text("cluster", options.cluster)?) };
    let deadline = config(options).patience.min(Duration::from_secs(5));
    match (file, holders.is_empty(), cluster) {
        (Some(path), true, None) => {
            let file = FileBacking::open(Path::new(path), options.bytes);
            let fault = |error| Failure::from(ServiceError::System(path.to_string(), error));
            Ok(Box::new(file.map_err(fault)?))
        }
        (None, true, Some(cluster)) => {
            // SAFETY: as above.
            let security = unsafe { security(options.flags, options.key)? };
            let wait = wait_policy(options.wait)?;
            Ok(Box::new(Peers::new(cluster::peers(cluster, security, wait, deadline)?)?))
        }
        (None, false, None) => {
            // SAFETY: as above.
            let security = unsafe { security(options.flags, options.key)? };
            let security = trapeze::join::security(holders.iter(), security)?;
            let line =
                LineConfig { cluster: 0, security, wait: wait_policy(options.wait)?, deadline };
            Ok(Box::new(peers(options, holders, line)?))
        }
        _ => Err(invalid("a file, holders or a cluster: name one of the three")),
    }
}

/// Maps a region, which is written to `*region`. TPZ_EACCES or TPZ_ENOSYS where the system does not let programs serve
/// their page faults: tpz_last_error() says what to set.
///
/// # Safety
/// `options` points to options whose texts end with a zero and whose key has 32 bytes; `region` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_map(
    options: *const tpz_region_options_t,
    region: *mut *mut tpz_region_t,
) -> c_int {
    code(run("tpz_region_map", None, || {
        if region.is_null() {
            return Err(invalid("region is NULL: where is the region to be written?"));
        }
        // SAFETY: the caller's promise.
        let options = unsafe { read_sized("tpz_region_options_t", options)? };
        // SAFETY: as above.
        let backing = unsafe { backing(&options)? };
        let mapped = Region::map(or_default(options.bytes, 0), config(&options), &*backing)?;
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { region.write(Box::into_raw(Box::new(tpz_region_t(mapped)))) };
        Ok(())
    }))
}

/// Unmaps a region. Its file stays as it is; call tpz_region_sync() before if the file is to have everything. Pages at
/// its holders are of no use any more. NULL is nothing.
///
/// # Safety
/// `region` is NULL or mapped; no thread uses it or its memory from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_unmap(region: *mut tpz_region_t) -> c_int {
    code(run("tpz_region_unmap", None, || {
        if !region.is_null() {
            // SAFETY: every region was made from a box by tpz_region_map; the caller gives it back.
            drop(unsafe { Box::from_raw(region) });
        }
        Ok(())
    }))
}

/// Runs `body` on a region of C's.
///
/// # Safety
/// `region` is NULL or mapped.
unsafe fn on_region<T>(
    function: &'static str,
    region: *const tpz_region_t,
    body: impl FnOnce(&Region) -> Outcome<T>,
) -> Result<T, c_int> {
    // SAFETY: the caller's promise.
    let region = unsafe { region.as_ref() };
    run(function, None, || body(&region.ok_or(failure(TPZ_EINVAL, "the region is NULL"))?.0))
}

/// As [`on_region`], for a stretch of it, which is checked.
///
/// # Safety
/// `region` is NULL or mapped.
unsafe fn on_stretch(
    function: &'static str,
    region: *const tpz_region_t,
    (offset, bytes): (usize, usize),
    body: impl FnOnce(&Region) -> Outcome<()>,
) -> c_int {
    let body = |region: &Region| match offset.checked_add(bytes) {
        Some(end) if end <= region.len() => body(region),
        _ => Err(invalid(format!("{bytes} bytes at {offset}: the region has {}", region.len()))),
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_region(function, region, body) })
}

/// The region's first byte. Its memory is read and written as any other; a page of which no copy is left is a SIGBUS.
///
/// # Safety
/// `region` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_data(region: *const tpz_region_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { on_region("tpz_region_data", region, |region| Ok(region.as_ptr().cast())) }
        .unwrap_or(null_mut())
}

/// How many bytes the region has; 0 only for NULL.
///
/// # Safety
/// `region` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_bytes(region: *const tpz_region_t) -> usize {
    // SAFETY: the caller's promise.
    unsafe { on_region("tpz_region_bytes", region, |region| Ok(region.len())) }.unwrap_or(0)
}

/// Has the stretch's pages in memory, to be written if `writes`, as far as the frames go. TPZ_ENODATA when no copy of a
/// page is left.
///
/// # Safety
/// `region` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_touch(
    region: *const tpz_region_t,
    offset: usize,
    bytes: usize,
    writes: bool,
) -> c_int {
    let access = if writes { Access::Write } else { Access::Read };
    let body = |region: &Region| Ok(region.touch(offset, bytes, access)?);
    // SAFETY: the caller's promise.
    unsafe { on_stretch("tpz_region_touch", region, (offset, bytes), body) }
}

/// As tpz_region_touch(), and the pages stay until they are unpinned as often. At most three quarters of the frames can
/// be pinned (TPZ_ENOMEM).
///
/// # Safety
/// `region` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_pin(
    region: *const tpz_region_t,
    offset: usize,
    bytes: usize,
) -> c_int {
    let body = |region: &Region| Ok(region.pin(offset, bytes)?);
    // SAFETY: the caller's promise.
    unsafe { on_stretch("tpz_region_pin", region, (offset, bytes), body) }
}

/// Undoes one tpz_region_pin() of the same stretch.
///
/// # Safety
/// `region` is mapped, and the stretch was pinned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_unpin(
    region: *const tpz_region_t,
    offset: usize,
    bytes: usize,
) -> c_int {
    let body = |region: &Region| {
        region.unpin(offset, bytes);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { on_stretch("tpz_region_unpin", region, (offset, bytes), body) }
}

/// Says something about the stretch: TPZ_WILL_NEED, TPZ_COLD, TPZ_PAGE_OUT or TPZ_FREE, the last of whole pages only.
///
/// # Safety
/// `region` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_advise(
    region: *const tpz_region_t,
    offset: usize,
    bytes: usize,
    advice: u32,
) -> c_int {
    let body = |region: &Region| {
        let advice = match advice {
            TPZ_WILL_NEED => Advice::WillNeed,
            TPZ_COLD => Advice::Cold,
            TPZ_PAGE_OUT => Advice::PageOut,
            TPZ_FREE => Advice::Free,
            other => {
                return Err(invalid(format!(
                    "advice {other}: TPZ_WILL_NEED, _COLD, _PAGE_OUT or _FREE"
                )));
            }
        };
        Ok(region.advise(offset, bytes, advice)?)
    };
    // SAFETY: the caller's promise.
    unsafe { on_stretch("tpz_region_advise", region, (offset, bytes), body) }
}

/// Gives every page of the stretch that has changed to the file or the holders.
///
/// # Safety
/// `region` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_flush(
    region: *const tpz_region_t,
    offset: usize,
    bytes: usize,
) -> c_int {
    let body = |region: &Region| Ok(region.flush(offset, bytes)?);
    // SAFETY: the caller's promise.
    unsafe { on_stretch("tpz_region_flush", region, (offset, bytes), body) }
}

/// As tpz_region_flush() of everything, and on stable storage, if it is in a file.
///
/// # Safety
/// `region` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_sync(region: *const tpz_region_t) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { on_region("tpz_region_sync", region, |region| Ok(region.sync()?)) })
}

/// Counters of a region, in pages.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct tpz_region_counters_t {
    /// Faults of the program.
    pub faults: u64,
    /// Fetched from the file or the holders.
    pub fetched: u64,
    /// Given to them.
    pub stored: u64,
    /// Moved out of memory, or on its way.
    pub evicted: u64,
    /// Fetched, and not the bytes that were stored.
    pub damaged: u64,
    /// Of which no copy was left.
    pub lost: u64,
}

/// Writes the counters to `*counters`.
///
/// # Safety
/// `region` is mapped, `counters` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_region_counters(
    region: *const tpz_region_t,
    counters: *mut tpz_region_counters_t,
) -> c_int {
    let body = |region: &Region| {
        if counters.is_null() {
            return Err(invalid("counters is NULL"));
        }
        let all = region.counters();
        let told = tpz_region_counters_t {
            faults: all.faults,
            fetched: all.fetched,
            stored: all.stored,
            evicted: all.evicted,
            damaged: all.damaged,
            lost: all.lost,
        };
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { counters.write(told) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_region("tpz_region_counters", region, body) })
}

/// From now on the endpoint keeps pages for regions of others (their `holders`), as much as fits into `pages` pages of
/// 4096 bytes of its payload memory, as long as it is polled. These pages are gone with it. TPZ_EBUSY when it does so
/// already.
///
/// # Safety
/// `ep` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_hold_pages(ep: *const tpz_ep_t, pages: u32) -> c_int {
    let body = |ep: &tpz_ep_t| {
        let room = ep.0.cx.frames().pages();
        if pages == 0 || pages as usize > room {
            return Err(invalid(format!("{pages} pages: 1 to {room}, what memory_bytes has")));
        }
        ep.0.serve_once(Channel::MEMORY)?;
        Service::lend(&ep.0.cx, pages as usize * PAGE_BYTES);
        ep.0.catch_up()
    };
    // SAFETY: the caller's promise.
    code(unsafe { on_ep("tpz_hold_pages", ep, body) })
}
