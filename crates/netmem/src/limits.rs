//! Limits of network memory, with the arithmetic that chose them.

use std::time::Duration;

/// Directory slots of a cluster. With 100 nodes of equal weight each has 41 of them, give or take 6.
pub const SLOTS: usize = 4096;
/// Neighbouring pages of a space whose entries are in one slot: one message asks for so many (64 KiB of 4 KiB pages).
pub const EXTENT_PAGES: u64 = 16;
/// Holders that a directory entry can name.
pub const HOLDERS_MAX: usize = 4;
/// Entries that the directory looks at for one that may be forgotten.
pub const FORGET_STEPS_MAX: usize = 256;
/// The part of a node's memory that its directory may take, one in so many: 2 %.
pub const DIRECTORY_SHARE: usize = 50;

/// The part of a node's own pages that the staging queue may hold, one in so many (S3-FIFO, SOSP'23, section 4: a small
/// queue of 10 %).
pub const STAGING_SHARE: u32 = 10;
/// Second chances given in a row before the next page goes whatever its count.
pub const CHANCES_MAX: usize = 16;
/// Frames at the old end of a list among which the oldest one is taken: some are busy, and pages of others come with
/// ages of their own.
pub const OLD_END: usize = 8;
/// A hosted page counts as so many times its age beside the node's own (SOSP'95: the ages of global pages are boosted
/// so that they are replaced first).
pub const HOSTED_BOOST: u64 = 2;
/// A page that was used once takes the place only of pages that are so many times as old: else a loop longer than all
/// memory throws out every page just before it is used again (Qureshi and others, ISCA'07: insertion that resists
/// thrashing). More helps loops and makes working sets that move slower to settle.
pub const ONCE_BOOST: u64 = 4;
/// A node's own page makes room for another node's when it is at least so many tenths of its age.
pub const OWN_TENTHS: u64 = 15;
/// Frames that a digest looks at, once in an epoch: 256 MiB of 4 KiB pages. Of larger memories it is a sample.
pub const DIGEST_FRAMES: usize = 1 << 16;

/// Longest epoch.
pub const EPOCH: Duration = Duration::from_secs(1);
/// Epochs without news after which a node keeps to itself.
pub const SILENT_EPOCHS: u32 = 3;
/// The part of the frames that may be hosted which an epoch plans to replace, one in so many: 6 %.
pub const EPOCH_SHARE: u64 = 16;
/// Percent of an epoch's replacements that one node takes at most.
pub const WEIGHT_PERCENT_MAX: u64 = 25;
/// How long a new member takes until it has its full weight: else it, whose frames are all free, would get everything.
pub const SLOW_START: Duration = Duration::from_secs(30);
/// Percent of refused pages that end an epoch: its weights are wrong.
pub const REFUSED_PERCENT_MAX: u32 = 10;
/// Pages offered before that percentage means anything.
pub const OFFERS_MIN: u32 = 32;
/// Times that N-chance forwarding passes on a page without a use (Dahlin and others, OSDI'94: 2).
pub const CHANCES: u8 = 2;

/// Faults of which the trend is the majority (Leap, USENIX ATC'20, section 4.1: 32).
pub const TREND_FAULTS: usize = 32;
/// Fewest pages prefetched at once.
pub const WINDOW_MIN: u32 = 2;
/// Most pages prefetched at once: one message's.
pub const WINDOW_MAX: u32 = 16;
/// Percent of used pages below which the window is halved.
pub const USED_PERCENT_MIN: u32 = 30;
/// Runs of pages that hints may hold.
pub const HINT_RUNS_MAX: usize = 256;
/// Runs ahead of the program's position where a used page is looked for.
pub const HINT_RUNS_SEARCHED: usize = 8;
/// Pages of slack beyond just in time.
pub const JUST_IN_TIME_SLACK: u64 = 2;

