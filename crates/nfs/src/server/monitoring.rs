//! NSM: a client that has restarted says so, and has no locks any more.
//!
//! The monitor is this server's own. It monitors no host for others, since a monitored host gets calls to any program
//! at any address that the asker names.

use super::execution::Answered;
use super::{Origin, Server};
use crate::nsm::{self, Notice, Outcome, Procedure, StatResult};
use crate::rpc::{Acceptance, Call};
use crate::xdr::{Garbage, decoded, encoded};

pub(super) fn answer(server: &Server, origin: Origin, call: &Call<'_>) -> Answered {
    if call.version != nsm::VERSION {
        return Err(Acceptance::Versions { low: nsm::VERSION, high: nsm::VERSION });
    }
    let procedure = Procedure::of(call.procedure).ok_or(Acceptance::NoProcedure)?;
    let results = results(server, origin, procedure, call.arguments);
    results.map(Some).map_err(|Garbage| Acceptance::GarbageArguments)
}

fn results(
    server: &Server,
    origin: Origin,
    procedure: Procedure,
    arguments: &[u8],
) -> Result<(Vec<u8>, bool), Garbage> {
    let state = server.locks.borrow().state();
    let refused = || (encoded(&StatResult { outcome: Outcome::Failed, state }), true);
    Ok(match procedure {
        Procedure::Null => (decoded::<()>(arguments).map(|()| Vec::new())?, false),
        Procedure::Stat => {
            decoded::<nsm::Host<'_>>(arguments)?;
            refused()
        }
        Procedure::Mon => {
            decoded::<nsm::Monitor<'_>>(arguments)?;
            refused()
        }
        Procedure::Unmon => {
            decoded::<nsm::MonitorId<'_>>(arguments)?;
            (encoded(&state), false)
        }
        Procedure::UnmonAll => {
            decoded::<nsm::CallBack<'_>>(arguments)?;
            (encoded(&state), false)
        }
        Procedure::SimuCrash => (decoded::<()>(arguments).map(|()| Vec::new())?, false),
        Procedure::Notify => {
            let Notice { host, state } = decoded(arguments)?;
            server.locks.borrow_mut().restarted(origin.client(), host.0, state);
            (Vec::new(), false)
        }
    })
}
