//! Memory that a node gives to network memory, as configurations and command lines say it.

use crate::machine_stat::total_memory;
use crate::size::Size;
use files::cluster::Services;
use live::host::Host;
use live::pressure::{Pressure, PressureConfig, Sources};
use members::Lends;
use netmem::service::Config;
use std::io;

/// Least that a node lends: less than this is not worth its messages.
const LEND_MIN: Size = Size(16 << 20);
/// The part of a machine's memory that is left to others, one in so many, and the most of it.
const RESERVE_SHARE: u64 = 32;
const RESERVE_MAX: u64 = 512 << 20;

/// A node's part in network memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Lending {
    /// Memory of this machine for the cluster's network memory, beside all other; without it none
    #[arg(long, value_name = "SIZE")]
    pub lend: Option<Size>,
    /// Part of the lent memory that this machine's own pages can always have; default a quarter
    #[arg(long, value_name = "SIZE", requires = "lend")]
    pub keep: Option<Size>,
    /// Memory of this machine that is left to its other programs: with less, it lends less for a while; 0 never does.
    /// Default a 32nd of the machine's memory, at most 512M
    #[arg(long, value_name = "SIZE", requires = "lend")]
    pub reserve: Option<Size>,
}

impl Lending {
    /// This where it says anything, else the other.
    pub fn or(self, other: Lending) -> Lending {
        if self.lend.is_some() { self } else { other }
    }

    /// The service's limits; `None` for a node that takes no part.
    pub fn network(&self) -> Option<Config> {
        let usual = Config::new(self.lend?.0 as usize);
        let local_min_bytes = self.keep.map_or(usual.local_min_bytes, |keep| keep.0 as usize);
        Some(Config { local_min_bytes, ..usual })
    }

    /// When it lends less.
    pub fn pressure(&self) -> PressureConfig {
        let usual = || Size((total_memory() / RESERVE_SHARE).min(RESERVE_MAX));
        PressureConfig::new(self.reserve.unwrap_or_else(usual).0)
    }

    /// Has what a node lends follow the memory that its machine has left.
    pub fn watch(&self, host: &mut Host, services: &Services) -> io::Result<()> {
        let (Some(service), config) = (services.memory.clone(), self.pressure()) else {
            return Ok(());
        };
        match config.reserve {
            0 => Ok(()),
            _ => host.add(Pressure::new(Sources::of_machine(), service, config)),
        }
    }

    /// Bytes lent.
    pub fn bytes(&self) -> u64 {
        self.lend.map_or(0, |lend| lend.0)
    }

    /// The entry in the list of members: the MiB are its weight among the others.
    pub fn lends(&self) -> Lends {
        let mib = u32::try_from(self.bytes() >> 20).unwrap_or(u32::MAX);
        Lends { mib, machine: live::boot::number() }
    }

    /// An error in it, if any, for `nodes` such nodes on this machine with a pool of `pool` bytes each. The text begins
    /// with the name of the option.
    pub fn problem(&self, pool: Size, nodes: u64) -> Option<String> {
        self.problem_of(pool, nodes, total_memory())
    }

    fn problem_of(&self, pool: Size, nodes: u64, machine: u64) -> Option<String> {
        let Some(lend) = self.lend else {
            let keep = self.keep.map(|_| "`keep` is a part of `lend`: say `lend` as well");
            let reserve = || "`reserve` says when less is lent: say `lend` as well";
            return keep.or(self.reserve.map(|_| reserve())).map(str::to_string);
        };
        if lend < LEND_MIN {
            return Some(format!(
                "`lend` is {lend}: lend {LEND_MIN} or more, or leave it out to lend nothing"
            ));
        }
        if let Some(keep) = self.keep.filter(|keep| *keep > lend) {
            return Some(format!(
                "`keep` ({keep}) is more than `lend` ({lend}), of which it is a part"
            ));
        }
        if let Some(reserve) = self.reserve.filter(|reserve| reserve.0 >= machine) {
            return Some(format!(
                "`reserve` ({reserve}) is all of this machine's memory ({}): nothing could be lent",
                Size(machine)
            ));
        }
        let all = pool.0.saturating_add(lend.0).saturating_mul(nodes);
        let times = if nodes == 1 { String::new() } else { format!(", of each of {nodes} nodes,") };
        (all > machine).then(|| {
            format!(
                "`lend` ({lend}) and the pool ({pool}){times} are more than this machine's memory ({}): lend less",
                Size(machine)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lending(lend: &str, keep: &str) -> Lending {
        Lending { lend: lend.parse().ok(), keep: keep.parse().ok(), reserve: None }
    }

    #[test]
    fn what_cannot_be_lent_is_said() {
        let problem = |lend, keep, nodes| {
            let problem = lending(lend, keep).problem_of(Size(1 << 30), nodes, 4 << 30);
            problem.unwrap_or_default()
        };
        assert_eq!(problem("", "", 100), "");
        assert_eq!(problem("3G", "3G", 1), "");
        assert_eq!(problem("1G", "0", 2), "");
        assert!(problem("0", "", 1).contains("`lend` is 0: lend 16M or more"));
        assert!(problem("8M", "", 1).contains("lend 16M or more"));
        assert!(problem("", "1M", 1).contains("say `lend` as well"));
        assert!(problem("20M", "21M", 1).contains("`keep` (21M) is more than `lend` (20M)"));
        assert!(problem("4G", "", 1).contains("more than this machine's memory (4G)"));
        assert!(problem("2G", "", 2).contains("(1G), of each of 2 nodes, are more"));
        assert!(problem("9999999T", "", 3).contains("more than this machine's memory"));
    }

    #[test]
    fn what_is_left_to_others_is_a_32nd_or_what_is_said() {
        let of = |reserve: Option<u64>| Lending { reserve: reserve.map(Size), ..lending("1G", "") };
        assert_eq!(of(Some(0)).pressure().reserve, 0);
        assert_eq!(of(Some(7 << 20)).pressure().reserve, 7 << 20);
        assert_eq!(of(None).pressure().reserve, (total_memory() / 32).min(512 << 20));
        let problem = |reserve| of(Some(reserve)).problem_of(Size(1 << 30), 1, 4 << 30);
        assert_eq!(problem(3 << 30), None);
        assert!(problem(4 << 30).unwrap().contains("`reserve` (4G) is all of"));
        let without = Lending { lend: None, ..of(Some(1)) }.problem_of(Size(1), 1, 4 << 30);
        assert!(without.unwrap().contains("say `lend` as well"));
    }

    #[test]
    fn a_quarter_is_kept_unless_more_or_less_is_asked_for() {
        let kept = |keep| lending("64M", keep).network().unwrap().local_min_bytes;
        assert_eq!((kept(""), kept("0"), kept("64M")), (16 << 20, 0, 64 << 20));
        assert_eq!((lending("64M", "").lends().mib, lending("", "").lends().mib), (64, 0));
        assert!(lending("", "").network().is_none());
        assert_eq!(lending("", "").or(lending("1G", "")), lending("1G", ""));
        assert_eq!(lending("2G", "").or(lending("1G", "1M")), lending("2G", ""));
    }
}
