//! `trapeze import`: a directory that is a cache of another NFS server's export.

use crate::cli::{self, Writes};
use live::signals::{self, Signals};
use rustix::process::{getegid, geteuid};
use trapeze::children::READY;
use trapeze::client::Reach;
use trapeze::import::{self, As, Plan, Source};
use trapeze::output;
use trapeze::serve::{ServeError, pin, stop};

/// `trapeze import`.
pub fn import(arguments: &cli::ImportExport) -> Result<(), ServeError> {
    let reach = Reach::from(&arguments.cluster);
    if let Some(directory) = &arguments.remove {
        return import::remove(&reach, directory);
    }
    let (Some(source), Some(directory)) = (&arguments.source, &arguments.directory) else {
        unreachable!("both are required without --remove");
    };
    output::say_when();
    pin(arguments.cpu)?;
    let refused = |error: import::BadSource| ServeError::Refused(format!("{source}: {error}"));
    let is_named = arguments.uid.is_some() || arguments.gid.is_some();
    let by = if is_named { As::Importer } else { As::Caller };
    let plan = Plan {
        source: Source::parse(source).map_err(refused)?,
        directory: directory.clone(),
        attributes: arguments.attributes,
        stale_ok: arguments.stale_ok,
        space: arguments.space.map(|space| space.0),
        changes: arguments.write.map(|Writes::Through| by),
        user: (
            arguments.uid.unwrap_or_else(|| geteuid().as_raw()),
            arguments.gid.unwrap_or_else(|| getegid().as_raw()),
        ),
        listen: arguments.listen.clone(),
    };
    let setup = reach.setup(arguments.pool.0, arguments.wait.into())?;
    signals::install()?;
    let mut running = import::join(&setup, &plan)?;
    let importing = import::serve(&mut running, &plan)?;
    let done = if arguments.write.is_some() { "read and written" } else { "read" };
    println!("{READY} {source} is {done} at {}", directory.display());
    running.host.add(Signals::default())?;
    running.host.run(|| signals::asked() || importing.is_replaced())?;
    let is_replaced = importing.is_replaced();
    drop(importing);
    stop(running)?;
    match is_replaced {
        false => Ok(()),
        true => {
            let text = "the import was removed, or another importer has taken it over";
            Err(ServeError::Refused(text.to_string()))
        }
    }
}
