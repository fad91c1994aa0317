//! What must hold of the source whatever it does.

use crate::run::{command, run};
use crate::{header, layers, pages, source};

/// Formatting, our limits and layers, then the compiler's lints.
pub fn tidy() -> Result<(), String> {
    run("formatting", command("cargo fmt --all --check"))?;
    println!("\n== layers, licences, limits, pages");
    let problems =
        [layers::problems()?, source::problems()?, header::problems()?, pages::problems()?];
    let problems = problems.concat();
    problems.iter().for_each(|problem| println!("{problem}"));
    if !problems.is_empty() {
        return Err(format!("{} problems, listed above", problems.len()));
    }
    run("lints", command("cargo clippy --workspace --all-targets --quiet -- -D warnings"))
}
