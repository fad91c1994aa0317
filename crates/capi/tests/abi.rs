//! The library as a program in C gets it: the files where pkg-config says, the symbols of the header and no others, and
//! functions that do what the header says.

#[path = "../../command/tests/common/ports.rs"]
mod ports;

use rig::{lacks, python, skip};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;
use trapeze::config::Memory;
use trapeze::embedded::Embedded;
use trapeze::local::Shape;
use trapeze::size::Size;

const HEADER: &str = include_str!("../include/trapeze.h");
const EVERYTHING: &str = concat!(
    include_str!("c/everything.c"),
    include_str!("c/regions.c"),
    include_str!("c/memory.c"),
    include_str!("c/cluster.c")
);
/// Exit code of the tests of regions where the system does not let programs serve their page faults.
const NOT_HERE: i32 = 77;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The standard output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// An installation that all tests share.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<TempDir> = OnceLock::new();
    PREFIX
        .get_or_init(|| {
            let prefix = tempfile::tempdir().unwrap();
            // Cargo puts the library beside the programs that test it.
            let library = std::env::current_exe().unwrap().with_file_name("libcapi.so");
            let script = here().join("install.sh");
            output(Command::new("sh").arg(script).arg(library).arg(prefix.path()));
            prefix
        })
        .path()
}

/// The output of pkg-config, or without it the same by hand.
fn flags() -> Vec<String> {
    if lacks("pkg-config") {
        let prefix = installed().display();
        return vec![format!("-I{prefix}/include"), format!("-L{prefix}/lib"), "-ltrapeze".into()];
    }
    pkg_config(&["--cflags", "--libs"]).split_whitespace().map(str::to_string).collect()
}

fn pkg_config(arguments: &[&str]) -> String {
    let path = installed().join("lib/pkgconfig");
    output(Command::new("pkg-config").env("PKG_CONFIG_PATH", path).args(arguments).arg("trapeze"))
}

/// Compiles a program against the installation.
fn compiled(source: &str, into: &Path) -> PathBuf {
    let program = into.join("program");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    output(cc.arg(here().join(source)).args(flags()));
    program
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", installed().join("lib"));
    command
}

/// Every function that the header declares.
fn declared() -> BTreeSet<&'static str> {
    let words = HEADER.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(');
    let called = words.filter_map(|word| word.split_once('(')).map(|(name, _)| name);
    let code: BTreeSet<&str> = HEADER.lines().filter(|line| !line.starts_with("//")).collect();
    let is_declared = |name: &&str| code.iter().any(|line| line.contains(&format!("{name}(")));
    called.filter(|name| name.starts_with("tpz_")).filter(is_declared).collect()
}

#[test]
fn the_library_has_the_headers_symbols_and_no_others() {
    let library = installed().join("lib/libtrapeze.so.0");
    let table = output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let exported: BTreeSet<&str> =
        table.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(exported.len() > 40);
    assert_eq!(exported, declared());
    let dynamic = output(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libtrapeze.so.0]"), "{dynamic}");
}

