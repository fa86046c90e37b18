# SPDX-License-Identifier: MIT
"""A session that ends while threads wait in it, or after which somebody still asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.process import programs

HEAD = """
    import signal, threading, time
    import mooactor as moo

    class Sleeper:
        def sleep(self, seconds: float) -> float:
            time.sleep(seconds)
            return seconds
"""


@pytest.mark.slow
def test_a_signal_handler_may_end_the_session_that_the_program_waits_in(
    tmp_path: Path,
) -> None:
    program = programs.write(
        tmp_path / "program.py",
        HEAD
        + """
    if __name__ == "__main__":
        moo.init()
        handle = moo.spawn(Sleeper)
        handle.sleep(0)
        signal.signal(signal.SIGALRM, lambda *_: moo.shutdown())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            handle.sleep(60)
        except moo.MooError as error:
            print("ended:", error)
    """,
    )
    done = programs.run(program)
    assert done.returncode == 0, done.stderr
    assert "ended" in done.stdout


@pytest.mark.slow
def test_threads_that_wait_are_released_by_the_end(tmp_path: Path) -> None:
    program = programs.write(
        tmp_path / "program.py",
        HEAD
        + """
    if __name__ == "__main__":
        moo.init()
        handles = [moo.spawn(Sleeper) for _ in range(3)]
        for handle in handles:
            handle.sleep(0)
        ends = []

        def wait(handle):
            try:
                handle.sleep(60)
            except moo.MooError as error:
                ends.append(type(error).__name__)

        threads = [threading.Thread(target=wait, args=(h,)) for h in handles]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        moo.shutdown()
        for thread in threads:
            thread.join(10)
        print(len(ends), [t.is_alive() for t in threads])
    """,
    )
    done = programs.run(program)
    assert done.stdout.strip() == "3 [False, False, False]", done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("no_session")
def test_a_ref_of_an_ended_session_touches_no_descriptor(tmp_path: Path) -> None:
    with moo.init():
        handle = moo.spawn(Counter)
        done, pending = handle.add.remote(), handle.sleep.remote(60)
        done.get()
    files = [open(tmp_path / f"{n}", "wb+", buffering=0) for n in range(64)]
    try:
        called: list[object] = []
        for ref in (done, pending):
            ref.add_done_callback(called.append)
            ref.done()
            ref.cancel()
        del handle, ref, done, pending
        assert all(os.fstat(file.fileno()).st_size == 0 for file in files)
        assert len(called) == 2
    finally:
        for file in files:
            file.close()
