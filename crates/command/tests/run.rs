//! `trapeze run` as its users meet it: what it prints, what it needs, and where the program's memory goes.

use crate::common::{program, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const NOT_ALLOWED: &str = "userfaultfd is not allowed here";

/// `trapeze run ARGUMENTS`: its output, and the standard error. `None` where it is not allowed.
fn run(arguments: &[&str]) -> Option<(Output, String)> {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(program()).arg("run").args(arguments);
    let output = command.env("LC_ALL", "C").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains(NOT_ALLOWED) {
        rig::skip(said);
        return None;
    }
    assert!(output.status.success(), "{arguments:?}: {}: {said}", output.status);
    Some((output, said))
}

#[test]
fn it_says_what_a_program_cannot_do_unless_it_is_told_to_be_quiet() {
    let arguments = ["--memory", "1M", "--", "echo", "ran"];
    let Some((output, said)) = run(&arguments) else { return };
    assert_eq!(output.stdout, b"ran\n");
    let limits = ["statically", "as another user", "(Go)", "descriptors", "after fork", "io_uring"];
    for limit in limits.iter().chain(&["--room"]) {
        assert!(said.contains(limit), "{said}\nwithout {limit:?}");
    }
    for quiet in ["-q", "--quiet"] {
        let (output, said) = run(&[&[quiet], &arguments[..]].concat()).unwrap();
        assert_eq!((&output.stdout[..], said.as_str()), (&b"ran\n"[..], ""));
    }
}

#[test]
fn what_does_not_fit_is_in_a_file_that_goes_with_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (input, spill) = (dir.path().join("input"), dir.path().join("spill"));
    let lines: String = (0..60_000u64).map(|n| format!("{:016x}\n", wire::mix(n))).collect();
    fs::write(&input, &lines).unwrap();
    fs::create_dir(&spill).unwrap();
    let sort = ["sort", "--parallel=2", "-S", "6M", text(&input)];
    let sizes = ["--memory", "1M", "--from", "256K", "--room", "24M", "--report", "-q"];
    let arguments = [&sizes[..], &["--spill", text(&spill), "--"], &sort].concat();
    let Some((output, said)) = run(&arguments) else { return };
    let plain = Command::new("sort").args(&sort[1..]).env("LC_ALL", "C").output().unwrap();
    assert!(output.stdout == plain.stdout && output.stdout.len() == lines.len());
    assert!(said.contains(" fetched, "), "{said}");
    assert_eq!(fs::read_dir(&spill).unwrap().count(), 0, "the file has no name");
    // It is there all the same: without the directory there is no region.
    fs::remove_dir(&spill).unwrap();
    let mut command = Command::new(program());
    let output = command.arg("run").args(&arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
    assert!(said.contains(&format!("a file in {}", spill.display())), "{said}");
}

/// Why an ordinary user may serve page faults of the kernel here; `None` where only root may.
fn anybody_may() -> Option<&'static str> {
    let sysctl = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    if sysctl.trim() == "1" {
        return Some("vm.unprivileged_userfaultfd is 1 here");
    }
    let device = Path::new("/dev/userfaultfd").metadata();
    let open = device.is_ok_and(|device| device.permissions().mode() & 0o6 == 0o6);
    open.then_some("/dev/userfaultfd is for everybody here")
}

#[test]
fn a_user_who_may_not_is_told_what_to_set() {
    if let Some(why) = anybody_may() {
        return rig::skip(why);
    }
    let dir = tempfile::tempdir().unwrap();
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.path(), all).unwrap();
    let own = dir.path().join("trapeze");
    rig::copy_program(Path::new(program()), &own, "755");
    let mut command = Command::new(&own);
    command.args(["run", "--memory", "1M", "--", "echo", "ran"]).current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{said}");
    let to_set = ["vm.unprivileged_userfaultfd=1", "/dev/userfaultfd", "seccomp profile", "root"];
    for part in [NOT_ALLOWED].iter().chain(&to_set) {
        assert!(said.contains(part), "{said}\nwithout {part:?}");
    }
}
