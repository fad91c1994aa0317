//! An experiment: how large the cluster is, what is done to it, for how long. A file in TOML, every field optional.
//!
//! ```toml
//! seconds = 120
//! [shape]
//! servers = 4
//! [faults]
//! drop_per_million = 1000
//! kills_per_minute = 6
//! ```

use crate::faults::{Fault as Trouble, Rule};
use crate::limits::{
    CLOCK_RATE_PERCENT_MAX, COPIES_MAX, DECAYS_MAX, FILE_KIB_MAX, KEYS_MAX, LEND_MIB_MAX,
    MACHINES_MAX, MEMORY_FRAMES_MAX, MEMORY_NODES_MAX, PER_MINUTE_MAX, SECONDS_MAX, SKEW_MS_MAX,
    WORKERS_MAX,
};
use crate::queue::Picos;
use crate::random::Random;
use crate::source::{Fault, Source};
use netmem::Policy;
use serde::Deserialize;
use std::time::Duration;

/// All of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Experiment {
    /// Simulated seconds of work and faults, before everything is read once more.
    pub seconds: u64,
    /// The cluster.
    pub shape: Shape,
    /// Faults that are injected.
    pub faults: Faults,
    /// Instead of files: nodes with network memory.
    pub memory: Option<MemoryShape>,
    /// Clients of NFS beside the mounts.
    pub nfs: Option<NfsShape>,
    /// A directory that is a cache of a foreign NFS server.
    pub imports: Option<ImportShape>,
    /// Planted bugs to switch on, by name.
    pub bugs: Vec<String>,
    /// How things decay, by name as in [`node::decay::Decay`]; in all ways when none is named. `Restored`: the names
    /// are lost, and restored from a backup. `Salvaged`, which excludes that: they are lost, and salvaged from the
    /// disks.
    pub decays_of: Vec<String>,
}

impl Default for Experiment {
    fn default() -> Experiment {
        let (shape, faults) = (Shape::default(), Faults::default());
        let (bugs, decays_of) = (Vec::new(), Vec::new());
        let (memory, nfs, imports) = (None, None, None);
        Experiment { seconds: 60, shape, faults, memory, nfs, imports, bugs, decays_of }
    }
}

/// How large the cluster is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// I/O servers.
    pub servers: u16,
    /// Disks of each.
    pub disks: u16,
    /// Copies of each byte of files, on disks of distinct servers.
    pub copies: u8,
    /// Mounts, each on a machine of its own.
    pub mounts: u16,
    /// File managers beside the first, each on a machine of its own. Sites go from one to another all the time.
    pub more_managers: u16,
    /// Whether those are taken out and in again, one at a time.
    pub takes_out: bool,
    /// Applications on each mount.
    pub workers: u16,
    /// Files that all applications use.
    pub shared_files: u16,
    /// Files are about this long at most; the longest read is a quarter, the longest write less.
    pub file_kib: u32,
    /// Wall clocks are up to this much wrong.
    pub clock_skew_ms: u64,
    /// How often in a minute each mount has a column of some file moved to some disk.
    pub moves_per_minute: u32,
    /// Whether each mount has directories hashed that are found empty.
    pub hashes: bool,
    /// How often in a minute each mount has some file get columns.
    pub widens_per_minute: u32,
    /// Memory that every machine lends to network memory, in MiB; at 0 there is none. A program on each keeps pages
    /// there.
    pub lend_mib: u32,
    /// In so many seconds everything that machines store is read once; at 0 once a week, which is never.
    pub scrub_seconds: u32,
    /// An I/O server brings what is in its log into place when that is so much; at 0 when it is the usual amount, which
    /// is hardly ever.
    pub checkpoint_kib: u32,
    /// Whether applications say what they will read, which may be right or wrong.
    pub hints: bool,
}

impl Shape {
    /// In which time everything that machines store is read once, if not in the usual one.
    pub fn scrub(&self) -> Option<Duration> {
        (self.scrub_seconds > 0).then(|| Duration::from_secs(self.scrub_seconds.into()))
    }

