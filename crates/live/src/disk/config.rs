//! Which disks a node has, and how they are used.

use super::directory::OpenError;
use super::throttle::Throttle;
use std::io;
use std::path::PathBuf;

/// The means that move the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring, or threads where it is forbidden. The environment's `TRAPEZE_DISK` may say otherwise.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// Helper threads.
    Threads,
}

impl Engine {
    /// The engine named by the environment variable `TRAPEZE_DISK`.
    pub(super) fn from_environment() -> Result<Engine, DisksError> {
        let said = std::env::var_os("TRAPEZE_DISK").unwrap_or_default();
        Engine::parse(&said.to_string_lossy())
    }

    fn parse(name: &str) -> Result<Engine, DisksError> {
        match name {
            "" | "auto" => Ok(Engine::Auto),
            "io_uring" => Ok(Engine::Uring),
            "threads" => Ok(Engine::Threads),
            _ => Err(DisksError::BadEngine(name.to_owned())),
        }
    }
}

/// One disk: a directory of its own.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The directory; it must exist.
    pub path: PathBuf,
    /// Makes it slower.
    pub throttle: Option<Throttle>,
    /// Whether aligned transfers go past the host's cache where the file system can.
    pub direct: bool,
}

impl DiskConfig {
    /// The disk in `path`, unthrottled, past the host's cache.
    pub fn new(path: impl Into<PathBuf>) -> DiskConfig {
        DiskConfig { path: path.into(), throttle: None, direct: true }
    }
}

/// Why the disks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DisksError {
    /// One of them cannot.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// `TRAPEZE_DISK` says something strange.
    #[error("TRAPEZE_DISK is {0:?}: write auto, io_uring or threads")]
    BadEngine(String),
    /// io_uring is asked for and not there.
    #[error(
        "io_uring is not allowed here ({0}); set TRAPEZE_DISK=threads or leave the choice to auto"
    )]
    NoUring(io::Error),
    /// Threads or descriptors are exhausted.
    #[error("the helper threads of the disks cannot be started: {0}")]
    NoHelpers(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_chosen_by_name() {
        for (name, engine) in
            [("", Engine::Auto), ("io_uring", Engine::Uring), ("threads", Engine::Threads)]
        {
            assert_eq!(Engine::parse(name).unwrap(), engine);
        }
        let error = Engine::parse("Threads").unwrap_err().to_string();
        assert_eq!(error, "TRAPEZE_DISK is \"Threads\": write auto, io_uring or threads");
    }
}
