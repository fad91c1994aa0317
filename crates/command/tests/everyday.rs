//! The first hour of a user: commands that agree with each other, starts that are refused, copies of a directory.

use crate::common::{Cluster, cannot_mount, ended_by_signals, program, text, trapeze};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use trapeze::children::Process;

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn told(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Runs it in a directory, as one types it there.
fn typed(dir: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(dir).env_remove("TRAPEZE_CLUSTER");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn up(dir: &Path, log: &Path) -> Process {
    let mut command = ended_by_signals(program());
    command.args(["up", "--servers", "1", "--dir", text(dir)]);
    Process::start_command("up", command, log).unwrap()
}

#[test]
fn commands_find_the_cluster_of_their_directory_and_agree_on_paths() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let out = typed(dir, &["ls"], b"");
    assert!(said(&out).contains("-c or TRAPEZE_CLUSTER"), "{}", said(&out));
    let running = up(&dir.join("trapeze-data"), &dir.join("out"));
    let done = |arguments: &[&str], input: &[u8]| {
        let out = typed(dir, arguments, input);
        assert!(out.status.success(), "{arguments:?}: {}", said(&out));
        told(&out)
    };
    done(&["mkdir", "/a", ":/b"], b"");
    assert!(said(&typed(dir, &["mkdir", "/a"], b"")).contains("file exists"));
    done(&["mkdir", "-p", "/a/b/c", "/a"], b"");
    done(&["cp", "-", ":/a/file"], b"hello");
    for path in ["/a/file", ":/a/file", "a/file"] {
        assert_eq!(done(&["cat", path], b""), "hello");
    }
    assert_eq!(done(&["cp", ":/a/file", "-"], b""), "hello");
    done(&["mv", "/a/file", ":/b"], b"");
    done(&["mv", ":/b/file", "/b/other"], b"");
    assert!(done(&["ls", ":/b"], b"").contains("other"));
    let used = done(&["du", "/"], b"");
    assert!(
        used.lines().any(|line| line.ends_with("  /a/b/c")) && used.ends_with("  /\n"),
        "{used}"
    );
    assert_eq!(done(&["du", "-s", "/b"], b"").lines().count(), 1);
    done(&["rm", "-r", ":/a", "/b"], b"");
    assert!(done(&["status"], b"").starts_with("all is well"));
    running.stop().unwrap();
}

#[test]
fn a_start_that_is_refused_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    for arguments in [
        &["up", "--dir", "data", "--listen", &listen][..],
        &["up", "--dir", "data", "--listen", "nowhere"],
        &["up", "--dir", "data", "--lend", "900T"],
        &["init", "--dir", "data", "--listen", "nowhere"],
        &["init", "--dir", "data", "--listen", "m:7400", "--lend", "900T"],
        &[
            "init",
            "--dir",
            "data",
            "--listen",
            "m:7400",
            "--disk",
            "data/disk",
            "--disk",
            "/proc/none",
        ],
    ] {
        let out = typed(dir, arguments, b"");
        assert_eq!(out.status.code(), Some(1), "{arguments:?}: {}", said(&out));
        assert!(!dir.join("data").exists(), "{arguments:?} left {}", dir.display());
        fs::create_dir(dir.join("data")).unwrap();
        assert_eq!(typed(dir, arguments, b"").status.code(), Some(1));
        assert_eq!(fs::read_dir(dir.join("data")).unwrap().count(), 0, "{arguments:?}");
        fs::remove_dir(dir.join("data")).unwrap();
    }
}

#[test]
fn a_directory_that_is_not_empty_is_not_hidden_unasked() {
    if crate::common::cannot_mount() {
        return;
    }
    let mut cluster = Cluster::bare(1);
    let (target, point) = (cluster.processes.target(), cluster.beside("full"));
    fs::create_dir(&point).unwrap();
    fs::write(point.join("mine"), b"here").unwrap();
    let out = trapeze(&["mount", &target, text(&point)]);
    assert!(said(&out).contains("is not empty") && said(&out).contains("--nonempty"));
    let mut command = ended_by_signals(program());
    // The other way to name the cluster.
    command.args(["mount", "--nonempty", text(&point)]).env("TRAPEZE_CLUSTER", &target);
    let mount = Process::start_command("mount", command, &cluster.beside("mount.log")).unwrap();
    assert!(!point.join("mine").exists());
    mount.stop().unwrap();
    assert!(point.join("mine").exists());
    cluster.stop();
}

