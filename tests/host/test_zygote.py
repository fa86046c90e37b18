# SPDX-License-Identifier: MIT
"""The zygote: what it imports holds nobody up, and its death harms nobody."""

from __future__ import annotations

import inspect
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.process.interface import interface_of
from mooactor.tensors.limits import default_memory_limit
from tests.actors.counter import Counter
from tests.conftest import at_best, eventually, leaked, resources
from tests.host.copies import require_copies_ahead
from tests.process import programs
from tests.processes import Process, stop

psutil = pytest.importorskip("psutil")

SEED = int(os.environ.get("MOOACTOR_TEST_SEED", "8"))

pytestmark = pytest.mark.usefixtures("no_session")


@contextmanager
def session(**options: Any) -> Iterator[None]:
    """A session that is left as it was found."""
    before = resources()
    with moo.init(logs=False, **options):
        yield
    assert not leaked(before)


def agent_of(driver: int) -> Any:
    return psutil.Process(Process.agent_of(driver).pid)


def zygotes(pid: int | None = None) -> list[Any]:
    """The zygote of a driver's session, if there is one just now."""
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        return [psutil.Process(Process.agent_of(pid or os.getpid()).zygote().pid)]
    return []


def spares() -> list[Any]:
    """The process of this session that waits to become an actor, if there is one."""
    found = []
    for child in agent_of(os.getpid()).children():
        with suppress(psutil.NoSuchProcess):
            if child.name() == "moo-spare" and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def spare_process() -> Any:
    """The spare process of this session, as soon as there is one. There may be an older
    one for a moment, which ends."""
    found: list[Any] = []

    def is_alone() -> bool:
        found[:] = spares()
        return len(found) == 1

    assert eventually(is_alone)
    return found[0]


def actors_until_used(spare: Any, at_once: int = 1) -> list[int]:
    """The pids of new actors, the last ones with that spare process among them: its
    agent may hear of it a moment after this process has seen it."""
    pids: list[int] = []
    for _ in range(3):
        pids += moo.on(Counter).group(at_once).call(Counter.pid).get()
        if spare.pid in pids:
            return pids
    raise AssertionError(f"{spare} is not among {pids}")


def family() -> set[str]:
    """The names of this session's processes, zombies too, but for the agent's."""
    found = set()
    for process in agent_of(os.getpid()).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.add(process.name())
    return found


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory from which the session's processes import."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.slow
def test_actors_are_children_of_the_agent_and_die_with_it() -> None:
    with session():
        counters = moo.on(Counter).group(4)
        pids = counters.call(Counter.pid).get()
        agent = agent_of(os.getpid())
        assert {p.pid for p in agent.children()} >= set(pids)
        agent.kill()
        assert eventually(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_death_is_known_while_a_module_is_imported(modules: Path) -> None:
    gate = modules / "gate"
    program = f"""
        import os, time
        while not os.path.exists({str(gate)!r}):
            time.sleep(0.01)
    """
    programs.write(modules / "slow_one.py", program)
    with session():
        first = moo.spawn(Counter)
        pid, ref = first.pid(), first.sleep.remote(60)
        from mooactor.host.session import current_session

        running = current_session()
        assert running is not None
        running.preload.append("slow_one")
        second = moo.spawn(Counter)  # its zygote imports that first
        os.kill(pid, signal.SIGKILL)
        assert isinstance(ref.exception(timeout=60), moo.ActorDied)
        assert [info.pid for info in moo.actors()] == [None]
        moo.kill(second)  # before it has a process
        gate.touch()
        with pytest.raises(moo.ActorDied, match=r"moo\.kill"):
            second.pid()


def test_the_agent_imports_nothing_of_the_users(modules: Path) -> None:
    programs.write(
        modules / "of_the_user.py", "import numpy\nBIG = bytearray(50 << 20)"
    )
    with session(preload=["of_the_user"]):

        @moo.actor
        class Uses:
            def size(self) -> int:
                return len(sys.modules["of_the_user"].BIG)

        assert moo.spawn(Uses).size() == 50 << 20
        agent = agent_of(os.getpid())
        assert not any("numpy" in entry.path for entry in agent.memory_maps())
        assert agent.memory_info().rss < zygotes()[0].memory_info().rss - (40 << 20)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit(3)", "cannot preload bad_one: SystemExit: 3"),
        ("raise KeyboardInterrupt", "cannot preload bad_one: KeyboardInterrupt()"),
        ("raise BaseException('odd')", "cannot preload bad_one: BaseException: odd"),
        ("1 / 0", "cannot preload bad_one: ZeroDivisionError: division by zero"),
        ("import os; os._exit(4)", "exit code 4 while it imported bad_one"),
        ("import os; os.kill(os.getpid(), 11)", "signal 11 while it imported bad_one"),
    ],
)
def test_a_module_that_cannot_be_imported_is_reported_once(
    tmp_path: Path, body: str, said: str
) -> None:
    programs.write(tmp_path / "bad_one.py", body)
    script = """
        import mooactor as moo
        class Greets:
            def greet(self): return "hello"
        with moo.init(preload=["bad_one"]):
            print([moo.spawn(Greets).greet() for _ in range(3)])
    """
    done = programs.run(programs.write(tmp_path / "main.py", script))
    assert done.stdout == "['hello', 'hello', 'hello']\n", done.stderr
    assert done.stderr.count("bad_one") == done.stderr.count(said) == 1


