//! What must hold of the source whatever it does.

use crate::run::{command, run};
use crate::{circles, header, layers, pages, source};
use std::process::Command;

/// Formatting, our limits and layers, then the compiler's lints.
pub fn tidy() -> Result<(), String> {
    sources()?;
    run("lints", lints())
}

/// What needs no compiler: seconds.
pub fn sources() -> Result<(), String> {
    run("formatting", command("cargo fmt --all --check"))?;
    println!("\n== layers, circles, licences, limits, pages");
    let problems = [
        layers::problems()?,
        circles::problems()?,
        source::problems()?,
        header::problems()?,
        pages::problems()?,
    ]
    .concat();
    problems.iter().for_each(|problem| println!("{problem}"));
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{} problems, listed above", problems.len()))
}

fn lints() -> Command {
    command("cargo clippy --workspace --all-targets --quiet -- -D warnings")
}
