//! The project's one tool. `cargo xtask` without arguments says what it can do; continuous integration calls nothing
//! else.

mod bundle;
mod circles;
mod compiler;
mod header;
mod layers;
mod pages;
mod planted;
mod pool;
mod programs;
mod report;
mod run;
mod skips;
mod source;
mod suites;
mod tidy;
mod usage;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  test [WORD ...]
           everything that must hold before a change lands: tidy, all tests, examples,
           model checking, fresh simulated seeds; 15 minutes on 2 cores. With words: only
           what has one of them in its name, as in `test stripe/scrub nfs`
  tidy     formatting, lints, layers, circles, licences, limits of size: seconds
  soak     the long counts: simulated hours, crash rounds, planted bugs (an hour or two)
  planted  tests that must fail, each with the planted bug that it is there to notice
  fuzz     the parsers and the ring reader, with an installed cargo-fuzz: cargo xtask fuzz [SECONDS]
  header   crates/capi/include/trapeze.h from the sources, with an installed cbindgen
  install-c [--prefix PATH]
           libtrapeze.so, trapeze.h and trapeze.pc, in release, to /usr/local or PATH
  bench    the micro-benchmarks in tests, with large inputs
  bundle   target/release/trapeze with the library of `trapeze run` in it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = compiler::run(&arguments) {
        return code;
    }
    let outcome = match arguments.first().map(String::as_str) {
        Some("test") => suites::test(&arguments[1..]),
        Some("tidy") => tidy::tidy(),
        Some("soak") => suites::soak(),
        Some("planted") => planted::planted(),
        Some("fuzz") => suites::fuzz(arguments.get(1).map(String::as_str)),
        Some("header") => header::header(),
        Some("install-c") => header::install(&arguments[1..]),
        Some("bench") => suites::bench(),
        Some("bundle") => bundle::bundle(),
        Some("--help" | "-h" | "help") | None => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => {
            eprintln!("xtask: no command {other:?}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("\nxtask: {problem}");
            ExitCode::FAILURE
        }
    }
}
