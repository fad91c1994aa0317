//! A front end as a member of a cluster: it lends memory, uses what others lend, and shares their key space.

use super::{MemoryError, Serving};
use crate::cli;
use endpoint::limits::PAGE_BYTES;
use files::cluster::Services;
use kv::service::Courier;
use kv::{AwayConfig, Items};
use netmem::{Class, Directory};
use node::Cx;
use sockets::Sockets;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use trapeze::client::Reach;
use trapeze::lending::Lending;
use trapeze::machine::{self, Setup};
use trapeze::size::Size;
use trapeze::stopping;
use wire::Time;

/// Frames beside those that are lent: messages, and values on their way.
const POOL: Size = Size(64 << 20);
/// Memory that a member lends by default.
const LEND: Size = Size(64 << 20);
/// How long a page waits for room at other members before its value is dropped: it is a cache.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the other members may take to hear of this one before it says that it is ready.
const SETTLE_SPAN: Duration = Duration::from_secs(20);
/// How long messages that are under way at the end are waited for.
const LEAVE_SPAN: Duration = Duration::from_secs(2);

/// Its part of network memory. The directory has room for all pages that may be away.
fn memory(lending: Lending, member: &cli::memory::Member) -> netmem::service::Config {
    let mut config = lending.network().expect("it lends");
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
    let lending = Lending { lend: member.lending.lend.or(Some(LEND)), ..member.lending };
    if let Some(problem) = lending.problem(POOL, 1) {
        return Err(MemoryError::Usage(problem));
    }
    let reach =
        Reach { cluster: cluster.to_string(), key: member.key.clone(), insecure: member.insecure };
    let xdp = member.xdp.xdp.clone();
    let setup = Setup { lending, xdp, ..reach.setup(POOL.0, arguments.wait.into())? };
    let memory = memory(lending, member);
    let items = sockets.items();
    let mut courier = None;
    let begin = |cx: &Cx, services: &Services| {
        courier = Some(begin(arguments, cx, services, items.clone()));
        Some(items)
    };
    let listen = member.listen.as_deref();
    let mut running = machine::lender(&setup, "memory", listen, memory, begin)?;
    let courier = courier.expect("it was begun");
    sockets.carry(courier.clone());
    running.host.add(sockets)?;
    let late = live::clock::now() + SETTLE_SPAN;
    running.host.run(|| courier.is_settled() || live::clock::now() >= late)?;
    if !courier.is_settled() {
        eprintln!(
            "not all members of the cluster answer: keys are served when they do, or are given up"
        );
    }
    Ok(Serving::Member(Box::new(running)))
}

/// Starts what serves keys.
fn begin(
    arguments: &cli::Memory,
    cx: &Cx,
    services: &Services,
    items: Rc<RefCell<Items>>,
) -> Courier {
    let member = &arguments.member;
    let away = AwayConfig { frames: cx.frames().clone(), bytes_max: member.away.0 as usize };
    items.borrow_mut().lend(away);
    let memory = services.memory.clone().expect("it was asked for");
    let class = if member.copies == 2 { Class::Mirrored } else { Class::Volatile };
    let courier = Courier::start_shared(cx, memory, class, items);
    let client = services.member.clone().expect("it was asked for");
    cx.spawn("memory: views", follow(courier.clone(), client));
    courier
}

/// Goes by the members' view of who lends, and answers for keys for as long as the membership lasts.
async fn follow(courier: Courier, member: members::Client) {
    loop {
        let changed = member.changed();
        courier.set_view((*member.lenders()).clone());
        let (incarnation, until) = member.lends().unwrap_or((courier.incarnation(), Time::ZERO));
        courier.set_lease(incarnation, until);
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
