# SPDX-License-Identifier: MIT
"""Where and how programs start sessions, and how sessions end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mooactor as moo
from mooactor.control import envelope
from mooactor.host import driver_joins
from mooactor.host.session import current_session
from mooactor.process.current import current_runtime, known_runtime
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


def test_a_script_without_a_main_guard_works(tmp_path: Path) -> None:
    done = programs.run(programs.write(tmp_path / "plain.py", PLAIN))
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello script\n", "")
    assert programs.sessions() == []


@pytest.mark.parametrize("what", ["socketpair", "Popen"])
def test_a_start_that_fails_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = descriptors()

    def refused(*args: object, **kwargs: object) -> None:
        raise OSError(24, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket if what == "socketpair" else subprocess, what, refused)
        with pytest.raises(OSError, match="too many open files"):
            moo.init()
    assert descriptors() == before
    assert programs.sessions() == []
    with moo.init():
        assert moo.spawn(Counter).pid() != os.getpid()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are not deferred")
def test_annotations_may_name_what_only_type_checkers_know(tmp_path: Path) -> None:
    keeper = """
        from typing import TYPE_CHECKING
        import mooactor as moo
        if TYPE_CHECKING:
            from elsewhere import Thing

        @moo.actor
        class Keeper:
            kept: Thing
            def __init__(self, first: Thing) -> None:
                self.kept = first
            def swap(self, other: Thing) -> Thing:
                self.kept, other = other, self.kept
                return other
    """
    script = """
        import mooactor as moo
        from keeper import Keeper
        print(moo.spawn(Keeper, 1).swap(2))
    """
    programs.write(tmp_path / "keeper.py", keeper)
    done = programs.run(programs.write(tmp_path / "main.py", script))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_interactive_interpreter_works(tmp_path: Path) -> None:
    lines = programs.textwrap.dedent(PLAIN).replace("\n\nprint", "\n\n\nprint")
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=lines + "\n",
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert "hello script" in done.stdout, done.stderr


def test_a_notebook_cell_works_and_shows_what_actors_print(tmp_path: Path) -> None:
    # A kernel runs cells with exec in __main__ and replaces sys.stdout.
    script = """
        import io, sys, time
        cell = '''
        import mooactor as moo
        @moo.actor
        class Prints:
            def say(self):
                print("from the actor")
                return "said"
        with moo.init():
            print(moo.spawn(Prints).say())
            deadline = time.monotonic() + 40
            while "from the actor" not in shown.getvalue():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        '''
        real, shown = sys.stdout, io.StringIO()
        sys.stdout = shown
        import textwrap
        exec(textwrap.dedent(cell))
        sys.stdout = real
        print(shown.getvalue())
    """
    done = programs.run(programs.write(tmp_path / "kernel.py", script))
    assert "said" in done.stdout, done.stderr
    assert "from the actor" in done.stdout


def test_a_session_can_start_in_a_thread() -> None:
    results: list[int] = []

    def work() -> None:
        with moo.init():
            results.append(moo.spawn(Counter, 1).add(1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert results == [2]


@pytest.mark.slow
def test_sessions_can_follow_each_other() -> None:
    for start in range(3):
        with moo.init():
            assert moo.spawn(Counter, start).add(1) == start + 1


def test_a_second_session_is_refused() -> None:
    with moo.init(), pytest.raises(moo.MooError, match="shutdown"):
        moo.init()


def test_a_handle_of_an_ended_session_says_so() -> None:
    with moo.init():
        handle = moo.spawn(Counter)
        handle.add()
    with pytest.raises(moo.ActorUnavailable, match="no session"):
        handle.add()


def test_a_stored_value_does_not_outlive_its_session() -> None:
    with moo.init():
        ref = moo.put(np.ones(1 << 20))
    with pytest.raises(moo.ActorUnavailable, match="ended"):
        ref.get()


def test_calls_under_way_at_the_end_fail_by_name() -> None:
    with moo.init():
        counter = moo.spawn(Counter)
        counter.echo()
        ref = counter.sleep.remote(60)
        moo.current  # the call is under way when the session ends
        moo.shutdown()
    with pytest.raises(moo.MooError):
        ref.get(timeout=60)


def test_of_a_call_that_was_sent_as_the_session_ended_nobody_knows_whether_it_ran() -> (
    None
):
    with moo.init():
        ref = moo.spawn(Counter).sleep.remote(60)
        # As one that comes when the end has told all others.
        current_runtime().caller._pending.pop(ref.call_id)
    with pytest.raises(moo.ActorUnavailable, match="its session has ended") as raised:
        ref.get(timeout=60)
    assert raised.value.delivered is None


def test_a_broker_that_does_not_answer_is_named_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(driver_joins, "PATIENCE_S", 0.5)
    with pytest.raises(moo.ActorUnavailable, match=r"127\.0\.0\.1:9.*mooactor broker"):
        moo.init("tcp://127.0.0.1:9")


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


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no address"):
        moo.init("tcp://some where")


def test_other_hosts_are_not_joined_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(moo.AuthError, match="mooactor keygen"):
        moo.init("tcp://10.0.0.1:4431")


def test_a_forked_child_is_refused_clearly() -> None:
    with moo.init():
        handle = moo.spawn(Counter)
        handle.add()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                handle.add()
            except moo.MooError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(write)
        said = os.read(read, 4096).decode()
        os.close(read)
        assert "forked" in said
        assert handle.add() == 2


def test_killing_the_driver_leaves_nothing_after_two_seconds(tmp_path: Path) -> None:
    script = """
        import subprocess, sys, time
        import mooactor as moo

        @moo.actor
        class Parent:
            def busy(self):
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
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
        time.sleep(60)
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


