//! Arguments of `trapeze memory`.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use trapeze::flags::Wait;
use trapeze::lending::Lending;
use trapeze::size::Size;
use trapeze::xdp::XdpFlag;

/// The tenant of an address that names none.
pub const DEFAULT_TENANT: &str = "default";

#[derive(Clone, Debug, Args)]
#[command(
    mut_arg("lend", |lend| lend.help("Memory of this machine for the cluster's network memory, beside that of the items; default 64M")),
    after_help = "Without --memcached and --resp both listen at their usual ports of 127.0.0.1.\n\nTwo tenants with key spaces of their own:\n  trapeze memory --memory 1G --memcached 127.0.0.1:11211/web --resp 127.0.0.1:6379/jobs \\\n    --tenant web:min=256M --tenant jobs:max=512M\n\nThere is no encryption, and without --resp-password no password: listen where only friends can reach."
)]
pub struct Memory {
    /// Address for clients of memcached, and the tenant they use; may be repeated
    #[arg(long, value_name = "HOST:PORT[/TENANT]")]
    pub memcached: Vec<Listen>,
    /// Address for clients of Redis, and the tenant they use; may be repeated
    #[arg(long, value_name = "HOST:PORT[/TENANT]")]
    pub resp: Vec<Listen>,
    /// File with the password that clients of Redis have to give first (AUTH), in its first line. memcached's protocol
    /// has none: no tenant is at both
    #[arg(long, env = "TRAPEZE_RESP_PASSWORD_FILE", value_name = "FILE")]
    pub resp_password: Option<PathBuf>,
    /// Memory for all items: keys, values and their table
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub memory: Size,
    /// Longest value. Default: 64M, or a quarter of the memory if that is less
    #[arg(long, value_name = "SIZE")]
    pub value_max: Option<Size>,
    /// Least and most memory of a tenant here, and most in other members' memory, as in
    /// web:min=64M,max=1G,away=4G; may be repeated
    #[arg(long = "tenant", value_name = "NAME[:min=SIZE][,max=SIZE][,away=SIZE]")]
    pub tenants: Vec<Tenant>,
    /// Most clients connected at a time
    #[arg(long, default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// How to wait for commands
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub wait: Wait,
    /// Run on this processor only
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
    /// Take all of the memory from the system at the start
    #[arg(long)]
    pub prefault: bool,
    /// Address for Prometheus, over HTTP at /metrics; a member of a cluster is in the
    /// cluster's `trapeze metrics` instead
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "cluster")]
    pub metrics: Option<String>,
    #[command(flatten)]
    pub member: Member,
}

/// Taking part in a cluster's network memory.
#[derive(Clone, Debug, Args)]
pub struct Member {
    /// Be a member of this cluster: a directory of `up` or `init`, or the manager's address. All `trapeze memory` of a
    /// cluster are one key space, and what does not fit goes into the memory that the members lend
    #[arg(long, short = 'c', value_name = "DIR|ADDRESS")]
    pub cluster: Option<String>,
    /// File with the cluster key, when the address is tcp
    #[arg(long, env = "TRAPEZE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Do not encrypt TCP; every machine of the cluster must agree
    #[arg(long, requires = "cluster")]
    pub insecure: bool,
    /// Address for other machines of the cluster; not needed when all of it is on this machine
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub xdp: XdpFlag,
    #[command(flatten)]
    pub lending: Lending,
    /// Most bytes of values that are in the members' memory
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub away: Size,
    /// Nodes that have each value which is in the members' memory: 1, so that it goes with its node, or 2, so that it
    /// survives any one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub copies: u8,
}

/// An address and the tenant whose items are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub at: SocketAddr,
    pub tenant: String,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let (at, tenant) = text.split_once('/').unwrap_or((text, DEFAULT_TENANT));
        let at = at.replace("localhost:", "127.0.0.1:");
        let at = at.parse().map_err(|_| {
            format!("{at:?} is no address: write one with its port, such as 127.0.0.1:11211")
        })?;
        Ok(Listen { at, tenant: name(tenant)? })
    }
}

/// A tenant's name and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub name: String,
    pub min: Size,
    pub max: Option<Size>,
    pub away: Option<Size>,
}

fn name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match !text.is_empty() && text.len() <= 64 && text.bytes().all(fits) {
        true => Ok(text.to_string()),
        false => Err(format!("{text:?} is no tenant's name: use up to 64 letters, digits, - _ .")),
    }
}

impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Tenant, String> {
        let (tenant, bounds) = text.split_once(':').unwrap_or((text, ""));
        let mut tenant = Tenant { name: name(tenant)?, min: Size(0), max: None, away: None };
        for bound in bounds.split(',').filter(|bound| !bound.is_empty()) {
            let size = |text: &str| text.parse::<Size>().map_err(|error| error.to_string());
            match bound.split_once('=') {
                Some(("min", text)) => tenant.min = size(text)?,
                Some(("max", text)) => tenant.max = Some(size(text)?),
                Some(("away", text)) => tenant.away = Some(size(text)?),
                _ => {
                    let text = "is no bound: write min=SIZE, max=SIZE or away=SIZE";
                    return Err(format!("{bound:?} {text}"));
                }
            }
        }
        Ok(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_tenants_are_read() {
        let listen: Listen = "127.0.0.1:11211".parse().unwrap();
        assert_eq!((listen.at.port(), listen.tenant.as_str()), (11211, "default"));
        let listen: Listen = "localhost:0/web".parse().unwrap();
        assert_eq!(
            (listen.at.to_string().as_str(), listen.tenant.as_str()),
            ("127.0.0.1:0", "web")
        );
        for text in ["11211", "127.0.0.1", "127.0.0.1:1/", "127.0.0.1:1/a b"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
        let tenant =
            Tenant { name: "a".into(), min: Size(1 << 20), max: Some(Size(2 << 20)), away: None };
        assert_eq!("a:min=1M,max=2M".parse(), Ok(tenant));
        let tenant: Tenant = "a:away=3M".parse().unwrap();
        assert_eq!(tenant.away, Some(Size(3 << 20)));
        for text in ["", ":min=1M", "a:1M", "a:least=1M", "a:min=x"] {
            assert!(text.parse::<Tenant>().is_err(), "{text}");
        }
    }
}
