//! Limits of the membership service, with the arithmetic that chose them.

use std::ops::RangeInclusive;
use std::time::Duration;
use wire::GroupId;
use wire::limits::BLOCK_BYTES;

/// Longest name of a member, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most addresses of a member: a few interfaces, each by name and number.
pub const ADDRESSES_MAX: usize = 8;
/// Longest address, in bytes: a host name (253) and a port are within it for every host that exists.
pub const ADDRESS_BYTES_MAX: usize = 255;
/// Bytes of the largest member on the wire: fixed fields, name and addresses with their lengths of two bytes.
/// 21 + 257 + 8 x 257 = 2,334: a page always holds one.
pub const MEMBER_BYTES_MAX: usize =
    21 + (2 + NAME_BYTES_MAX) + ADDRESSES_MAX * (2 + ADDRESS_BYTES_MAX);
/// Disks of a server: as many as a member's bits.
pub const DISKS_MAX: usize = 32;
/// Groups of replicas: their numbers are those of 24 bits from [`GroupId::FIRST`] on, one in 256. 16,384 groups of two
/// copies are 1,024 disks with 32 replicas each; two tables of them are 6 MB of the first manager's memory.
pub const GROUPS_MAX: usize = ((0x100_0000 - GroupId::FIRST.0) >> 8) as usize;
/// Replicas of groups on each disk, where nothing else is said: so many other disks take part when it is rebuilt.
pub const REPLICAS_PER_DISK: u16 = 32;
/// Proposals that are decided with one sync of the log: a server that dies leaves 32 of each of its 32 disks behind.
pub const PROPOSALS_AT_ONCE: usize = 1024;
/// Least time between two plans of groups.
pub const PLAN_PERIOD: Duration = Duration::from_secs(1);
/// Steps of one plan, each a record of 100 bytes: the groups of 100 new disks are made within half a minute.
pub const PLAN_STEPS: usize = 64;
/// Groups that are moved at once, to each disk that takes some: a disk that is lost is rebuilt by all others, each of
/// which fills one replica or two while the next ones are planned.
pub const MOVES_EACH: usize = 4;
/// A primary that did not hand over is asked again after this time: it gives up where changes that are under way do not
/// end soon.
pub const HAND_OVER_AGAIN: Duration = Duration::from_secs(3);
/// A disk that is away for as long is replaced: a machine starts anew within minutes, and what it missed meanwhile is
/// less to copy than all that it has.
pub const REPLACE_AFTER: Duration = Duration::from_secs(600);
/// Most servers with disks that are to be emptied: 512 of 6 bytes are within a page.
pub const EMPTIED_MAX: usize = 512;
/// Bytes of one page of a view.
pub const PAGE_BYTES: usize = BLOCK_BYTES;
/// Most members: 4,096 of the largest take 10 MB of the first manager's memory.
pub const MEMBERS_MAX: usize = 4096;
/// Leases that end with one record of the log: 512 of the largest members are 1.2 MB of its 2 MiB.
pub const ENDED_AT_ONCE: usize = 512;
/// Ids of servers. A name keeps its id for ever.
pub const SERVER_IDS: RangeInclusive<u16> = 1..=0x3fff;
/// Ids of clients. Given out in turn, so that one is used again only after 40,960 others.
pub const CLIENT_IDS: RangeInclusive<u16> = 0x4000..=0xdfff;
/// Ids that are assigned to no member: a node without an id uses one while it joins, or looks at the cluster. Ids above
/// them are assigned by the node that accepts a link, to programs whose memory it keeps, and mean nothing elsewhere.
pub const JOINING_IDS: RangeInclusive<u16> = 0xe000..=0xefff;
/// Length of a lease. Members renew every third of it, so two lost messages are no loss of membership.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(10);
/// The part of a lease by which a node that lends memory doubts it sooner than the manager ends it, one in so many: its
/// clock may run a tenth too slow, and the manager's a tenth too fast (0.8 / 0.9 < 1 / 1.1).
pub const LENDER_MARGIN: u32 = 5;
/// Tasks that answer requests. Joins wait for the log only, so a few are enough.
pub const REQUEST_TASKS: usize = 4;
/// Most that changes wait to be on stable storage.
pub const SYNC_PERIOD: Duration = Duration::from_secs(1);
/// Most that a client waits for an answer of the manager.
pub const CALL_DEADLINE: Duration = Duration::from_secs(3);
/// Most that a server which stops is kept waiting for the manager's last messages, and that it waits for them.
pub const PARTING_SPAN: Duration = Duration::from_secs(1);
/// Pause of a client between a failure and the next attempt.
pub const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Period in which a member that lends memory renews: programs wait for as long as it learns late of changes. 100 of
/// them are 100 requests a second.
pub const LENDER_PERIOD: Duration = Duration::from_secs(1);
/// Most that the incarnation of a JOIN, nanoseconds since 1970, may be ahead of the manager's clock: a day, because
/// clocks that were never set are mostly wrong by hours.
pub const AHEAD_OF_CLOCK_MAX: u64 = 24 * 3600 * 1_000_000_000;
/// Most that it may be ahead of the last one of its name, where that is ahead of the clock itself: about a second,
/// which a thousand starts that were never told count on; to reach the end of the numbers so takes 2^34 joins.
pub const AHEAD_OF_LAST_MAX: u64 = 1 << 30;

const _: () = assert!(*SERVER_IDS.end() < *CLIENT_IDS.start());
const _: () = assert!(*CLIENT_IDS.end() < *JOINING_IDS.start());
const _: () = assert!(DISKS_MAX <= u32::BITS as usize, "a bit for each disk");
const _: () = assert!(MEMBER_BYTES_MAX <= PAGE_BYTES, "a page has room for any member");
const _: () = assert!(ENDED_AT_ONCE <= MEMBERS_MAX);
const _: () = assert!(CALL_DEADLINE.as_millis() < LEASE_DEFAULT.as_millis());
const _: () = assert!(RETRY_PAUSE.as_millis() < CALL_DEADLINE.as_millis());
const _: () = assert!(PARTING_SPAN.as_millis() < LEASE_DEFAULT.as_millis());
