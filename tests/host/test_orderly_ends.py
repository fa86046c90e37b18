# SPDX-License-Identifier: MIT
"""An orderly end loses nothing of an actor's; signals of a job are the program's."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.process import programs

pytestmark = pytest.mark.usefixtures("no_session")

ENDS = """
    import atexit, os, sys, tempfile, threading, zipfile
    import mooactor as moo
    folder = sys.argv[1]

    @moo.actor
    class Writer:
        def __init__(self, name):
            self.name = name
            self.text = open(f"{folder}/{name}.txt", "w")
            self.zip = zipfile.ZipFile(f"{folder}/{name}.zip", "w")
            self.temporary = tempfile.TemporaryDirectory(dir=folder)
            atexit.register(self.note, "atexit")
            self.later = threading.Thread(target=self.wait)
            self.told = threading.Event()
            self.later.start()
        def wait(self):
            self.told.wait()
            self.note("thread")
        def note(self, what):
            open(f"{folder}/{self.name}.{what}", "w").close()
        def write(self):
            for number in range(100):
                print(number, file=self.text)
            self.zip.writestr("row", b"1")
        def on_stop(self):
            self.told.set()

    if __name__ == "__main__":
        with moo.init():
            stopped, ended = moo.spawn(Writer, "stopped"), moo.spawn(Writer, "ended")
            stopped.write(), ended.write()
            moo.stop(stopped)
        kinds = ("txt", "zip", "atexit", "thread")
        expected = [f"{name}.{kind}" for name in ("stopped", "ended") for kind in kinds]
        assert sorted(os.listdir(folder)) == sorted(expected), os.listdir(folder)
        for name in ("stopped", "ended"):
            assert len(open(f"{folder}/{name}.txt").read().split()) == 100
            assert zipfile.ZipFile(f"{folder}/{name}.zip").read("row") == b"1"
