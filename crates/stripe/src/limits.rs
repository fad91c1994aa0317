//! Limits of block storage, with the arithmetic that chose them.

use std::time::Duration;
use wire::limits::{BLOCK_BYTES, PAYLOAD_BYTES_MAX};

/// Blocks of a chunk, the unit in which the cache takes memory: 32 KiB, the default stripe unit.
pub const CHUNK_BLOCKS: usize = 8;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = CHUNK_BLOCKS * BLOCK_BYTES;
/// Blocks of a window, the unit of eviction and of sequential disk reads: 256 KiB. One word holds a bit per block.
pub const WINDOW_BLOCKS: usize = 64;
/// Bytes of a window.
pub const WINDOW_BYTES: usize = WINDOW_BLOCKS * BLOCK_BYTES;
/// Windows that a longest READ touches.
pub const WINDOWS_MAX: usize = TRANSFER_BYTES_MAX / WINDOW_BYTES + 1;
/// Chunks of a window.
pub const WINDOW_CHUNKS: usize = WINDOW_BLOCKS / CHUNK_BLOCKS;
/// The cost of a window's bookkeeping, counted as cached bytes: a 4 KiB file in the cache costs 5 KiB.
pub const WINDOW_COST_BYTES: usize = 1024;
/// The part of the pool beyond the cache's limit that is kept free for requests' data, one in so many: the rest is what
/// requests hold while they are executed, which the cache need not make up for. Of 512 MiB with a cache of 384 it is
/// 32 MiB, 32 longest WRITEs.
pub const RESERVE_SHARE: usize = 4;
/// So many longest WRITEs find a run each, whatever else is written: more are tried again after a pause.
pub const FREE_STRETCHES: usize = 8;
/// Stretches of the pool cleared at once: looking for one takes 0.1 ms with 512 MiB.
pub const CLEARED_STRETCHES_MAX: usize = 4;
/// Pause after that: 1 GB/s of longest WRITEs while small ones have scattered what is cached.
pub const CLEARED_PAUSE: Duration = Duration::from_millis(4);
/// Pause when no stretch could be cleared and the disks were asked to take what they have to: a checkpoint is some
/// synchronisations, 0.1 s of a magnetic disk.
pub const PRESSED_PAUSE: Duration = Duration::from_millis(500);
/// When no room can be made, the next attempt comes when the cache has changed by one part in so many: 6 MiB of 384.
pub const UNMET_SHARE: usize = 64;
/// The part of the cache's limit that the node's directory of network memory may take for chunks that left, one in so
/// many: with 384 MiB of cache 24 MiB, which name 6 GiB of chunks.
pub const NAMED_SHARE: usize = 16;
/// Memory for what is known of a chunk that left for network memory: an entry of a tree and a place in a queue.
pub const AWAY_COST_BYTES: usize = 64;
/// The part of the cache's limit that these may take, one in so many: with 384 MiB of cache, of 24 GiB of chunks.
pub const AWAY_SHARE: usize = 8;
/// Reads of a block that follow each other sooner are one use (O'Neil and others, The LRU-K page replacement algorithm,
/// SIGMOD'93, section 2.1.1: correlated reference period): a long READ looks for what it brings in several times.
pub const ONE_USE_SPAN: Duration = Duration::from_millis(10);
/// A chunk that comes back was used again when not more has left since than so many times what this node's memory
/// holds: as much as netmem's pages that were used once are behind the others (`ONCE_BOOST`).
pub const RECENT_TIMES: usize = 4;
/// How long network memory has before the disk is asked: a peer answers within 0.1 ms, a magnetic disk takes 8.
pub const NETWORK_PATIENCE: Duration = Duration::from_millis(2);
/// Most that a request which needs room in the cache waits for evicted pages to be carried away, for each window of it:
/// a steady reader or writer goes on at 256 MB/s at least, and none waits for pages that no other node takes.
pub const CARRY_PATIENCE: Duration = Duration::from_millis(1);
/// READs answered at once of which one is measured: two looks at the clock take 46 ns of processor time here, a hit
/// about 1 us, so a hit costs 2 ns more. Of the others, which take 3 us and more, each is measured.
pub const HITS_SAMPLED: u32 = 32;
/// Distance of read-ahead from a sequential reader: 1 MiB keeps a 2 GB/s disk busy for 0.5 ms.
pub const READ_AHEAD_WINDOWS: u64 = 4;
/// Read-ahead requests that may wait; more are forgotten: 4 windows of 32 columns.
pub const READ_AHEAD_QUEUE: usize = 128;
/// Tasks that read ahead for each disk, so reads of a disk under way on its behalf: with one alone a disk that takes
/// 1 ms to answer and 9 ms for a window gives nine tenths of its rate.
pub const READ_AHEAD_TASKS: usize = 4;
/// PREFETCH requests that may wait; more are refused: 1,024 of 1 MiB are more than any cache keeps for hints.
pub const HINTS_MAX: usize = 1024;
/// Tasks that load for them, for each disk: a small file is three reads, of header, checksums and data.
pub const HINT_TASKS: usize = 4;
/// The part of the cache's limit for hinted data that was not read yet, one in so many. Beyond it a hint displaces the
/// data of the oldest one, and nothing else.
pub const HINTED_SHARE: usize = 4;
/// Hinted windows that were not read yet: 24 bytes each; as many 5 KiB windows are 20 MiB.
pub const HINTED_WINDOWS_MAX: usize = 4096;
/// How long a hint's disk read waits for READs that wait for a disk: where they never end, 10 windows a second.
pub const HINT_WAIT: Duration = Duration::from_millis(100);
/// Between two looks at whether there are some.
pub const HINT_PAUSE: Duration = Duration::from_millis(1);
/// How long a client waits for the answer to a PREFETCH: nothing depends on it.
pub const HINT_PATIENCE: Duration = Duration::from_secs(1);
/// Most bytes of a file that one hint of a client names: 1 MiB of each of four columns.
pub const HINT_BYTES_MAX: u64 = 4 * TRANSFER_BYTES_MAX as u64;

