//! Limits of the file manager, with the arithmetic that chose them.

use std::time::Duration;

/// How long after a change was refused for want of room that is told as a problem.
pub const FULL_SPAN: Duration = Duration::from_secs(30);

/// Most names of one file (POSIX `LINK_MAX`), and most directories in one directory plus 2: as ext4.
pub const LINKS_MAX: u32 = 65_000;
/// Longest symbolic link: a path without its terminating zero.
pub const SYMLINK_BYTES_MAX: usize = wire::limits::PATH_BYTES_MAX - 1;
/// Supplementary groups that a call carries: all that a process of Linux can have (`NGROUPS_MAX`), 256 KiB. Users
/// rarely have more than 32, which are 128 bytes of every call.
pub const GROUPS_MAX: usize = 65_536;
/// Longest name of an extended attribute (Linux `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Largest value of an extended attribute (Linux `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 64 * 1024;
/// Extended attributes of one file: 256 names of 255 bytes and a zero fill the 64 KiB of `XATTR_LIST_MAX`.
pub const XATTRS_MAX: usize = 256;
/// Largest answer beside what its body holds: a value of an extended attribute, a listing of a directory.
pub const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Room for what a listing of a directory has beside its entries: their count, whether it ends, and where; and the
/// directory's attributes.
pub const LISTING_HEAD_BYTES: usize = 25 + wire::Attr::BYTES;
/// Bytes of keys and values in a part of a backup, of which the last may be as long as the store takes one: 136 KiB.
pub const BACKUP_PART_BYTES: usize = 64 * 1024;
/// Most bytes of such an answer.
pub const BACKUP_REPLY_BYTES_MAX: usize = 256 * 1024;
/// A backup that was not asked for any more of itself for so long has ended.
pub const BACKUP_SPAN: Duration = Duration::from_secs(60);
/// Counters of changes, by which parts of directories that clients keep are told from what they were: with 65,536 one
/// part of 200 files in 330 shares a counter with a file that changes.
pub const LISTING_COUNTERS: usize = 1 << 16;
/// Files in all parts of directories that are remembered, 8 bytes each: 1,000 parts of 260.
pub const LISTED_FILES_MAX: usize = 1 << 18;
/// Largest listing of a directory.
pub const LISTING_BYTES_MAX: usize = REPLY_BYTES_MAX - LISTING_HEAD_BYTES;
/// Fragments of a block map in one reply or change: all of them.
pub const FRAGMENTS_MAX: usize = wire::blockmap::MAP_FRAGMENTS_MAX;
/// Binary logarithm of how many layout epochs a file gets in each lineage of the store.
pub const LINEAGE_EPOCHS_SHIFT: u32 = 16;
/// Opens that one call announces again: 16 bytes each, 32 KiB.
pub const CLAIMS_MAX: usize = 2048;
/// Locks held on one file, 48 bytes each: 3 MiB.
pub const LOCKS_MAX: usize = 65_536;
/// Owners whose locks on a file a client takes and does not know the outcome of; releases are remembered beyond it, of
/// which there are no more than locks held. 100 bytes each.
pub const DOUBTS_MAX: usize = 4096;
/// Runs of numbers of a client's closes that have taken place. Between two is one that has not, and a client has
/// [`HOLDING_MAX`] under way: only those that were given up can be more. 16 bytes each. A close that is passed over
/// then leaves an open until the client says again what it has open, which it does after each that was given up.
pub const CLOSES_MAX: usize = HOLDING_MAX;
/// Opens, closes and locks of a client under way at once.
pub const HOLDING_MAX: usize = 1024;
/// A client that was not heard of for so long has lost its opens and locks.
pub const LEASE: Duration = Duration::from_secs(30);
/// Clients say that they live this often: several chances within a lease.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Requests under way at once; each is a task of about 2 KiB.
pub const TASKS: usize = 64;
/// When all of them wait, for the log or for servers, clients that say that they live are heard this often: many times
/// within a lease.
pub const HEAR_INTERVAL: Duration = Duration::from_secs(1);
/// Everything acknowledged is on stable storage this long after, without anybody asking.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// How long a change waits for a checkpoint where the disk has no room for longer logs: less than a call takes at most.
pub const SCARCE_SPAN: Duration = Duration::from_secs(5);
/// Pause before the next checkpoint where one has made no room.
pub const SCARCE_PAUSE: Duration = Duration::from_millis(100);
/// Calls of one client about one site under way that must not be executed twice; the site's manager keeps an answer of
/// about 200 bytes for each. Those of one site for a manager that is away leave the slots of other sites free.
pub const SLOTS: usize = 64;
/// How long an operation over several managers holds files at another one before its changes are prepared: longer is
/// one whose manager is away. Two round trips and a sync take some milliseconds.
pub const HOLD_SPAN: Duration = Duration::from_secs(10);
/// How long a manager begins no operation with others, and no handover, for a snapshot of all managers whose next step
/// does not come: a step is a round trip, and a sync of each.
pub const QUIESCE_SPAN: Duration = Duration::from_secs(10);
/// The same for changes of any kind, once it makes none.
pub const PAUSE_SPAN: Duration = Duration::from_secs(5);
/// How long it waits for operations under way before it says that some are: most end within some milliseconds.
pub const QUIET_SPAN: Duration = Duration::from_secs(1);
/// Decided operations that one message to another manager is about: 10 KiB.
pub const SETTLED_AT_ONCE: usize = 1024;
/// Requests of clients that wait for other managers, or for what those hold: each is a task and a message, 4 KiB.
pub const WAITING_MAX: usize = 4096;
/// Requests of other managers under way at once.
pub const MANAGER_TASKS: usize = 32;
/// How long a manager waits for another one's answer: two syncs of a busy disk, and the wait for a file that is held.
pub const MANAGER_DEADLINE: Duration = Duration::from_secs(5);
/// Largest answer of a manager to another one: a record of each file that an operation is about, the longest of which
/// is a symbolic link's; and a table of sites.
pub const MANAGER_REPLY_BYTES_MAX: usize = 16 * 1024;
/// Records that are asked of another manager at once. A bucket of a hashed directory has 230 bytes at most, a symbolic
/// link 4.3 KiB, and no operation is about more than two of those.
pub const FETCHED_AT_ONCE: usize = 32;
/// Bytes of keys and values of a site that travel together to its next owner; the last may be as long as the store
/// takes one.
pub const IMPORT_BYTES: usize = 64 * 1024;
/// How often managers tell each other where sites are.
pub const TABLE_INTERVAL: Duration = Duration::from_secs(5);
/// Hashed directories that a client knows: it learns by one refusal which ones are, and 16 bytes are kept of each.
pub const HASHED_MAX: usize = 10_000;
/// Rounds in a row in which all managers answer until what none has of a hashed directory is taken for lost: in the
/// first one the directory is hashed, in the next one a part is lacking, and in the last one it is hashed yet.
pub const LACKING_ROUNDS: u32 = 3;
/// Pause before a client asks a manager again that was lost.
pub const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Files changed in one batch at most.
pub const CHANGES_MAX: usize = 1000;
/// Bytes after which no further file is changed in a batch: half of what the store takes in one record. The largest
/// change of one file is its end: 256 extended attributes with keys of 272 bytes, 70 KiB, and as many bytes for those
/// who have it open. Of a client that is gone 256 sites * [`SLOTS`] answers follow, 24 bytes each: 400 KiB.
pub const CHANGES_BYTES_MAX: usize = 1 << 20;
/// Opens that are claimed in one batch: a record for each other client beside the file's own, 256 * 40 bytes * 50.
pub const CLAIMS_AT_ONCE: usize = 256;
/// How long a client waits for an answer. No longer than [`LEASE`] for what must not be executed twice: the manager
/// forgets its answers with the client.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Files that are settled or truncated in one turn of the background tasks.
pub const BACKGROUND_BATCH: usize = 16;
/// Files whose objects are removed by the same requests: with four columns on four disks four requests for each disk.
pub const REMOVALS_AT_ONCE: usize = 512;
/// How long removals are gathered behind one that is done at once: `rm -r` takes some thousand names in that time, and
/// the room is free soon all the same.
pub const REMOVALS_GATHERED: Duration = Duration::from_millis(100);
/// Objects of the servers that are looked at in one step of the walk, and the pause between two: 17 a second, a million
/// in 17 hours.
pub const WALK_COUNT: usize = 1024;
/// See [`WALK_COUNT`].
pub const WALK_INTERVAL: Duration = Duration::from_secs(60);
/// Objects of a server that are listed at once when a restored volume looks for what moved: as many as it tells.
pub const SURVEY_COUNT: usize = 4096;
/// How long an object that no file claims is kept, in seconds of a manager's running: long enough to see the mistake
/// and rename it back. No clock of the world is asked, which may be set.
pub const QUARANTINE_SECONDS: u64 = 24 * 3600;
/// How often it is written down for how long there was a manager. A kill makes things in quarantine younger by so much.
pub const UPTIME_INTERVAL: Duration = Duration::from_secs(600);
/// Pause of a background task after a failure.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Serial numbers that a manager passes over when it starts. A store holds at most two overlays of 24 MiB that are not
/// in its checkpoint; a new file takes 3 entries of 80 bytes and more of them: 200,000 files that a power cut can take
/// back. 2^56 serial numbers are enough for 2^36 starts.
pub const SERIALS_LEAP: u64 = 1 << 20;
/// Serial numbers for each second since [`SERIALS_EPOCH`], at least: a manager begins behind all those of the time
/// before its start. An incarnation that makes fewer files a second, start to end, gives none that a copy of its store,
/// started later, gives again: 16,384, of which 2^44 last 34 years. The bits above are the lineage.
pub const SERIALS_PER_SECOND: u64 = 1 << 14;
/// The start of 2025, in seconds since 1970.
pub const SERIALS_EPOCH: u64 = 1_735_689_600;
/// Serial numbers of one lineage: the lower 44 of 56 bits, which start from the clock.
pub const SERIALS_BY_CLOCK: u64 = 1 << LINEAGE_SHIFT;
/// First bit of the lineage in a serial number.
pub const LINEAGE_SHIFT: u32 = 44;
/// Lineages of a volume, which the upper 12 bits of a serial number tell apart: as many restores.
pub const LINEAGES_MAX: u16 = 1 << 12;
/// How long a manager that starts waits for what the servers know of it, at most: those that do not answer by then are
/// asked later. Servers that start with it answer within a second; clients wait for 30.
pub const WITNESS_SPAN: Duration = Duration::from_secs(5);
/// How long a manager whose store was restored waits for the other managers, at most: machines are started one after
/// the other, and what it changed meanwhile of a site that is another's would be lost.
pub const OWNERS_SPAN: Duration = Duration::from_secs(60);
/// How long one of them is waited for, and the pause before it is asked again.
pub const WITNESS_DEADLINE: Duration = Duration::from_secs(1);
/// The same for the last word of a manager that stops.
pub const WITNESS_LAST_SPAN: Duration = Duration::from_millis(200);
/// See [`WITNESS_DEADLINE`].
pub const WITNESS_PAUSE: Duration = Duration::from_millis(20);
/// Incarnations of the manager that it remembers the ends of, and that a client tells apart between two syncs. Older
/// ones have long been stable: the manager syncs every second.
pub const INCARNATIONS_MAX: usize = 256;
/// Files that are looked at in one go for what they have on disks that are gone: half a millisecond.
pub const GONE_SLICE: usize = 256;
/// Between two of these: a million files take a minute and a tenth of a processor.
pub const GONE_PAUSE: Duration = Duration::from_millis(10);
/// How often they are counted anew while something is gone.
pub const GONE_INTERVAL: Duration = Duration::from_secs(60);
/// How often objects are told what changed of their files: what is made and removed within that time costs nothing.
pub const DESCRIBE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a server is waited for then.
pub const DESCRIBE_DEADLINE: Duration = Duration::from_secs(2);
/// The same before a server or the manager stops: each has a second for its last word.
pub const DESCRIBE_LAST_DEADLINE: Duration = Duration::from_millis(500);
/// How long a manager that stops describes what changed.
pub const DESCRIBE_LAST_SPAN: Duration = Duration::from_secs(1);
/// Files that are described in one round: 400 a second, for which the disks write 3 MB a second.
pub const DESCRIBED_AT_ONCE: usize = 2048;
/// Files that are described by the same requests: the manager looks at them in a fifth of a millisecond.
pub const DESCRIBED_TOGETHER: usize = 64;
/// Files that wait to be described, 64 bytes each: what comes in half a minute of 2,000 new files a second.
pub const DESCRIBED_FILES_MAX: usize = 1 << 16;
/// Names of directories that are kept for the paths of files, 100 bytes each.
pub const DESCRIBED_DIRECTORIES_MAX: usize = 1 << 16;
/// Entries of a directory among which the name of one is looked for: a millisecond.
pub const DESCRIBED_SCAN_MAX: usize = 2048;
/// For so long a file is open for writing before its record says which objects it got meanwhile: a close tells it, and
/// most come sooner.
pub const DESCRIBED_OPEN_SPAN: Duration = Duration::from_secs(10);
/// For so long a server may lose what it was told: twice the time after which it has it on stable storage.
pub const DESCRIBED_SPAN: Duration = stripe::limits::DESCRIBED_SPAN.saturating_mul(2);
/// How long before the latest change files may have changed that were not described when a manager died: what waits
/// then takes 164 seconds, and objects forget for [`DESCRIBED_SPAN`].
pub const DESCRIBED_SINCE_SECONDS: i64 = 600;
/// Names that a walk looks at in a round, [`GONE_SLICE`] at a time: a million in 20 minutes.
pub const WALKED_NAMES: usize = 4096;

