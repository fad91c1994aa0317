//! `trapeze nfs`, `trapeze filter`: nodes that only serve NFS; and what `up` and `serve` serve beside machines.

use crate::cli;
use live::signals::{self, Signals};
use std::net::IpAddr;
use trapeze::ask;
use trapeze::children::READY;
use trapeze::client::Reach;
use trapeze::config::Machine;
use trapeze::machine::{Running, Setup};
use trapeze::nfs::{self, Bound, NfsError, Plan, Serving};
use trapeze::output;
use trapeze::serve::{ServeError, pin, stop};

/// `trapeze nfs`.
pub fn serve(arguments: &cli::ServeNfs) -> Result<(), ServeError> {
    if let Some(client) = arguments.release_locks {
        return release_locks(&reach(&arguments.node), client);
    }
    serve_as(&arguments.node, |running, setup, bound| nfs::serve(running, setup.volume, bound))
}

/// `trapeze filter`.
pub fn filter(arguments: &cli::Filter) -> Result<(), ServeError> {
    serve_as(&arguments.node, |running, setup, bound| {
        nfs::filter(running, (setup.volume, setup.manager.0), bound)
    })
}

fn serve_as(
    arguments: &cli::NfsNode,
    begin: impl FnOnce(&mut Running, &Setup, Bound) -> Result<Serving, ServeError>,
) -> Result<(), ServeError> {
    output::say_when();
    pin(arguments.cpu)?;
    let bound = arguments.options.plan(&arguments.listen)?.bind()?;
    let setup = reach(arguments).setup(arguments.pool.0, arguments.wait.into())?;
    let setup = Setup { xdp: arguments.xdp.xdp.clone(), ..setup };
    signals::install()?;
    let mut running = nfs::join(&setup)?;
    let text = told(&bound);
    let serving = begin(&mut running, &setup, bound)?;
    println!("{READY} {text}");
    running.host.add(Signals::default())?;
    running.host.run(signals::asked)?;
    drop(serving);
    stop(running)
}

fn reach(arguments: &cli::NfsNode) -> Reach {
    let reach = Reach::from(&arguments.cluster);
    match arguments.place.clone() {
        Some(cluster) => Reach { cluster, ..reach },
        None => reach,
    }
}

/// For an operator who knows that a client is gone: a lock waits for its client's word otherwise, however long.
fn release_locks(reach: &Reach, client: IpAddr) -> Result<(), ServeError> {
    let refused = |error: &dyn std::fmt::Display| ServeError::Refused(error.to_string());
    let released = ask::release_nfs_locks(reach, client).map_err(|error| refused(&error))?;
    if released.is_empty() {
        return Err(refused(
            &"no server of NFS is reached: run this on the machine of the manager",
        ));
    }
    for (server, released) in released {
        match released {
            Ok(count) => println!("{}: {count} locks of {client} released", server.name),
            Err(errno) => eprintln!("{}: {errno}", server.name),
        }
    }
    Ok(())
}

/// Where it is served, and how to mount it.
pub fn told(bound: &Bound) -> String {
    let hidden = match (bound.is_hidden(), bound.lacks_locks()) {
        (true, _) => " (this machine's rpcbind knows another NFS server: name the port)",
        (false, true) => {
            " (this machine's rpcbind knows another server of locks, rpc.statd or the kernel's client: without locks)"
        }
        (false, false) => "",
    };
    format!("NFS at {}{hidden}: {}", bound.address(), bound.mount_command())
}

/// The NFS server that `up` is to run; its addresses are taken.
pub fn of_up(arguments: &cli::Up) -> Result<Option<Bound>, ServeError> {
    let options = &arguments.nfs_options;
    let Some(listen) = &arguments.nfs else {
        return match options.is_empty() {
            true => Ok(None),
            false => {
                let text = "--export and what belongs to it: say where to listen with --nfs HOST";
                Err(ServeError::Refused(text.to_string()))
            }
        };
    };
    Ok(Some(options.plan(listen)?.bind()?))
}

/// The NFS server of a machine's configuration; its addresses are taken.
pub fn of_machine(machine: &Machine) -> Result<Option<Bound>, NfsError> {
    let plan = machine.nfs.as_ref().map(|config| config.plan(&machine.exports));
    plan.transpose()?.map(Plan::bind).transpose()
}
