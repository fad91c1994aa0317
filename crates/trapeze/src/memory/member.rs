//! A front end as a member of a cluster: it lends memory, uses what others lend, and shares their key space.

use super::{MemoryError, Serving};
use crate::cli;
use crate::client::Reach;
use crate::machine;
use crate::stopping;
use endpoint::limits::PAGE_BYTES;
use files::cluster::lenders_view;
use kv::AwayConfig;
use kv::service::Courier;
use live::link::Address;
use live::sockets::Sockets;
use netmem::{Class, Directory};
use std::time::Duration;
use wire::Time;

/// Frames beside those that are lent: messages, and values on their way.
const OTHER_BYTES: usize = 64 << 20;
/// Least memory that a member lends: a few of the longest pages.
const LEND_BYTES_MIN: u64 = 1 << 20;
/// How long a page waits for room at other members before its value is dropped: it is a cache.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long messages that are under way at the end are waited for.
const LEAVE_SPAN: Duration = Duration::from_secs(2);

/// Its part of network memory. The directory has room for all pages that may be away.
fn lends(member: &cli::memory::Member) -> netmem::service::Config {
    let mut config = netmem::service::Config::new(member.lend.0 as usize);
    let pages = member.away.0 as usize / (2 * PAGE_BYTES);
    config.directory_bytes = config.directory_bytes.max(pages * Directory::ENTRY_BYTES);
    config.patience = PATIENCE;
    config
}

/// Joins the cluster and serves as one of its members.
pub fn join(
    arguments: &cli::Memory,
    cluster: &str,
    mut sockets: Sockets,
) -> Result<Serving, MemoryError> {
    let member = &arguments.member;
    if member.lend.0 < LEND_BYTES_MIN {
        let text = format!("--lend {}: a member lends at least 1M", member.lend);
        return Err(MemoryError::Usage(text));
    }
    let listen = member.listen.as_deref().expect("asked for with the cluster");
    let listen: Address = listen
        .parse()
        .map_err(|error| MemoryError::Usage(format!("--listen {listen}: {error}")))?;
    let reach =
        Reach { cluster: cluster.to_string(), key: member.key.clone(), insecure: member.insecure };
    let pool_bytes = member.lend.0 + (OTHER_BYTES as u64).max(member.lend.0 / 4);
    let setup = reach.setup(pool_bytes, arguments.wait.into())?;
    let mut running = machine::lender(&setup, "memory", &listen, lends(member))?;
    let cx = running.host.node().cx().clone();
    let items = sockets.items();
    let away = AwayConfig { frames: cx.frames().clone(), bytes_max: member.away.0 as usize };
    items.borrow_mut().lend(away);
    let memory = running.services.memory.clone().expect("it was asked for");
    let class = if member.copies == 2 { Class::Mirrored } else { Class::Volatile };
    let courier = Courier::start_shared(&cx, memory, class, items);
    sockets.carry(courier.clone());
    running.host.add(sockets)?;
    let client = running.services.member.clone().expect("it was asked for");
    cx.spawn("memory: views", follow(courier, client));
    Ok(Serving::Member(Box::new(running)))
}

/// Goes by the members' view of who lends, and answers for keys for as long as the membership lasts.
async fn follow(courier: Courier, member: members::Client) {
    loop {
        let changed = member.changed();
        courier.set_view(lenders_view(&member.lenders()));
        let (life, until) = member.lends().unwrap_or((courier.life(), Time::ZERO));
        courier.set_lease(life, until);
        changed.await;
    }
}

/// Gives the membership back, so that others keep its keys at once.
pub fn leave(serving: Serving) -> Result<(), MemoryError> {
    let Serving::Member(mut running) = serving else { return Ok(()) };
    stopping::leave(&mut running)?;
    running.host.stop_within(LEAVE_SPAN)?;
    Ok(())
}
