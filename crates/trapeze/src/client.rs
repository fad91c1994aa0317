//! Reaching a cluster as a client: by its directory on this machine, or by its manager's address.

use crate::config::{ClusterKey, Machine};
use crate::lending::Lending;
use crate::local::MANAGER_NODE;
use crate::machine::{self, MachineError, Running, Setup};
use crate::serve::ServeError;
use crate::volume::Volume;
use live::link::{Address, Keys, Security};
use live::wait::WaitPolicy;
use node::rings::{Caller, Rights};
use std::io;
use std::path::{Path, PathBuf};
use wire::{NodeId, VolumeId};

/// Memory of a client that no flag says otherwise about.
pub const POOL_BYTES: u64 = 128 << 20;

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Reach {
    /// A directory of `up` or `init`, or an address of the manager.
    pub cluster: String,
    /// The cluster key's file, for TCP.
    pub key: Option<PathBuf>,
    /// Without encryption.
    pub insecure: bool,
}

/// Why a cluster cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// Neither a directory of a cluster nor an address.
    #[error(
        "{0:?} is neither a cluster's directory nor an address: name the cluster with -c or TRAPEZE_CLUSTER, by the DIR of `trapeze up`, `init` or `join`, or unix:PATH, adapter:PATH or tcp:HOST:PORT"
    )]
    Unknown(String),
    /// TCP needs a key.
    #[error(
        "tcp is encrypted: name the cluster key with --key FILE, or use --insecure on every machine"
    )]
    NoKey,
    /// The groups of this process are not known.
    #[error("cannot read the groups of this process: {0}")]
    Groups(io::Error),
    /// Anything about the machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

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
    /// The setup of a client node.
    pub fn setup(&self, pool_bytes: u64, wait: WaitPolicy) -> Result<Setup, ReachError> {
        let manager =
            ["manager.toml", "machine.toml"].map(|name| Path::new(&self.cluster).join(name));
        if let Some(file) = manager.iter().find(|file| file.is_file()) {
            let machine = Machine::load(file).map_err(MachineError::from)?;
            let setup = Setup::of(&machine, wait).map_err(MachineError::from)?;
            let lending = Lending::default();
            return Ok(Setup { pool_bytes, prefault: false, lending, ..setup });
        }
        let unknown = |_| ReachError::Unknown(self.cluster.clone());
        let address: Address = self.cluster.parse().map_err(unknown)?;
        let manager = (NodeId(MANAGER_NODE), vec![address.clone()]);
        let security = self.security(&address)?;
        // Cluster 0 asks for whatever cluster answers; the key proves that it is the right one.
        let (cluster, volume, prefault, quiet) = (0, VolumeId(1), false, true);
        let lending = Lending::default();
        Ok(Setup { cluster, volume, security, manager, pool_bytes, prefault, lending, wait, quiet })
    }

    /// The file with the cluster key, where there is one.
    pub fn key_file(&self) -> Option<PathBuf> {
        let known =
            ["manager.toml", "machine.toml"].map(|name| Path::new(&self.cluster).join(name));
        match known.iter().find(|file| file.is_file()) {
            Some(file) => Machine::load(file).ok()?.key,
            None => self.key.clone(),
        }
    }

    fn security(&self, address: &Address) -> Result<Security, ReachError> {
        match (&self.key, address) {
            (Some(key), _) if !self.insecure => {
                let key = ClusterKey::load(key).map_err(MachineError::from)?;
                Ok(Security::Encrypted(Keys::generate(key.0)))
            }
            (None, Address::Tcp(..)) if !self.insecure => Err(ReachError::NoKey),
            _ => Ok(Security::Insecure),
        }
    }

    /// Joins the cluster as a client.
    pub fn client(&self, name: &str) -> Result<Running, ReachError> {
        Ok(machine::client(&self.setup(POOL_BYTES, WaitPolicy::Adaptive)?, name)?)
    }

    /// As [`client`](Reach::client), for a mount.
    pub fn mount_client(
        &self,
        lending: Lending,
        listen: Option<&str>,
    ) -> Result<Running, ReachError> {
        let setup = self.setup(POOL_BYTES, WaitPolicy::Adaptive)?;
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
