//! The manager's half of a packet filter on simulated nodes.

use crate::machine::Role;
use endpoint::limits::PAGE_BYTES;
use files::cluster::{ClientRole, Services, start_client};
use files::{Config, Files};
use nfs::filter::{self, FileSystem, Route};
use node::Cx;
use node::rings::{Caller, FileOp, FileReply};
use std::cell::OnceCell;
use std::rc::Rc;
use wire::{Errno, FileId, NodeId, Sites, VolumeId};

/// A manager's node. All nodes of the world are members.
struct ManagerNode<W> {
    cx: Cx,
    role: ClientRole,
    client: OnceCell<Files>,
    manager: W,
}

impl<W: Fn() -> Option<names::Handle> + 'static> FileSystem for ManagerNode<W> {
    async fn is_member(&self, _: NodeId) -> bool {
        true
    }

    fn sites(&self) -> Option<Sites> {
        (self.manager)().map(|manager| manager.sites())
    }

    fn route(&self, file: FileId, name: Option<&[u8]>) -> Option<Route> {
        let manager = (self.manager)()?;
        let name = name.filter(|_| manager.is_hashed(file));
        let site = name.map_or(file.site(), |name| names::site_of_name(file, name));
        Some(Route { is_here: manager.owns(site), is_hashed: name.is_some() })
    }

    async fn ask(&self, caller: Caller, op: FileOp) -> Result<FileReply, Errno> {
        let start = || start_client(&self.cx, self.role, None);
        self.client.get_or_init(start).ask(caller, op).await
    }
}

/// A manager that also executes what filters forward to it. `first` is the one that clients know.
pub fn executing(role: Role, first: NodeId, volume: VolumeId) -> Role {
    Rc::new(move |boot| {
        let started = role(boot)?;
        let services: &Services = started.downcast_ref().expect("the services");
        let manager = services.manager.as_ref().expect("a manager").weak();
        let files = Config::for_pool(boot.cx.frames().pages() * PAGE_BYTES).for_nfs();
        let role = ClientRole { manager: first, volume, files };
        let cx = boot.cx.clone();
        filter::serve(&boot.cx, volume, ManagerNode { cx, role, client: OnceCell::new(), manager });
        Ok(started)
    })
}