    /// How many bytes in a log start a checkpoint, if not the usual number.
    pub fn checkpoint_bytes(&self) -> Option<u64> {
        (self.checkpoint_kib > 0).then(|| u64::from(self.checkpoint_kib) << 10)
    }
}

impl Default for Shape {
    fn default() -> Shape {
        let (servers, disks, mounts, workers) = (3, 2, 2, 3);
        Shape {
            servers,
            disks,
            copies: 1,
            mounts,
            more_managers: 0,
            takes_out: false,
            workers,
            shared_files: 2,
            file_kib: 256,
            clock_skew_ms: 500,
            moves_per_minute: 0,
            hashes: false,
            widens_per_minute: 0,
            lend_mib: 0,
            scrub_seconds: 0,
            checkpoint_kib: 0,
            hints: false,
        }
    }
}

/// How large a cluster with network memory is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryShape {
    /// Nodes.
    pub nodes: u16,
    /// Pages of 4 KiB in the memory of each; in a later incarnation as few as half of them.
    pub frames: u32,
    /// Programs on each.
    pub programs: u16,
    /// Pages of each space; every program has two spaces of its own.
    pub pages: u32,
    /// Spaces that all programs use: every other one is on stable storage; of the others every other one is in a mirror
    /// and its writers' logs, and the rest in two mirrors.
    pub shared_spaces: u16,
    /// Whether pages are prefetched for which faults show a trend.
    pub trends: bool,
    /// Destination of evicted pages.
    pub policy: Placement,
    /// Clients of a front end on each node that serves keys; at 0 there is none.
    pub key_clients: u16,
    /// Keys that they use.
    pub keys: u32,
    /// Processes on machines of their own that are no nodes and keep pages with the nodes, as regions do.
    pub guests: u16,
    /// Pages of each.
    pub guest_pages: u32,
}

impl Default for MemoryShape {
    fn default() -> MemoryShape {
        let (programs, pages, shared_spaces) = (3, 8, 3);
        let (nodes, frames, trends, key_clients, keys) = (5, 192, true, 0, 60);
        let (guests, guest_pages) = (0, 48);
        let policy = Placement::default();
        MemoryShape {
            nodes,
            frames,
            programs,
            pages,
            shared_spaces,
            trends,
            policy,
            key_clients,
            keys,
            guests,
            guest_pages,
        }
    }
}

/// Clients of NFS and their servers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct NfsShape {
    /// Nodes that serve NFS, unless managers do.
    pub fronts: u16,
    /// Whether every manager serves NFS on its own node.
    pub on_managers: bool,
    /// Machines of clients, each with a mount of one of them.
    pub machines: u16,
    /// Applications on each, which share a connection.
    pub applications: u16,
    /// How often in a minute each machine loses its connection.
    pub losses_per_minute: u32,
    /// Whether they are packet filters before the managers.
    pub filters: bool,
    /// Machines that lock bytes of one file.
    pub lockers: u16,
    /// Whether a change that is retransmitted to the next incarnation of its server must be known there.
    pub duplicates_outlive: bool,
}

impl Default for NfsShape {
    fn default() -> NfsShape {
        let (fronts, machines, applications, losses_per_minute) = (2, 3, 2, 20);
        let (duplicates_outlive, lockers) = (true, 3);
        let (on_managers, filters) = (false, false);
        NfsShape {
            fronts,
            on_managers,
            machines,
            applications,
            losses_per_minute,
            filters,
            lockers,
            duplicates_outlive,
        }
    }
}

/// A foreign NFS server, which a node of the cluster keeps a cache of and programs on every mount read.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ImportShape {
    /// Its files.
    pub files: u16,
    /// They are so long at most.
    pub file_kib: u32,
    /// How often in a minute one of them changes.
    pub changes_per_minute: u32,
    /// How often in a minute it goes away for a while.
    pub aways_per_minute: u32,
    /// How often in a minute it is started anew.
    pub restarts_per_minute: u32,
}

impl Default for ImportShape {
    fn default() -> ImportShape {
        let (changes_per_minute, aways_per_minute, restarts_per_minute) = (120, 1, 4);
        let (files, file_kib) = (6, 256);
        ImportShape { files, file_kib, changes_per_minute, aways_per_minute, restarts_per_minute }
    }
}

