//! The compiler of the workspace's crates while its tests are built, as Cargo calls it (`RUSTC_WORKSPACE_WRAPPER`).
//!
//! Code of most tests runs for seconds in all; optimised as the crates that it tests, it takes four times as long to
//! build. Where tests draw many cases a little optimisation costs less than it saves. A profile of Cargo's cannot tell
//! a crate from its tests.
//!
//! Clippy is the compiler with more lints: where nothing is optimised it builds, so that no crate is read twice. Its
//! MIR is not optimised, so crates that are optimised are compiled first and then linted without code.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Packages whose tests compute for a minute or more.
const COMPUTING: [&str; 3] = ["netrpc", "nic", "stripe"];
/// Set where this program is called as a compiler.
const MARK: &str = "TRAPEZE_BUILDS_TESTS";

/// Has `build` call this program as the compiler of our own crates.
pub fn wrap(build: &mut Command) {
    if let Ok(own) = std::env::current_exe() {
        build.env("RUSTC_WORKSPACE_WRAPPER", own).env(MARK, "1");
    }
}

/// Runs the compiler where this program was called as one.
pub fn run(arguments: &[String]) -> Option<ExitCode> {
    let (compiler, options) = arguments.split_first()?;
    if std::env::var_os(MARK).is_none() || Path::new(compiler).file_stem()? != "rustc" {
        return None;
    }
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let mut codes = calls(compiler, options, &package).into_iter().map(|call| execute(&call));
    let failed = codes.find(|code| *code != 0);
    Some(ExitCode::from(failed.unwrap_or_default()))
}

fn execute(call: &[String]) -> u8 {
    match Command::new(&call[0]).args(&call[1..]).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        Err(error) => {
            eprintln!("xtask: {}: {error}", call[0]);
            1
        }
    }
}

/// The calls in place of one that Cargo makes of a compiler with these options.
fn calls(compiler: &str, options: &[String], package: &str) -> Vec<Vec<String>> {
    let plain = |more: &[&str]| -> Vec<String> {
        let more = more.iter().map(|option| option.to_string());
        [compiler.to_string()].into_iter().chain(options.iter().cloned()).chain(more).collect()
    };
    let has = |option: &str| options.iter().any(|its| its == option);
    let is_build = options.iter().any(|option| option.starts_with("--emit="));
    // The later option has precedence.
    let slow: &[&str] = match (has("--test"), COMPUTING.contains(&package)) {
        (false, _) => &[],
        (true, false) => &["-C", "opt-level=0"],
        (true, true) => &["-C", "opt-level=1"],
    };
    let optimised = options.iter().any(|option| option.starts_with("opt-level="));
    if !is_build {
        vec![plain(&[])]
    } else if has("--test") || !optimised {
        vec![linting(compiler, plain(slow))]
    } else {
        // Clippy tells the compiler's warnings too.
        vec![plain(&["--cap-lints=allow"]), linting(compiler, without_code(plain(&[])))]
    }
}

/// Clippy in place of the compiler, which it is given as its first argument.
fn linting(compiler: &str, call: Vec<String>) -> Vec<String> {
    let clippy = Path::new(compiler).with_file_name("clippy-driver");
    [clippy.to_string_lossy().into_owned()].into_iter().chain(call).collect()
}

/// The same call without code. Its output lies beside that of the compiler, and Cargo is not told of it.
fn without_code(call: Vec<String>) -> Vec<String> {
    let mut is_folder = false;
    let changed = call.into_iter().map(|option| {
        let was_folder = std::mem::replace(&mut is_folder, option == "--out-dir");
        match option.split_once('=') {
            _ if was_folder => format!("{option}/lints"),
            Some(("--emit", _)) => "--emit=metadata".to_string(),
            Some(("--json", kinds)) => format!("--json={}", kinds.replace(",artifacts", "")),
            _ => option,
        }
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(line: &str) -> Vec<String> {
        called_for("names", line)
    }

    fn called_for(package: &str, line: &str) -> Vec<String> {
        let options: Vec<String> = line.split(' ').map(String::from).collect();
        calls("/bin/rustc", &options, package).iter().map(|call| call.join(" ")).collect()
    }

    #[test]
    fn programs_of_tests_are_built_with_little_optimisation_and_linted_in_one_call() {
        let test = "--emit=dep-info,link --test -C opt-level=2";
        let expected = format!("/bin/clippy-driver /bin/rustc {test} -C opt-level=");
        assert_eq!(called(test), [format!("{expected}0")]);
        assert_eq!(called_for("stripe", test), [format!("{expected}1")]);
        let plain = "--emit=dep-info,link --crate-type bin";
        assert_eq!(called(plain), [format!("/bin/clippy-driver /bin/rustc {plain}")]);
    }

    #[test]
    fn what_is_optimised_is_built_by_the_compiler_and_then_linted() {
        let lib = "--json=diagnostic-rendered-ansi,artifacts,future-incompat --emit=dep-info,metadata,link \
                   -C opt-level=2 --out-dir /t/deps -L /t/deps";
        let lints = "--json=diagnostic-rendered-ansi,future-incompat --emit=metadata -C opt-level=2 \
                     --out-dir /t/deps/lints -L /t/deps";
        let expected = [
            format!("/bin/rustc {lib} --cap-lints=allow"),
            format!("/bin/clippy-driver /bin/rustc {lints}"),
        ];
        assert_eq!(called(lib), expected);
        assert_eq!(called("- --print=cfg"), ["/bin/rustc - --print=cfg"], "a question");
    }

    #[test]
    fn a_call_that_is_none_of_cargos_is_a_command() {
        assert!(run(&["test".into(), "rustc".into()]).is_none());
        assert!(run(&["rustc".into(), "-vV".into()]).is_none(), "the mark is missing");
    }
}
