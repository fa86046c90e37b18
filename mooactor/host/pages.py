# SPDX-License-Identifier: MIT
"""The pages that the start of an actor writes to.

A fork shares its pages with the zygote until one of both writes to one: then the kernel
copies it. An actor's start writes to some 1,500 of them, most often a count of
references, and that is more than half of its time. They are much the same for each
start. So `written_by` finds them in a process that has started, and `copy` has the
kernel copy them ahead, in one that waits to become an actor.

Invariant: whatever the list says, nothing but the time of copying depends on it. So it
has memory of the process alone: of a file that is mapped privately, pages that are not
copied follow what others write to it.

`Starts` are those under way, as the zygote sees them. A process that becomes an actor
has the end of a pipe, into which it writes its pid. It closes it when nothing is left
of its start but the user's code, which may take any time and may do anything to
descriptors; so does its death.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import re
import select
import struct
import time
from collections.abc import Callable, Iterable, Iterator

from mooactor.host import pages
from mooactor.process.system import libc

Run = tuple[int, int]  # an address, and a number of bytes

_PAGE = mmap.PAGESIZE
_MOST_BYTES = 16 << 20  # of all runs
_MOST_LOOKED_AT = 1 << 18  # pages: a look takes some milliseconds
_AT_ONCE = 64 * _PAGE  # which takes less than a millisecond
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
# Of each page /proc/PID/pagemap has eight bytes. The highest has these flags.
_ENTRY, _HIGHEST = 8, 7
_PRESENT, _OF_A_FILE, _EXCLUSIVE = 1 << 7, 1 << 5, 1 << 0
_WANTED = bytes(
    flags
    for flags in range(256)
    if flags & (_PRESENT | _OF_A_FILE | _EXCLUSIVE) == _PRESENT | _EXCLUSIVE
)
_OWN = re.compile(b"[" + re.escape(_WANTED) + b"]+")


def written_by(pid: int) -> list[Run]:
    """The pages that a fork of this process has to itself by now, of the memory that
    both have; none if the system does not tell, or it has ended."""
    found: list[Run] = []
    try:
        with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
            for start, size in _first(_writable(), _MOST_LOOKED_AT * _PAGE):
                found += _own(pagemap.fileno(), start, size // _PAGE)
    except (OSError, EOFError):
        return []
    return _first(found, _MOST_BYTES)


def _writable() -> list[Run]:
    """The memory that this process may write to, and has of no file; the largest ones
    last, which are data."""
    found: list[Run] = []
    with open("/proc/self/maps", "rb") as maps:  # names of files are any bytes
        for line in maps:
            span, permissions, _, _, inode, *_ = line.split()
            if permissions == b"rw-p" and inode == b"0":
                start, end = (int(number, 16) for number in span.split(b"-"))
                found.append((start, end - start))
    return sorted(found, key=lambda run: run[1])


def _own(fd: int, start: int, count: int) -> Iterator[Run]:
    """Of so many pages, those that no other process has. Raises EOFError: the process
    has ended."""
    data = os.pread(fd, count * _ENTRY, start // _PAGE * _ENTRY)
    if len(data) < count * _ENTRY:
        raise EOFError
    for run in _OWN.finditer(data[_HIGHEST::_ENTRY]):
        yield start + run.start() * _PAGE, len(run[0]) * _PAGE


def _first(runs: Iterable[Run], most: int) -> list[Run]:
    """At most so many bytes of them."""
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


_LONGEST_S = 0.1
_PID = struct.Struct("=i")


def note_pid(writer: int) -> None:
    """Of a new process: say who it is. It has the other end, too, as a fork of the
    zygote: the death of that does not make this fail."""
    os.write(writer, _PID.pack(os.getpid()))


class Starts:
    """``pages``: those that a start writes to, once that is known."""

    def __init__(self, poller: select.poll) -> None:
        """`poller` is told of the pipes; hand what it finds to `look`."""
        self._poller = poller
        self._given_up: dict[int, float] = {}  # by pipe: when it is waited for no more
        self._learns = True
        self.pages: list[pages.Run] = []

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._given_up)

    def add(self, reader: int) -> None:
        """The processes at the other end of this pipe have begun to start."""
        os.set_blocking(reader, False)
        self._poller.register(reader, 0)  # no event but its end
        self._given_up[reader] = time.monotonic() + _LONGEST_S

    def left_ms(self) -> float | None:
        """When to `look` at the latest; None: whenever."""
        if not self._given_up:
            return None
        return max(0.0, min(self._given_up.values()) - time.monotonic()) * 1000

    def look(self, ended: set[int]) -> None:
        """See which are over: of these pipes the end has come, or they take long, as
        when their process was stopped."""
        now = time.monotonic()
        for reader, until in list(self._given_up.items()):
            if reader in ended or now >= until:
                self._over(reader)

    def learn_again(self) -> None:
        """More is imported, so starts may write to more."""
        self._learns = True

    def _over(self, reader: int) -> None:
        del self._given_up[reader]
        self._poller.unregister(reader)
        try:
            written = os.read(reader, _PID.size)
        except BlockingIOError:
            written = b""
        finally:
            os.close(reader)
        if self._learns and len(written) == _PID.size:
            found = pages.written_by(*_PID.unpack(written))
            self._learns = not found
            self.pages = found or self.pages
