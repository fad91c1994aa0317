//! Every example runs to its end in bounded time, and the documentation shows the code that runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than any needs, so that only one that hangs is caught.
const SPAN_MAX: Duration = Duration::from_secs(120);

/// `cargo test` puts the examples beside the directory of the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps");
    let program = profile.join("examples").join(name);
    assert!(program.exists(), "{program:?} is not built: cargo build --examples -p trapeze");
    program
}

fn run(name: &str) -> String {
    let mut child = Command::new(program(name))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let start = Instant::now();
    while child.try_wait().expect("it is our child").is_none() {
        if start.elapsed() > SPAN_MAX {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().expect("it has ended");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{text}{errors}", output.status);
    println!("{text}");
    text
}

#[test]
fn ping() {
    assert!(run("ping").contains("are you there?"));
}

#[test]
fn block_echo() {
    assert!(run("block_echo").contains("8192 bytes"));
}

#[test]
fn striped_read() {
    assert!(run("striped_read").contains("over 4 servers"));
}

#[test]
fn fault() {
    assert!(run("fault").contains("fingerprint"));
}

#[test]
fn two_worlds() {
    assert!(run("two_worlds").contains("shared memory"));
}

#[test]
fn mount() {
    let text = run("mount");
    if let Some((_, why)) = text.split_once("skipped: ") {
        return rig::skip(why);
    }
    assert!(text.contains("dear reader"), "{text}");
}

#[test]
fn key_block() {
    assert!(run("key_block").contains("8192 bytes"));
}

/// The key-block server of docs/src/rpc.md is the one that runs, line by line.
#[test]
fn the_page_on_calls_shows_the_code_that_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let (code, page) = (read("examples/key_block.rs"), read("../../docs/src/rpc.md"));
    assert!(page.contains(code.trim_end()), "copy examples/key_block.rs into docs/src/rpc.md");
}

#[test]
fn examples_are_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for entry in std::fs::read_dir(folder).expect("examples") {
        let path = entry.expect("an entry").path();
        let lines = std::fs::read_to_string(&path).expect("text").lines().count();
        assert!(lines <= 80, "{path:?} has {lines} lines, more than 80");
    }
}
