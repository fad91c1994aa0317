//! The nodes of a simulated cluster, by role.

use crate::experiment::Experiment;
use core::ops::Range;
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
    /// Nodes that serve NFS, the managers or others.
    pub fronts: Vec<NodeId>,
    /// The node that keeps a cache of a foreign server.
    pub importer: Option<NodeId>,
}

impl Members {
    /// The nodes of a cluster of this shape.
    pub fn of(experiment: &Experiment) -> Members {
        let servers = 2..2 + experiment.shape.servers;
        let mounts = servers.end..servers.end + experiment.shape.mounts;
        let more_managers = mounts.end..mounts.end + experiment.shape.more_managers;
        let first = more_managers.end;
        let nodes = |range: Range<u16>| range.map(NodeId).collect();
        let members = Members {
            manager: NodeId(1),
            servers: nodes(servers),
            mounts: nodes(mounts),
            more_managers: nodes(more_managers),
            fronts: Vec::new(),
            importer: None,
        };
        let fronts = match experiment.nfs {
            None => Vec::new(),
            Some(nfs) if nfs.on_managers => members.managers(),
            Some(nfs) => nodes(first..first + nfs.fronts),
        };
        let last = fronts.iter().map(|front| front.0 + 1).max();
        let next = NodeId(last.unwrap_or(first).max(first));
        let importer = experiment.imports.map(|_| next);
        Members { fronts, importer, ..members }
    }

    /// All machines that keep data: the managers, and the servers.
    pub(crate) fn keepers(&self) -> Vec<NodeId> {
        let more = self.servers.iter().chain(&self.more_managers);
        std::iter::once(self.manager).chain(more.copied()).collect()
    }

    /// Nodes that do nothing but serve NFS.
    pub(crate) fn only_fronts(&self) -> Vec<NodeId> {
        let managers = self.managers();
        self.fronts.iter().filter(|front| !managers.contains(front)).copied().collect()
    }

    /// All file managers.
    pub(crate) fn managers(&self) -> Vec<NodeId> {
        std::iter::once(self.manager).chain(self.more_managers.iter().copied()).collect()
    }
}
