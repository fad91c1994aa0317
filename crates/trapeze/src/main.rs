//! The trapeze command.

use clap::Parser;
use std::process::ExitCode;
use trapeze::cli::{Cli, Command};
use trapeze::{bench, cluster, demo, quarantine, rebalance, serve, simulate, status, tools};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trapeze: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::Demo(arguments) => demo::demo(&arguments)?,
        Command::Up(arguments) => serve::up(&arguments)?,
        Command::Init(arguments) => cluster::init(&arguments)?,
        Command::Join(arguments) => cluster::join(&arguments)?,
        Command::Serve(arguments) => serve::serve(&arguments)?,
        Command::Mount(arguments) => serve::mount(&arguments)?,
        Command::Ls(arguments) => tools::ls(&arguments)?,
        Command::Cp(arguments) => tools::cp(&arguments)?,
        Command::Cat(arguments) => tools::cat(&arguments)?,
        Command::Rm(arguments) => tools::rm(&arguments)?,
        Command::Stat(arguments) => tools::stat(&arguments)?,
        Command::Df(target) => tools::df(&target)?,
        Command::Status(arguments) => status::status(&arguments)?,
        Command::Rebalance(arguments) => rebalance::rebalance(&arguments)?,
        Command::Quarantine(arguments) => quarantine::quarantine(&arguments)?,
        Command::Sim(arguments) => simulate::sim(&arguments)?,
        Command::Bench(what) => bench::run(&what)?,
        Command::BenchPeer(arguments) => bench::peer::serve(&arguments)?,
        Command::PassThrough { source, path } => serve::pass_through(&source, &path)?,
    }
    Ok(())
}