def test_the_death_of_the_zygote_harms_no_actor_and_another_one_starts() -> None:
    with session():
        counter = moo.spawn(Counter)
        counter.add(5)
        for _ in range(3):
            (zygote,) = zygotes()
            zygote.kill()
            assert moo.spawn(Counter).add(2) == 2
            assert eventually(lambda z=zygote: zygotes() not in ([z], []))  # type: ignore[misc]
        assert counter.add(1) == 6


def test_a_spare_process_becomes_the_next_actor_and_is_replaced() -> None:
    with session():
        assert spares() == []  # who has no actor needs no second one
        pids = [moo.spawn(Counter).pid()]
        for _ in range(3):
            spare = spare_process()
            assert spare.pid not in pids
            pids += actors_until_used(spare, 2)
        assert len(set(pids)) == len(pids)


def test_a_spare_process_has_copied_what_its_start_will_write_to() -> None:
    require_copies_ahead()
    with session():
        counter = moo.spawn(Counter)
        actor = psutil.Process(counter.pid())
        most = actor.memory_full_info().uss / 2
        assert eventually(lambda: spare_process().memory_full_info().uss > most)


def test_a_constructor_that_takes_long_keeps_no_spare_process_away(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"

    @moo.actor
    class Waits:
        def __init__(self, gate: str) -> None:
            while not os.path.exists(gate):
                time.sleep(0.01)

        def pid(self) -> int:
            return os.getpid()

    with session():
        waiting = moo.spawn(Waits, str(gate)).pid.remote()
        spare = spare_process()
        assert spare.pid in actors_until_used(spare)
        assert not waiting.done()
        gate.touch()
        assert waiting.get() != spare.pid


def test_a_constructor_finds_no_pipe_but_its_own_output() -> None:
    """That by which the zygote knows of its start is closed before, not within it."""

    @moo.actor
    class Looks:
        def __init__(self) -> None:
            self._pipes = pipes()

        def pipes(self) -> set[int]:
            return self._pipes

    with session():
        for _ in range(2):  # forked when it was asked for, and before
            assert moo.spawn(Looks).pipes() == {1, 2}
            spare_process()


def pipes() -> set[int]:
    """The descriptors of this process that are ends of pipes."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that listed them
            if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                found.add(int(fd))
    return found


def test_what_is_imported_later_is_in_the_next_actor_too(modules: Path) -> None:
    programs.write(modules / "comes_late.py", "HERE = True")

    @moo.actor
    class Sees:
        def modules(self) -> set[str]:
            return set(sys.modules)

    with session():
        assert "comes_late" not in moo.spawn(Sees).modules()
        assert eventually(spares)
        from mooactor.host.session import current_session

        running = current_session()
        assert running is not None
        running.preload.append("comes_late")
        assert "comes_late" in moo.spawn(Sees).modules()


def test_a_spare_process_that_was_killed_costs_no_actor() -> None:
    with session():
        assert moo.spawn(Counter).add(1) == 1
        for _ in range(3):
            spare = spare_process()
            spare.kill()
            assert eventually(lambda s=spare: s not in spares())  # type: ignore[misc]
            assert moo.spawn(Counter).add(2) == 2


def test_a_spare_process_that_dies_just_before_it_is_asked_costs_no_actor() -> None:
    with session():
        assert moo.spawn(Counter).add(1) == 1
        agent, spare = agent_of(os.getpid()), spare_process()
        stop(agent.pid)
        counter = moo.spawn(Counter)
        spare.kill()
        assert eventually(lambda: spare.status() == psutil.STATUS_ZOMBIE)
        agent.send_signal(signal.SIGCONT)
        assert counter.add.options(timeout=15).remote(2).get() == 2


@pytest.mark.slow
def test_killing_one_that_becomes_an_actor_kills_that_or_nobody() -> None:
    rng = random.Random(SEED)
    with session():
        assert moo.spawn(Counter).add(1) == 1
        for _ in range(20):
            spare = spare_process()
            counter = moo.spawn(Counter)
            time.sleep(rng.random() * 0.004)
            spare.kill()
            error = counter.add.options(timeout=40).remote(2).exception(timeout=60)
            died = isinstance(error, moo.ActorDied) and error.cause
            assert error is None or (died and died.signal == signal.SIGKILL), f"{error}"


def test_a_spare_process_ends_with_its_zygote() -> None:
    with session():
        assert moo.spawn(Counter).add(1) == 1
        spare, (zygote,) = spare_process(), zygotes()
        zygote.kill()
        assert eventually(lambda: not spare.is_running())


def test_a_stopped_spare_process_ends_with_its_agent() -> None:
    with session():
        assert moo.spawn(Counter).add(1) == 1
        spare = spare_process()
        stop(spare.pid)
        agent_of(os.getpid()).kill()
        assert eventually(lambda: not spare.is_running())


def test_a_zygote_that_dies_just_before_it_is_asked_loses_no_actor() -> None:
    with session():
        moo.spawn(Counter).add(1)
        agent, (zygote,) = agent_of(os.getpid()), zygotes()
        # The agent finds the request first, and the death when it passes that on.
        stop(agent.pid)
        counter = moo.spawn(Counter)
        zygote.kill()
        assert eventually(lambda: zygote.status() == psutil.STATUS_ZOMBIE)
        agent.send_signal(signal.SIGCONT)
        assert counter.add.options(timeout=15).remote(2).get() == 2


def test_zygotes_killed_at_random_moments_lose_no_actor() -> None:
    rng = random.Random(SEED)
    with session():
        counters: list[Any] = []
        for _ in range(8):
            counters += moo.on(Counter).group(3, len(counters))
            time.sleep(rng.random() * 0.02)
            for zygote in zygotes():
                zygote.kill()
        got = [c.add.options(timeout=40).remote(1) for c in counters]
        assert moo.get(got) == [i // 3 * 3 + 1 for i in range(24)], f"seed {SEED}"


def test_actors_killed_at_random_moments_of_their_start_are_gone() -> None:
    rng = random.Random(SEED)
    with session():
        for _ in range(25):
            counter = moo.on(Counter, restart=moo.Restart(max=2)).spawn()
            time.sleep(rng.random() * 0.03)
            moo.kill(counter)
            with pytest.raises(moo.ActorDied, match=r"moo\.kill"):
                counter.add()
        assert moo.actors() == []
        # One that was killed before it had a pid is killed when it has one.
        assert eventually(
            lambda: family() <= {"moo-zygote", "moo-spare", "moo-janitor"}
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "victim",
    [
        "driver",
        "agent",
        "zygote and driver",
    ],
)
def test_kills_while_actors_start_leave_nothing(tmp_path: Path, victim: str) -> None:
    script = """
        import sys, time
        import mooactor as moo
        class Idles:
            def __init__(self): time.sleep(0.01)
            def idle(self): pass
        moo.init(logs=False)
        moo.spawn(Idles).idle()
        print("ready", flush=True)
        while True:
            moo.on(Idles).group(3)
            time.sleep(0.01)
    """
    rng = random.Random(SEED)
    path = programs.write(tmp_path / "driver.py", script)
    for _ in range(2):
        process = programs.start(path)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.random() * 0.15)
        agent = Process.of(agent_of(process.pid).pid)
        started = agent.family()
        if victim == "agent":
            # The driver would see its session end, and start a new one. It cannot reap
            # the agent either, of which a zombie is left.
            stop(process.pid)
            agent.kill()
        else:
            if victim != "driver":
                for zygote in zygotes(process.pid):
                    zygote.kill()
            process.kill()
        # Those that were born since the list was made have the same last words.
        assert eventually(lambda s=started: programs.gone(s))  # type: ignore[misc]
        assert eventually(lambda: not strays(path)), strays(path)
        process.kill()
        process.communicate()
    with session():  # which removes the directories that nobody could remove
        pass


REAPING = """
import os, signal
from mooactor.host.eventloop import EventLoop
from mooactor.host.reaper import Reaper

class Parent:
    zygote = None
    ends = 0
    def read_births(self):
        if self.zygote is not None:  # what its line's end would lead to: see Nursery
            os.waitid(os.P_PID, self.zygote, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    def dying(self, pid):
        return True
    def zygote_reaped(self, pid, status):
        if pid != self.zygote:
            return False
        self.zygote = None
        return True
    def reaped(self, pid, status, oom):
        self.ends += 1

def dead():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

parent, loop = Parent(), EventLoop()
reaper = Reaper(loop)
reaper.add(parent)
for place in range(4):
    pids = [dead() for _ in range(4)]
    parent.zygote, parent.ends = pids[place], 0
    reaper.reap()
    assert parent.zygote is None and parent.ends == 3
print("well")
"""


def test_nobody_keeps_the_pid_of_a_zygote_that_was_reaped() -> None:
    """Its line ends later if a child of its own has it, too; the agent must not wait
    for the pid then, or kill what has it now."""
    command = [sys.executable, "-c", REAPING]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


def strays(path: Path) -> list[Any]:
    """Living processes of sessions whose driver is this program."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(path.parent) and process.name() != "python":
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_many_deaths_at_once_are_known_at_once() -> None:
    def seconds() -> float:
        counters = moo.on(Counter).group(24)
        pids = counters.call(Counter.pid).get()
        events = [moo.monitor(counter) for counter in counters]
        assert all(isinstance(next(event), moo.Started) for event in events)
        started = time.perf_counter()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for event in events:
            assert isinstance(next(event), moo.Died)
        return time.perf_counter() - started

    with session():
        # A quiet machine takes 0.05 s, and most of that is the kernel's.
        assert at_best(seconds, 2.0)


class Reader:
    def learnt(self) -> tuple[int, bool]:
        """How often a limit that was known was asked for; whether a signature is."""
        spec = interface_of(Reader).methods["learnt"]
        found = isinstance(spec._signature, inspect.Signature)
        return default_memory_limit.cache_info().hits, found


def test_what_takes_long_to_find_out_is_not_found_out_by_each_new_actor() -> None:
    with session():
        hits, has_signature = moo.spawn(Reader).learnt()
    assert hits > 0
    assert not has_signature
