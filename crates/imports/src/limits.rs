//! Limits of imports, with the arithmetic that chose them.

use std::time::Duration;

/// Bytes that are fetched at a time, aligned: the longest payload of a message, and of a READ of most servers.
pub const PIECE_BYTES: u64 = wire::limits::PAYLOAD_BYTES_MAX as u64;
/// Pieces that are fetched side by side: 8 MiB of frames, 8 ms of a 10 Gb/s wire.
pub const FETCHES_MAX: usize = 8;
/// Runs of pieces of a file that a later importer finds: 2 KiB of a record of the manager. A file that is read here and
/// there has more, and the first of them are kept.
pub const RUNS_KEPT_MAX: usize = 128;
/// Requests that are served side by side; more wait for a task.
pub const SERVICE_LOOPS: usize = 64;
/// Foreign files that the importer remembers: some 300 bytes each. Of those that it forgets it asks the manager again.
pub const FILES_MAX: usize = 1 << 18;
/// Files that a client knows to be whole, 20 bytes each.
pub const WHOLE_MAX: usize = 1 << 16;
/// Names of a directory that are compared and made side by side.
pub const NAMES_AT_ONCE: usize = 16;
/// Bytes of one part of a listing of the origin's.
pub const LISTING_BYTES: u32 = 64 << 10;
/// Names of a directory of the origin's: some 250 bytes each while they are compared, 512 MiB.
pub const NAMES_MAX: usize = 1 << 21;
/// Names that a listing may have again, beside as many as it has: more without a new one are a circle.
pub const NAMES_AGAIN_MAX: usize = 1024;
/// Listings of a directory that are begun, where the origin says in the middle of each that it has changed
/// (NFS3ERR_BAD_COOKIE): of one of 100 ms at 10 changes a second the chance is 37 %, of ten of them 99 %.
pub const LISTING_ATTEMPTS: u32 = 10;
/// Pause between them.
pub const LISTING_PAUSE: Duration = Duration::from_millis(100);
/// How long an origin is believed to have no READDIRPLUS (NFS3ERR_NOTSUPP), unless its connection is made anew before:
/// it may have been upgraded since, and one call in so long costs nothing.
pub const NAMES_ONLY_SPAN: Duration = Duration::from_secs(600);
/// Files of a listing that are compared by one request: a bit for each has room in the body of an answer.
pub const LISTED_MAX: usize = 256;
/// Files that a READDIRPLUS is to spare a GETATTR each: its answer is some 64 KiB long.
pub const LISTED_MIN: usize = 2;
/// Parts with so few of the wanted files that a request asks for in vain: one of them is where the last listing ended,
/// and by the others an importer that was started again comes to where a client's listing is.
pub const MISSES_MAX: usize = 4;
/// Directories of which the last part that was listed is remembered: some 300 names each, 4 MiB.
pub const WALKS_MAX: usize = 64;
/// Bytes of a WRITE that every origin takes, whatever it says.
pub const WRITE_BYTES_MIN: u32 = 512;
/// Pause before a call that the origin answered with JUKEBOX is made again.
pub const JUKEBOX_PAUSE: Duration = Duration::from_millis(500);
/// Attempts at writing a piece that an I/O server forgot by a restart, or whose layout has changed.
pub const WRITE_ATTEMPTS: u32 = 5;
/// Pause between them, and before frames are asked for again when the pool is empty.
pub const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long a client waits for one answer of the importer before it asks again.
pub const ANSWER_SPAN: Duration = Duration::from_secs(20);
/// How long a client tries to reach an importer that is away.
pub const IMPORTER_PATIENCE: Duration = Duration::from_secs(10);
/// How long a client waits for an importer that is there: for the listing of a large directory.
pub const CHECK_PATIENCE: Duration = Duration::from_secs(300);
/// Pause before all of a file is fetched again, because pieces were lost, for the second time: a disk may lose what is
/// written to it at once.
pub const ANEW_PAUSE: Duration = Duration::from_secs(10);
/// Pause before an importer that is away is asked again.
pub const CLIENT_PAUSE: Duration = Duration::from_millis(100);
/// How long the importer waits for an origin that does not answer before calls fail with EHOSTDOWN.
pub const ORIGIN_PATIENCE: Duration = Duration::from_secs(10);
/// The same once it is known to be away.
pub const AWAY_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two calls to an origin that is away; others fail at once.
pub const AWAY_PAUSE: Duration = Duration::from_secs(2);
