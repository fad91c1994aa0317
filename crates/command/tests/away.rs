//! Mounts while servers are away: programs that can be ended, a mount that can be stopped.

use crate::common::{Cluster, cannot_mount, ended_by_signals, is_mounted, pattern};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a program to begin to wait for a server.
const BEGIN: Duration = Duration::from_millis(700);
/// A fifth of a mount's timeout for its servers: an operation that ends within it did not wait for that.
const BOUND: Duration = Duration::from_secs(60);

fn start(dir: &Path, program: &str, arguments: &[&str]) -> Child {
    let mut command = ended_by_signals(program);
    command.args(arguments).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Sees that the program waits and that `signal` ends it.
fn ends_with(mut child: Child, signal: Signal, what: &str) {
    thread::sleep(BEGIN);
    assert!(child.try_wait().unwrap().is_none(), "{what} does not wait");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
    let told = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(told.elapsed() < BOUND, "{what} goes on after {signal:?}");
        thread::sleep(Duration::from_millis(10));
    }
    println!("{what} ended {:?} after {signal:?}", told.elapsed());
}

fn write_stably(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// The contents of `file`.
fn contents() -> Vec<u8> {
    pattern(1, 300_000)
}

/// A mount, and a stable `file` in it.
fn with_file() -> Cluster {
    let cluster = Cluster::mounted(1);
    write_stably(&cluster.at("file"), &contents());
    cluster
}

#[test]
fn programs_that_wait_for_a_dead_server_can_be_ended() {
    if cannot_mount() {
        return;
    }
    let mut cluster = with_file();
    let root = cluster.at("");
    cluster.remount();
    File::open(root.join("file")).unwrap();
    cluster.processes.kill_server(1).unwrap();
    let direct = ["if=file", "of=/dev/null", "bs=64k", "iflag=direct"];
    ends_with(start(&root, "dd", &direct), Signal::INT, "a direct read");
    ends_with(start(&root, "cat", &["file"]), Signal::KILL, "cat");
    let synced = ["if=/dev/zero", "of=new", "bs=64k", "count=1", "conv=fsync"];
    ends_with(start(&root, "dd", &synced), Signal::KILL, "fsync");
    ends_with(
        start(&root, "sync", &["new"]),
        Signal::INT,
        "fsync of a program that handles nothing",
    );
    let file = cluster.beside("source");
    fs::write(&file, pattern(2, 100_000)).unwrap();
    let copy = [file.to_str().unwrap(), "copy"];
    ends_with(start(&root, "cp", &copy), Signal::INT, "close");
    cluster.processes.start_server(1).unwrap();
    assert!(fs::read(root.join("file")).unwrap() == contents(), "and the mount goes on");
    assert!(fs::read(root.join("copy")).unwrap() == pattern(2, 100_000), "what was written stays");
    cluster.stop();
}

/// A stopped process is alive as far as its sockets go; what is posted to it is not kept for it for ever.
#[test]
fn a_server_that_stands_still_is_given_up_and_taken_back() {
    if cannot_mount() {
        return;
    }
    let mut cluster = with_file();
    let root = cluster.at("");
    let writer = cluster.mount_again();
    write_stably(&writer.join("before"), b"connected");
    cluster.processes.server(1).unwrap().pause();
    let synced = ["if=/dev/zero", "of=late", "bs=1M", "count=4", "conv=fsync"];
    let mut late = start(&writer, "dd", &synced);
    let status = crate::common::trapeze(&["status", "--json", "-c", &cluster.processes.target()]);
    let told = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(!status.status.success() && told.contains("timed out"), "a call ends: {told}");
    let log = cluster.beside("mnt2.log");
    let said = |what: &str| fs::read_to_string(&log).unwrap().matches(what).count();
    wait_until("it is given up", || said("has taken nothing for 10 s") > 0);
    let connected = said("connected to");
    assert!(late.try_wait().unwrap().is_none(), "the mount waits for the server");
    cluster.processes.server(1).unwrap().resume();
    wait_until("it is taken back", || said("connected to") > connected);
    assert!(late.wait().unwrap().success());
    cluster.remount();
    assert!(fs::read(root.join("file")).unwrap() == contents());
    assert!(fs::read(root.join("late")).unwrap() == vec![0; 4 << 20]);
    cluster.stop();
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < BOUND, "not seen: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_alarm_that_a_program_handles_does_not_break_its_reads_off() {
    if cannot_mount() || crate::common::lacks("python3") {
        return;
    }
    let mut cluster = with_file();
    cluster.remount();
    // At its end the interpreter gives signals their defaults back, and the next alarm would end it.
    let script = "import mmap, os, signal, sys\n\
                  signal.signal(signal.SIGALRM, lambda *_: print('alarm', flush=True))\n\
                  signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)\n\
                  signal.siginterrupt(signal.SIGALRM, True)\n\
                  file = os.open('file', os.O_RDONLY | os.O_DIRECT)\n\
                  room = mmap.mmap(-1, 65536)\n\
                  got = os.readv(file, [room])\n\
                  signal.setitimer(signal.ITIMER_REAL, 0)\n\
                  sys.exit(None if got == 65536 else f'{got} bytes')\n";
    File::open(cluster.at("file")).unwrap();
    cluster.processes.kill_server(1).unwrap();
    let mut command = ended_by_signals("python3");
    command.args(["-c", script]).current_dir(cluster.at("")).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().unwrap().is_none(), "it goes on waiting");
    cluster.processes.start_server(1).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{} {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    cluster.stop();
}

#[test]
fn a_mount_without_servers_stops_and_says_what_is_lost() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    fs::create_dir(cluster.at("dir")).unwrap();
    let mut open = File::create(cluster.at("dir/precious")).unwrap();
    (0..2).for_each(|number| cluster.processes.kill_server(number).unwrap());
    open.write_all(&pattern(1, 1_000_000)).unwrap();
    let point = cluster.at("");
    let error = cluster.processes.take_mount().unwrap().stop().unwrap_err().to_string();
    assert!(error.contains("1000000 bytes of dir/precious"), "{error}");
    assert!(!error.contains("was killed"), "{error}");
    assert!(!is_mounted(&point));
    drop(open);
}

