//! Limits of keys and values, with the arithmetic that chose them.

use endpoint::limits::PAGE_BYTES;
use std::time::Duration;

/// Longest key of the memcached protocols (protocol.txt, "Keys").
pub const MEMCACHED_KEY_BYTES_MAX: usize = 250;
/// Longest word with a meta command's opaque token, its letter among it (memcached: 32).
pub const OPAQUE_BYTES_MAX: usize = 32;
/// Longest key of all: with it a small value still fits into half a page beside its key.
pub const KEY_BYTES_MAX: usize = 1024;
/// A value that together with its key takes no more than this lies beside the key; a longer one has pages of its own.
/// Two such fit into a page; copying so little costs less than one more piece in a gathered write.
pub const BESIDE_BYTES_MAX: usize = PAGE_BYTES / 2 - crate::slab::OWNER_BYTES;
/// Longest piece of a value: eight pages of 8 KiB, the largest page of network memory. Where memory is in pieces, a
/// value's are shorter, down to one page.
pub const EXTENT_BYTES: usize = 64 << 10;
/// Longest value that a server may be told to take: Redis's own limit.
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// Tenants of one server.
pub const TENANTS_MAX: usize = 64;
/// Least memory of a server.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;
/// A hash chain for so many bytes of memory: 1.7 items of the least size in a chain at the most, on average, for 1 % of
/// the memory.
pub const CHAIN_BYTES: usize = 384;

/// The part of a tenant's memory that the keys and places of values that are away may take, one in so many.
pub const AWAY_INDEX_SHARE: usize = 4;
/// The part of a node's frames that values may take on their way to other memory, one in so many: what is evicted
/// faster than that is dropped.
pub const LEAVING_SHARE: usize = 8;
/// Uses of a value since it went away, from which on it comes back to stay.
pub const USES_TO_RETURN: u8 = 2;

/// Items that are evicted to make room for one before a whole page of small ones goes.
pub const EVICTIONS_MAX: usize = 256;
/// Second chances in a row before the next item goes whatever its count (as `netmem::limits::CHANCES_MAX`).
pub const CHANCES_MAX: usize = 16;
/// Items looked at for having expired in one sweep.
pub const SWEEP_ITEMS: usize = 512;
/// The same after keys have moved to other nodes: a million in 25 s, a quarter of a millisecond each time.
pub const SWEEP_MOVED_ITEMS: usize = 4096;

/// Bytes of one look at a socket: seven 8 KiB values with their commands, and more commands than one write answers.
pub const INPUT_BYTES: usize = 64 << 10;
/// A `get` with a longer line is done key by key, as the output has room: 256 keys with values of 2 KiB, which are
/// copied, are 512 KiB.
pub const GET_LINE_BYTES: usize = 512;
/// Longest line of a command, but for `get` and its kin, which may go on for ever (memcached: 2,048).
pub const LINE_BYTES_MAX: usize = 2048;
/// From this length on the keys of a `get` are looked up before its line has ended.
pub const GET_PART_BYTES: usize = 32 << 10;
/// Output that waits before no more commands of the connection are executed: 64 values of 8 KiB.
pub const OUTPUT_BYTES_MAX: usize = 512 << 10;

/// Arguments of one RESP command (Redis before 7.0: as many).
pub const ARGUMENTS_MAX: usize = 1 << 20;
/// Bytes of the short arguments of one RESP command, with 16 for each: a million keys of 8 bytes, or 100,000 of 235.
/// The room made for them is at most twice that, three quarters of what all connections may keep.
pub const ARGUMENT_BYTES_MAX: usize = 24 << 20;
/// Arguments of a transaction's commands: 21,845 SET. Answers with their values, those that are copied, have 2 KiB for
/// each at the most: 128 MiB.
pub const QUEUED_ARGUMENTS_MAX: usize = 64 << 10;
/// Bytes of a transaction's short arguments, with 16 for each: 7,900 SET of values of 2,000 bytes.
pub const QUEUED_BYTES_MAX: usize = 16 << 20;
/// Keys that a connection watches: 512 KiB with 128 bytes for each.
pub const WATCHED_MAX: usize = 4096;
/// Longest inline command, and longest line of a header (Redis: 64 KiB).
pub const INLINE_BYTES_MAX: usize = 32 << 10;
/// A RESP command that is longer than this and not all here is taken in argument by argument.
pub const WHOLE_BYTES: usize = 16 << 10;

/// Bytes of a command, or of an answer, in one message to or from another node; longer ones go in parts. All 64 tasks
/// that carry have 16 MiB of the node's frames with it.
pub const CARRIED_PART_BYTES: usize = 256 << 10;
/// Long commands of other nodes of which a part is here. Their values are in the items' frames, as those of clients.
pub const LONG_COMMANDS_MAX: usize = 64;
/// Bytes of the short arguments of all of these, beyond which no part of another one is taken: two of the longest.
pub const LONG_BYTES_MAX: usize = 64 << 20;
/// Long answers that other nodes are fetching. They have the frames of values that may have left meanwhile, and count
/// for the tenant as a client's unread answers do.
pub const LONG_ANSWERS_MAX: usize = 64;
/// How long the next part of a command or an answer is waited for: longer than a call of NetRPC waits.
pub const LONG_SPAN: Duration = Duration::from_secs(5);
/// How long an answer may be asked for again after its last part.
pub const LONG_END_SPAN: Duration = Duration::from_millis(300);
/// Bytes that are expected of an answer with a value; a longer one is asked for again. Each one that is to come counts
/// for so many in the output, so that a connection has 32 such commands under way at other nodes.
pub const ANSWER_BYTES: usize = 16 << 10;
/// Bytes of an answer without a value: 128 commands.
pub const SHORT_ANSWER_BYTES: usize = 4 << 10;
/// Tasks that carry commands to other nodes.
pub const CARRY_TASKS: usize = 64;
/// Parts of one command that are under way at once.
pub const CARRY_PARTS: usize = 16;
/// Tasks that execute commands of other nodes.
pub const SERVE_TASKS: usize = 32;

/// Tasks that take values to network memory. They wait there while it is full; what then finds no frame is dropped.
pub const STORE_TASKS: usize = 8;
/// Tasks that bring values from there; an eighth of the requests that network memory takes at a time.
pub const FETCH_TASKS: usize = 64;
/// Pages of one value that are asked for at once.
pub const FETCH_PAGES: usize = 4;
/// How often a page is asked for that there was no memory for.
pub const FETCH_TRIES: u32 = 100;
/// How long a command waits for the node that keeps its key, and for a view in which it is settled which one that is:
/// members hear of a new one within a second.
pub const CARRY_PATIENCE: Duration = Duration::from_secs(3);
/// Pause before a node is asked again that is not settled.
pub const VIEW_PAUSE: Duration = Duration::from_millis(5);
/// How long a node is waited for that is asked whether it knows a view.
pub const VIEW_WAIT: Duration = Duration::from_millis(500);
/// Places of the table that one step of a scan looks at where few have items of its tenant: 0.1 ms.
pub const SCAN_PLACES: u32 = 16 * 1024;
