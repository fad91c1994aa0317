//! Limits of the protocols, with the arithmetic that chose them.

use std::time::Duration;

/// Longest credential or verifier (RFC 5531 section 8.2).
pub const AUTH_BYTES_MAX: usize = 400;
/// Most supplementary groups of AUTH_SYS (RFC 5531 appendix A).
pub const GROUPS_MAX: usize = 16;
/// Longest name of a machine in AUTH_SYS (RFC 5531 appendix A).
pub const MACHINE_BYTES_MAX: usize = 255;
/// Longest file handle (RFC 1813 section 2.4, `NFS3_FHSIZE`).
pub const HANDLE_BYTES_MAX: usize = 64;
/// Longest path that MOUNT takes (RFC 1813 section 5.1.2, `MNTPATHLEN`).
pub const MOUNT_PATH_BYTES_MAX: usize = 1024;
/// Longest name that MOUNT lists (RFC 1813 section 5.1.2, `MNTNAMLEN`).
pub const MOUNT_NAME_BYTES_MAX: usize = 255;
/// Most bytes of data in one READ or WRITE, as FSINFO says: one message to an I/O server, and Linux's most.
pub const IO_BYTES_MAX: usize = wire::limits::PAYLOAD_BYTES_MAX;
/// Longest name of a lock's or a monitor's owner (`LM_MAXSTRLEN`, `SM_MAXSTRLEN`).
pub const LOCK_STRING_BYTES_MAX: usize = 1024;
/// Longest `netobj` of NLM (`MAXNETOBJ_SZ`).
pub const LOCK_OBJECT_BYTES_MAX: usize = 1024;
/// Longest address or name that rpcbind takes; theirs have no limit, `h1.h2.h3.h4.h5.h6.h7.h8.p1.p2` has 50 bytes.
pub const UNIVERSAL_BYTES_MAX: usize = 128;

/// Most bytes of a call without the data of a WRITE: a RENAME with two names of 4 KiB (which is refused, but with its
/// own error) or a SYMLINK to a path of 4 KiB, credential and verifier of 400 bytes each, and what is between.
pub const CALL_HEAD_BYTES_MAX: usize = 12 * 1024;
/// Most bytes of a reply without the data of a READ: the largest listing that a client of ours asks for.
pub const REPLY_HEAD_BYTES_MAX: usize = 96 * 1024;
/// Bytes that one read of a stream takes beside the data of a WRITE: some tens of small calls.
pub const STAGING_BYTES: usize = 8 * 1024;
/// Fragments that one record may have: Linux sends one; a peer that sends more, and shorter ones, costs time only.
pub const FRAGMENTS_MAX: u32 = 1024;
/// Most bytes of names and entries in one answer to READDIR or READDIRPLUS, as FSINFO prefers: more is cut.
pub const LISTING_BYTES_MAX: u32 = 64 * 1024;
/// Bytes of answers to READDIR and READDIRPLUS that a server keeps: 256 of 32 KiB, with 200 names each.
pub const KEPT_LISTINGS_BYTES: usize = 8 << 20;

/// Most replies that the duplicate-request cache keeps: a client retransmits over a new connection what the old one had
/// under way, at most some hundred calls; this is for a hundred such clients.
pub const REPLIES_MAX: usize = 16 * 1024;
/// Most bytes of replies that it keeps: those of calls that are kept are about 260 bytes each.
pub const REPLIES_BYTES_MAX: usize = 8 << 20;
/// Longest reply that it keeps: two times two attributes, a handle and the header of the reply are below 500 bytes.
pub const REPLY_BYTES_MAX: usize = 1024;

/// How long a manager that is away is asked for a forwarded call; then the call is dropped, and its client, which
/// retransmits it after 60 s, decides.
pub const FORWARD_SPAN: Duration = Duration::from_secs(30);
/// Between two attempts: as long as the other clients of a manager wait.
pub const FORWARD_PAUSE: Duration = Duration::from_millis(100);
/// Most calls on their way to one manager: a quarter of all that are executed, so that three others go on.
pub const FORWARDED_TO_ONE_MAX: usize = CALLS_OF_ALL_MAX / 4;
/// Hashed directories that a filter knows: a tree of 10,000 takes 160 KiB. One that is forgotten costs a refusal.
pub const HASHED_MAX: usize = 10_000;
/// Most bytes of a reply that is no listing: a symbolic link's path of 4 KiB, and attributes.
pub const SMALL_REPLY_BYTES_MAX: usize = 8 * 1024;
/// Calls of filters that one manager executes at a time: more wait.
pub const EXECUTORS: usize = 128;
/// Duplicates that wait for the reply to one call: one of each filter that the client was moved to, and of each time
/// that the call was dropped there.
pub const JOINED_MAX: usize = 8;

/// Most exports, and networks of one: more are a mistake, and each call looks at all networks of one export.
pub const EXPORTS_MAX: usize = 1024;
/// Most networks of one export.
pub const NETWORKS_MAX: usize = 256;

/// How long a file that calls read or wrote stays open: a client reads on or writes on within it.
pub const OPEN_SPAN: Duration = Duration::from_secs(2);
/// Most files that stay open; the oldest make room. Calls in progress may have more.
pub const OPEN_FILES_MAX: usize = 1024;
/// Most mounts that DUMP lists: what clients said, which nothing depends on.
pub const MOUNTS_MAX: usize = 1024;

