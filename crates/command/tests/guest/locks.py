#!/usr/bin/python3
"""locks.py FILE: an owner of locks on a file, which does what lines say.

count TURNS       adds 1 to each of two numbers in the file, of 8 bytes each, TURNS times, under a lock of its bytes
take START COUNT  waits for a lock of these bytes
try START COUNT   takes it if that is possible at once
free START COUNT  gives it back
read              prints the two numbers
end

Prints a line `GUEST WORD` when it is done: `counted`, `took`, `refused`, `freed`, the numbers."""

import errno
import fcntl
import os
import sys

FILE = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
LENGTH = 8


def number(which):
    return int.from_bytes(os.pread(FILE, LENGTH, which * LENGTH), "little")


def add(which):
    fcntl.lockf(FILE, fcntl.LOCK_EX, LENGTH, which * LENGTH)
    os.pwrite(FILE, (number(which) + 1).to_bytes(LENGTH, "little"), which * LENGTH)
    fcntl.lockf(FILE, fcntl.LOCK_UN, LENGTH, which * LENGTH)


def act(what, first=0, count=0):
    if what == "count":
        for turn in range(first):
            add(turn % 2)
            add((turn + 1) % 2)
        return "counted"
    if what == "take":
        fcntl.lockf(FILE, fcntl.LOCK_EX, count, first)
        return "took"
    if what == "try":
        try:
            fcntl.lockf(FILE, fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
        except OSError as error:
            assert error.errno in (errno.EAGAIN, errno.EACCES), error
            return "refused"
        return "took"
    if what == "free":
        fcntl.lockf(FILE, fcntl.LOCK_UN, count, first)
        return "freed"
    assert what == "read", what
    # without a lock the numbers may be those in this machine's cache
    fcntl.lockf(FILE, fcntl.LOCK_EX, 2 * LENGTH)
    numbers = f"numbers {number(0)} {number(1)}"
    fcntl.lockf(FILE, fcntl.LOCK_UN, 2 * LENGTH)
    return numbers


print("GUEST locks", flush=True)
for line in sys.stdin:
    what, *numbers = line.split()
    if what == "end":
        break
    print("GUEST", act(what, *map(int, numbers)), flush=True)