/// The part of a node's frames that pages may have which were fetched before anybody asked for them, one in so many.
pub const AHEAD_SHARE: u32 = 8;
/// Programs of one node that say in which order they will use pages; 10 KiB each.
pub const PLANS_MAX: usize = 16;
/// Spaces whose faults are watched for a trend; 400 bytes each. With more the one that is longest without a fault goes.
pub const TRENDS_MAX: usize = 32;
/// Trends' windows that wait to be fetched; of more the oldest is forgotten.
pub const ORDERS_MAX: usize = 64;
/// Tasks that prefetch: each carries one message's pages at a time.
pub const AHEAD_TASKS: usize = 4;
/// Pages ahead of a program that are in local memory or on their way there.
pub const NEAR_MAX: u64 = 64;
/// Pages ahead of a program that are in idle nodes' memory: 1 MiB of 4 KiB pages. The most that a wrong hint costs.
pub const FAR_MAX: u64 = 256;
/// Pages that a program goes on before an idle node is asked again that had no room.
pub const FAR_PAUSE: u64 = 32;
/// Requests of other nodes to read up to sixteen pages early that a node serves at a time.
pub const EARLY_MAX: usize = 4;
/// Demand fetches under way beside which nothing is prefetched: the slots that are left are for them.
pub const DEMAND_BUSY: usize = 16;
/// Frames of the node that prefetch leaves to messages on which a task waits.
pub const FRAMES_LEFT: usize = 128;
/// Reads of stable storage at a time for prefetch.
pub const EARLY_READS: usize = 8;
/// Time that a page is kept beyond four times what it was to take until its use.
pub const AHEAD_GRACE: Duration = Duration::from_millis(50);
/// How long a program is taken to use each page, and a fetch to take, before anything is known.
pub const PACE: Duration = Duration::from_millis(1);