/// Most connections: clients have one each, or up to 16 (`nconnect`). An idle one costs its socket and 600 bytes.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Most calls of one connection that are executed at a time; more are not read. Linux has 64 under way, or 128.
pub const CALLS_MAX: usize = 128;
/// Most calls of all connections that are executed at a time: those of 32 connections that have all they may.
pub const CALLS_OF_ALL_MAX: usize = 4096;
/// The part of the pool, one in so many, that data of all calls that are executed may take.
pub const CALLS_PART: usize = 2;
/// Data of one connection's WRITEs and READs that are executed, in bytes; more calls are not read.
pub const CALL_DATA_BYTES_MAX: usize = 16 << 20;
/// Replies that one client may leave unread, in bytes: with more, its calls are not read.
pub const UNREAD_BYTES_MAX: usize = 8 << 20;
/// How long a record may take to arrive, or replies may stay unread.
pub const STALL_SPAN: Duration = Duration::from_secs(60);
/// The same, where half records and unread replies of all connections hold too much of the pool.
pub const SHORT_STALL_SPAN: Duration = Duration::from_secs(5);
/// The part of the pool, one in so many, that is too much.
pub const STALLED_PART: usize = 4;
/// How long a connection is idle before its buffer is given back.
pub const IDLE_SPAN: Duration = Duration::from_secs(1);
/// How often connections and open files are looked after.
pub const LOOK_SPAN: Duration = Duration::from_millis(500);
/// Most clients that are told apart in counters; who was not heard of for longest makes room.
pub const CLIENTS_MAX: usize = 1024;
/// Most datagrams that wait to be sent: more are dropped, as a network would.
pub const DATAGRAMS_MAX: usize = 256;

/// Longest name of a client that may have locks: names of machines have 64 bytes at most.
pub const LOCK_HOST_BYTES_MAX: usize = 255;
/// Longest owner of a lock: clients send some ten bytes.
pub const LOCK_OWNER_BYTES_MAX: usize = 256;
/// Most clients with locks: their list is one attribute of at most 64 KiB.
pub const LOCK_HOSTS_MAX: usize = 512;
/// Most bytes of that list: some 80 for each client.
pub const LOCK_HOSTS_BYTES_MAX: usize = 60 << 10;
/// A client that holds no locks stays in the list for so long: one that locks now and then costs one write.
pub const LOCK_HOST_SPAN: Duration = Duration::from_secs(600);
/// Most owners of locks, of all clients and of one; 200 bytes each.
pub const LOCK_OWNERS_MAX: usize = 65_536;
/// See [`LOCK_OWNERS_MAX`].
pub const LOCK_OWNERS_OF_HOST_MAX: usize = 16_384;
/// Most locks that are held, of all clients; 32 bytes each.
pub const LOCKS_MAX: usize = 262_144;
/// Most locks that wait, of all clients and of one; 500 bytes each.
pub const LOCK_WAITERS_MAX: usize = 8192;
/// See [`LOCK_WAITERS_MAX`].
pub const LOCK_WAITERS_OF_HOST_MAX: usize = 1024;
/// Most answers to asynchronous calls of NLM that are on their way; more are lost, as datagrams are.
pub const LOCK_ANSWERS_MAX: usize = 256;
/// How long one of them is tried for.
pub const LOCK_ANSWER_SPAN: Duration = Duration::from_secs(5);
/// After which a waiting lock is asked for again that could not be.
pub const LOCK_RETRY_SPAN: Duration = Duration::from_secs(1);
/// The first pause before a call to a client is repeated; each next is twice as long.
pub const CALL_PAUSE: Duration = Duration::from_millis(500);
/// The longest.
pub const CALL_PAUSE_MAX: Duration = Duration::from_secs(30);
/// After so many that were not answered the client's port mapper is asked again: it may have restarted.
pub const CALLS_BEFORE_ASKING: u32 = 3;
/// How long after a restart clients are told of it that do not answer: as long as statd does.
pub const NOTIFY_SPAN: Duration = Duration::from_secs(900);
/// How long after a restart only clients that had locks get them, at most.
pub const GRACE_SPAN: Duration = Duration::from_secs(45);
/// How long after the last client has heard of it, or has reclaimed a lock: clients reclaim all of theirs at once.
pub const GRACE_QUIET_SPAN: Duration = Duration::from_secs(5);

/// How long a foreign server may take to accept a connection: three SYNs of Linux, after 0, 1 and 3 s.
pub const CONNECT_SPAN: Duration = Duration::from_secs(5);
/// How long a foreign server may be silent with calls in flight before they are retransmitted over another connection.
/// Doubled each time up to [`SILENCE_SPAN_MAX`]: a server whose disks are slow is not asked more and more.
pub const SILENCE_SPAN: Duration = Duration::from_secs(15);
/// See [`SILENCE_SPAN`]: what Linux's client waits (`timeo=600`).
pub const SILENCE_SPAN_MAX: Duration = Duration::from_secs(60);
/// Pause before the second attempt to connect to a foreign server; each next is twice as long.
pub const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// The longest.
pub const CONNECT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// After so many failed connections the port mapper is asked again: the server may have moved.
pub const FAILURES_BEFORE_ASKING: u32 = 4;
/// Most calls of a session with a foreign server that have no reply yet: 16 for each of four clients. With WRITEs of
/// 1 MiB they take 64 MiB.
pub const SESSION_CALLS_MAX: usize = 64;
