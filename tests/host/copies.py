# SPDX-License-Identifier: MIT
"""Whether pages can be copied ahead here."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from mooactor.host import pages
from mooactor.process.system import libc


def require_copies_ahead() -> None:
    """Skip a test where the kernel does not tell whose a page is, or copies none."""
    size = ctypes.c_size_t(mmap.PAGESIZE)
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE) as page:
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        refused = libc().madvise(ctypes.c_void_p(address), size, pages._POPULATE_WRITE)
    if refused or not pages.written_by(os.getpid()):
        pytest.skip("no MADV_POPULATE_WRITE (Linux 5.14), or no /proc/PID/pagemap")
