# SPDX-License-Identifier: MIT
"""The pages that the start of an actor writes to.

A fork shares its pages with the zygote until one of both writes to one: then the kernel
copies it. An actor's start writes to some 1,500 of them, most often a count of
references, and that is more than half of its time. They are much the same for each
start. So `written_by` finds them in a process that has started, and `copy` has the
kernel copy them ahead, in one that waits to become an actor.

Invariant: whatever the list says, nothing but the time of copying depends on it.
"""

from __future__ import annotations

import array
import ctypes
import itertools
import os
from collections.abc import Callable, Iterable, Iterator

from mooactor.process.system import libc

Run = tuple[int, int]  # an address, and a number of bytes

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_BYTES = 16 << 20  # of all runs: a constructor may write to anything
_MOST_LOOKED_AT = 1 << 20  # pages
_AT_ONCE = 64 * _PAGE  # which takes less than a millisecond
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
_ENTRY = "Q"
# Of an entry of /proc/PID/pagemap: in memory, of a file, mapped by no other process.
_PRESENT, _OF_A_FILE, _EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56
_LOOKED_AT = _PRESENT | _OF_A_FILE | _EXCLUSIVE
_OWN = _PRESENT | _EXCLUSIVE


def written_by(pid: int) -> list[Run]:
    """The pages that a fork of this process has to itself by now, of the memory that
    both have; none if the system does not tell, or it has ended."""
    left = _MOST_LOOKED_AT
    found: list[Run] = []
    try:
        with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
            for start, size in _writable():
                if (left := left - size // _PAGE) > 0:
                    at = start // _PAGE * array.array(_ENTRY).itemsize
                    found += _own(start, _entries(pagemap.fileno(), at, size // _PAGE))
    except OSError:
        return []
    return _first(found, _MOST_BYTES)


def _writable() -> Iterator[Run]:
    """The private memory of this process that it may write to."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions, *_ = line.split()
            if permissions.startswith("rw") and permissions.endswith("p"):
                start, end = (int(number, 16) for number in span.split("-"))
                yield start, end - start


def _entries(fd: int, at: int, count: int) -> array.array[int]:
    entries = array.array(_ENTRY)
    data = os.pread(fd, count * entries.itemsize, at)
    entries.frombytes(data[: len(data) // entries.itemsize * entries.itemsize])
    return entries


def _own(start: int, entries: Iterable[int]) -> Iterator[Run]:
    address = start
    kinds = (entry & _LOOKED_AT == _OWN for entry in entries)
    for own, run in itertools.groupby(kinds):
        size = sum(_PAGE for _ in run)
        if own:
            yield address, size
        address += size


def _first(runs: Iterable[Run], most: int) -> list[Run]:
    """So many bytes of them."""
    ends = itertools.accumulate(size for _, size in runs)
    return [run for run, end in zip(runs, ends) if end <= most]


def copy(runs: Iterable[Run], until: Callable[[], object]) -> None:
    """Have these pages copied now, as far as this process has them, until `until`."""
    madvise = libc().madvise
    for start, size in _slices(runs):
        if until():
            return
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _POPULATE_WRITE)


def _slices(runs: Iterable[Run]) -> Iterator[Run]:
    for start, size in runs:
        for offset in range(0, size, _AT_ONCE):
            yield start + offset, min(_AT_ONCE, size - offset)
