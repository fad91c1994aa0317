//! Locks that programs take in a mount.

use crate::common::{Cluster, cannot_mount, lacks, shell, soaks};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Locks of open files (F_OFD_SETLK), as QEMU takes them on images.
const OPEN_FILES: &str = r#"
import errno, fcntl, os, struct
def lock(fd, kind=fcntl.F_WRLCK, command=37):
    try:
        fcntl.fcntl(fd, command, struct.pack('hhqqi4x', kind, 0, 0, 0, 0))
        return True
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return False
open_again = lambda: os.open('image', os.O_RDWR | os.O_CREAT)
first, second = open_again(), open_again()
assert lock(first) and not lock(second)
os.close(os.dup(first))
assert not lock(second), 'a duplicate was closed'
child = os.fork()
if child == 0:
    os.read(os.open('go', os.O_RDONLY), 1)
    os._exit(0)
os.close(first)
assert not lock(second), 'the child has it open'
os.write(os.open('go', os.O_WRONLY), b'g')
os.waitpid(child, 0)
waits = 38 # F_OFD_SETLKW: the release may still be on its way
assert lock(second, command=waits)
assert not lock(open_again())
os.close(second)
third = open_again()
assert lock(third, command=waits)
# Locks of processes go with any close of theirs, and not with the end of another open file.
fcntl.fcntl(third, 37, struct.pack('hhqqi4x', fcntl.F_UNLCK, 0, 0, 0, 0))
if os.fork() == 0:
    mine = open_again()
    fcntl.lockf(mine, fcntl.LOCK_EX)
    for _ in range(20):
        inherited = open_again()
        if os.fork() == 0:
            os.close(inherited)
            os._exit(0)
        os.close(mine)
        mine = open_again()
        fcntl.lockf(mine, fcntl.LOCK_EX)
        os.wait()
        assert not lock(third)
    os._exit(0)
assert os.wait()[1] == 0
assert lock(third, command=waits)
"#;

#[test]
fn the_lock_of_an_open_file_is_free_after_the_last_close_and_not_before() {
    if cannot_mount() || lacks("python3") {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    let script = cluster.beside("script.py");
    std::fs::write(&script, OPEN_FILES).unwrap();
    shell(&cluster.at(""), 60, &format!("mkfifo go; python3 {}", script.display()));
    cluster.stop();
}

#[test]
fn thousands_of_locks_wait_and_none_is_refused() {
    if cannot_mount() || lacks("python3") {
        return;
    }
    let mut cluster = Cluster::mounted(1);
    let path = cluster.at("file");
    let file = File::create(&path).unwrap();
    let script = "import fcntl,os\nf = open('file', 'r+')\nfcntl.lockf(f, fcntl.LOCK_EX)\n\
                  print(1, flush=True)\nos.read(0, 1)";
    let mut holder = Command::new("python3");
    holder.args(["-c", script]).current_dir(cluster.at(""));
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let count = if soaks() { 10_000 } else { 2_000 };
    let (begun, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..count {
            let wait = || {
                begun.fetch_add(1, Ordering::SeqCst);
                fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
                held.fetch_add(1, Ordering::SeqCst);
            };
            thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, wait).unwrap();
        }
        while begun.load(Ordering::SeqCst) < count {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_secs(1));
        assert_eq!(held.load(Ordering::SeqCst), 0);
        let other = shell(&cluster.at(""), 20, "echo still served > other; cat other");
        assert_eq!(other, "still served\n");
        holder.stdin.as_mut().unwrap().write_all(b"g").unwrap();
    });
    holder.wait().unwrap();
    assert_eq!(held.load(Ordering::SeqCst), count);
    cluster.stop();
}
