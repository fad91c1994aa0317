//! Clusters of machines (`trapeze init`, `up`): an endpoint that is a member of one, and who lends memory there.

use crate::ep::{Ep, read_sized, security, text, tpz_ep_t, wait_policy};
use crate::error::*;
use crate::limits::MEMORY_BYTES_MAX;
use live::clock;
use region::peer::{LineConfig, PeerConfig};
use std::ffi::{c_char, c_int};
use std::rc::Rc;
use std::time::Duration;
use trapeze::client::{Reach, ReachError, VisitError};
use trapeze::lenders::{self, LendersError};
use trapeze::lending::Lending;
use trapeze::machine::{self, MachineError, Setup};
use trapeze::service::{Security, WaitPolicy};
use trapeze::size::Size;

/// Payload memory beside what is lent, by default.
const MEMORY_BYTES: u64 = 64 << 20;
/// Memory of a client that only asks for the lenders.
const ASKING_BYTES: u64 = 16 << 20;
/// How long the other members may take to hear of a new one.
const SETTLE_SPAN: Duration = Duration::from_secs(20);

/// Options of an endpoint in a cluster: `tpz_cluster_options_t options = {.size = sizeof options, .cluster =
/// "tcp:10.0.0.1:7400", .lend_bytes = 64 << 20, .listen = "10.0.0.9:7500", .key = key};`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tpz_cluster_options_t {
    /// sizeof(tpz_cluster_options_t).
    pub size: u32,
    /// 0 or TPZ_INSECURE.
    pub flags: u16,
    /// 0.
    pub reserved: u16,
    /// The directory of a cluster on this machine (`trapeze up`), or the manager's address.
    pub cluster: *const c_char,
    /// HOST:PORT at which members on other machines reach the endpoint; NULL where all are on this one.
    pub listen: *const c_char,
    /// Bytes that it lends, 16 MiB or more; others keep pages there as long as it is polled.
    pub lend_bytes: u64,
    /// Bytes of payload memory beside them; 0 is 64 MiB.
    pub memory_bytes: u64,
    /// For TCP: the 32 bytes of the cluster's key, or NULL.
    pub key: *const u8,
    /// TPZ_WAIT_SPIN or TPZ_WAIT_BLOCK.
    pub wait: u32,
    /// 0.
    pub reserved_too: u32,
}

impl From<ReachError> for Failure {
    fn from(error: ReachError) -> Failure {
        let code = match &error {
            ReachError::Unknown(_) | ReachError::NoKey => TPZ_EINVAL,
            ReachError::Machine(MachineError::Unreached { .. }) => TPZ_EHOSTDOWN,
            ReachError::Machine(MachineError::LendsNowhere | MachineError::BadListen(..)) => {
                TPZ_EINVAL
            }
            ReachError::Groups(_) | ReachError::Machine(_) => TPZ_EIO,
        };
        Failure { code, text: error.to_string().into() }
    }
}

impl From<LendersError> for Failure {
    fn from(error: LendersError) -> Failure {
        match error {
            LendersError::Visit(VisitError::Reach(error)) => error.into(),
            LendersError::Visit(VisitError::System(error)) => error.into(),
            LendersError::Visit(VisitError::Serve(error)) => {
                Failure { code: TPZ_EIO, text: error.to_string().into() }
            }
            error @ LendersError::TooFew(_) => {
                Failure { code: TPZ_ENOSPC, text: error.to_string().into() }
            }
        }
    }
}

/// How a node of this process reaches the cluster. A key that the program has is passed as it is.
fn setup(cluster: &str, said: Option<Security>, bytes: u64, wait: WaitPolicy) -> Outcome<Setup> {
    let reach = Reach { cluster: cluster.to_string(), key: None, insecure: said.is_some() };
    let setup = reach.setup(bytes, wait)?;
    Ok(match said {
        Some(security) => Setup { security, ..setup },
        None => setup,
    })
}

/// The nodes of a cluster that lend memory, for a region of this process.
pub fn peers(
    cluster: &str,
    said: Option<Security>,
    wait: WaitPolicy,
    deadline: Duration,
) -> Outcome<PeerConfig> {
    let lenders = lenders::find_as(&setup(cluster, said, ASKING_BYTES, wait)?)?;
    let usual = PeerConfig::new(lenders.holders, lenders.security)?;
    Ok(PeerConfig { line: LineConfig { wait, deadline, ..usual.line.clone() }, ..usual })
}

/// Joins a cluster as an endpoint of this thread, which is written to `*ep`: it lends memory, gets and puts pages as
/// tpz_memory_start() lets it, and goes by the cluster's own view of who is up. tpz_close() says good-bye; what others
/// keep for it in tpz_own_space() is of no use then.
///
/// # Safety
/// `options` points to options whose texts end with a zero and whose key has 32 bytes; `ep` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_join(
    options: *const tpz_cluster_options_t,
    ep: *mut *mut tpz_ep_t,
) -> c_int {
    code(run("tpz_join", None, || {
        if ep.is_null() {
            return Err(invalid("ep is NULL: where is the endpoint to be written?"));
        }
        // SAFETY: the caller's promise, for this and the texts and the key below.
        let options = unsafe { read_sized("tpz_cluster_options_t", options)? };
        // SAFETY: as above.
        let (cluster, listen) =
            unsafe { (text("cluster", options.cluster)?, text("listen", options.listen)?) };
        // SAFETY: as above.
        let said = unsafe { security(options.flags, options.key)? };
        let cluster = cluster.ok_or(invalid("cluster is NULL: its directory, or tcp:HOST:PORT"))?;
        let opened = join(cluster, listen, said, &options)?;
        // SAFETY: it is not NULL, and the caller's promise.
        unsafe { ep.write(Box::into_raw(Box::new(tpz_ep_t(Rc::new(opened))))) };
        Ok(())
    }))
}

fn join(
    cluster: &str,
    listen: Option<&str>,
    said: Option<Security>,
    options: &tpz_cluster_options_t,
) -> Outcome<Ep> {
    let bytes = if options.memory_bytes == 0 { MEMORY_BYTES } else { options.memory_bytes };
    let lend = Some(Size(options.lend_bytes));
    let lending = Lending { lend, ..Lending::default() };
    if bytes.saturating_add(options.lend_bytes) > MEMORY_BYTES_MAX {
        return Err(invalid(format!("memory_bytes and lend_bytes: {MEMORY_BYTES_MAX} at most")));
    }
    if let Some(problem) = lending.problem(Size(bytes), 1) {
        return Err(invalid(format!("lend_bytes: {problem}")));
    }
    let setup = setup(cluster, said, bytes, wait_policy(options.wait)?)?;
    let setup = Setup { lending, ..setup };
    let memory = lending.network().expect("it lends");
    let running = machine::lender(&setup, "program", listen, memory, |_, _| None);
    let mut running = running.map_err(ReachError::from)?;
    let service = running.services.memory.clone().expect("it was asked for");
    let late = clock::now() + SETTLE_SPAN;
    let is_in = || service.incarnation() != 0 && service.is_settled();
    running.host.run(|| is_in() || clock::now() >= late)?;
    Ep::of_member(running, service)
}