/// Policies by which nodes of a cluster with network memory choose the destination of evicted pages.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// [`Policy::BestOfTwo`].
    #[default]
    BestOfTwo,
    /// [`Policy::Gms`].
    Gms,
    /// [`Policy::Random`].
    Random,
    /// [`Policy::NChance`].
    NChance,
    /// One of these, by the seed.
    Any,
}

impl Placement {
    /// The policy in the run with this seed.
    pub fn policy(self, seed: u64) -> Policy {
        let all = [Policy::BestOfTwo, Policy::Gms, Policy::Random, Policy::NChance];
        match self {
            Placement::BestOfTwo => Policy::BestOfTwo,
            Placement::Gms => Policy::Gms,
            Placement::Random => Policy::Random,
            Placement::NChance => Policy::NChance,
            Placement::Any => *Random::new(seed, "placement").pick(&all),
        }
    }
}

/// Faults that are injected. Faults of messages come so often in a million messages, others so often a minute.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)] // the names say it all
pub struct Faults {
    pub drop_per_million: u32,
    pub duplicate_per_million: u32,
    pub reorder_per_million: u32,
    pub delay_per_million: u32,
    pub corrupt_per_million: u32,
    pub cut_per_million: u32,
    pub disk_error_per_million: u32,
    /// Processes killed, of any role.
    pub kills_per_minute: u32,
    /// Power cuts of one to all machines of servers and managers.
    pub power_cuts_per_minute: u32,
    pub pauses_per_minute: u32,
    pub partitions_per_minute: u32,
    /// Failures of one machine, where files have copies; while a group lacks a replica there is no other one. Of I/O
    /// servers a workload may notice nothing but a pause.
    pub failures_per_minute: u32,
    pub slow_disks_per_minute: u32,
    pub full_disks_per_minute: u32,
    /// Nodes whose network memory is short of memory for a while.
    pub shrinks_per_minute: u32,
    /// After the work all machines stop; then so often some of what one of them stores decays, all are started, and
    /// everything is read.
    pub decays: u32,
    /// Clocks run up to so many percent too fast or too slow, each incarnation of a machine in its own way.
    pub clock_rate_percent: u32,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            drop_per_million: 1_000,
            duplicate_per_million: 1_000,
            reorder_per_million: 1_000,
            delay_per_million: 1_000,
            corrupt_per_million: 200,
            cut_per_million: 200,
            disk_error_per_million: 0,
            kills_per_minute: 4,
            power_cuts_per_minute: 2,
            pauses_per_minute: 2,
            partitions_per_minute: 1,
            failures_per_minute: 0,
            slow_disks_per_minute: 1,
            full_disks_per_minute: 0,
            shrinks_per_minute: 0,
            decays: 0,
            clock_rate_percent: 0,
        }
    }
}

impl Faults {
    /// No fault at all.
    pub const NONE: Faults = Faults {
        drop_per_million: 0,
        duplicate_per_million: 0,
        reorder_per_million: 0,
        delay_per_million: 0,
        corrupt_per_million: 0,
        cut_per_million: 0,
        disk_error_per_million: 0,
        kills_per_minute: 0,
        power_cuts_per_minute: 0,
        pauses_per_minute: 0,
        partitions_per_minute: 0,
        failures_per_minute: 0,
        slow_disks_per_minute: 0,
        full_disks_per_minute: 0,
        shrinks_per_minute: 0,
        decays: 0,
        clock_rate_percent: 0,
    };

    /// The rules for messages.
    pub fn rules(&self) -> Vec<Rule> {
        let all = [
            (Trouble::Drop, self.drop_per_million),
            (Trouble::Duplicate(Picos::millis(20)), self.duplicate_per_million),
            (Trouble::Reorder(Picos::millis(20)), self.reorder_per_million),
            (Trouble::Delay(Picos::millis(5)), self.delay_per_million),
            (Trouble::CorruptHeader, self.corrupt_per_million / 2),
            (Trouble::CorruptPayload, self.corrupt_per_million / 2),
            (Trouble::Cut, self.cut_per_million),
        ];
        let used = all.into_iter().filter(|(_, chance)| *chance > 0);
        used.map(|(fault, chance)| Rule::new(fault, chance)).collect()
    }
}

