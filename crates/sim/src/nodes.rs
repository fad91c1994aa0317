//! The nodes of a simulated cluster, by role.

use crate::experiment::Experiment;
use wire::NodeId;

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The file manager, and first manager of the cluster.
    pub manager: NodeId,
    /// The I/O servers.
    pub servers: Vec<NodeId>,
    /// The mounts.
    pub mounts: Vec<NodeId>,
    /// File managers beside the first.
    pub more_managers: Vec<NodeId>,
    /// Nodes that serve NFS.
    pub fronts: Vec<NodeId>,
}

impl Members {
    /// The nodes of a cluster of this shape.
    pub fn of(experiment: &Experiment) -> Members {
        let servers = 2..2 + experiment.shape.servers;
        let mounts = servers.end..servers.end + experiment.shape.mounts;
        let more_managers = mounts.end..mounts.end + experiment.shape.more_managers;
        let fronts = experiment.nfs.map_or(0, |nfs| nfs.fronts);
        let fronts = more_managers.end..more_managers.end + fronts;
        Members {
            manager: NodeId(1),
            servers: servers.map(NodeId).collect(),
            mounts: mounts.map(NodeId).collect(),
            more_managers: more_managers.map(NodeId).collect(),
            fronts: fronts.map(NodeId).collect(),
        }
    }

    /// All machines that keep data: the managers, and the servers.
    pub(crate) fn keepers(&self) -> Vec<NodeId> {
        let more = self.servers.iter().chain(&self.more_managers);
        std::iter::once(self.manager).chain(more.copied()).collect()
    }

    /// All file managers.
    pub(crate) fn managers(&self) -> Vec<NodeId> {
        std::iter::once(self.manager).chain(self.more_managers.iter().copied()).collect()
    }
}
