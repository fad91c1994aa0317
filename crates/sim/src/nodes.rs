//! Which nodes a simulated cluster has, and what each is for.

use crate::experiment::Experiment;
use wire::NodeId;

/// Which nodes a cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The file manager, and first manager of the cluster.
    pub manager: NodeId,
    /// The I/O servers.
    pub servers: Vec<NodeId>,
    /// The mounts.
    pub mounts: Vec<NodeId>,
}

impl Members {
    /// The nodes of a cluster of this shape.
    pub fn of(experiment: &Experiment) -> Members {
        let servers = 2..2 + experiment.shape.servers;
        let mounts = servers.end..servers.end + experiment.shape.mounts;
        Members {
            manager: NodeId(1),
            servers: servers.map(NodeId).collect(),
            mounts: mounts.map(NodeId).collect(),
        }
    }

    pub(crate) fn keepers(&self) -> Vec<NodeId> {
        std::iter::once(self.manager).chain(self.servers.iter().copied()).collect()
    }
}
