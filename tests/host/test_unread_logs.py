# SPDX-License-Identifier: MIT
"""A driver that does not read what its actors print loses lines, and nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.process import programs
from tests.processes import stop

pytestmark = pytest.mark.usefixtures("no_session")

SCRIPT = """
    import io, os, sys, time
    import mooactor as moo

    @moo.actor
    class Talks:
        def talk(self, path):
            open(path + "-begun", "w").close()
            while not os.path.exists(path + "-stopped"):
                time.sleep(0.01)
            for _ in range(2000):
                print("x" * 60_000)
            open(path, "w").close()
        def ping(self):
            return "pong"

    real, sys.stdout = sys.stdout, io.StringIO()  # as a notebook does
    with moo.init():
        talks = moo.spawn(Talks)
        talks.ping()
        talks.talk.tell({path!r})
        print("ready", file=real, flush=True)
        sys.stdin.readline()
        print(talks.ping(), file=real, flush=True)
"""


def test_a_stopped_driver_that_shows_logs_itself_keeps_its_session(
    tmp_path: Path,
) -> None:
    done = tmp_path / "done"
    script = programs.write(tmp_path / "main.py", SCRIPT.format(path=str(done)))
    process = programs.start(script)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert eventually((tmp_path / "done-begun").exists, 20.0)
        stop(process.pid)
        (tmp_path / "done-stopped").touch()
        assert eventually(done.exists, 40.0)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate("go on\n", timeout=40)
        assert out == "pong\n", err
        assert "lines of actors are lost" in err
    finally:
        process.kill()
        process.communicate()
