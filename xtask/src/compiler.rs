//! The compiler of the programs of tests, as Cargo calls it (`RUSTC_WRAPPER`).
//!
//! Code of tests runs for seconds in all; optimised as the crates that it tests, it takes four times as long to build.
//! A profile of Cargo's cannot tell a crate from its tests.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Set where this program is called as a compiler.
const MARK: &str = "TRAPEZE_BUILDS_TESTS";

/// Has `build` call this program as its compiler, unless there is a wrapper already.
pub fn wrap(build: &mut Command) {
    let own = std::env::current_exe().ok().filter(|_| std::env::var_os("RUSTC_WRAPPER").is_none());
    if let Some(own) = own {
        build.env("RUSTC_WRAPPER", own).env(MARK, "1");
    }
}

/// Runs the compiler where this program was called as one.
pub fn run(arguments: &[String]) -> Option<ExitCode> {
    let (compiler, options) = arguments.split_first()?;
    if std::env::var_os(MARK).is_none() || Path::new(compiler).file_stem()? != "rustc" {
        return None;
    }
    let status = Command::new(compiler).args(options).args(added(options)).status();
    let code = match status {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        Err(error) => {
            eprintln!("xtask: {compiler}: {error}");
            1
        }
    };
    Some(ExitCode::from(code))
}

/// Options behind the others, which have precedence.
fn added(options: &[String]) -> &'static [&'static str] {
    let is_test = options.iter().any(|option| option == "--test");
    if is_test { &["-C", "opt-level=0"] } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_tests_are_built_without_optimisation() {
        let options = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
        assert_eq!(added(&options("--test -C opt-level=2")), ["-C", "opt-level=0"]);
        assert!(added(&options("--crate-type lib -C opt-level=2")).is_empty());
    }

    #[test]
    fn a_call_that_is_none_of_cargos_is_a_command() {
        assert!(run(&["test".into(), "rustc".into()]).is_none());
        assert!(run(&["rustc".into(), "-vV".into()]).is_none(), "the mark is missing");
    }
}
