# SPDX-License-Identifier: MIT
"""The output of actors reaches the driver, line by line, under their names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mooactor.host.output import LineReader
from tests.process import programs

pytestmark = pytest.mark.usefixtures("no_session")

SCRIPT = """
    import sys
    import mooactor as moo

    @moo.actor
    class Talks:
        def talk(self, n):
            for i in range(n):
                print("line", i)
            print("to stderr", file=sys.stderr)
            sys.stdout.write("no newline at the end")

    with moo.init(logs={logs}):
        talks = moo.spawn(Talks)
        talks.talk(2000)
        moo.stop(talks)
"""


def test_lines_arrive_whole_and_in_order_with_the_name_in_front(
    tmp_path: Path,
) -> None:
    script = programs.write(tmp_path / "talk.py", SCRIPT.format(logs=True))
    done = programs.run(script)
    lines = done.stdout.splitlines()
    assert all(line.startswith("(Talks pid=") for line in lines)
    texts = [line.partition(") ")[2] for line in lines]
    assert texts == [f"line {i}" for i in range(2000)] + ["no newline at the end"]
    assert done.stderr.partition(") ")[2] == "to stderr\n"


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    script = programs.write(tmp_path / "talk.py", SCRIPT.format(logs=True))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, script],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("mooactor:")]
    said = "standard output cannot be written (No space left on device)"
    assert ours == [f"mooactor: {said}: lines of actors are lost"]
    assert "to stderr" in done.stderr


@pytest.mark.slow
def test_output_can_be_turned_off(tmp_path: Path) -> None:
    script = programs.write(tmp_path / "talk.py", SCRIPT.format(logs=False))
    done = programs.run(script)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_last_lines_are_kept_with_a_bound_and_handed_on_whole() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    lines: list[bytes] = []
    reader = LineReader(read, lines.extend)
    bar = b"x" * 30_000 + b"end"
    for line in (b"short", bar):
        os.write(write, line + b"\n")
        assert reader.read()
    os.write(write, bar)
    os.close(write)
    reader.finish()
    assert lines == [b"short", bar, bar]
    short, *cut = reader.tail
    assert short == "short"
    assert cut == [f"…{bar[-2048:].decode()}"] * 2


def test_the_rest_of_a_pipe_is_what_is_in_it_and_no_more() -> None:
    read, write = os.pipe()
    found: list[list[bytes]] = []
    reader = LineReader(read, found.append)
    os.write(write, b"one\n\ntwo\nthe end")
    reader.finish()
    assert found == [[b"one", b"", b"two"], [b"the end"]]
    assert list(reader.tail) == ["one", "", "two", "the end"]
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(read)
    os.close(write)
