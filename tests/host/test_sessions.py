# SPDX-License-Identifier: MIT
"""Where and how programs start sessions, and how sessions end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mooactor as moo
from mooactor.host import driver_joins
from mooactor.process.current import known_runtime
from tests.actors.counter import Counter
from tests.conftest import at_best, descriptors, eventually
from tests.process import programs
from tests.processes import Process

pytestmark = pytest.mark.usefixtures("no_session")

PLAIN = """
    import mooactor as moo

    @moo.actor
    class Greeter:
        def hello(self, name):
            return f"hello {name}"

    print(moo.spawn(Greeter).hello("script"))
"""


def test_a_script_without_a_main_guard_and_with_modules_of_its_own_works(
    tmp_path: Path,
) -> None:
    programs.write(tmp_path / "helper_module.py", "ANSWER = 42\n")
    script = """
        import mooactor as moo
        from helper_module import ANSWER

        class Uses:
            def answer(self):
                import helper_module
                return helper_module.ANSWER

        print(moo.spawn(Uses).answer())
    """
    done = programs.run(programs.write(tmp_path / "plain.py", script))
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    assert programs.sessions() == []


def test_a_start_that_fails_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = descriptors()

    def refused(*args: object, **kwargs: object) -> None:
        raise OSError(24, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refused)
        with pytest.raises(OSError, match="too many open files"):
            moo.init()
    assert descriptors() == before
    assert programs.sessions() == []
    with moo.init():
        assert moo.spawn(Counter).pid() != os.getpid()


def test_what_belongs_to_a_session_says_so_after_its_end() -> None:
    with moo.init():
        with pytest.raises(moo.MooError, match="shutdown"):
            moo.init()  # one at a time
        handle = moo.spawn(Counter)
        handle.echo(np.ones(1 << 20))
        kept, under_way = moo.put(np.ones(1 << 20)), handle.sleep.remote(60)
        moo.shutdown()
    with pytest.raises(moo.MooError):
        under_way.get(timeout=60)
    with pytest.raises(moo.ActorUnavailable, match="ended"):
        kept.get()
    with pytest.raises(moo.ActorUnavailable, match="no session"):
        handle.add()


def test_the_wait_for_a_broker_ends_with_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(driver_joins, "PATIENCE_S", 600.0)

    def kill() -> None:
        if eventually(known_runtime):
            os.kill(Process.agent_of(os.getpid()).pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(moo.MooError, match=r"127\.0\.0\.1:9: the host's agent is gone"):
        moo.init("tcp://127.0.0.1:9")
    killer.join()


@pytest.mark.quiet
def test_killing_the_driver_leaves_nothing_after_two_seconds(tmp_path: Path) -> None:
    script = """
        import signal, subprocess
        import mooactor as moo

        @moo.actor
        class Parent:
            def busy(self):
                subprocess.Popen(["sleep", "600"])
                print("grandchild", flush=True)
                while True:
                    pass
            def idle(self): ...

        parents = [moo.spawn(Parent) for _ in range(3)]
        for parent in parents:
            parent.idle()
        parents[0].busy.remote()
        moo.put(bytes(10_000_000))
        print("ready", flush=True)
        signal.pause()
    """
    path = programs.write(tmp_path / "driver.py", script)

    def seconds() -> float:
        process = programs.start(path)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        seen = {line.split()[-1] for line in lines if line.strip()}
        assert seen == {"ready", "grandchild"}, (lines, process.poll())
        everybody = programs.family(process.pid)
        assert len(everybody) >= 6
        process.send_signal(signal.SIGKILL)
        start = time.monotonic()
        assert eventually(lambda: programs.gone(everybody))
        assert eventually(lambda: programs.sessions() == [])
        took = time.monotonic() - start
        process.communicate()
        return took

    assert at_best(seconds, 2.0)


def _used_in_a_second(processes: list[Process]) -> float:
    before = sum(process.used_s() for process in processes)
    time.sleep(1.0)  # what is measured
    return sum(process.used_s() for process in processes) - before


@pytest.mark.quiet
def test_an_idle_session_uses_no_processor_time() -> None:
    with moo.init():
        counter = moo.spawn(Counter)
        counter.echo()
        everybody = Process.of(os.getpid()).descendants()
        # Spinning and ticking end by themselves, on a busy machine a little later.
        assert eventually(lambda: _used_in_a_second(everybody) < 0.05, 20)


def test_a_proc_of_another_pid_namespace_is_refused() -> None:
    """Pids that are read there are other processes here, which would be killed."""
    apart = ["unshare", "--pid", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("needs unshare, and the right to make a pid namespace")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*apart, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    said = "/proc is that of another pid namespace; mount it (`mount -t proc"
    for words in (
        ["-c", "import mooactor as moo; moo.init()"],
        ["-m", "mooactor", "host", "--join", "127.0.0.1"],
    ):
        done = run(sys.executable, *words)
        assert done.returncode != 0
        assert said in done.stderr.splitlines()[-1]
    done = run("--mount-proc", sys.executable, "-c", textwrap.dedent(PLAIN))
    assert (done.returncode, done.stdout) == (0, "hello script\n"), done.stderr
