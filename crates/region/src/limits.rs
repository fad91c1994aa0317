//! Limits of regions, with the arithmetic that chose them.

use std::time::Duration;

/// Largest page of a region: one payload of 16 kernel pages is still less than a handful of microseconds to copy.
pub const PAGE_BYTES_MAX: usize = 64 << 10;
/// Fewest frames of a region: one in the staging area, and a few that an instruction with two operands, each across a
/// page's end, needs at once, of as many threads as there are contexts by default on a small machine.
pub const FRAMES_MIN: usize = 64;
/// The part of a region's frames that the staging area has, one in so many (S3-FIFO, SOSP'23, section 4: 10 %).
pub const STAGING_SHARE: usize = 10;
/// Slots that are emptied at once: one madvise(2) of 16 costs four times that of one.
pub const RETIRE_MAX: usize = 16;
/// Pages that may be pinned: three quarters of the mapped ones. The rest must be enough for what runs meanwhile.
pub const PIN_QUARTERS: usize = 3;
/// Frames looked at for one whose page can leave, for each frame there is: once all have lost their second chances
/// (at most 3) only pinned and busy ones stay.
pub const CHANCES: usize = 5;
/// Regions of a process.
pub const REGIONS_MAX: usize = 64;
/// Contexts of a region: threads that fault at the same time.
pub const CONTEXTS_MAX: usize = 256;
/// Of each context's stack. The deepest user is a call to a peer: 20 KiB with its debug build.
pub const STACK_BYTES: usize = 128 << 10;
/// Longest that a fault waits for a backing that does not answer or takes no pages.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before a backing is asked again.
pub const PAUSE: Duration = Duration::from_millis(1);
/// Times that a page whose bytes are not those that were stored is fetched again.
pub const FETCHES_MAX: u32 = 3;
/// Handler threads of a region.
pub const HANDLERS_MAX: usize = 64;
/// A system call's buffer is touched in one go up to this part of the mapped frames, one in so many; the call is cut
/// there. More would push its own beginning out.
pub const CALL_SHARE: usize = 4;
/// Most that the keeper of a region sleeps when it has no work and the bell does not ring.
pub const KEEPER_SPAN: Duration = Duration::from_millis(500);
/// Pause of a keeper whose backing takes no pages.
pub const KEEPER_PAUSE: Duration = Duration::from_millis(20);
/// Pages stored by a keeper between two looks at what else is due: 64 x 50 us.
pub const CLEANED_MAX: usize = 64;
/// A keeper is called whenever one part in so many of the staging area has filled with written pages: a call may cost a
/// wake.
pub const BELL_SHARE: usize = 8;
/// Holders of a region: each of its contexts has a link to each of them.
pub const HOLDERS_MAX: usize = 32;
/// How long a holder is waited for, by default; then it counts as away. As long as between nodes.
pub const CALL_DEADLINE: Duration = netmem::limits::ATTEMPT;
/// Pause before a holder is asked again to which a link is wanted.
pub const LINK_PAUSE: Duration = Duration::from_millis(10);
/// Most that the keeper waits for a holder: its other work waits meanwhile.
pub const VISIT_DEADLINE: Duration = Duration::from_millis(500);
/// Entries of the rings of a line: the calls that are under way, and the rest is its link's.
pub const LINE_ENTRIES: usize = 64;
/// Calls of a line at a time: pages that are asked for together.
pub const LINE_CALLS: usize = netmem::limits::GUEST_AHEAD_MAX;
/// Bytes of the pages that come ahead of their use in one go: an exchange with a peer over TCP, 10 us, is a fifth of
/// what so many pages take one by one.
pub const AHEAD_BYTES: usize = 64 << 10;
/// The part of a region's mapped frames that come ahead in one go, one in so many at most.
pub const AHEAD_SHARE: usize = 16;
/// How long pages that are not needed yet are waited for: more than a holder that is busy takes, less than one that
/// does not answer would cost a thread that has its own page already.
pub const AHEAD_DEADLINE: Duration = Duration::from_millis(20);
/// Sequences of faults that are followed at a time: a merge reads so many runs, and few more.
pub const STREAMS: usize = 16;
/// Pages of a line's pool, besides four times the region's and those that come ahead: shared memory keeps a page that
/// was sent until the other side has looked at it.
pub const LINE_PAGES: usize = 16;
/// Looks at a link between two turns of a thread that waits: a look takes 20 ns.
pub const LOOKS_PER_TURN: u32 = 32;
/// Idle turns between two looks at where the peer runs: each reads what the peer writes.
pub const SHARES_TURNS: u32 = 16;
