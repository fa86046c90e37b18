# SPDX-License-Identifier: MIT
"""Which pages a start writes to is found out, and they are copied ahead."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys

import pytest

from mooactor.host import pages
from mooactor.process.system import libc

PAGE = mmap.PAGESIZE


def require_copies_ahead() -> None:
    """Skip a test where the kernel does not tell whose a page is, or copies none."""
    size = ctypes.c_size_t(PAGE)
    with mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE) as page:
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        refused = libc().madvise(ctypes.c_void_p(address), size, pages._POPULATE_WRITE)
    if refused or not pages.written_by(os.getpid()):
        pytest.skip("no MADV_POPULATE_WRITE (Linux 5.14), or no /proc/PID/pagemap")


PROGRAM = """
import ctypes, json, mmap, os, sys, tempfile
from mooactor.host import pages

pages._AT_ONCE = 16 * mmap.PAGESIZE
size = 64 * mmap.PAGESIZE
private, no_reserve = mmap.MAP_PRIVATE, 0x4000
region = mmap.mmap(-1, size, flags=private)
region.write(b"x" * size)
start = ctypes.addressof(ctypes.c_char.from_buffer(region))
# It does not keep the look from the others, whichever comes first.
large = mmap.mmap(-1, 4 * pages._MOST_LOOKED_AT * mmap.PAGESIZE, private | no_reserve)
file, name = tempfile.mkstemp(prefix=b"any \\xff bytes")
os.truncate(file, size)
of_a_file = mmap.mmap(file, size, private)
os.unlink(name)
start_of_file = ctypes.addressof(ctypes.c_char.from_buffer(of_a_file))
done, gone = os.pipe(), os.pipe()

def within(runs, start):
    return [
        (address - start + offset) // mmap.PAGESIZE
        for address, size in runs
        for offset in range(0, size, mmap.PAGESIZE)
        if start <= address + offset < start + len(region)
    ]

def of_a_fork(action):
    pid = os.fork()
    if pid == 0:
        os.close(gone[1])
        action()
        os.write(done[1], b"!")
        os.read(gone[0], 1)
        os._exit(0)
    os.read(done[0], 1)
    runs = pages.written_by(pid)
    found = within(runs, start)
    assert within(runs, start_of_file) == []
    os.write(gone[1], b"!")
    os.waitpid(pid, 0)
    return found

def write():
    for page in (3, 10, 11, 63):
        region[page * mmap.PAGESIZE] = of_a_file[page * mmap.PAGESIZE] = 0

runs = [(start + 5 * mmap.PAGESIZE, 2 * mmap.PAGESIZE), (1 << 12, mmap.PAGESIZE)]
runs.append((start + 20 * mmap.PAGESIZE, 33 * mmap.PAGESIZE))
print(json.dumps([
    of_a_fork(lambda: None),
    of_a_fork(write),
    of_a_fork(lambda: pages.copy(runs, until=lambda: False)),
    of_a_fork(lambda: pages.copy(runs, until=lambda: True)),
    region[:] == b"x" * size,
]))
"""


def test_those_that_a_fork_has_written_to_are_found_and_those_copied_ahead() -> None:
    """Of memory that it no longer shares. An address that is nobody's is none, and a
    page of a file, which shows what others write to that, until it is copied."""
    require_copies_ahead()
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    nothing, written, copied, stopped, unharmed = json.loads(done.stdout)
    assert nothing == [] and written == [3, 10, 11, 63]
    assert copied == [5, 6, *range(20, 53)] and stopped == [] and unharmed


def test_no_more_than_a_bound_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST_BYTES", 8 * PAGE)
    found = pages.written_by(os.getpid())  # all that this process has
    assert 0 < sum(size for _, size in found) <= 8 * PAGE
