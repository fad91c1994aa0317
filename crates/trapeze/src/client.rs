//! Clients of a cluster: nodes of its own, and its volume.

use crate::config::CLIENT_POOL_BYTES;
use crate::lending::Lending;
use crate::machine::{self, Running, Setup};
use crate::serve::ServeError;
use crate::volume::Volume;
use live::wait::WaitPolicy;
use node::rings::{Caller, Rights};
use std::io;

pub use crate::reach::{Reach, ReachError};

/// Why a visit to a cluster came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The cluster.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// Saying good-bye.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Reach {
    /// Joins the cluster as a client.
    pub fn client(&self, name: &str) -> Result<Running, ReachError> {
        Ok(machine::client(&self.setup(CLIENT_POOL_BYTES, WaitPolicy::Adaptive)?, name)?)
    }

    /// As [`client`](Reach::client), for a mount.
    pub fn mount_client(
        &self,
        lending: Lending,
        listen: Option<&str>,
    ) -> Result<Running, ReachError> {
        let setup = self.setup(CLIENT_POOL_BYTES, WaitPolicy::Adaptive)?;
        Ok(machine::mount_client(&Setup { lending, ..setup }, listen)?)
    }

    /// Joins the cluster and opens its volume for this process's user.
    pub fn volume(&self, name: &str) -> Result<Volume, ReachError> {
        let groups =
            rustix::process::getgroups().map_err(|error| ReachError::Groups(error.into()))?;
        let caller = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            pid: std::process::id(),
            rights: Rights::of_groups(groups.iter().map(|group| group.as_raw())),
        };
        Ok(Volume::new(self.client(name)?, caller))
    }
}