"""


def run(tmp_path: Path, text: str, *args: str) -> str:
    """The script's stderr; the script asserts."""
    done = programs.run(programs.write(tmp_path / "script.py", text), *args)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_files_threads_and_exit_handlers_have_their_end(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    run(tmp_path, ENDS, str(tmp_path / "out"))


def test_what_takes_longer_than_the_grace_is_named(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import threading
        import mooactor as moo
        @moo.actor
        class Stays:
            def begin(self):
                stays = threading.Event()
                threading.Thread(target=stays.wait, name="writer").start()
        if __name__ == "__main__":
            moo.init()
            moo.spawn(Stays).begin()
            moo.shutdown(grace=0.3)
        """,
    )
    assert "Stays did not end within 0.3 s: its thread 'writer'" in said


JOB = """
    import os, signal, sys
    import mooactor as moo

    @moo.actor
    class Learner:
        def state(self): return 42

    def save(*_):
        print("saved", moo.get([h.state.remote() for h in group]), flush=True)
        sys.exit(3)

    if __name__ == "__main__":
        signal.signal(signal.SIGTERM, save)
        moo.init()
        group = moo.on(Learner).group(2)
        group.call(Learner.state).get()
        os.write(1, b"ready\\n")  # `print` could not be interrupted by another one
        while True:
            signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_of_a_job_leaves_the_program_its_actors(
    number: signal.Signals, tmp_path: Path
) -> None:
    text = JOB.replace("signal.SIGTERM", f"signal.{number.name}")
    job = programs.start(programs.write(tmp_path / "job.py", text))
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    family = programs.family(job.pid)
    assert len(family) >= 5  # the program, its agent, a zygote, and the actors
    for process in reversed(family):
        with contextlib.suppress(ProcessLookupError):  # a spare one may end meanwhile
            os.kill(process.pid, number)
    out, said = job.communicate()
    assert (out, job.returncode) == ("saved [42, 42]\n", 3), said


def test_what_an_actor_starts_has_the_usual_signals(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import multiprocessing, os, signal, subprocess
        import mooactor as moo
        def stay(): signal.pause()
        @moo.actor
        class A:
            def ends(self):
                found = []
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    child = subprocess.Popen(["sleep", "600"])
                    child.send_signal(number)
                    found.append(-child.wait() == number)
                child = multiprocessing.get_context("fork").Process(target=stay)
                child.start()
                child.terminate()
                child.join()
                return found, -child.exitcode == signal.SIGTERM
            def mask(self):
                line = [x for x in open("/proc/self/status") if x.startswith("SigBlk")]
                return int(line[0].split()[1], 16)
        if __name__ == "__main__":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
            with moo.init():
                a = moo.spawn(A)
                assert a.ends() == ([True] * 3, True) and a.mask() == 0
        """,
    )


def test_actors_have_the_files_that_preloaded_modules_opened(tmp_path: Path) -> None:
    (tmp_path / "shards.py").write_text(
        "import os, threading\n"
        "FILES = [open(f'{os.getcwd()}/shard{i}', 'w') for i in range(24)]\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    said = run(
        tmp_path,
        """
        import numpy as np
        import mooactor as moo
        @moo.actor
        class Writer:
            def load(self, array): return array.size
            def write(self):
                import shards
                for file in shards.FILES:
                    print("row", file=file)
        if __name__ == "__main__":
            with moo.init(preload=["shards"]):
                writer = moo.spawn(Writer)
                assert writer.load(np.ones(200_000)) == 200_000
                writer.write()
        """,
    )
    assert [(tmp_path / f"shard{i}").read_text() for i in range(24)] == ["row\n"] * 24
    assert "preloading shards started 1 thread" in said


def test_an_error_that_nobody_asks_for_is_printed_once(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import mooactor as moo
        @moo.actor
        class A:
            def fail(self, n): raise ValueError(f"number {n}.")
            def items(self): yield 1; self.fail(3)
            def fine(self): pass
        if __name__ == "__main__":
            with moo.init(logs=False):
                a, group = moo.spawn(A), moo.on(A).group(2)
                ref = a.fail.remote(1)
                moo.wait([ref])
                del ref
                a.fail.remote(2)
                a.fine()
                for ask in (
                    lambda: a.fail(3), lambda: a.fail.remote(3).get(),
                    lambda: moo.get([a.fail.remote(3), a.fail.remote(3)]),
                    lambda: group.call(A.fail, 3).get(),
                    lambda: a.fail(a.fail.remote(3)),
                ):
                    try:
                        ask()
                    except (ValueError, TypeError):
                        pass
                assert a.fail.remote(3).exception() is not None
                for _ in a.items():
                    a.fine()
                    break
                a.fail.remote(3).cancel()
                a.fine()
        """,
    )
    assert said.count("mooactor: a call failed, and nobody asked for its result") == 2
    assert "number 1." in said and "number 2." in said and "number 3." not in said


def test_a_death_or_a_deadline_that_nobody_asks_for_is_printed_once(
    tmp_path: Path,
) -> None:
    said = run(
        tmp_path,
        """
        import os, signal, time
        import mooactor as moo
        @moo.actor
        class A:
            def die(self): os.kill(os.getpid(), signal.SIGKILL)
            def sleep(self): time.sleep(60)
            def fine(self): pass
        def begun(actor):
            ref = actor.sleep.remote()
            actor.fine.remote()
            return ref
        if __name__ == "__main__":
            with moo.init(logs=False):
                a, b, killed, stopped, last = [moo.spawn(A) for _ in range(5)]
                refs = [a.die.remote() for _ in range(100)]
                moo.wait(refs, num_returns=100)
                del refs
                a.fine.remote()  # it is known to be dead
                late = b.sleep.options(timeout=0.01).remote()
                moo.wait([late])
                del late
                try:
                    a.fine()
                except moo.ActorDied:
                    pass
                begun(killed), begun(stopped), begun(last)  # nothing is said of these
                moo.kill(killed)
                try:
                    moo.stop(stopped, timeout=0.01)
                except moo.CallTimeout:
                    pass
                moo.shutdown(grace=0.1)
        """,
    )
    assert said.count("mooactor: a call failed, and nobody asked for its result") == 2
    assert said.count("mooactor.errors.ActorDied: ") == 1 and "signal 9" in said
    assert said.count("CallTimeout: A.sleep did not end within its deadline") == 1


def test_the_last_lines_of_a_death_are_what_a_terminal_would_show(
    tmp_path: Path,
) -> None:
    run(
        tmp_path,
        """
        import os, sys
        import mooactor as moo
        @moo.actor
        class Bar:
            def die(self):
                print("first", file=sys.stderr)
                for number in range(1000):
                    print(f"step {number}", end="\\r", file=sys.stderr, flush=True)
                print("step 1000", file=sys.stderr, flush=True)
                os._exit(3)
        if __name__ == "__main__":
            with moo.init():
                try:
                    moo.spawn(Bar).die()
                except moo.ActorDied as error:
                    said = str(error).splitlines()
            assert [line.strip() for line in said[-2:]] == ["first", "step 1000"], said
        """,
    )