/// Shortest READ that is answered while the disk still reads, if it takes more than one disk read: below it the
/// transfer takes less time than a disk's answer varies. Cutting one window into four disk reads made its answer a
/// tenth slower.
pub const THROUGH_BYTES_MIN: usize = 128 << 10;
/// A disk that took longer for the first part is slow: the answer is sent when it is whole. A solid-state disk takes
/// 0.1 ms and 0.2 to 0.5 for a window, a magnetic one 8.
pub const THROUGH_SOON: Duration = Duration::from_millis(2);
/// How long an answer may be filling, with all other traffic of its connection behind it.
pub const THROUGH_PATIENCE: Duration = Duration::from_millis(20);
/// Time after a spoilt answer in which the object's READs are answered in one piece. The client retries at once, or,
/// when that is lost, some retransmissions later.
pub const THROUGH_PAUSE: Duration = Duration::from_secs(10);

/// Longest object; block numbers stay below 2^32.
pub const OBJECT_BYTES_MAX: u64 = wire::limits::OBJECT_BYTES_MAX;
/// Most dirty blocks that one COMMIT puts into the log itself: 256 KiB.
pub const LOGGED_BLOCKS_MAX: usize = 64;
/// Most blocks under one intent: 32 MiB; its checksums are 32 KiB of log.
pub const INTENT_BLOCKS_MAX: usize = 8192;
/// Most blocks of one record's description: 12 bytes a run and 4 a checksum for 8192 runs of one block is 128 KiB, 32
/// blocks, and one for the fixed part.
pub const RECORD_META_BLOCKS_MAX: usize = 34;
/// Most bytes of one write to the log, so of records that one disk synchronisation makes durable: a largest record
/// and as much of others.
pub const LOG_BATCH_BYTES_MAX: usize = 512 << 10;
/// By how much a log's file grows at a time: 21 commits of 8 KiB, 0.3 ms of a disk of 1 GB/s.
pub const LOG_STEP_BYTES: usize = 256 << 10;
/// By how much sequences jump at a start, over those of the records that one write to the log may have left unfinished.
pub const LOG_SEQUENCE_STEP: u64 = 1024;
const _: () = assert!(LOG_SEQUENCE_STEP > (LOG_BATCH_BYTES_MAX / BLOCK_BYTES) as u64);
/// So long after a commit a disk notes in its label how far its log is durable: two small writes a second while there
/// are commits, for which none of them waits.
pub const MARK_SPAN: Duration = Duration::from_secs(1);
/// Dirty bytes of a disk at which it begins to write them, unasked: a disk that waits for a COMMIT stands still while
/// the client fills its memory, and the client while the disk works. 4 MiB are 30 ms of a disk of 130 MB/s, so what a
/// synchronisation costs beside them is little.
pub const FLUSH_BYTES: usize = 4 << 20;
/// Disk writes that one commit or checkpoint has under way.
pub const PLACE_PARALLEL: usize = 16;
/// Objects that a checkpoint brings up to date at once, each with a gate that commits wait at: 32 writes and one
/// synchronisation are a few milliseconds.
pub const CHECKPOINT_PARALLEL: usize = 32;
/// From so many objects on, one synchronisation of the whole disk is cheaper than one for each.
pub const SYNC_ALL_OBJECTS: usize = 4;
/// Longest write that a checkpoint puts together by copying: header, checksums and the 64 KiB of a small file.
pub const JOINED_BYTES_MAX: usize = 72 << 10;
/// Committed bytes in a log that start a checkpoint. They stay in memory until it is done, so at most twice as many.
pub const CHECKPOINT_BYTES: u64 = 8 << 20;
/// Records in a log that start a checkpoint whatever their size: each may be an object to open at a restart.
pub const CHECKPOINT_RECORDS: u64 = 16 * 1024;
/// Most bytes of one batch of a disk's index, so of one write: 2,976 objects. It is memory that a checkpoint takes
/// while the cache may be full.
pub const INDEX_BATCH_BYTES: usize = 64 << 10;
/// By how much the index's file grows at a time: 16 checkpoints of few objects.
pub const INDEX_STEP_BYTES: usize = 64 << 10;
/// Bytes of the index's file that may say nothing any more, besides as many as count: 64 checkpoints of few objects.
pub const INDEX_DEAD_BYTES: u64 = 256 << 10;
/// Objects that a disk names as damaged; more are counted by a lower bound.
pub const DAMAGED_MAX: usize = 16 * 1024;
/// Between two reads of a round at least: 50 MB/s at most.
pub const SCRUB_PAUSE: Duration = Duration::from_millis(5);
/// How long a read of a round waits for READs that wait for a disk: where they never end, 2.6 MB/s.
pub const SCRUB_WAIT: Duration = Duration::from_millis(100);
/// Objects that one round tries a second time when it could not read them.
pub const SCRUB_AGAIN_MAX: usize = 1024;
/// Bytes that commits leave free on a disk: for removals and truncations, headers and checksums.
pub const RESERVE_BYTES: u64 = 1 << 20;
/// The same on larger disks: so much of one part in so many. Others write to it too, the manager and other servers.
pub const RESERVE_SHARE_OF_DISK: u64 = 64;
/// Most of it.
pub const RESERVE_BYTES_MAX: u64 = 32 << 20;
/// With so much more free than needed, a disk is not asked for its room at every commit.
pub const ROOM_KNOWN_BYTES: u64 = 64 << 20;
/// How long what is known of its room counts at most: others may fill the same disk. A write that finds none ends it.
pub const ROOM_KNOWN_SPAN: Duration = Duration::from_secs(100);
/// Bytes that a log's file keeps on a disk with less room than [`SPARE_ROOM_BYTES`]: 128 removals find room in
/// it, and each checkpoint makes room for as many again.
pub const LOG_KEPT_BYTES: u64 = 1 << 20;
/// On disks that are smaller than so many times that, nothing of it is kept.
pub const LOG_KEPT_SHARE: u64 = 128;
/// With so much free on a disk, logs that are in place keep their files to be written over: two of at most 17 MiB.
pub const SPARE_ROOM_BYTES: u64 = 256 << 20;
/// Objects kept open that have nothing cached: 16 Ki of about 900 bytes is 15 MiB.
pub const IDLE_OBJECTS_MAX: usize = 16 * 1024;
/// How long a removed object stays refused to late writes: longer than a client keeps trying a call (30 s) and than
/// an open write session may live on after its client's lease. After a restart of the server tombstones are gone, and
/// so is every session in which such a write could arrive.
pub const TOMBSTONE: Duration = Duration::from_secs(120);
/// Most tombstones; the oldest goes first.
pub const TOMBSTONES_MAX: usize = 64 * 1024;
/// Objects that one request removes: as many names of 16 bytes as a trailer has room for.
pub const REMOVALS_MAX: usize = OWN_TRAILER_BYTES_MAX / crate::protocol::Kept::BYTES;
/// Longest trailer of a request that changes objects: the place in their order follows it to other replicas.
pub const OWN_TRAILER_BYTES_MAX: usize = wire::limits::TRAILER_BYTES_MAX - 48;
/// Incarnations of a server that a disk remembers, 8 bytes each in one block.
pub const INCARNATIONS_MAX: usize = 500;
/// Bytes of a label's second block in front of them: 24 of its head, 36 of the log's mark, 26 of the manager's.
pub const INCARNATIONS_FIXED_BYTES: usize = 96;
/// Managers of which a disk remembers how far they are, 28 bytes each behind its incarnations, of which the oldest make
/// room: 260 are left with all of them.
pub const WITNESSES_MAX: usize = 64;
const _: () = assert!(INCARNATIONS_FIXED_BYTES + INCARNATIONS_MAX * 8 <= BLOCK_BYTES);
/// How long a server remembers what was written since its start: a client that has not retransmitted by then what the
/// last incarnation lost gave up long ago (5 minutes).
pub const RECENT_SPAN: Duration = Duration::from_secs(600);
/// Most ranges remembered: about 50 bytes each, 3 MiB.
pub const RECENT_RANGES_MAX: usize = 64 * 1024;
/// Most objects with such ranges: about 250 bytes each, 4 MiB.
pub const RECENT_OBJECTS_MAX: usize = 16 * 1024;
/// Most incarnations that a server tells another one of when a column moves there: 8 restarts within [`RECENT_SPAN`].
pub const PAST_INCARNATIONS_MAX: usize = 8;
/// Objects that a census asks a disk about at a time.
pub const CENSUS_PARALLEL: usize = 32;
/// Longest path that an object's description keeps: such a one fits in a trailer with all else.
pub const DESCRIBED_PATH_BYTES_MAX: usize = 960;
/// Longest layout with its block map that an object's description keeps: 32 columns take 108 bytes, and 31 fragments,
/// as many as there are when each column but one was added by itself, 27 each and 4. A longer one is left out.
pub const DESCRIBED_LAYOUT_BYTES_MAX: usize = 956;
/// The same in releases that knew no groups, whose headers are read.
pub const DESCRIBED_LAYOUT_BYTES_BEFORE: usize = 960;
/// Objects described that start a checkpoint: their records are 1 MiB of log, if they had none.
pub const DESCRIBED_MAX: usize = 256;
/// A description is in place after so long also where nothing else brings a checkpoint.
pub const DESCRIBED_SPAN: Duration = Duration::from_secs(60);
/// Most names in one LIST reply: 16 bytes each is 64 KiB.
pub const LIST_COUNT_MAX: usize = 4096;

