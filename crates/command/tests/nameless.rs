//! Files without a name: as long as anything has one open, its bytes are those written, whichever descriptors of it
//! were closed before and whichever process was restarted meanwhile.

use crate::common::{Cluster, cannot_mount, python};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Holds a file of every kind, then compares each one's bytes whenever it is told to.
///
/// A kind is how it lost its name, what was closed of it before and after that, and what still holds it.
const HOLDER: &str = r#"
import itertools, mmap, os, socket, sys
root, size = sys.argv[1], 300 * 1024
os.chdir(root)

def flush_none(fd): pass
def flush_dup(fd): os.close(os.dup(fd))
def flush_child(fd):
    pid = os.fork()
    if pid == 0:
        os.close(fd); os._exit(0)
    os.waitpid(pid, 0)
def flush_other_open(fd):
    # Another handle of the same file, which is its last writer to close but for this one.
    other = os.open('/proc/self/fd/%d' % fd, os.O_RDWR); os.close(other)

def unlinked(name): os.unlink(name)
def replaced(name):
    with open(name + '.new', 'w') as new: new.write('another')
    os.rename(name + '.new', name)
def linked_and_unlinked(name):
    os.link(name, name + '.link'); os.unlink(name); os.unlink(name + '.link')

def made_unnamed(name): pass

def by_descriptor(fd): return fd, lambda: os.pread(fd, size, 0)
def by_map(fd):
    m = mmap.mmap(fd, size); os.close(fd)
    return None, lambda: bytes(m[:])
def by_socket(fd):
    a, b = socket.socketpair()
    socket.send_fds(a, [b'x'], [fd]); os.close(fd)
    got = []
    def read():
        if not got: got.append(socket.recv_fds(b, 1, 1)[1][0])
        return os.pread(got[0], size, 0)
    return None, read

flushes = [flush_none, flush_dup, flush_child, flush_other_open]
ways = [unlinked, replaced, linked_and_unlinked, made_unnamed]
holders = [by_descriptor, by_map, by_socket]
kinds = list(itertools.product(ways, flushes, flushes, holders))
held = []
for number, (nameless, before, after, holds) in enumerate(kinds):
    name, data = 'f%d' % number, bytes([number % 251 + 1]) * size
    if nameless == made_unnamed:
        try: fd = os.open('.', os.O_TMPFILE | os.O_RDWR)
        except OSError: continue  # the kernel's FUSE does not ask for it before Linux 6.2
    else: fd = os.open(name, os.O_CREAT | os.O_RDWR)
    os.write(fd, data)
    os.fsync(fd)
    before(fd); nameless(name); after(fd)
    kept, read = holds(fd)
    what = ' '.join(f.__name__ for f in (nameless, before, after, holds))
    held.append((what, data, read))
print('held', flush=True)
for line in sys.stdin:
    with open('/proc/sys/vm/drop_caches', 'w') as caches: caches.write('3')
    wrong = []
    for what, data, read in held:
        try:
            if read() != data: wrong.append(what + ': other bytes')
        except OSError as error: wrong.append('%s: %s' % (what, error))
    print('wrong: ' + '; '.join(wrong) if wrong else 'right', flush=True)
"#;

#[test]
fn files_without_names_keep_their_bytes_whatever_was_closed_and_whoever_restarted() {
    if cannot_mount() {
        return;
    }
    let Some(python) = python("mmap") else { return };
    let mut cluster = Cluster::mounted(2);
    let mut holder = Command::new(python)
        .args(["-c", HOLDER])
        .arg(cluster.processes.mount_point())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = holder.stdin.take().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("held"));
    let mut check = |when: &str| {
        writeln!(input, "check").unwrap();
        assert_eq!(lines.next().as_deref(), Some("right"), "{when}");
    };
    check("at once");
    for (number, who) in [(0, "the manager"), (1, "a server"), (0, "the manager, again,")] {
        cluster.crash(number, Duration::from_millis(300));
        check(&format!("after {who} was killed"));
    }
    drop(input);
    assert!(holder.wait().unwrap().success());
    cluster.stop();
}
