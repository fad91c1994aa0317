//! Man pages and completions, generated from the flags.

use crate::cli::{self, Cli};
use clap::CommandFactory;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// `trapeze man`.
pub fn man(arguments: &cli::Man) -> io::Result<()> {
    let dir = &arguments.dir;
    write_pages(dir)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display())))
}

fn write_pages(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)
}

/// `trapeze completions`.
pub fn completions(arguments: &cli::Completions) -> io::Result<()> {
    // Not straight to standard output: the generators panic when it is closed.
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "trapeze", &mut text);
    io::stdout().write_all(&text)
}