#[test]
fn a_second_signal_ends_a_mount_without_servers_at_once() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    let mount = cluster.processes.take_mount().unwrap();
    // Of the process that started it, all signals are one. Started before a file is open that its start would close.
    let sends = format!("read word; kill -TERM {}", mount.id());
    let mut other = Command::new("sh").args(["-c", &sends]).stdin(Stdio::piped()).spawn().unwrap();
    let mut open = File::create(cluster.at("precious")).unwrap();
    (0..2).for_each(|number| cluster.processes.kill_server(number).unwrap());
    open.write_all(&pattern(1, 1_000_000)).unwrap();
    mount.signal(Signal::TERM);
    // Two signals that come before the first is taken are one.
    let start = Instant::now();
    while !mount.last_words().contains("writing back") && start.elapsed() < BOUND {
        thread::sleep(Duration::from_millis(10));
    }
    other.stdin.take().unwrap().write_all(b"now\n").unwrap();
    assert!(other.wait().unwrap().success());
    let error = mount.stop().unwrap_err().to_string();
    assert!(error.contains("exit status: 130"), "{error}");
    drop(open);
}

/// Before a write the kernel asks whether the file has capabilities, which the manager keeps: of a new file, and of an
/// open one that was asked for before, it is known here. So long is the manager waited for otherwise.
const MANAGERS_TIME: Duration = Duration::from_secs(30);

#[test]
fn only_the_first_write_to_a_file_of_before_waits_for_the_manager() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    fs::write(cluster.at("known"), "old").unwrap();
    fs::write(cluster.at("unknown"), "old").unwrap();
    cluster.remount();
    // A process that starts closes its copies of open files, which waits for the manager.
    let manager = cluster.processes.prepare_server(0).unwrap();
    let open = |name: &str| File::options().write(true).open(cluster.at(name)).unwrap();
    let mut files = [File::create(cluster.at("new")).unwrap(), open("known")];
    let mut unknown = open("unknown");
    files[1].write_all(b"asked").unwrap();
    let waiting = cluster.at("unknown");
    cluster.processes.kill_server(0).unwrap();
    let start = Instant::now();
    for file in &mut files {
        file.write_all(&pattern(1, 100_000)).unwrap();
        thread::sleep(Duration::from_millis(1_500)); // the kernel's attributes are old by then
        file.write_all(&pattern(2, 100_000)).unwrap();
    }
    assert!(start.elapsed() < MANAGERS_TIME, "{:?}", start.elapsed());
    let late = thread::spawn(move || unknown.write_all(b"new").map(|()| unknown));
    thread::sleep(BEGIN);
    assert!(!late.is_finished(), "it waits for the manager");
    let manager = manager.go().unwrap();
    drop((late.join().unwrap().unwrap(), files));
    assert_eq!(fs::read(waiting).unwrap(), b"new");
    cluster.processes.put_server(0, manager);
    cluster.stop();
}

#[test]
fn room_is_told_while_a_server_is_away() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let root = cluster.at("");
    let before = rustix::fs::statfs(&root).unwrap();
    cluster.processes.kill_server(2).unwrap();
    let start = Instant::now();
    let after = rustix::fs::statfs(&root).unwrap();
    println!("statfs with a server away: {:?}", start.elapsed());
    assert_eq!(before.f_blocks, after.f_blocks, "what it said last counts");
    let output = crate::common::trapeze(&["df", "--cluster", &cluster.processes.target()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("without io2"), "{said} {}", String::from_utf8_lossy(&output.stderr));
    cluster.processes.start_server(2).unwrap();
    cluster.stop();
}

#[test]
fn an_open_by_name_sees_what_another_mount_did_to_the_name() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(2);
    let (one, two) = (cluster.at(""), cluster.mount_again());
    let read = |name: &str| fs::read_to_string(one.join(name)).unwrap();
    for round in 0..20 {
        let (old, new) = (format!("old {round}"), format!("new {round}"));
        fs::write(two.join("log"), &old).unwrap();
        assert_eq!(read("log"), old);
        fs::rename(two.join("log"), two.join("log.1")).unwrap();
        fs::write(two.join("log"), &new).unwrap();
        assert_eq!(read("log.1"), old, "moved away");
        assert_eq!(read("log"), new, "made again");
        let mut open = File::open(one.join("log")).unwrap();
        fs::write(two.join("next"), "next").unwrap();
        fs::rename(two.join("next"), two.join("log")).unwrap();
        assert_eq!(read("log"), "next", "renamed over while it is open");
        let mut seen = String::new();
        open.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, new, "who has it open goes on with it");
        fs::hard_link(two.join("log"), two.join("link")).unwrap();
        assert_eq!((read("link"), read("log")), ("next".into(), "next".into()));
        fs::write(two.join("other"), "other").unwrap();
        fs::rename(two.join("other"), two.join("log")).unwrap();
        assert_eq!(
            (read("log"), read("link")),
            ("other".into(), "next".into()),
            "one of two names"
        );
        fs::rename(one.join("link"), one.join("mine")).unwrap();
        assert_eq!(read("mine"), "next", "renamed by this mount");
        fs::remove_file(two.join("mine")).unwrap();
        assert!(File::open(one.join("mine")).is_err());
    }
    cluster.stop();
}
