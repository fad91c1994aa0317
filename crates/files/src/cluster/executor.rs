//! The manager's half of a packet filter: calls are executed on the manager's node, by a client of its own.

use super::{ClientRole, Services, start_client};
use crate::Files;
use nfs::filter::{self, FileSystem, Part, Route};
use node::Cx;
use node::rings::{Caller, FileOp, FileReply};
use std::cell::OnceCell;
use wire::{Errno, FileId, NodeId, Sites};

/// A manager's node.
struct ManagerNode<W> {
    cx: Cx,
    role: ClientRole,
    /// Without one every node is a member.
    member: Option<members::Client>,
    /// That of the node's own server of NFS, or started with the first call: most clusters have no filter.
    client: OnceCell<Files>,
    manager: W,
}

impl<W: Fn() -> Option<names::Handle> + 'static> FileSystem for ManagerNode<W> {
    async fn is_member(&self, node: NodeId) -> bool {
        let Some(member) = &self.member else { return true };
        let is_known = || member.directory().get(node).is_some_and(|member| !member.gone);
        if is_known() {
            return true;
        }
        // a node that has just joined stands in the newest view only; without one it is refused, and tries again
        let _ = member.refresh().await;
        is_known()
    }

    fn sites(&self) -> Option<Sites> {
        (self.manager)().map(|manager| manager.sites())
    }

    fn route(&self, file: FileId, part: &Part) -> Option<Route> {
        let manager = (self.manager)()?;
        let is_hashed = manager.is_hashed(file);
        let site = if is_hashed { part.site(file, names::site_of_name) } else { file.site() };
        Some(Route { is_here: manager.owns(site), is_hashed })
    }

    async fn ask(&self, caller: Caller, op: FileOp) -> Result<FileReply, Errno> {
        let start = || start_client(&self.cx, self.role, self.member.as_ref());
        self.client.get_or_init(start).ask(caller, op).await
    }
}

/// Executes what filters forward to a node, if it is a manager's, as `role` says.
pub fn serve(cx: &Cx, services: &Services, role: ClientRole) {
    let Some(manager) = &services.manager else { return };
    let client = services.files.clone().map_or_else(OnceCell::new, OnceCell::from);
    let (member, manager) = (services.member.clone(), manager.weak());
    let node = ManagerNode { cx: cx.clone(), role, member, client, manager };
    filter::serve(cx, role.volume, node);
}
