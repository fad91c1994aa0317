//! `trapeze status`, `health`, `top` and `metrics`: what the machines tell (`trapeze::status`), for people and for
//! monitors.

mod ethernet;
mod exporter;
mod import;
mod keyboard;
mod keys;
mod memory;
mod metrics;
mod nfs;
mod reads;
mod show;
mod top;
mod verdict;

use crate::cli::Target;
use trapeze::ask::Told;
use trapeze::client::{Reach, VisitError};

pub use exporter::Exporter;
pub use metrics::{metrics, serve_own};
pub use show::status;
pub use top::top;
pub use verdict::{NotWell, Room, health};

/// The reports of all members, now.
pub fn ask_once(target: &Target) -> Result<Vec<Told>, VisitError> {
    trapeze::ask::ask_once(&Reach::from(&target.cluster))
}

#[cfg(test)]
mod tests {
    use members::{Member, Roles};
    use trapeze::ask::Told;
    use trapeze::status::report::Report;
    use wire::{Errno, NodeId};

    /// A server that told this.
    pub fn told(id: u16, name: &str, report: Option<Result<Report, Errno>>) -> Told {
        let member = Member {
            id: NodeId(id),
            name: name.into(),
            roles: Roles::IO,
            alive: true,
            gone: false,
            retired: false,
            drained: false,
            incarnation: 1,
            addresses: Vec::new(),
            disks: 1,
            gone_disks: 0,
        };
        Told { member, lease: None, report }
    }
}