impl Experiment {
    /// Whether names are lost, and restored from backups or salvaged.
    pub fn restores(&self) -> bool {
        self.does("Restored") || self.salvages()
    }

    /// Whether they are salvaged.
    pub fn salvages(&self) -> bool {
        self.does("Salvaged")
    }

    fn does(&self, disaster: &str) -> bool {
        self.faults.decays > 0 && self.decays_of.iter().any(|decay| decay == disaster)
    }

    /// Reads a file. The error names the field.
    pub fn parse<'s>(source: impl Into<Source<'s>>) -> Result<Experiment, Fault> {
        let source = source.into();
        let experiment: Experiment =
            toml::from_str(source.text).map_err(|error| source.of_toml(&error))?;
        let fields = experiment.fields();
        let wrong = fields.iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
        match wrong {
            Some((name, value, least, most)) => {
                let what = format!("{name} = {value}: a number from {least} to {most} is needed");
                Err(source.fault_at(name, what))
            }
            None => Ok(experiment),
        }
    }

    /// Every number with its least and its most.
    fn fields(&self) -> Vec<(&'static str, u64, u64, u64)> {
        let Shape { servers, disks, mounts, workers, shared_files, .. } = self.shape;
        let machines = |name, count: u16| (name, count.into(), 1, MACHINES_MAX.into());
        let often = |name, count: u32| (name, count.into(), 0, PER_MINUTE_MAX.into());
        let chance = |name, count: u32| (name, count.into(), 0, 1_000_000);
        let faults = &self.faults;
        let memory = self.memory.unwrap_or_default();
        let nfs = self.nfs.unwrap_or_default();
        let imports = self.imports.unwrap_or_default();
        vec![
            machines("fronts", nfs.fronts),
            machines("machines", nfs.machines),
            ("applications", nfs.applications.into(), 1, WORKERS_MAX.into()),
            ("lockers", nfs.lockers.into(), 0, WORKERS_MAX.into()),
            often("losses_per_minute", nfs.losses_per_minute),
            ("files", imports.files.into(), 1, WORKERS_MAX.into()),
            often("changes_per_minute", imports.changes_per_minute),
            often("aways_per_minute", imports.aways_per_minute),
            often("restarts_per_minute", imports.restarts_per_minute),
            ("file_kib", imports.file_kib.into(), 1, FILE_KIB_MAX.into()),
            ("nodes", memory.nodes.into(), 4, MEMORY_NODES_MAX.into()),
            ("frames", memory.frames.into(), 64, MEMORY_FRAMES_MAX.into()),
            ("programs", memory.programs.into(), 1, WORKERS_MAX.into()),
            ("pages", memory.pages.into(), 1, MEMORY_FRAMES_MAX.into()),
            ("shared_spaces", memory.shared_spaces.into(), 0, WORKERS_MAX.into()),
            ("key_clients", memory.key_clients.into(), 0, WORKERS_MAX.into()),
            ("keys", memory.keys.into(), 1, KEYS_MAX.into()),
            ("seconds", self.seconds, 1, SECONDS_MAX),
            machines("servers", servers),
            machines("disks", disks),
            ("copies", self.shape.copies.into(), 1, COPIES_MAX.into()),
            often("failures_per_minute", faults.failures_per_minute),
            machines("mounts", mounts),
            ("workers", workers.into(), 1, WORKERS_MAX.into()),
            ("shared_files", shared_files.into(), 1, WORKERS_MAX.into()),
            ("file_kib", self.shape.file_kib.into(), 1, FILE_KIB_MAX.into()),
            ("clock_skew_ms", self.shape.clock_skew_ms, 0, SKEW_MS_MAX),
            often("moves_per_minute", self.shape.moves_per_minute),
            often("widens_per_minute", self.shape.widens_per_minute),
            ("lend_mib", self.shape.lend_mib.into(), 0, LEND_MIB_MAX.into()),
            ("scrub_seconds", self.shape.scrub_seconds.into(), 0, SECONDS_MAX),
            ("checkpoint_kib", self.shape.checkpoint_kib.into(), 0, FILE_KIB_MAX.into()),
            chance("drop_per_million", faults.drop_per_million),
            chance("duplicate_per_million", faults.duplicate_per_million),
            chance("reorder_per_million", faults.reorder_per_million),
            chance("delay_per_million", faults.delay_per_million),
            chance("corrupt_per_million", faults.corrupt_per_million),
            chance("cut_per_million", faults.cut_per_million),
            chance("disk_error_per_million", faults.disk_error_per_million),
            often("kills_per_minute", faults.kills_per_minute),
            often("power_cuts_per_minute", faults.power_cuts_per_minute),
            often("pauses_per_minute", faults.pauses_per_minute),
            often("partitions_per_minute", faults.partitions_per_minute),
            often("slow_disks_per_minute", faults.slow_disks_per_minute),
            often("full_disks_per_minute", faults.full_disks_per_minute),
            often("shrinks_per_minute", faults.shrinks_per_minute),
            ("decays", faults.decays.into(), 0, DECAYS_MAX.into()),
            (
                "clock_rate_percent",
                faults.clock_rate_percent.into(),
                0,
                CLOCK_RATE_PERCENT_MAX.into(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_the_default() {
        let text = "seconds = 5\n[shape]\nservers = 7\n[faults]\nkills_per_minute = 0\n";
        let experiment = Experiment::parse(text).unwrap();
        assert_eq!((experiment.seconds, experiment.shape.servers), (5, 7));
        assert_eq!(experiment.shape.disks, Shape::default().disks);
        assert_eq!(experiment.faults.kills_per_minute, 0);
        assert_eq!(Experiment::parse(""), Ok(Experiment::default()));
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = Experiment::parse("[shape]\nserver = 7\n").unwrap_err();
        assert!(error.what.contains("server") && error.line == 2, "{error}");
    }

    #[test]
    fn numbers_that_cannot_be_are_named() {
        for text in [
            "seconds = 0",
            "[shape]\nservers = 0",
            "[shape]\ndisks = 40",
            "[shape]\nshared_files = 0",
            "[shape]\nmounts = 3000",
            "[shape]\nfile_kib = 0",
            "[shape]\nfile_kib = 5121",
            "[shape]\nclock_skew_ms = 99999999999999",
            "[shape]\nlend_mib = 65",
            "[faults]\ndrop_per_million = 1000001",
            "[faults]\nkills_per_minute = 4000000000",
            "[faults]\nclock_rate_percent = 11",
        ] {
            let field = text.rsplit('\n').next().unwrap();
            let error = Experiment::parse(text).unwrap_err();
            assert!(
                error.what.starts_with(field) && error.what.contains("a number from"),
                "{error}"
            );
            assert_eq!(error.line, text.lines().count(), "{error}");
        }
    }

    #[test]
    fn a_seed_may_choose_how_pages_are_placed() {
        let placement = |text: &str| {
            let experiment = Experiment::parse(&format!("[memory]\n{text}")[..]).unwrap();
            experiment.memory.unwrap().policy
        };
        assert_eq!(placement("").policy(3), Policy::default());
        assert_eq!(placement("policy = \"n-chance\"").policy(3), Policy::NChance);
        let any = placement("policy = \"any\"");
        let chosen = |policy| (0..40).filter(|seed| any.policy(*seed) == policy).count();
        let all = [Policy::BestOfTwo, Policy::Gms, Policy::Random, Policy::NChance];
        assert!(all.into_iter().all(|policy| chosen(policy) > 0));
        let error = Experiment::parse("[memory]\npolicy = \"worst\"").unwrap_err();
        assert!(error.what.contains("worst"), "{error}");
    }

    #[test]
    fn without_faults_there_is_no_rule() {
        assert_eq!(Faults::NONE.rules(), []);
        assert_eq!(Faults::default().rules().len(), 7);
    }
}