/// Times that a request for a page is passed on, by a directory or by its requester, before stable storage is asked.
pub const HOPS_MAX: u8 = 4;
/// How long one holder or directory is waited for: NetRPC sends again after a quarter of it.
pub const ATTEMPT: Duration = Duration::from_secs(1);
/// How long a request for a page, or for the durability of one, goes on trying.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before a directory is asked again that has not heard of all members since the view changed; doubles up to
/// [`PAUSE_MAX`].
pub const PAUSE: Duration = Duration::from_millis(2);
/// Longest such pause.
pub const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Stable storage is asked as well when a peer has not answered after so many times its 99th percentile (Dean and
/// Barroso, The Tail at Scale, CACM 2013: hedged requests).
pub const HEDGE_TIMES: u32 = 4;
/// Not before this.
pub const HEDGE_MIN: Duration = Duration::from_micros(200);
/// And not later than this, which is also the time for a peer that is not known yet.
pub const HEDGE_MAX: Duration = Duration::from_millis(20);
/// Answers after which old ones count half in a peer's latencies.
pub const LATENCY_SAMPLES: u32 = 1024;

/// Requests for a page of which one is measured if the page is here: two looks at the clock take 46 ns of processor
/// time here, so each request costs 1 ns more, of some 200.
pub const LOCAL_SAMPLED: u32 = 64;

/// Tasks that serve requests of other nodes.
pub const REQUEST_TASKS: usize = 32;
/// Requests that wait for other nodes under way at once: others find a task always.
pub const SLOW_REQUESTS_MAX: usize = 24;
/// Faults of the node's own programs under way at once; half of the calls that a node may have open.
pub const FAULTS_MAX: usize = 512;
/// Tasks that carry evicted pages to other nodes.
pub const LEAVING_TASKS: usize = 16;
/// Bytes of the pages that wait for them and of those under way; more are dropped, since they are clean. A cache whose
/// written blocks have become clean mostly gives away less at once.
pub const LEAVING_BYTES: usize = 8 << 20;
/// Most of these pages: each miss looks through them.
pub const LEAVING_MAX: usize = 512;
/// Tasks that make dirty pages durable before their frames are needed.
pub const CLEANING_TASKS: usize = 4;
/// Nodes that are asked to take a mirror before the writer has to wait.
pub const MIRROR_TRIES: usize = 4;
/// Pause of a cleaner that found no node for a mirror.
pub const CLEANING_PAUSE: Duration = Duration::from_millis(20);
/// Tasks that tell other nodes what they may learn late.
pub const NOTICE_TASKS: usize = 4;
/// Notices that wait for them: 64 bytes each. A copy that its directory cannot be told of is given up; that one has
/// gone is found out by the next request, which goes astray.
pub const NOTICES_MAX: usize = 4096;
/// And those that are told until they arrive, of copies and mirrors to be given up. Without room for them a directory
/// takes in no copy that others would have to make way for.
pub const OWED_MAX: usize = 8192;
/// Tasks that make mirrors anew after a node went down, of one page each: a node serves three others' at a time beside
/// what else waits for other nodes.
pub const REPAIR_TASKS: usize = 8;
/// Pause after a mirror could not be made.
pub const REPAIR_PAUSE: Duration = Duration::from_millis(50);
/// Pause of a writer whose page has lost all its mirrors and finds no node for another.
pub const BARED_PAUSE: Duration = Duration::from_millis(500);
/// Pages that lose nothing by it which leave at a time when a node lends less: half of what can wait to be carried
/// away.
pub const SHRINK_PAGES: usize = LEAVING_MAX / 2;
/// Pause after so many, in which they are carried away: 50 MiB/s of 4 KiB pages.
pub const SHRINK_PAUSE: Duration = Duration::from_millis(10);
/// Mirrors that are migrated to other nodes at a time.
pub const SHRINK_MIRRORS: usize = 8;
/// Candidates that are looked at for them.
pub const SHRINK_MIRRORS_SEEN: usize = 256;
/// Pause after nothing found room elsewhere.
pub const SHRINK_RETRY: Duration = Duration::from_millis(500);
/// The part of the directory's share of memory that hints about holders have, one in so many.
pub const HINT_SHARE: usize = 4;
/// Spaces remembered as freed: 24 bytes each.
pub const FREED_MAX: usize = 4096;
/// How long a freed space is remembered at least: longer than any message is retransmitted.
pub const FREED_SPAN: Duration = Duration::from_secs(60);
/// How long a private space's pages outlive a node that went down without coming back: it may have been paused only.
pub const ORPHAN_SPAN: Duration = Duration::from_secs(60);
/// Pages remembered of which a version was not durable when this node's incarnation ended: 24 bytes each.
pub const FAILED_MAX: usize = 1 << 16;
/// How long pages of a process that is no node outlive its last word: it may be stopped (Ctrl-Z), or its machine cut
/// off.
pub const GUEST_SPAN: Duration = Duration::from_secs(300);
/// Pages that a guest asks for ahead of their use in one go: 64 KiB in pages of 4 KiB, of which a page takes a fifth of
/// the time of one that is asked for alone.
pub const GUEST_AHEAD_MAX: usize = 16;
/// Neighbouring pages that holders are offered in the same order, so that few are asked for many: as many as are asked
/// for at once.
pub const GUEST_RUN: u64 = GUEST_AHEAD_MAX as u64;
/// Most copies of a version of a guest's page.
pub const GUEST_COPIES_MAX: usize = 2;
/// How often a guest tells a holder that it is there, and asks whether that is still the same.
pub const GUEST_VISIT_SPAN: Duration = Duration::from_millis(500);
/// The same of one that does not answer.
pub const GUEST_AWAY_VISIT_SPAN: Duration = Duration::from_millis(250);
/// A holder that is away for longer counts as gone: other copies are made of what it has. A pause of less is cheaper
/// to wait for.
pub const GUEST_AWAY_MAX: Duration = Duration::from_secs(1);
/// How long a holder that was full is not offered new pages.
pub const GUEST_FULL_SPAN: Duration = Duration::from_millis(50);
/// Weak pages that are found in one look through the table.
pub const GUEST_WEAK_MAX: usize = 256;
/// Pause before pages are looked for again that could not be mended.
pub const GUEST_MEND_PAUSE: Duration = Duration::from_millis(100);
/// Pages that holders are to forget and have not been told of yet, 24 bytes each. More keep their memory until they
/// are stored again or the guest's space is freed.
pub const GUEST_DROPS_MAX: usize = 8192;
/// Of them in one message.
pub const GUEST_DROPS_AT_ONCE: usize = 64;
/// Pages remembered whose mirrors a directory was told of and has no entry for: 80 bytes each.
pub const UNLISTED_MAX: usize = 4096;
/// Writers' leases that one directory grants. For one more, the one that was granted longest ago is taken back.
pub const LEASES_MAX: usize = 4096;
/// Numbers that pages hash to whose leases were taken back for that: for each one version of 16 bytes is remembered,
/// the newest of all these pages. So one lease in so many begins with another page's version.
pub const FORGOTTEN_LEASES: u64 = LEASES_MAX as u64;
/// Versions of a shared page: each view begins its leases with the view's number in the bits from here on. Enough for
/// 67 million views; after them no node can write a newer version.
pub const VIEW_SHIFT: u32 = 38;
/// And a lease after one whose end is not known with the next number in the bits from here on: 256 of these in a view,
/// and a thousand million versions in a lease.
pub const LEASE_SHIFT: u32 = 30;
/// Longest page: one run of frames that a small pool has.
pub const PAGE_BYTES_MAX: usize = 64 * 1024;
/// How long digests are waited for, as a part of an epoch, one in so many.
pub const DIGEST_WAIT_SHARE: u32 = 4;
/// Longest runs of the node's pool that pages must not stand in the way of: two reads of 1 MiB and what they wait for.
pub const FREE_STRETCHES: usize = 4;
/// Stretches of the pool cleared for that in one go: each takes a look at every page, and copies 1 MiB at most.
pub const CLEARED_STRETCHES_MAX: usize = 4;
/// Stretches whose memory goes back to the system in one look: 300 MiB/s.
pub const RETURNED_STRETCHES_MAX: usize = 16;
/// How often a node looks whether its epoch has ended.
pub const EPOCH_TICK: Duration = Duration::from_millis(50);
/// Nodes of a cluster, for tables that are sent whole.
pub const MEMBERS_MAX: usize = 4096;

const _: () = assert!(SLOTS.is_power_of_two());
const _: () = assert!(EXTENT_PAGES == u16::BITS as u64, "a bit for each page of an extent");
const _: () = assert!(PAGE_BYTES_MAX.is_multiple_of(wire::limits::BLOCK_BYTES));
const _: () = assert!(PAGE_BYTES_MAX / wire::limits::BLOCK_BYTES <= u8::MAX as usize);
const _: () = assert!(STAGING_SHARE > 1);
const _: () = assert!(AHEAD_SHARE > 1);
const _: () = assert!(OWN_TENTHS >= 10, "the node's own pages go for younger ones only");
const _: () = assert!(WEIGHT_PERCENT_MAX <= 100);
const _: () = assert!(EPOCH_TICK.as_millis() < EPOCH.as_millis());
const _: () = assert!(SILENT_EPOCHS > 1, "one epoch may be late");
const _: () = assert!(WINDOW_MIN <= WINDOW_MAX);
const _: () = assert!(WINDOW_MAX as u64 <= EXTENT_PAGES, "a window is a batch at most");
const _: () = assert!((WINDOW_MAX as u64) < NEAR_MAX);
const _: () = assert!(NEAR_MAX < FAR_MAX);
const _: () = assert!(FAR_PAUSE < FAR_MAX);
const _: () = assert!(HINT_RUNS_SEARCHED <= HINT_RUNS_MAX);
const _: () =
    assert!(NEAR_MAX as usize <= FAULTS_MAX / 2, "demand finds room beside what is early");
const _: () = assert!(HEDGE_MIN.as_micros() < HEDGE_MAX.as_micros());
const _: () = assert!(HEDGE_MAX.as_millis() < ATTEMPT.as_millis());
const _: () = assert!(ATTEMPT.as_millis() < PATIENCE.as_millis());
const _: () = assert!(PAUSE.as_millis() < PAUSE_MAX.as_millis());
const _: () = assert!(SLOW_REQUESTS_MAX < REQUEST_TASKS, "some tasks are for what is quick");
const _: () = assert!(SHRINK_MIRRORS <= SHRINK_MIRRORS_SEEN);
const _: () = assert!(SHRINK_PAGES <= LEAVING_MAX);
const _: () = assert!(LEASE_SHIFT < VIEW_SHIFT, "a view has many leases of a page");
const _: () = assert!(GUEST_DROPS_AT_ONCE <= GUEST_DROPS_MAX);
const _: () = assert!(GUEST_AWAY_VISIT_SPAN.as_millis() < GUEST_AWAY_MAX.as_millis());
const _: () = assert!(GUEST_VISIT_SPAN.as_millis() < GUEST_SPAN.as_millis());
