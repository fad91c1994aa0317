//! A node without an id that asks the manager something: for an id, who runs under the one that a machine has, or who
//! the members are.
//!
//! Two machines may be started with one id, say from copies of a configuration or of a whole disk. A node whose
//! links come later takes the place of an earlier one with its id, so the question comes before any link of its own: a
//! machine that finds that another is up as itself does not start. A machine that was killed and is started again is up
//! in the view for the rest of its lease, in an incarnation that its own directories know; another incarnation is
//! waited for that long. A copy with its directories cannot be told from a restart: then the later one is the machine,
//! and the earlier one ends when the manager refuses its links.

use super::{Bare, MachineError, NodeIncarnation, Setup, bare, system};
use crate::config::Machine;
use crate::incarnation;
use crate::lending::Lending;
use crate::output;
use live::link::hello::Refusal;
use live::link::limits::PROVISIONAL_FIRST;
use live::link::{Address, Directory, SocketAccess};
use live::wait::WaitPolicy;
use members::limits::{JOINING_IDS, LEASE_DEFAULT};
use members::{Identity, Member};
use node::Cx;
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, NodeId};

/// How long a manager may take to answer a machine that joins.
const JOIN_SPAN: Duration = Duration::from_secs(20);
/// How long it may take to say who is there: machines start also while it is away.
const VIEW_SPAN: Duration = Duration::from_secs(1);
/// How long it may take before that is said.
const TELL_SPAN: Duration = Duration::from_millis(1250);
/// Memory of a node that only asks.
const POOL_BYTES: u64 = 4 << 20;
/// How often the links are looked at, and another machine's lease is asked after.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// A machine that died is out of the view after its lease; the manager may have started in between.
const GONE_SPAN: Duration = Duration::from_secs(LEASE_DEFAULT.as_secs() + 5);

/// The message of a machine whose place another one has taken.
pub(super) const REPLACED: &str = "another machine that was started later runs with this one's id, and the cluster's \
    manager refuses this one: it lends and serves nothing any more. If that machine was made from a copy of this one's \
    directories, stop it and start this one again; if it replaces this one, leave this one stopped";

// The accepting node names programs without an id from there up, and a later node takes the place of an earlier one.
const _: () = assert!(*JOINING_IDS.end() < PROVISIONAL_FIRST);

/// One of the ids for those that have none. Two that choose the same one try again.
pub(super) fn some_id() -> NodeId {
    let nth = usize::from(u16::from_le_bytes(crate::random::bytes()));
    NodeId(JOINING_IDS.clone().nth(nth % JOINING_IDS.len()).expect("it is below"))
}

/// An unregistered node of this id and incarnation, with this much memory.
pub(super) fn stranger(
    setup: &Setup,
    this: NodeIncarnation,
    pool_bytes: u64,
) -> Result<Bare, MachineError> {
    let (wait, lending) = (WaitPolicy::Block, Lending::default());
    let setup = Setup { pool_bytes, prefault: false, lending, wait, xdp: None, ..setup.clone() };
    bare(&setup, this, "joining", (&[], SocketAccess::default()), 0)
}

/// Asks the manager for an id, as a node that has none, in this incarnation.
pub fn join(setup: &Setup, identity: &Identity, incarnation: u64) -> Result<NodeId, MachineError> {
    let mut bare = stranger(setup, (some_id(), incarnation), POOL_BYTES)?;
    let (cx, manager, wished) = (bare.host.node().cx().clone(), setup.manager.0, identity.clone());
    let answer = ask(setup, &mut bare, async move { members::join(&cx, manager, &wished).await })?;
    bare.host.stop().map_err(system("joining"))?;
    match answer {
        Ok(lease) => Ok(lease.id),
        Err(Errno::EEXIST) => Err(MachineError::NameTaken(identity.name.clone())),
        Err(errno) => Err(refused(errno)),
    }
}

/// The manager's answer to a node that comes to the cluster, if it answers.
pub(super) fn ask<T: 'static>(
    setup: &Setup,
    bare: &mut Bare,
    question: impl Future<Output = Result<T, Errno>> + 'static,
) -> Result<Result<T, Errno>, MachineError> {
    let cx = bare.host.node().cx().clone();
    let answered = Rc::new(Cell::new(false));
    cx.spawn("tell of the wait", tell_of_wait(cx.clone(), setup, bare, answered.clone()));
    let asked = async move { cx.with_deadline(JOIN_SPAN, question).await };
    let answer = bare.host.block_on(asked).map_err(system("asking the manager"))?;
    answered.set(true);
    match answer {
        Ok(Err(errno)) if members::is_silence(errno) => Err(unreached(setup, &bare.directory)),
        Err(node::Late) => Err(unreached(setup, &bare.directory)),
        Ok(answer) => Ok(answer),
    }
}

