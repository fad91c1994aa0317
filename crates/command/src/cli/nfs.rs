//! Arguments of `trapeze nfs` and `trapeze filter`.

use super::ClusterArgs;
use clap::Args;
use std::net::IpAddr;
use trapeze::flags::Wait;
use trapeze::nfs::NfsOptions;
use trapeze::size::Size;
use trapeze::xdp::XdpFlag;

#[derive(Debug, Args)]
#[command(
    after_help = "All of the volume to the clients of a network, read and write:\n  trapeze nfs DIR --listen 192.168.1.10 --export '/:192.168.1.0/24(rw)'\nand there:\n  mount -t nfs -o vers=3,nolock 192.168.1.10:/ /mnt\n\nThere is no encryption, and clients are known by their addresses: listen only on networks that you trust."
)]
pub struct ServeNfs {
    /// Serve nothing: release the locks of this client, which is gone for good, at the servers of
    /// NFS on the manager's machine
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["listen", "exports", "exports_file", "portmap", "mount_udp"])]
    pub release_locks: Option<IpAddr>,
    #[command(flatten)]
    pub node: NfsNode,
}

#[derive(Debug, Args)]
#[command(
    after_help = "One address for a cluster of several managers: names are asked of the manager that owns them, bytes go to the I/O servers. A filter keeps nothing that matters: start it again when it ends, or several of them.\n  trapeze filter DIR --listen 192.168.1.10 --export '/:192.168.1.0/24(rw)'\nand there:\n  mount -t nfs -o vers=3,nolock 192.168.1.10:/ /mnt\n\nThere is no encryption, and clients are known by their addresses: listen only on networks that you trust."
)]
pub struct Filter {
    #[command(flatten)]
    pub node: NfsNode,
}

/// A node of the cluster that serves NFS.
#[derive(Debug, Args)]
pub struct NfsNode {
    /// The cluster, unless TRAPEZE_CLUSTER or --cluster names it
    #[arg(value_name = "CLUSTER")]
    pub place: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Address for clients of NFS; default port 2049
    #[arg(long, value_name = "HOST[:PORT]", default_value = "127.0.0.1")]
    pub listen: String,
    #[command(flatten)]
    pub options: NfsOptions,
    /// Memory for payload frames
    #[arg(long, default_value = "256M")]
    pub pool: Size,
    #[command(flatten)]
    pub xdp: XdpFlag,
    /// How to wait for messages
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub wait: Wait,
    /// Run on this processor only
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
}