#[test]
fn a_copy_of_a_directory_is_a_cluster_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let put = |dir: &Path, content: &[u8]| {
        let out = typed(folder.path(), &["cp", "-c", text(dir), "-", ":/file"], content);
        assert!(out.status.success(), "{}", said(&out));
    };
    let get = |dir: &Path| told(&typed(folder.path(), &["cat", "-c", text(dir), "/file"], b""));
    let running = up(&first, &folder.path().join("out1"));
    put(&first, b"original");
    running.stop().unwrap();
    let copied = Command::new("cp").args(["-a", text(&first), text(&second)]).status().unwrap();
    assert!(copied.success());
    let copy = up(&second, &folder.path().join("out2"));
    assert_eq!(get(&second), "original");
    put(&second, b"of the copy");
    let running = up(&first, &folder.path().join("out1"));
    assert_eq!((get(&first), get(&second)), ("original".into(), "of the copy".into()));
    running.stop().unwrap();
    copy.stop().unwrap();
    let log = fs::read_to_string(first.join("log/up.log")).unwrap();
    assert!(log.lines().all(|line| line.as_bytes()[4] == b'-' && line.contains("Z ")), "{log}");

    // As releases before wrote it: with the paths of where it was made.
    let config = second.join("io1.toml");
    let old = fs::read_to_string(&config).unwrap();
    let old = old.replace("\"key\"", &format!("{:?}", first.canonicalize().unwrap().join("key")));
    fs::write(&config, old).unwrap();
    let out = typed(folder.path(), &["up", "--dir", text(&second)], b"");
    assert_eq!(out.status.code(), Some(1));
    assert!(
        said(&out).contains("which is not in") && said(&out).contains("sed -i"),
        "{}",
        said(&out)
    );
}

/// A period that a command did not write down would be forgotten by the next start, with nothing to tell of it.
#[test]
fn init_and_join_write_the_period_of_the_scrub_to_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let port = crate::common::free_ports(2);
    let [here, there] = [port, port + 1].map(|port| format!("127.0.0.1:{port}"));
    let done = |arguments: &[&str], input: &[u8]| {
        let out = typed(dir, arguments, input);
        assert!(out.status.success(), "{arguments:?}: {}", said(&out));
        told(&out)
    };
    let written = |name: &str| {
        let file = fs::read_to_string(dir.join(name).join("machine.toml")).unwrap();
        let table: toml::Table = toml::from_str(&file).unwrap();
        table.get("scrub").map(|scrub| scrub.to_string())
    };
    let first = ["init", "--dir", "first", "--listen", &here];
    let printed = done(&[&first[..], &["--scrub", "30"]].concat(), b"");
    assert_eq!(written("first").as_deref(), Some("30.0"));
    let other = ["init", "--dir", "other", "--listen", &there];
    done(&[&other[..], &["--scrub", "off"]].concat(), b"");
    assert_eq!(written("other").as_deref(), Some("\"off\""));
    let token = printed.split_whitespace().find(|word| word.starts_with("trapeze1:")).unwrap();
    let serve = ["serve", "--config", "machine.toml"].map(String::from);
    let mut command = ended_by_signals(program());
    command.args(serve).current_dir(dir.join("first"));
    let manager = Process::start_command("serve", command, &dir.join("log")).unwrap();
    let join = ["join", "-", "--listen", &there, "--name", "io9", "--dir", "joined"];
    done(&[&join[..], &["--scrub", "0.5"]].concat(), token.as_bytes());
    assert_eq!(written("joined").as_deref(), Some("0.5"));
    manager.stop().unwrap();
}

/// Commands that the help names.
fn commands() -> Vec<String> {
    let help = told(&trapeze(&["--help"]));
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(String::from).collect()
}

#[test]
fn every_command_has_a_man_page_with_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("man1");
    assert!(trapeze(&["man", text(&dir)]).status.success());
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    for command in &commands {
        let page = fs::read_to_string(dir.join(format!("trapeze-{command}.1"))).unwrap();
        let help = told(&trapeze(&[command, "--help"]));
        let flags = help.lines().filter_map(|line| {
            line.trim_start().split([' ', ',']).find(|word| word.starts_with("--"))
        });
        for flag in flags {
            let escaped = flag.replace('-', "\\-");
            assert!(page.contains(&escaped), "{command}: {flag} is not in its page:\n{page}");
        }
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let complete = |words: &str| {
        let script = format!(
            "eval \"$({} completions bash)\"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _trapeze trapeze \"${{COMP_WORDS[-1]}}\" x; echo \"${{COMPREPLY[@]}}\"",
            text(program())
        );
        told(&Command::new("bash").args(["-c", &script]).output().unwrap())
    };
    assert_eq!(complete("trapeze quar").trim(), "quarantine");
    assert_eq!(complete("trapeze mount --nonem").trim(), "--nonempty");
}

/// Their length is the writer's to say, so a listing alone does not have it.
#[test]
fn files_that_others_write_to_are_listed_and_counted() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    fs::write(cluster.at("closed"), [1; 10_000]).unwrap();
    let mut open = fs::File::create(cluster.at("open")).unwrap();
    open.write_all(&[2; 20_000]).unwrap();
    open.sync_all().unwrap();
    let target = cluster.processes.target();
    let listed = told(&trapeze(&["ls", "-c", &target, "/"]));
    assert!(listed.contains("10000  closed") && listed.contains("20000  open"), "{listed}");
    let used = told(&trapeze(&["du", "-c", &target, "/"]));
    assert!(used.trim_start().starts_with("29."), "30,000 bytes and what blocks take: {used}");
    drop(open);
    cluster.stop();
}
