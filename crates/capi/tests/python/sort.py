"""Sorts an array in a region that has a third of it in memory, and compares it with the same sort in plain memory.

sort.py LIBRARY FILE: libtrapeze.so, and where the region's other pages are to be.
"""

import ctypes
import sys

import numpy

NOT_HERE = 77
NUMBERS = 3 << 20
PAGE = 4096


class Options(ctypes.Structure):
    """tpz_region_options_t"""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("page_bytes", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("frames", ctypes.c_uint64),
        ("file", ctypes.c_char_p),
        ("holders", ctypes.POINTER(ctypes.c_char_p)),
        ("holders_count", ctypes.c_uint32),
        ("copies", ctypes.c_uint32),
        ("handlers", ctypes.c_uint32),
        ("contexts", ctypes.c_uint32),
        ("patience_ms", ctypes.c_uint32),
        ("wait", ctypes.c_uint32),
        ("key", ctypes.c_char_p),
        ("cluster", ctypes.c_char_p),
        ("flags", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16 * 3),
    ]


class Counters(ctypes.Structure):
    """tpz_region_counters_t"""

    _fields_ = [(name, ctypes.c_uint64) for name in "faults fetched stored evicted damaged lost".split()]


def main():
    tpz = ctypes.CDLL(sys.argv[1])
    tpz.tpz_last_error.restype = ctypes.c_char_p
    tpz.tpz_region_data.restype = ctypes.c_void_p
    size = NUMBERS * 8
    options = Options(size=ctypes.sizeof(Options), bytes=size, frames=size // 3 // PAGE, file=sys.argv[2].encode())
    region = ctypes.c_void_p()
    code = tpz.tpz_region_map(ctypes.byref(options), ctypes.byref(region))
    if code in (13, 38):
        print(tpz.tpz_last_error().decode())
        sys.exit(NOT_HERE)
    assert code == 0, tpz.tpz_last_error().decode()

    memory = (ctypes.c_uint8 * size).from_address(tpz.tpz_region_data(region))
    numbers = numpy.frombuffer(memory, dtype=numpy.int64)
    numbers[:] = numpy.random.default_rng(1).integers(0, 1 << 62, NUMBERS)
    expected = numpy.sort(numpy.array(numbers))
    numbers.sort()
    assert numpy.array_equal(numbers, expected)

    counters = Counters()
    assert tpz.tpz_region_counters(region, ctypes.byref(counters)) == 0
    assert counters.fetched > 0 and counters.damaged == 0 and counters.lost == 0
    print(f"sorted {size >> 20} MiB in {size // 3 >> 20} MiB: {counters.faults} faults, {counters.fetched} pages fetched")
    assert tpz.tpz_region_unmap(region) == 0


main()