const _: () = assert!(KEEP_ALIVE_INTERVAL.as_secs() * 3 <= LEASE.as_secs(), "two may be lost");
const _: () = assert!(HEAR_INTERVAL.as_secs() < KEEP_ALIVE_INTERVAL.as_secs());
const _: () = assert!(CLAIMS_AT_ONCE <= CLAIMS_MAX);
const _: () = assert!(CLOSES_MAX >= HOLDING_MAX);
const _: () = assert!(MANAGER_DEADLINE.as_millis() <= HOLD_SPAN.as_millis() / 2);
const _: () = assert!(REPLY_BYTES_MAX <= wire::limits::PAYLOAD_BYTES_MAX);
const _: () = assert!(BACKUP_REPLY_BYTES_MAX <= wire::limits::PAYLOAD_BYTES_MAX);
const _: () = assert!(BACKUP_PART_BYTES + store::limits::VALUE_BYTES_MAX < BACKUP_REPLY_BYTES_MAX);
const _: () = assert!(XATTR_VALUE_BYTES_MAX < store::limits::VALUE_BYTES_MAX);
const _: () = assert!(XATTR_NAME_BYTES_MAX < store::limits::KEY_BYTES_MAX);
const _: () = assert!(wire::limits::NAME_BYTES_MAX < store::limits::KEY_BYTES_MAX);
const _: () = assert!(CHANGES_BYTES_MAX < store::limits::RECORD_BYTES_MAX);
const _: () = assert!(LISTING_COUNTERS.is_power_of_two());
const _: () = assert!(LISTING_HEAD_BYTES + wire::limits::NAME_BYTES_MAX < REPLY_BYTES_MAX);
const _: () = assert!(LINEAGES_MAX as u64 * SERIALS_BY_CLOCK <= 1 << 56, "a site and a serial");
const _: () = assert!(SERIALS_PER_SECOND < SERIALS_LEAP);
const _: () = assert!(SERIALS_LEAP < SERIALS_BY_CLOCK);
const _: () = assert!(LINEAGE_EPOCHS_SHIFT < u32::BITS);
const _: () = assert!(WITNESS_LAST_SPAN.as_millis() < WITNESS_DEADLINE.as_millis());
const _: () = assert!(WITNESS_DEADLINE.as_millis() < WITNESS_SPAN.as_millis());
const _: () = assert!(WITNESS_PAUSE.as_millis() < WITNESS_LAST_SPAN.as_millis());
const _: () = assert!(DESCRIBE_LAST_DEADLINE.as_millis() < DESCRIBE_LAST_SPAN.as_millis());
const _: () = assert!(DESCRIBE_DEADLINE.as_millis() < DESCRIBE_INTERVAL.as_millis());
const _: () = assert!(DESCRIBED_TOGETHER <= DESCRIBED_AT_ONCE);
const _: () = assert!(DESCRIBED_AT_ONCE <= DESCRIBED_FILES_MAX);
const _: () = assert!(RETRY_PAUSE.as_millis() < RETRY_INTERVAL.as_millis());
const _: () = assert!(RETRY_INTERVAL.as_secs() < DEADLINE.as_secs());
const _: () = assert!(GONE_PAUSE.as_millis() < GONE_INTERVAL.as_millis());
const _: () = assert!(QUARANTINE_SECONDS > LEASE.as_secs(), "clients of before have gone");

/// Calls of which a manager keeps the answer for duplicates that come over another client, about 400 bytes each on disk
/// and 100 in memory. One that is older is executed again: what a client sends again was answered by none of the calls
/// of others since, and it has some hundred under way at most.
pub const DUPLICATES_MAX: usize = 16_384;
