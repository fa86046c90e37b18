# SPDX-License-Identifier: MIT
"""Programs that are started with standard input, output or error closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mooactor.process import files
from tests.marks import slow
from tests.process import programs

TALK = """
    import os, sys
    answers = open(sys.argv[1], "w")  # has the number of a closed one
    before = os.readlink(f"/proc/self/fd/{answers.fileno()}")
    import mooactor as moo

    @moo.actor
    class Talker:
        def talk(self, word):
            print(word, flush=True)
            print(word, file=sys.stderr, flush=True)
            return len(sys.stdin.read()), word

    def closed():
        return [fd for fd in (0, 1, 2) if not os.path.exists(f"/proc/self/fd/{fd}")]

    had = closed()
    moo.init()
    same = closed() == had
    talkers = moo.on(Talker).group(2)
    for word in ("one", "two", "three"):
        talkers.call(Talker.talk, word).get(timeout=20)
    moo.shutdown()
    assert os.readlink(f"/proc/self/fd/{answers.fileno()}") == before
    print("done", same, file=answers, flush=True)
"""
CLOSINGS = [slow("2>&-"), slow("<&- >&-"), "<&- >&- 2>&-"]


def run_with(closing: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=40,
    )


@pytest.mark.parametrize("closing", CLOSINGS)
def test_actors_print_though_a_stream_of_the_program_is_closed(
    closing: str, tmp_path: Path
) -> None:
    script, answers = programs.write(tmp_path / "talk.py", TALK), tmp_path / "answers"
    done = run_with(closing, str(script), str(answers))
    assert done.returncode == 0, done.stderr
    assert answers.read_text() == "done True\n"
    for stream, text in ((">&-", done.stdout), ("2>&-", done.stderr)):
        told = 0 if stream in closing.split() else 2
        assert [text.count(word) for word in ("one", "two", "three")] == [told] * 3


def test_none_is_opened_that_is_not_closed() -> None:
    before = [os.fstat(fd) for fd in (0, 1, 2)]
    streams = sys.stdin, sys.stdout, sys.stderr
    files.open_standard_streams()
    with files.standard_streams_held():
        pass
    assert [os.fstat(fd) for fd in (0, 1, 2)] == before
    assert (sys.stdin, sys.stdout, sys.stderr) == streams
