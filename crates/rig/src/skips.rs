//! Notes of tests that cannot run here: a line on the terminal, which is not read when a test passes, and one in the
//! file that `cargo xtask test` names, which counts it as skipped and not as passed.
//!
//! Continuous integration installs every program and Python module that is asked for here (`.ci/run`): where `CI=true`
//! says that it runs, one that is missing is a failure. A thing that a machine may lack for good, as a device or a
//! privilege, is never one.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The variable that names the file.
pub const SKIPS: &str = "TRAPEZE_SKIPS";

/// Says that the test of this thread, or a part of it, does not run, and why.
pub fn skip(why: impl Display) {
    println!("skipped: {why}");
    let Some(path) = std::env::var_os(SKIPS) else { return };
    let line = line(&test(), &why.to_string());
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // one write a line: other tests write too
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{SKIPS}={}: {error}", path.display()));
}

/// Whether a program is missing here, which the test then says.
pub fn lacks(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        lacking(&format!("{program} is not installed"));
    }
    missing
}

/// The Python that has this module, the user's own before the system's; `None` where there is none, which the test
/// then says.
pub fn python(module: &str) -> Option<&'static str> {
    let import = format!("import {module}");
    let has = |python: &&str| {
        let output = Command::new(python).args(["-c", &import]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has);
    if found.is_none() {
        lacking(&format!("there is no python3 with the module {module}"));
    }
    found
}

/// Skips for what is not here, or fails where everything is to be there.
pub fn lacking(what: &str) {
    let everything = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!everything, "{what}, and CI=true: .ci/run installs it");
    skip(what);
}

/// The test of this thread with its suite, as in `trapeze/memory: a_test`.
fn test() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = std::thread::current();
    format!("{package}/{}: {}", suite(&program), thread.name().unwrap_or("a thread"))
}

/// The name that Cargo's file of a suite begins with.
fn suite(program: &Path) -> String {
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(suite, _hash)| suite.to_string())
}

/// A line of the file: the test and why, a tab between.
fn line(test: &str, why: &str) -> String {
    let why: Vec<&str> = why.split_whitespace().collect();
    format!("{test}\t{}\n", why.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_that_names_the_test() {
        assert_eq!(
            suite(Path::new("/target/debug/deps/region_peer-0123456789abcdef")),
            "region_peer"
        );
        let test = test();
        assert_eq!(test, "rig/rig: skips::tests::a_skip_is_one_line_that_names_the_test");
        assert_eq!(line(&test, "not\nhere\t: "), format!("{test}\tnot here :\n"));
    }

    #[test]
    fn what_is_there_is_found() {
        assert!(!lacks("sh"));
    }
}