def test_killing_the_agent_ends_the_actors_too(tmp_path: Path) -> None:
    script = """
        import time
        import mooactor as moo

        @moo.actor
        class Busy:
            def idle(self): ...
            def spin(self):
                while True: pass

        with moo.init():
            actors = [moo.spawn(Busy) for _ in range(2)]
            for actor in actors: actor.idle()
            ref = actors[0].spin.remote()
            print("ready", flush=True)
            try:
                ref.get()
            except moo.MooError as error:
                print(type(error).__name__, flush=True)
    """
    process = programs.start(programs.write(tmp_path / "driver.py", script))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    agent, *actors = programs.family(process.pid)[1:]
    agent.kill()
    assert eventually(lambda: programs.gone([agent, *actors]))
    out, _ = process.communicate(timeout=20)
    assert "ActorUnavailable" in out
    # The next session removes the directory that nobody could remove.
    with moo.init():
        assert len(programs.sessions()) == 1
    assert programs.sessions() == []


@pytest.mark.slow
def test_no_session_takes_the_place_of_a_lost_one_by_itself(no_session: None) -> None:
    @moo.actor
    class Idle:
        def wait(self) -> None: ...

    def refusal() -> str:
        try:
            moo.spawn(Idle)
        except moo.MooError as error:
            return str(error)
        return "the end of the agent is no news yet"

    moo.init(seed=3)
    moo.spawn(Idle).wait()
    session = current_session()
    assert session is not None
    os.kill(session._agent.pid, signal.SIGKILL)
    why = "agent died; moo.init() starts another"
    # The same is said a little before the end is over, from when on moo.init() works.
    assert eventually(lambda: why in refusal() and session.runtime.closed, 20)
    with moo.init():
        moo.spawn(Idle).wait()
    moo.spawn(Idle).wait()  # the last one ended as it should


def test_ctrl_c_ends_everything_without_a_trace_from_the_actors(
    tmp_path: Path,
) -> None:
    script = """
        import time
        import mooactor as moo

        @moo.actor
        class Sleeper:
            def sleep(self, s): time.sleep(s)

        try:
            with moo.init():
                sleepers = [moo.spawn(Sleeper) for _ in range(2)]
                refs = [s.sleep.remote(60) for s in sleepers]
                print("ready", flush=True)
                moo.get(refs)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = programs.start(programs.write(tmp_path / "driver.py", script))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    everybody = programs.family(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert out == "interrupted\n"
    assert err == ""
    assert programs.gone(everybody)
    assert programs.sessions() == []


def test_import_brings_in_neither_torch_nor_gymnasium() -> None:
    code = (
        "import sys, mooactor; "
        "print([m for m in ('torch', 'gymnasium') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_actors_find_what_the_driver_can_import(tmp_path: Path) -> None:
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
    done = programs.run(programs.write(tmp_path / "main.py", script))
    assert done.stdout == "42\n", done.stderr


@pytest.mark.parametrize("name", ["/dev/shm"])
def test_nothing_appears_in_dev_shm(name: str) -> None:
    before = set(os.listdir(name))
    with moo.init():
        counter = moo.spawn(Counter)
        counter.echo(np.ones(1 << 20))
        assert set(os.listdir(name)) == before


def test_elsewhere_than_on_linux_it_says_what_is_needed(
    no_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(moo.MooError, match="on Linux only, not on darwin: it needs"):
        moo.init()
    assert Counter().add() == 1


def test_without_the_global_lock_it_says_how_to_have_it(
    no_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(moo.MooError, match="set PYTHON_GIL=1 in the environment"):
        moo.init()


def _used_in_a_second(processes: list[Process]) -> float:
    before = sum(process.used_s() for process in processes)
    time.sleep(1.0)
    return sum(process.used_s() for process in processes) - before


def test_an_idle_session_uses_no_processor_time() -> None:
    with moo.init():
        counter = moo.spawn(Counter)
        counter.echo()
        everybody = Process.of(os.getpid()).descendants()
        # Spinning and ticking end by themselves, on a busy machine a little later.
        assert eventually(lambda: _used_in_a_second(everybody) < 0.05, 20)


def test_what_is_sent_to_a_dead_process_opens_nothing(no_session: None) -> None:
    with moo.init():
        counter = moo.spawn(Counter)
        counter.add()
        link = counter._where()[1]
        moo.kill(counter)
        runtime = current_runtime()
        assert eventually(lambda: link.process_id not in runtime.messenger.known())
        before = descriptors()
        for _ in range(3):
            runtime.sender.post(link.process_id, envelope.CANCEL, 1)
        # ZeroMQ's own thread closes what was opened for them.
        assert eventually(lambda: not descriptors() - before)


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "import mooactor as moo; moo.init()"],
        ["-m", "mooactor", "host", "--join", "127.0.0.1"],
    ],
)
def test_a_proc_of_another_pid_namespace_is_refused(words: list[str]) -> None:
    """Pids that are read there are other processes here, which would be killed."""
    apart = ["unshare", "--pid", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("needs unshare, and the right to make a pid namespace")
    done = subprocess.run(
        [*apart, sys.executable, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    said = "/proc is that of another pid namespace; mount it (`mount -t proc"
    assert said in done.stderr.splitlines()[-1]
    mounted = [*apart, "--mount-proc", sys.executable, "-c", textwrap.dedent(PLAIN)]
    done = subprocess.run(mounted, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "hello script\n"), done.stderr
