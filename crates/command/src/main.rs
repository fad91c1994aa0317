//! The trapeze command: a thin layer over the library `trapeze`.
#![forbid(unsafe_code)]

#[macro_use]
extern crate trapeze;

mod backup;
mod built_in;
mod check;
mod cli;
mod cluster;
mod copy;
mod demo;
mod directories;
mod forget;
mod import;
mod manual;
mod memory;
mod mount_helper;
mod mount_options;
mod new_disk;
mod nfs;
mod papers;
mod prefetch;
mod preloaded;
mod quarantine;
mod rebalance;
mod restore;
mod salvage;
mod serve;
mod simulate;
mod status;
mod take_out;
mod tools;
mod undo;

use clap::Parser;
use cli::{Cli, Command};
use live::signals::end_with_pipes;
use rustix::process::Signal;
use std::process::ExitCode;
use trapeze::children::follow_parent;
use trapeze::{interrupted, output};

fn main() -> ExitCode {
    if let Some(call) = mount_helper::call(std::env::args_os()) {
        return mount_helper::run(call);
    }
    let done = run(Cli::parse().command);
    match done.and_then(|()| Ok(output::finish()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            interrupted::wait_if_ending();
            if error.is::<status::NotWell>() {
                let _ = output::finish();
                return ExitCode::FAILURE; // said already
            }
            output::tell(format_args!("trapeze: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Sets the whole process up before the command runs.
fn prepare(command: &Command) -> std::io::Result<()> {
    match command {
        // They take a mount away with them; a server may be paused, and then nothing else ends it.
        Command::Mount(_) | Command::Up(_) | Command::PassThrough { .. } => {
            follow_parent(Signal::TERM)
        }
        Command::Serve(_)
        | Command::Memory(_)
        | Command::Nfs(_)
        | Command::Import(_)
        | Command::BenchPeer(_)
        | Command::BenchHolder(_) => follow_parent(Signal::KILL),
        Command::Ls(_) | Command::Cat(_) | Command::Du(_) | Command::Stat(_) | Command::Df(_) => {
            end_with_pipes()
        }
        Command::Status(_)
        | Command::Health(_)
        | Command::Top(_)
        | Command::Sim(_)
        | Command::Completions(_)
        | Command::Papers(_) => end_with_pipes(),
        _ => Ok(()),
    }
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    prepare(&command)?;
    match command {
        Command::Demo(arguments) => demo::demo(&arguments)?,
        Command::Up(arguments) => serve::up(&arguments)?,
        Command::Init(arguments) => cluster::init(&arguments)?,
        Command::Join(arguments) => cluster::join(&arguments)?,
        Command::Disk(cli::Disk::Add(arguments)) => new_disk::add(&arguments)?,
        Command::Disk(cli::Disk::Replace(arguments)) => new_disk::replace(&arguments)?,
        Command::Serve(arguments) => serve::serve(&arguments)?,
        Command::Mount(arguments) => serve::mount(&arguments)?,
        Command::Nfs(arguments) => nfs::serve(&arguments)?,
        Command::Filter(arguments) => nfs::filter(&arguments)?,
        Command::Import(arguments) => import::import(&arguments)?,
        Command::Memory(arguments) => memory::serve(&arguments)?,
        Command::Ls(arguments) => tools::ls(&arguments)?,
        Command::Cp(arguments) => copy::cp(&arguments)?,
        Command::Cat(arguments) => tools::cat(&arguments)?,
        Command::Mkdir(arguments) => directories::mkdir(&arguments)?,
        Command::Mv(arguments) => directories::mv(&arguments)?,
        Command::Du(arguments) => directories::du(&arguments)?,
        Command::Layout(arguments) => directories::layout(&arguments)?,
        Command::Rm(arguments) => tools::rm(&arguments)?,
        Command::Stat(arguments) => tools::stat(&arguments)?,
        Command::Prefetch(arguments) => prefetch::prefetch(&arguments)?,
        Command::Df(target) => tools::df(&target)?,
        Command::Status(arguments) => status::status(&arguments)?,
        Command::Health(target) => status::health(&target)?,
        Command::Top(arguments) => status::top(&arguments)?,
        Command::Metrics(arguments) => status::metrics(&arguments)?,
        Command::Rebalance(arguments) => rebalance::rebalance(&arguments)?,
        Command::Check(arguments) => check::check(&arguments)?,
        Command::Forget(arguments) => forget::forget(&arguments)?,
        Command::Quarantine(arguments) => quarantine::quarantine(&arguments)?,
        Command::Backup(arguments) => backup::backup(&arguments)?,
        Command::Restore(arguments) => restore::restore(&arguments)?,
        Command::Salvage(arguments) => salvage::salvage(&arguments)?,
        Command::Sim(arguments) => simulate::sim(&arguments)?,
        Command::Papers(arguments) => papers::papers(&arguments)?,
        Command::Run(arguments) => preloaded::run(&arguments)?,
        Command::RunEnd(arguments) => preloaded::end(&arguments)?,
        Command::Man(arguments) => manual::man(&arguments)?,
        Command::Completions(arguments) => manual::completions(&arguments)?,
        Command::Bench(what) => bench::run(&what)?,
        Command::Forward(arguments) => bench::forward::run(&arguments)?,
        Command::BenchHolder(arguments) => bench::regions::hold(&arguments)?,
        Command::BenchPeer(arguments) => bench::peer::serve(&arguments)?,
        Command::PassThrough { source, path } => serve::pass_through(&source, &path)?,
    }
    Ok(())
}
