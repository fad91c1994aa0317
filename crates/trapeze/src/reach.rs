//! How a cluster is reached: by its directory on this machine, or by its manager's address.

use crate::config::{ClusterKey, MANAGER_NODE, Machine};
use crate::lending::Lending;
use crate::machine::{MachineError, Setup};
use endpoint::tuning::Pulses;
use live::link::{Address, Keys, Security};
use live::wait::WaitPolicy;
use std::io;
use std::path::{Path, PathBuf};
use wire::{NodeId, VolumeId};

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

impl Reach {
    /// The setup of a client node.
    pub fn setup(&self, pool_bytes: u64, wait: WaitPolicy) -> Result<Setup, ReachError> {
        let manager =
            ["manager.toml", "machine.toml"].map(|name| Path::new(&self.cluster).join(name));
        if let Some(file) = manager.iter().find(|file| file.is_file()) {
            let machine = Machine::load(file).map_err(MachineError::from)?;
            let setup = Setup::of(&machine, wait).map_err(MachineError::from)?;
            let lending = Lending::default();
            // One process has the interface: the machine, not what joins by its directory.
            return Ok(Setup { pool_bytes, prefault: false, lending, xdp: None, ..setup });
        }
        let unknown = |_| ReachError::Unknown(self.cluster.clone());
        let address: Address = self.cluster.parse().map_err(unknown)?;
        let manager = (NodeId(MANAGER_NODE), vec![address.clone()]);
        let security = self.security(&address)?;
        // Cluster 0 asks for whatever cluster answers; the key proves that it is the right one.
        let (cluster, volume, prefault, quiet) = (0, VolumeId(1), false, true);
        let (lending, pulses) = (Lending::default(), Pulses::default());
        Ok(Setup {
            cluster,
            volume,
            security,
            manager,
            pool_bytes,
            prefault,
            lending,
            wait,
            pulses,
            xdp: None,
            quiet,
        })
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
}
