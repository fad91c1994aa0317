//! Mapping of callers to users.

use crate::rpc::{Credential, System};
use node::rings::{Caller, Rights};

/// Number of the anonymous user and group, where none is given.
pub const NOBODY: u32 = 65_534;

/// Callers that are mapped to the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// None: root is root.
    Nobody,
    /// Root, and group 0 of others.
    #[default]
    Root,
    /// All.
    All,
}

/// Whether a client may change anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// It may read.
    #[default]
    ReadOnly,
    /// It may write too.
    ReadWrite,
}

/// Rights of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to write.
    pub access: Access,
    /// The callers to map.
    pub squash: Squash,
    /// User that those are.
    pub anonymous_uid: u32,
    /// Group that those are in.
    pub anonymous_gid: u32,
}

impl Default for Options {
    fn default() -> Options {
        let (access, squash) = (Access::default(), Squash::default());
        Options { access, squash, anonymous_uid: NOBODY, anonymous_gid: NOBODY }
    }
}

impl Options {
    /// The user that a credential's owner counts as. One without a name is anonymous.
    pub fn caller(&self, credential: &Credential<'_>) -> Caller {
        match credential {
            Credential::System(system) if self.squash != Squash::All => self.of_system(system),
            _ => self.anonymous(),
        }
    }

    fn of_system(&self, system: &System<'_>) -> Caller {
        let squashes_root = self.squash == Squash::Root;
        if squashes_root && system.uid == 0 {
            return self.anonymous();
        }
        let group = |gid: u32| if squashes_root && gid == 0 { self.anonymous_gid } else { gid };
        let mut groups: Vec<u32> = system.groups.iter().map(|gid| group(*gid)).collect();
        groups.sort_unstable();
        groups.dedup();
        Caller {
            uid: system.uid,
            gid: group(system.gid),
            pid: 0,
            rights: Rights::of_groups(groups),
        }
    }

    /// The anonymous caller.
    pub fn anonymous(&self) -> Caller {
        let (uid, gid) = (self.anonymous_uid, self.anonymous_gid);
        Caller { uid, gid, pid: 0, rights: Rights::default() }
    }
}
