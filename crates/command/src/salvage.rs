//! `trapeze salvage`: the names are lost for good, and files are made again from what their objects know of themselves
//! ([`files::salvage`]).

mod report;

use crate::cli;
use crate::restore::manager_of;
use crate::tools::{ToolError, close, volume};
use files::salvage::{Failure, Step, salvage as salvage_files};
use indicatif::ProgressBar;
use live::meta::exists;
use node::rings::StoreId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use terminal::progress;
use trapeze::beginning;
use wire::{Errno, NodeId};

type Result<T> = std::result::Result<T, ToolError>;

/// `trapeze salvage`.
pub fn salvage(arguments: &cli::Salvage) -> Result<()> {
    if let Some(dir) = &arguments.dir {
        return begin(dir);
    }
    let mut volume = volume(&arguments.target)?;
    let servers = volume.server_names();
    let (cx, names, stripe) = volume.asking();
    let bars = Bars::new();
    let work = async move { salvage_files(&cx, &names, &stripe, &|step| bars.note(step)).await };
    let ended = volume.run(work)?;
    let report = ended.map_err(|failure| told(failure, &servers))?;
    let servers = volume.server_names();
    if !arguments.target.json {
        let active = volume.servers()?;
        let all: Vec<String> =
            active.iter().filter_map(|server| servers.get(&server.id).cloned()).collect();
        println!("listed: {}; start what is not among them, and run this again", all.join(", "));
    }
    report::show(&report, arguments.target.json);
    close(volume)?;
    match report.problems() {
        0 => Ok(()),
        count => Err(ToolError::Usage(format!(
            "of {count} files bytes are missing, or cannot be put together; each is named above"
        ))),
    }
}

/// A manager that lost its names may begin anew in this directory.
fn begin(dir: &Path) -> Result<()> {
    let (_, store) = manager_of(dir).map_err(|error| ToolError::Usage(error.to_string()))?;
    if exists(&store, StoreId::Names) {
        return Err(ToolError::Usage(format!(
            "{0} has names: salvage is for a manager that lost them. Start it, or where they are damaged, move {0} \
             away first and keep it; nothing was changed",
            store.display()
        )));
    }
    beginning::allow(&store).map_err(|error| ToolError::Local(store.clone(), error))?;
    println!(
        "the manager may begin anew in {}; start it and all machines, then `trapeze salvage -c {}`",
        store.display(),
        dir.display()
    );
    Ok(())
}

fn told(failure: Failure, servers: &BTreeMap<NodeId, String>) -> ToolError {
    ToolError::Usage(match failure {
        Failure::Server(server, errno) => {
            let name = servers.get(&server).cloned().unwrap_or_else(|| server.to_string());
            format!(
                "{name} does not tell what it has: {errno}; start it, or declare it gone with `trapeze forget`, and \
                 run this again: what was found so far stays"
            )
        }
        Failure::Manager(Errno::EEXIST) => "the names of this volume are there: salvage is for a manager that \
             starts without the names it had, or with restored ones"
            .into(),
        Failure::Manager(Errno::EPERM) => {
            "only root, or who has the cluster's key, may salvage".into()
        }
        Failure::Manager(Errno::EAGAIN) => {
            "a server knows files of a later manager: start all servers, then the manager anew, and run this again"
                .into()
        }
        Failure::Manager(errno) => {
            format!("the manager: {errno}; run this again: what was found so far stays")
        }
    })
}

/// How far it is, for people.
struct Bars(RefCell<ProgressBar>);

impl Bars {
    fn new() -> Bars {
        Bars(RefCell::new(progress::counted("objects listed")))
    }

    fn note(&self, step: Step) {
        match step {
            Step::Files(count) => self.begin(progress::steps("files", count as u64)),
            Step::Made(count) => self.begin(progress::steps("files compared", count as u64)),
            Step::Listed(count) | Step::Asked(count) | Step::Compared(count) => {
                self.0.borrow().inc(count as u64);
            }
        }
    }

    fn begin(&self, bar: ProgressBar) {
        self.0.replace(bar).finish_and_clear();
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.0.borrow().finish_and_clear();
    }
}