/// Says on standard error what is waited for, when the manager has not answered soon.
fn tell_of_wait(
    cx: Cx,
    setup: &Setup,
    bare: &Bare,
    answered: Rc<Cell<bool>>,
) -> impl Future<Output = ()> + use<> {
    let (manager, links) = (setup.manager.clone(), bare.directory.clone());
    async move {
        cx.sleep(TELL_SPAN).await;
        if answered.get() {
            return;
        }
        let places: Vec<String> = manager.1.iter().map(Address::to_string).collect();
        let status = links.status().remove(&manager.0);
        let why = status.map(|status| status.last_error).filter(|text| !text.is_empty());
        let why = why.unwrap_or("it does not answer".to_string());
        let places = places.join(", ");
        output::tell_above(&format!("trapeze: waiting for the manager at {places}: {why}"));
    }
}

pub(super) fn refused(errno: Errno) -> MachineError {
    MachineError::Refused(match errno {
        Errno::EIO | Errno::ENOSPC => {
            format!("the manager cannot write what it keeps ({errno}): is its disk full?")
        }
        Errno::EOVERFLOW => "this machine's clock is more than a day ahead of the manager's: set \
            the clock that is wrong, then try again"
            .to_string(),
        _ => format!("the manager refuses: {errno}"),
    })
}

/// Why the manager did not answer, as far as the links know.
fn unreached(setup: &Setup, directory: &Directory) -> MachineError {
    let places: Vec<String> = setup.manager.1.iter().map(Address::to_string).collect();
    let is_local = setup.manager.1.iter().all(Address::is_local);
    let statuses = directory.status();
    let why = statuses.get(&setup.manager.0).map(|status| status.last_error.clone());
    let why = why.filter(|text| !text.is_empty()).unwrap_or("it does not answer".to_string());
    let named = places.iter().any(|place| why.contains(place));
    let places = if named { String::new() } else { format!(" at {}", places.join(", ")) };
    let next = match (why.contains("refuses"), is_local) {
        // A refusal says itself what to do.
        (true, _) => "",
        (false, true) if why.contains("Permission denied") => {
            "; its sockets are for its own user: --listen-group of trapeze up and init, `listen_group` in its configuration, \
             lets others use them"
        }
        (false, true) => "; does the cluster run? trapeze up, or serve, starts it",
        (false, false) => {
            "; is trapeze serve running there, and is the address right and open in the firewall?"
        }
    };
    MachineError::Unreached { places, why, next }
}

/// Refuses to start a machine that another one runs as: one that is up, longer than a lease lasts, in an incarnation
/// later than all that these directories know. A manager that is away is not waited for.
pub(super) fn only_one(
    setup: &Setup,
    machine: &Machine,
    directories: &[PathBuf],
) -> Result<(), MachineError> {
    let (id, last) = (NodeId(machine.node), incarnation::last(directories));
    let mut bare = stranger(setup, (some_id(), incarnation::clock()), POOL_BYTES)?;
    let (cx, manager) = (bare.host.node().cx().clone(), setup.manager.0);
    let other = bare.host.block_on(async move { other(&cx, manager, id, last).await });
    let other = other.map_err(system("asking who is there"))?;
    bare.host.stop().map_err(system("asking who is there"))?;
    let Some(Member { id, name, addresses, .. }) = other else { return Ok(()) };
    Err(MachineError::TwoOfOne { node: id.0, name, addresses: addresses.join(", ") })
}

/// The member `id` in an incarnation later than `last`, if it stays one for longer than the lease of a dead one.
async fn other(cx: &Cx, manager: NodeId, id: NodeId, last: u64) -> Option<Member> {
    let late = cx.now() + GONE_SPAN;
    let mut told = false;
    loop {
        let view = cx.with_deadline(VIEW_SPAN, members::view(cx, manager)).await.ok()?.ok()?;
        let other = view.get(id).filter(|other| other.alive && other.incarnation > last)?.clone();
        if cx.now() >= late {
            return Some(other);
        }
        if !std::mem::replace(&mut told, true) {
            let (name, at) = (&other.name, other.addresses.join(", "));
            eprintln!("a machine runs as {id} already, {name} at {at}: waiting whether it is gone");
        }
        cx.sleep(LOOK_PERIOD).await;
    }
}

/// Looks from time to time whether the manager refuses this node's links because of a later node with its id.
pub(super) fn watch_identity(cx: &Cx, directory: &Directory, manager: NodeId) -> Rc<Cell<bool>> {
    let replaced = Rc::new(Cell::new(false));
    let (seen, cx, directory) = (replaced.clone(), cx.clone(), directory.clone());
    cx.clone().spawn("identity", async move {
        while !seen.get() {
            cx.sleep(LOOK_PERIOD).await;
            let status = directory.status().remove(&manager);
            seen.set(status.is_some_and(|s| s.refused == Some(Refusal::Identity)));
        }
    });
    replaced
}