/// Bytes that a copy of a column reads and compares at once: two frames of it.
pub const COPY_BYTES: usize = 256 << 10;
/// Block maps that a client keeps: at most 2 KiB each, 8 MiB; then it forgets all and asks again.
pub const MAPS_MAX: usize = 4096;
/// Most bytes of data in one READ or WRITE.
pub const TRANSFER_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;
/// Most pieces the client gives one call to land in: below the endpoint's 64, so that a reply's frames fit too.
pub const PIECES_MAX: usize = 32;
/// How long what cannot be read is read again before it is given up for good, and the pause between two tries. A time
/// and no number: each try may take a magnetic disk half a minute, in which it has repeated the read itself.
pub const UNREADABLE_SPAN: Duration = Duration::from_millis(500);
/// See [`UNREADABLE_SPAN`].
pub const UNREADABLE_PAUSE: Duration = Duration::from_millis(100);
/// Fewest tries at a start, where they delay no request, and more than one block may be lost.
pub const UNREADABLE_READS_MIN: usize = 3;
/// Most blocks of a log that cannot be read and count as torn by a power cut, which spoils what was being written at
/// that moment, a few sectors: 32 KiB. With more the disk is broken, and each costs its start [`UNREADABLE_SPAN`].
pub const LOG_BAD_BLOCKS_MAX: usize = 8;
/// How often the client reads a block again whose checksum does not fit.
pub const CHECKSUM_RETRIES: u32 = 3;
/// How long the client waits for a server to come back.
pub const RETRY_DEADLINE: Duration = Duration::from_secs(30);
/// First and longest pause between two tries.
pub const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// See [`RETRY_PAUSE`].
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long a server's answer about its room is waited for: applications wait for statfs.
pub const SPACE_SPAN: Duration = Duration::from_secs(2);
/// The same for a server whose last answer, or silence, is known: a hundred times what a disk's answer takes.
pub const SPACE_AGAIN_SPAN: Duration = Duration::from_millis(100);

