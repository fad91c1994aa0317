//! The manager's half of a packet filter: calls are executed on the manager's node, by a client of its own.

use files::cluster::{ClientRole, Services, start_client};
use files::{Config, Files};
use nfs::filter::{self, FileSystem, Route};
use node::Cx;
use node::rings::{Caller, FileOp, FileReply};
use std::cell::OnceCell;
use wire::{Errno, FileId, NodeId, Sites, VolumeId};

/// A manager's node.
struct ManagerNode<W> {
    cx: Cx,
    role: ClientRole,
    member: members::Client,
    /// That of the node's own server of NFS, or started with the first call: most clusters have no filter.
    client: OnceCell<Files>,
    manager: W,
}

impl<W: Fn() -> Option<names::Handle> + 'static> FileSystem for ManagerNode<W> {
    async fn is_member(&self, node: NodeId) -> bool {
        let is_known = || self.member.directory().get(node).is_some_and(|member| !member.gone);
        if is_known() {
            return true;
        }
        // a node that has just joined stands in the newest view only; without one it is refused, and tries again
        let _ = self.member.refresh().await;
        is_known()
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
        let start = || start_client(&self.cx, self.role, Some(&self.member));
        self.client.get_or_init(start).ask(caller, op).await
    }
}

/// Executes what filters forward to a node, if it is a manager's. `first` is the manager that the volume was made at.
pub(crate) fn serve(
    cx: &Cx,
    services: &Services,
    (volume, first): (VolumeId, NodeId),
    files: Config,
) {
    let (Some(manager), Some(member)) = (&services.manager, &services.member) else { return };
    let role = ClientRole { manager: first, volume, files: files.for_nfs() };
    let client = services.files.clone().map_or_else(OnceCell::new, OnceCell::from);
    let member = member.clone();
    let node = ManagerNode { cx: cx.clone(), role, member, client, manager: manager.weak() };
    filter::serve(cx, volume, node);
}
