//! The programs of tests: Cargo builds them, and says so of each when it has linked it.

use crate::compiler;
use crate::pool::{Job, Load, Pool};
use crate::run::{command, root};
use crate::usage::nicely;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packages whose tests run processes, sockets and timers.
const REAL: [&str; 7] = ["capi", "command", "live", "preload", "region", "sockets", "trapeze"];
/// Suites of theirs that compute all the same.
const COMPUTING: [&str; 2] = ["command/papers", "command/sim"];
/// Packages whose tests run the program `trapeze`, which Cargo may link after them.
const RUN_TRAPEZE: [&str; 3] = ["capi", "command", "preload"];
/// For jobs that compute: glibc keeps what they free. Simulated nodes come and go with memory that the kernel would
/// clear for each anew, for a sixth of a run's time.
const KEPT_MEMORY: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "268435456"),
    ("MALLOC_TRIM_THRESHOLD_", "4294967296"),
    ("MALLOC_TOP_PAD_", "16777216"),
];
/// Suites that run programs which Cargo may build after them.
const AFTER_ALL: [&str; 1] = ["trapeze/all"];

/// Builds all tests of the workspace, with lints. The jobs of each program are added as soon as it is linked. Warnings
/// are printed; how many there were.
pub fn build(pool: &Pool) -> Result<usize, String> {
    let mut build =
        nicely(command("cargo test --workspace --locked --no-run --message-format=json"));
    compiler::wrap(&mut build);
    let child = build.stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cargo cannot start: {error}"))?;
    let told = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let lines = told.lines().map_while(Result::ok);
    let mut warnings = 0;
    let messages = lines.filter_map(|line| serde_json::from_str(&line).ok());
    let messages = messages.inspect(|message| warnings += usize::from(print_warning(message)));
    let later =
        add_linked(messages, |program| program.jobs().into_iter().for_each(|job| pool.add(job)));
    let status = child.wait().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the tests do not build".to_string());
    }
    later.iter().flat_map(Program::jobs).for_each(|job| pool.add(job));
    Ok(warnings)
}

/// Prints what the compiler says of a crate; whether it says something.
fn print_warning(message: &Value) -> bool {
    let rendered = message["message"]["rendered"].as_str();
    rendered.iter().for_each(|text| eprint!("{text}"));
    rendered.is_some()
}

/// Gives each program of tests to `add` when it and what it runs are linked; those that run what may be built last are
/// left.
fn add_linked(messages: impl Iterator<Item = Value>, add: impl Fn(&Program)) -> Vec<Program> {
    let (mut later, mut held, mut is_linked) = (Vec::new(), Vec::new(), false);
    for message in messages {
        if is_trapeze(&message) {
            is_linked = true;
            held.drain(..).for_each(|program| add(&program));
        }
        let Some(program) = Program::told(&message) else { continue };
        if AFTER_ALL.contains(&&*program.suite) {
            later.push(program);
        } else if RUN_TRAPEZE.contains(&&*program.package) && !is_linked {
            held.push(program);
        } else {
            add(&program);
        }
    }
    later.extend(held);
    later
}

/// Whether Cargo says that it has linked the program `trapeze`.
fn is_trapeze(message: &Value) -> bool {
    let is_program = message["target"]["kind"][0] == "bin" && message["profile"]["test"] == false;
    is_program && message["target"]["name"] == "trapeze"
}

/// A program of tests.
#[derive(Debug)]
struct Program {
    /// The package and the target.
    suite: String,
    package: String,
    path: PathBuf,
    folder: PathBuf,
    /// Whether each of its tests is a process of its own: those beside the sources are many and short.
    is_split: bool,
}

impl Program {
    /// The one that a message of Cargo's tells of.
    fn told(message: &Value) -> Option<Program> {
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let path = message["executable"].as_str()?.into();
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.into();
        let package = package(message["package_id"].as_str()?)?.to_string();
        let suite = format!("{package}/{}", message["target"]["name"].as_str()?);
        let is_split = message["target"]["kind"][0] == "test";
        Some(Program { suite, package, path, folder, is_split })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.folder);
        command.stdin(Stdio::null()).env("CARGO_PKG_NAME", &self.package);
        command
    }

    fn jobs(&self) -> Vec<Job> {
        let tests = if self.is_split { self.tests() } else { Vec::new() };
        let of_test = |test: &String| self.job(&self.name(test), &["--exact", test]);
        match tests.is_empty() {
            true => vec![self.job(&self.suite, &[])],
            false => tests.iter().map(of_test).collect(),
        }
    }

    /// As in `stripe/scrub: a_test`; `all` is the program of most files.
    fn name(&self, test: &str) -> String {
        let file = test.split_once("::").filter(|_| self.suite.ends_with("/all"));
        match file {
            Some((file, test)) => format!("{}/{file}: {test}", self.package),
            None => format!("{}: {test}", self.suite),
        }
    }

    fn job(&self, what: &str, arguments: &[&str]) -> Job {
        let suite = what.split(": ").next().expect("a split has a part");
        let is_real = REAL.contains(&&*self.package) && !COMPUTING.contains(&suite);
        let load = if is_real { Load::Waits } else { Load::Computes };
        let mut command = self.command(arguments);
        if load == Load::Computes {
            command.envs(KEPT_MEMORY);
        }
        Job { what: what.into(), command, is_suite: true, load }
    }

    /// Its tests by name; none when it does not tell.
    fn tests(&self) -> Vec<String> {
        let told = self.command(&["--list", "--format", "terse"]).output();
        let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let names = told.iter().flat_map(|told| told.lines());
        names.filter_map(|line| Some(line.strip_suffix(": test")?.to_string())).collect()
    }
}

