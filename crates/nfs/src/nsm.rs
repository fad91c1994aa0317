//! NSM, the status monitor, version 1 (XNFS chapter 11): who wants to hear of whose restart.
//!
//! A server keeps the list of clients that hold locks, and calls NOTIFY at each of them when it has restarted; a client
//! that restarts calls NOTIFY here, and its locks go.

use crate::limits::LOCK_STRING_BYTES_MAX;
use crate::xdr::{enumeration, opaque, record};

/// Program.
pub const PROGRAM: u32 = 100_024;
/// Version.
pub const VERSION: u32 = 1;

enumeration! {
    /// The procedures.
    #[allow(missing_docs)] // they are named as in the specification
    pub enum Procedure {
        Null = 0,
        Stat = 1,
        Mon = 2,
        Unmon = 3,
        UnmonAll = 4,
        SimuCrash = 5,
        Notify = 6,
    }
}

enumeration! {
    /// Whether a host can be monitored (`res`).
    pub enum Outcome {
        /// It can (`STAT_SUCC`).
        Done = 0,
        /// It cannot (`STAT_FAIL`).
        Failed = 1,
    }
}

opaque! {
    /// The name of a host (`sm_name`).
    pub struct Host of LOCK_STRING_BYTES_MAX
}

record! {
    /// The host to call back, and how (`my_id`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct CallBack<'a> {
        pub host: Host<'a>,
        pub program: u32,
        pub version: u32,
        pub procedure: u32,
    }
}

record! {
    /// The host to monitor, and the one to call back (`mon_id`): arguments of UNMON.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct MonitorId<'a> {
        pub host: Host<'a>,
        pub call_back: CallBack<'a>,
    }
}

record! {
    /// Arguments of MON (`mon`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Monitor<'a> {
        pub id: MonitorId<'a>,
        pub private: [u8; 16],
    }
}

record! {
    /// Result of STAT and MON (`sm_stat_res`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct StatResult {
        pub outcome: Outcome,
        pub state: i32,
    }
}

record! {
    /// That a host has a new state, odd while it is up (`stat_chge`): arguments of NOTIFY.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Notice<'a> {
        pub host: Host<'a>,
        pub state: i32,
    }
}

record! {
    /// Call of the monitor to a program that asked for it (`status`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Called<'a> {
        pub host: Host<'a>,
        pub state: i32,
        pub private: [u8; 16],
    }
}
