//! Close-to-open within a mount: a file that is opened after a write has ended shows what was written, whichever way it
//! was written, also while readers through the kernel's cache are beside.

use crate::common::{Cluster, cannot_mount, python, soaks};
use std::process::Command;

/// Writes by every way in turn, a reader beside, and opens the file anew after each write.
const WRITER: &str = r#"
import ctypes, mmap, os, signal, struct, sys
path, rounds, size = sys.argv[1], int(sys.argv[2]), 256 * 1024
libc = ctypes.CDLL(None, use_errno=True)
IO_SETUP, IO_SUBMIT, IO_GETEVENTS = 206, 209, 208
context = ctypes.c_ulong()
assert libc.syscall(IO_SETUP, 8, ctypes.byref(context)) == 0
page = mmap.mmap(-1, size)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))

def fill(round): page[:] = bytes([round % 251 + 1]) * size

def asynchronous_direct(fd):
    iocb = ctypes.create_string_buffer(struct.pack('<QIIHhIQQqQII', 0, 0, 0, 1, 0, fd, address, size, 0, 0, 0, 0), 64)
    pointer = ctypes.c_void_p(ctypes.addressof(iocb))
    assert libc.syscall(IO_SUBMIT, context, 1, ctypes.byref(pointer)) == 1
    events = ctypes.create_string_buffer(32)
    assert libc.syscall(IO_GETEVENTS, context, 1, 1, events, None) == 1
    assert struct.unpack('<QQqq', events.raw)[2] == size
def synchronous_direct(fd): assert os.pwritev(fd, [page], 0) == size
def plain(fd): assert os.pwrite(fd, page, 0) == size
def copied(fd):
    with open(path + '.from', 'wb') as source: source.write(page[:])
    source = os.open(path + '.from', os.O_RDONLY)
    left = size
    while left: left -= os.copy_file_range(source, fd, left, size - left, size - left)
    os.close(source)
def mapped(fd):
    with mmap.mmap(fd, size) as m:
        m[:] = page[:]
        m.flush()

ways = [(asynchronous_direct, os.O_DIRECT), (synchronous_direct, os.O_DIRECT), (plain, 0), (plain, os.O_SYNC),
        (mapped, 0), (copied, 0)]
with open(path, 'wb') as file: file.write(bytes(size))
def read_beside():
    # A process: a thread would wait for the interpreter of the one that writes.
    pid = os.fork()
    if pid: return pid
    fd = os.open(path, os.O_RDONLY)
    while True: os.pread(fd, size, 0)
readers = [read_beside() for _ in range(2)]
wrong = {}
number = 0
for round in range(rounds):
    for way, flags in ways:
        number += 1
        fill(number)
        fd = os.open(path, os.O_RDWR | flags)
        way(fd)
        fresh = os.open(path, os.O_RDONLY)
        if os.pread(fresh, size, 0) != page[:]:
            name = way.__name__ + (' O_SYNC' if flags & os.O_SYNC == os.O_SYNC else '')
            wrong[name] = wrong.get(name, 0) + 1
        os.close(fresh); os.close(fd)
for pid in readers: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
print('of %d rounds stale: %s' % (rounds, wrong))
sys.exit(1 if wrong else 0)
"#;

#[test]
fn a_fresh_open_shows_what_was_written_by_every_way_with_readers_beside() {
    if cannot_mount() {
        return;
    }
    let Some(python) = python("mmap") else { return };
    let mut cluster = Cluster::mounted(2);
    let mut command = Command::new("timeout");
    let rounds = if soaks() { "120" } else { "25" };
    command.args(["100", python, "-c", WRITER]).arg(cluster.at("file")).arg(rounds);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    cluster.stop();
}