/// The name in an id like `path+file:///w/crates/wire#0.1.0` or `path+file:///w/fuzz/bodies#fuzz-bodies@0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (path, version) = id.split_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

/// The path of a program in the target folder that this one was built in.
pub fn built(profile: &str, name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("the path of xtask: {error}"))?;
    let target = own.ancestors().nth(2).ok_or("xtask lies in no target folder")?;
    Ok(target.join(profile).join(name))
}

/// A command of a program in the workspace's root.
pub fn program(path: PathBuf) -> Command {
    let mut command = Command::new(path);
    command.current_dir(root()).stdin(Stdio::null()).envs(KEPT_MEMORY);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/live#0.1.0",
        "manifest_path":"/w/crates/live/Cargo.toml","target":{"name":"links","kind":["test"]},
        "profile":{"test":true},"executable":"/w/target/debug/deps/links-5a"}"#;

    #[test]
    fn programs_of_tests_are_found_in_what_cargo_says() {
        let program = Program::told(&message(LINE)).unwrap();
        assert_eq!((&*program.suite, &*program.package), ("live/links", "live"));
        assert_eq!(program.folder, Path::new("/w/crates/live"));
        assert!(program.is_split);
        let unit = Program::told(&message(&LINE.replace("[\"test\"]", "[\"lib\"]"))).unwrap();
        assert!(!unit.is_split);
        assert!(Program::told(&message(&LINE.replace("true", "false"))).is_none(), "a program");
        assert_eq!(package("path+file:///w/fuzz/bodies#fuzz-bodies@0.1.0"), Some("fuzz-bodies"));
    }

    fn message(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn tests_that_run_the_program_wait_until_it_is_linked() {
        let bin = LINE.replace("true", "false").replace("[\"test\"]", "[\"bin\"]");
        let bin = message(&bin.replace("\"links\"", "\"trapeze\""));
        let tests = message(&LINE.replace("crates/live", "crates/command"));
        let added = std::cell::RefCell::new(Vec::new());
        let add = |program: &Program| added.borrow_mut().push(program.suite.clone());
        let later = add_linked([tests.clone(), message(LINE), bin].into_iter(), add);
        assert_eq!(*added.borrow(), ["live/links", "command/links"]);
        assert!(later.is_empty());
        assert_eq!(add_linked([tests].into_iter(), add).len(), 1, "never linked: after the build");
    }

    #[test]
    fn a_warning_is_told_from_what_else_cargo_says() {
        let warning = r#"{"reason":"compiler-message","message":{"rendered":"warning: unused\n"}}"#;
        assert!(print_warning(&message(warning)));
        assert!(!print_warning(&message(LINE)));
    }

    /// This program stands for one whose tests are processes.
    fn own(suite: &str) -> Program {
        let (path, folder) = (std::env::current_exe().unwrap(), root());
        let package = suite.split('/').next().unwrap().to_string();
        Program { suite: suite.into(), package, path, folder, is_split: true }
    }

    #[test]
    fn every_test_of_a_program_is_a_job() {
        let jobs = own("live/links").jobs();
        let name = "programs::tests::every_test_of_a_program_is_a_job";
        let job = jobs.iter().find(|job| job.what == format!("live/links: {name}")).unwrap();
        assert_eq!(job.command.get_args().collect::<Vec<_>>(), ["--exact", name]);
        assert!(jobs.iter().all(|job| job.load == Load::Waits && job.is_suite));
        assert!(own("sim/races").jobs().iter().all(|job| job.load == Load::Computes));
        let one = Program { is_split: false, ..own("live/live") }.jobs();
        assert_eq!((one.len(), &*one[0].what), (1, "live/live"));
        let merged = own("sim/all").jobs();
        assert!(
            merged.iter().any(|job| job.what == format!("sim/{}", name.replacen("::", ": ", 1)))
        );
        let silent = Program { path: "/bin/true".into(), ..own("live/links") }.jobs();
        assert_eq!((silent.len(), &*silent[0].what), (1, "live/links"));
    }
}
