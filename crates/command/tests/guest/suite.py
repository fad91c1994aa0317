#!/usr/bin/python3
"""What programs do with a file system, on a mounted one: suite.py MOUNT SEED:TESTS[:SHARE], tests by name, or `all`;
loops that an emulated guest takes long for turn one time in SHARE.

Prints `ok NAME` or `FAILED NAME` with the reason for each test; exits with how many failed. The names before the colon
are those of the Connectathon suite's parts, written anew."""

import errno
import fcntl
import hashlib
import mmap
import os
import random
import subprocess
import sys
import time

ROOT = sys.argv[1]
SEED, NAMES, SHARE = (sys.argv[2].split(":") + ["1"])[:3]
SEED, SHARE = int(SEED), int(SHARE)
TESTS = []


def test(function):
    if NAMES == "all" or function.__name__ in NAMES.split(","):
        TESTS.append(function)
    return function


def fails(number, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except OSError as error:
        assert error.errno == number, f"{errno.errorcode[error.errno]}, not {errno.errorcode[number]}"
        return
    raise AssertionError(f"{errno.errorcode[number]} was expected")


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def get(path):
    with open(path, "rb") as file:
        return file.read()


def pattern(size, seed):
    return random.Random(seed).randbytes(size)


@test
def basic_trees():
    for one in range(5):
        os.makedirs(f"tree/d{one}/e")
        for number in range(10):
            put(f"tree/d{one}/f{number}", b"")
    assert sorted(os.listdir("tree/d0")) == ["e"] + [f"f{number}" for number in range(10)]
    assert os.stat("tree").st_nlink == 7
    fails(errno.ENOTEMPTY, os.rmdir, "tree/d0")
    fails(errno.EEXIST, os.mkdir, "tree/d0")
    subprocess.run(["rm", "-r", "tree"], check=True)
    fails(errno.ENOENT, os.stat, "tree")


@test
def basic_attributes():
    put("attributes", b"12345")
    for mode in (0, 0o644, 0o4755, 0o1777, 0o600):
        os.chmod("attributes", mode)
        assert os.stat("attributes").st_mode & 0o7777 == mode
    os.chown("attributes", 1234, 5678)
    os.utime("attributes", (1000000000, 1100000000))
    stat = os.stat("attributes")
    assert (stat.st_uid, stat.st_gid, stat.st_size) == (1234, 5678, 5)
    assert (stat.st_atime, stat.st_mtime) == (1000000000, 1100000000)
    os.truncate("attributes", 3)
    assert get("attributes") == b"123" and os.stat("attributes").st_mtime > 1700000000
    os.truncate("attributes", 10)
    assert get("attributes") == b"123" + bytes(7)


@test
def basic_read_and_write():
    data = pattern(5_000_000, 1)
    put("big", data)
    assert get("big") == data
    with open("big", "r+b") as file:
        file.seek(1_234_567)
        file.write(b"changed")
        os.fsync(file.fileno())
    changed = data[:1_234_567] + b"changed" + data[1_234_574:]
    os.posix_fadvise(os.open("big", os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    assert hashlib.sha256(get("big")).digest() == hashlib.sha256(changed).digest()
    with open("holes", "wb") as file:
        file.seek(10_000_000)
        file.write(b"end")
    assert os.stat("holes").st_size == 10_000_003 and get("holes")[5_000_000:5_000_100] == bytes(100)


@test
def basic_listings():
    os.mkdir("many")
    names = {f"file-{number}-{'x' * (number % 90)}" for number in range(500 // SHARE)}
    for name in names:
        put(f"many/{name}", b"")
    assert set(os.listdir("many")) == names
    seen = []
    for entry in os.scandir("many"):
        seen.append(entry.name)
        os.unlink(f"many/{entry.name}")
    assert sorted(seen) == sorted(names), "each name once, whatever is removed meanwhile"
    assert os.listdir("many") == []


@test
def basic_names():
    put("one", b"one")
    os.rename("one", "two")
    fails(errno.ENOENT, os.stat, "one")
    os.link("two", "three")
    assert os.stat("two").st_nlink == 2 and os.stat("two").st_ino == os.stat("three").st_ino
    os.unlink("two")
    assert os.stat("three").st_nlink == 1 and get("three") == b"one"
    os.symlink("three", "link")
    assert os.readlink("link") == "three" and get("link") == b"one" and os.path.islink("link")
    put("replaced", b"old")
    os.rename("three", "replaced")
    assert get("replaced") == b"one"
    os.mkdir("directory")
    fails(errno.EISDIR, os.rename, "replaced", "directory")
    fails(errno.ENOTDIR, os.rename, "directory", "replaced")
    fails(errno.EINVAL, os.rename, "directory", "directory/below")
    fails(errno.ENAMETOOLONG, os.stat, "n" * 256)
    put("n" * 255, b"")
    os.mkfifo("fifo")
    os.mknod("device", 0o20600, os.makedev(1, 3))
    assert os.stat("device").st_rdev == os.makedev(1, 3)


@test
def basic_space():
    space = os.statvfs(".")
    assert space.f_blocks >= space.f_bfree >= space.f_bavail > 0 and space.f_namemax == 255


@test
def special_open_and_removed():
    data = pattern(300_000, 2)
    put("removed", data)
    with open("removed", "r+b") as file:
        os.unlink("removed")
        file.seek(100)
        file.write(b"still there")
        file.seek(0)
        assert file.read() == data[:100] + b"still there" + data[111:]
    put("over", b"new")
    put("target", data)
    with open("target", "rb") as file:
        os.rename("over", "target")
        assert file.read() == data and get("target") == b"new"


@test
def special_limits():
    """Where NFS version 3 and the client are not as POSIX says, which the manual explains (pjdfstest)."""
    with open("silly", "wb") as file:
        os.unlink("silly")
        assert os.fstat(file.fileno()).st_nlink == 1
        assert any(name.startswith(".nfs") for name in os.listdir("."))
    assert not any(name.startswith(".nfs") for name in os.listdir("."))
    put("late", b"")
    os.utime("late", (2**33, 2**32))
    assert os.stat("late").st_atime == os.stat("late").st_mtime == 2**32 - 1


@test
def special_exclusive():
    for number in range(20):
        os.close(os.open(f"exclusive-{number}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640))
        fails(errno.EEXIST, os.open, f"exclusive-{number}", os.O_CREAT | os.O_EXCL | os.O_RDWR)
        assert os.stat(f"exclusive-{number}").st_mode & 0o777 == 0o640


@test
def special_permissions():
    child = os.fork()
    if child == 0:
        try:
            os.setgid(1000)
            os.setuid(1000)
            put("own/f", b"mine")
            fails(errno.EACCES, put, "not-own/f", b"")
            os.chmod("own/f", 0o400)
            fails(errno.EACCES, open, "own/f", "r+b")
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def prepare_permissions():
    os.mkdir("own")
    os.chown("own", 1000, 1000)
    os.mkdir("not-own", 0o755)


@test
def special_write_while_read_only():
    descriptor = os.open("read-only", os.O_CREAT | os.O_RDWR, 0o444)
    os.write(descriptor, b"the one who made it may write")
    os.close(descriptor)
    assert get("read-only") == b"the one who made it may write"


@test
def general_programs():
    script = f"""set -e
mkdir build; cd build
for n in $(seq {max(42, 60 // SHARE)}); do echo "text $n" > f$n; done
tar cf ../all.tar .; mkdir ../again; tar xf ../all.tar -C ../again; cd ..
diff -r build again
find again -name 'f1*' | sort | xargs cat | md5sum > sum; [ -s sum ]
grep -r 'text 42' again | grep -q f42
cp -a again third; mv third fourth; rm -r build again fourth all.tar"""
    subprocess.run(["bash", "-c", script], check=True)


@test
def general_appends():
    children = []
    for child in range(4):
        children.append(os.fork())
        if children[-1] == 0:
            for number in range(50 // SHARE):
                with open("appended", "ab") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    file.write(f"{child} {number:03}\n".encode())
                    file.flush()
                    fcntl.flock(file, fcntl.LOCK_UN)
            os._exit(0)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    lines = get("appended").split(b"\n")
    count = 4 * (50 // SHARE) + 1
    assert len(lines) == count and len(set(lines)) == count


def child(work):
    """Runs it in a process of its own; its number."""
    number = os.fork()
    if number == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return number


def ended(number):
    assert os.waitpid(number, 0)[1] == 0


def refused(path, start, count):
    """Whether another process is refused these bytes."""

    def work():
        descriptor = os.open(path, os.O_RDWR)
        fails(errno.EAGAIN, fcntl.lockf, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, start)

    ended(child(work))


@test
def lock_parts():
    descriptor = os.open("locked", os.O_CREAT | os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 10, 0)
    refused("locked", 5, 1)
    refused("locked", 9, 100)

    def beside():
        other = os.open("locked", os.O_RDWR)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
        fcntl.lockf(other, fcntl.LOCK_UN, 10, 10)

    ended(child(beside))
    fcntl.lockf(descriptor, fcntl.LOCK_SH, 10, 0)

    def shares():
        other = os.open("locked", os.O_RDWR)
        fcntl.lockf(other, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 0)

    ended(child(shares))
    os.close(descriptor)

    def all_of_it():
        fcntl.flock(os.open("locked", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)

    ended(child(all_of_it))


@test
def lock_waits():
    descriptor = os.open("waited", os.O_CREAT | os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    reader, writer = os.pipe()

    def waits():
        other = os.open("waited", os.O_RDWR)
        os.write(writer, b"w")
        fcntl.lockf(other, fcntl.LOCK_EX)
        assert os.pread(other, 4, 0) == b"done"

    waiter = child(waits)
    os.read(reader, 1)
    time.sleep(1)
    os.pwrite(descriptor, b"done", 0)
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    ended(waiter)


@test
def lock_given_up():
    """A process that waits is killed: what it waited for is another's to have."""
    descriptor = os.open("given-up", os.O_CREAT | os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    waiter = child(lambda: fcntl.lockf(os.open("given-up", os.O_RDWR), fcntl.LOCK_EX))
    time.sleep(1)
    os.kill(waiter, 9)
    os.waitpid(waiter, 0)
    os.close(descriptor)
    ended(child(lambda: fcntl.lockf(os.open("given-up", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)))


@test
def fsx():
    """Random reads, writes, maps and truncations of one file, beside a model of it in memory."""
    chance, size_max, model = random.Random(SEED), 400_000, bytearray()
    descriptor = os.open("fsx", os.O_CREAT | os.O_RDWR)
    for step in range(1500 // SHARE):
        at, count = chance.randrange(size_max), chance.randrange(1, 60_000)
        what = chance.choice("rrrwwwwmMtcs")
        if what == "r":
            assert os.pread(descriptor, count, at) == bytes(model[at : at + count]), f"read {step}"
        elif what == "w":
            data = chance.randbytes(count)
            os.pwrite(descriptor, data, at)
            model.extend(bytes(max(0, at + count - len(model))))
            model[at : at + count] = data
        elif what in "mM" and len(model) > 0:
            at %= len(model)
            count = min(count, len(model) - at)
            with mmap.mmap(descriptor, len(model)) as area:
                if what == "m":
                    assert area[at : at + count] == bytes(model[at : at + count]), f"map {step}"
                else:
                    area[at : at + count] = model[at : at + count] = chance.randbytes(count)
        elif what == "t":
            os.ftruncate(descriptor, at)
            model = model[:at] + bytearray(max(0, at - len(model)))
        elif what == "c":
            os.close(descriptor)
            descriptor = os.open("fsx", os.O_RDWR)
            assert os.fstat(descriptor).st_size == len(model), f"size {step}"
        elif what == "s":
            os.fsync(descriptor)
    os.close(descriptor)
    assert get("fsx") == bytes(model)


@test
def restarts():
    """Files are written and read for some seconds, while the server may be killed and started."""
    held = os.open("held", os.O_CREAT | os.O_RDWR)
    fcntl.lockf(held, fcntl.LOCK_EX, 100, 0)
    print("GUEST under load", flush=True)
    end, number = time.monotonic() + 12, 0
    while time.monotonic() < end:
        data = pattern(50_000, number)
        put(f"load-{number % 20}", data)
        assert get(f"load-{number % 20}") == data
        os.rename(f"load-{number % 20}", "load-renamed")
        os.rename("load-renamed", f"load-{number % 20}")
        number += 1
    with open("load-synced", "wb") as file:
        file.write(pattern(100_000, number))
        os.fsync(file.fileno())
    assert get("load-synced") == pattern(100_000, number) and number > 3
    refused("held", 50, 1)
    print("GUEST holds a lock", flush=True)
    end = time.monotonic() + 60
    while "go-on" not in os.listdir(".") and time.monotonic() < end:
        time.sleep(0.2)
    fcntl.lockf(held, fcntl.LOCK_UN)

    def takes():
        fcntl.lockf(os.open("held", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 50)

    ended(child(takes))


def main():
    os.chdir(ROOT)
    os.umask(0)
    os.mkdir("suite")
    os.chdir("suite")
    prepare_permissions()
    failed = 0
    for function in TESTS:
        start = time.monotonic()
        try:
            function()
            print(f"ok {function.__name__} {time.monotonic() - start:.1f} s", flush=True)
        except BaseException as error:
            failed += 1
            print(f"FAILED {function.__name__}: {error!r}", flush=True)
    sys.exit(min(failed, 99))


main()