/// Groups of blocks that one SEEK looks through, whose checksums may have to be read; as many a scrub passes at once.
pub const SEEK_GROUPS_MAX: usize = 256;

const _: () = assert!(WINDOW_BLOCKS == u64::BITS as usize, "a bit for each block");
const _: () = assert!(WINDOW_BLOCKS.is_multiple_of(CHUNK_BLOCKS));
const _: () = assert!(TRANSFER_BYTES_MAX.is_multiple_of(WINDOW_BYTES));
const _: () = assert!(LOGGED_BLOCKS_MAX * BLOCK_BYTES < LOG_BATCH_BYTES_MAX);
const _: () = assert!(LOGGED_BLOCKS_MAX <= INTENT_BLOCKS_MAX);
const _: () = assert!(INTENT_BLOCKS_MAX * 16 < (RECORD_META_BLOCKS_MAX - 1) * BLOCK_BYTES);
const _: () = assert!(LOG_BATCH_BYTES_MAX as u64 * 2 <= CHECKPOINT_BYTES);
const _: () = assert!(LOG_STEP_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(INDEX_STEP_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(INDEX_BATCH_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(COPY_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(COPY_BYTES <= TRANSFER_BYTES_MAX);
const _: () = assert!(JOINED_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(THROUGH_BYTES_MIN <= TRANSFER_BYTES_MAX);
const _: () = assert!(THROUGH_SOON.as_millis() < THROUGH_PATIENCE.as_millis());
const _: () = assert!(CARRY_PATIENCE.as_micros() <= NETWORK_PATIENCE.as_micros());
const _: () = assert!(RESERVE_BYTES < RESERVE_BYTES_MAX);
const _: () = assert!(RESERVE_BYTES_MAX < ROOM_KNOWN_BYTES);
const _: () = assert!(LOG_KEPT_BYTES < SPARE_ROOM_BYTES);
const _: () = assert!(RETRY_PAUSE.as_millis() < RETRY_PAUSE_MAX.as_millis());
const _: () = assert!(RETRY_PAUSE_MAX.as_millis() < RETRY_DEADLINE.as_millis());
const _: () =
    assert!(RETRY_DEADLINE.as_secs() < TOMBSTONE.as_secs(), "no write is later than that");
const _: () = assert!(TOMBSTONE.as_secs() < RECENT_SPAN.as_secs());
const _: () = assert!(UNREADABLE_PAUSE.as_millis() < UNREADABLE_SPAN.as_millis());
const _: () = assert!(LIST_COUNT_MAX * crate::protocol::Kept::BYTES <= TRANSFER_BYTES_MAX);
const _: () = assert!(PAST_INCARNATIONS_MAX <= INCARNATIONS_MAX);
const _: () = assert!(REMOVALS_MAX > 0);
/// How long a client waits for the primary of a group: after a lease of 2 s and what is promised beyond it another one
/// may be it.
pub const GROUP_CALL_SPAN: Duration = Duration::from_secs(3);
