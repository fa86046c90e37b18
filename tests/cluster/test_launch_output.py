# SPDX-License-Identifier: MIT
"""The output of a program on another host is the launcher's."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from pathlib import Path

import pytest

from tests.cluster.conftest import Launch

pytestmark = pytest.mark.slow

SIZE = 1 << 20
# It goes on for as long as somebody reads.
ENDLESS = """
import os, signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.write(1, b"up\\n")
while True:
    os.write(1, b"x" * 4095 + b"\\n")
"""
LARGE = """
import os, random, sys
data = random.Random(3).randbytes(1 << 20)
for _ in range(100):
    sys.stdout.buffer.write(data)
sys.stdout.flush()
os._exit(3)
"""


def test_a_program_ends_when_nobody_reads_any_more(launch: Launch) -> None:
    reader, writer = os.pipe()
    run = launch("--hosts", "b", script=ENDLESS, stdout=writer)
    os.close(writer)
    assert os.read(reader, 3) == b"up\n"
    os.close(reader)
    assert run.end() == 128 + signal.SIGPIPE, run.err


def test_much_output_comes_whole_to_a_file_and_to_a_reader_that_holds_it_up(
    launch: Launch, tmp_path: Path
) -> None:
    expected = hashlib.sha256(random.Random(3).randbytes(SIZE) * 100).digest()
    run = launch("--hosts", "b", script=LARGE)
    assert run.end() == 3, run.err
    assert hashlib.sha256((tmp_path / "stdout").read_bytes()).digest() == expected

    reader, writer = os.pipe()
    run = launch("--hosts", "b", script=LARGE, stdout=writer)
    os.close(writer)
    found = hashlib.sha256()
    while piece := os.read(reader, 1 << 13):
        found.update(piece)
    os.close(reader)
    assert run.end() == 3, run.err
    assert found.digest() == expected