#[test]
fn pkg_config_knows_the_version_and_the_paths() {
    if lacks("pkg-config") {
        return;
    }
    assert_eq!(pkg_config(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    assert!(pkg_config(&["--cflags"]).contains(&format!("-I{}/include", installed().display())));
    let wrong = Command::new("sh").arg(here().join("install.sh")).output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("usage"));
}

#[test]
fn every_function_does_what_it_should_and_refuses_what_it_must() {
    for name in declared() {
        assert!(EVERYTHING.contains(&format!("{name}(")), "no program in tests/c calls {name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let said = output(&mut command(&compiled("tests/c/everything.c", folder.path())));
    assert_eq!(said, "everything is as it should be\n");
}

#[test]
fn the_header_is_good_for_cpp_and_old_c_too() {
    for (language, standard) in [("c", "c99"), ("c++", "c++11")] {
        let mut cc = Command::new("cc");
        cc.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
        let header = here().join("include/trapeze.h");
        cc.args(["-x", language, &format!("-std={standard}"), "-include"]).arg(header);
        let output = cc.arg("/dev/null").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let unknown = language == "c++" && error.contains("cc1plus");
        assert!(output.status.success() || unknown && lacks("g++"), "{language}: {error}");
    }
}

/// The example, as its head says: two processes, pages by message and by call.
fn pages(program: &Path, address: &str) {
    let mut server =
        command(program).args(["serve", address]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap());
    let mut address = String::new();
    lines.read_line(&mut address).unwrap();
    let said = output(command(program).args(["fetch", address.trim()]));
    assert_eq!(said.matches("in the frame that was chosen: yes").count(), 4, "{said}");
    assert_eq!(said.matches("block 100 is right").count(), 1, "{said}");
    assert!(server.wait().unwrap().success());
    lines.read_to_string(&mut address).unwrap();
}

#[test]
fn two_processes_exchange_pages_over_every_link() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("examples/pages.c", folder.path());
    pages(&program, &format!("unix:{}", folder.path().join("u").display()));
    pages(&program, &format!("adapter:{}", folder.path().join("a").display()));
    pages(&program, "tcp:127.0.0.1:0");
}

/// Whether the program did its work; a line and false where the system does not let it.
fn did(command: &mut Command) -> bool {
    let output = command.output().unwrap();
    let (said, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NOT_HERE) {
        skip(said);
        return false;
    }
    assert!(output.status.success(), "{}\n{said}{error}", output.status);
    print!("{said}");
    true
}

#[test]
fn regions_keep_their_pages_in_a_file_and_with_holders() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/c/regions.c", folder.path());
    if !did(command(&program).arg("file").arg(folder.path().join("region"))) {
        return;
    }
    let holder = |name: &str| {
        let address = format!("unix:{}", folder.path().join(name).display());
        let mut holder = command(&program);
        let mut holder = holder.args(["hold", &address]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (holder, line.trim().to_string())
    };
    let (mut first, one) = holder("one");
    let (mut second, two) = holder("two");
    let mapped = std::panic::catch_unwind(|| did(command(&program).args(["map", &one, &two])));
    first.kill().and_then(|()| first.wait()).unwrap();
    second.kill().and_then(|()| second.wait()).unwrap();
    assert!(mapped.unwrap());
}

/// A cluster of three machines that lend memory, on threads of this process.
#[test]
fn a_cluster_is_joined_and_keeps_pages_and_a_region() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/c/cluster.c", folder.path());
    let memory = Memory { lend: Some(Size(16 << 20)), ..Memory::default() };
    let shape = Shape { memory, ..Shape::of(3) };
    let cluster = Embedded::of_shape(&folder.path().join("cluster"), &shape).unwrap();
    did(command(&program).arg(cluster.cluster().dir()));
    cluster.stop().unwrap();
}

/// The same over TCP, encrypted, by the manager's address and the key alone.
#[test]
fn a_cluster_is_joined_over_tcp_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/c/cluster.c", folder.path());
    // the manager, three servers, and two endpoints
    let first = ports::free_ports(6);
    let at = |number: u16| format!("127.0.0.1:{}", first + number);
    let memory = Memory { lend: Some(Size(16 << 20)), ..Memory::default() };
    let shape = Shape { memory, listen: Some(at(0)), ..Shape::of(3) };
    let dir = folder.path().join("cluster");
    let cluster = Embedded::of_shape(&dir, &shape).unwrap();
    let key = std::fs::read_to_string(dir.join("key")).unwrap();
    let arguments = [format!("tcp:{}", at(0)), key.trim().to_string(), at(4), at(5)];
    did(command(&program).args(arguments));
    cluster.stop().unwrap();
}

#[test]
fn three_endpoints_share_pages() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("tests/c/memory.c", folder.path());
    let said = output(command(&program).arg(folder.path()));
    assert_eq!(said, "64 pages in the memory of 3 endpoints\n");
}

#[test]
fn numpy_sorts_a_region_three_times_its_frames() {
    let Some(python) = python("numpy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = installed().join("lib/libtrapeze.so");
    let script = here().join("tests/python/sort.py");
    did(Command::new(python).arg(script).arg(library).arg(folder.path().join("region")));
}
