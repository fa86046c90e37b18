# SPDX-License-Identifier: MIT
"""The zygote: what it imports holds nobody up, and its death harms nobody."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from tests.actors.counter import Counter
from tests.conftest import eventually, leaked, resources
from tests.process import programs
from tests.processes import Process, stop

psutil = pytest.importorskip("psutil")

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


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory from which the session's processes import."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_a_death_is_known_while_a_module_is_imported(modules: Path) -> None:
    gate = modules / "gate"
    os.mkfifo(gate)
    programs.write(modules / "slow_one.py", f"open({str(gate)!r}).read()")
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
        gate.write_text("go on")
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


BAD = {
    "exits": ("raise SystemExit(3)", "cannot preload exits: SystemExit: 3"),
    "odd": ("raise BaseException('so')", "cannot preload odd: BaseException: so"),
    "fails": ("1 / 0", "cannot preload fails: ZeroDivisionError: division by zero"),
    "leaves": ("import os; os._exit(4)", "exit code 4 while it imported leaves"),
    "dies": (
        "import os; os.kill(os.getpid(), 11)",
        "signal 11 while it imported dies",
    ),
}


def test_modules_that_cannot_be_imported_are_reported_and_others_are_imported(
    tmp_path: Path,
) -> None:
    for name, (body, _) in BAD.items():
        programs.write(tmp_path / f"{name}.py", body)
    programs.write(tmp_path / "good.py", "")
    script = f"""
        import sys
        import mooactor as moo
        class Looks:
            def look(self): return "good" in sys.modules
        with moo.init(preload={[*BAD, "good"]}):
            print([moo.spawn(Looks).look() for _ in range(3)])
    """
    done = programs.run(programs.write(tmp_path / "main.py", script))
    assert done.stdout == "[True, True, True]\n", done.stderr
    for _, said in BAD.values():
        assert said in done.stderr, done.stderr
    # Each of those that end a zygote ends one: the next one imports all others again.
    assert done.stderr.count("no longer preloaded") == 2


@moo.actor
class Looks:
    """Says which of its descriptors are ends of pipes, in its constructor."""

    def __init__(self) -> None:
        self._pipes = set()
        for fd in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # the one that listed them
                if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                    self._pipes.add(int(fd))

    def pipes(self) -> set[int]:
        return self._pipes


def test_a_spare_process_becomes_the_next_actor_and_its_death_costs_none() -> None:
    with session():
        assert spares() == []  # who has no actor needs no second one
        # Forked when it is asked for, and then before: only its own output is open.
        assert moo.spawn(Looks).pipes() == {1, 2}
        pids = []
        for _ in range(2):
            spare = spare_process()
            assert spare.pid not in pids
            pids += actors_until_used(spare, 2)
        assert len(set(pids)) == len(pids)
        spare_process()
        assert moo.spawn(Looks).pipes() == {1, 2}

        spare = spare_process()
        spare.kill()
        assert eventually(lambda: spare not in spares())
        assert moo.spawn(Counter).add(2) == 2
        # It dies before the agent, which has read the request, asks it.
        agent, spare = agent_of(os.getpid()), spare_process()
        stop(agent.pid)
        counter = moo.spawn(Counter)
        spare.kill()
        assert eventually(lambda: spare.status() == psutil.STATUS_ZOMBIE)
        agent.send_signal(signal.SIGCONT)
        assert counter.add(2) == 2

        spare = spare_process()
        stop(spare.pid)
        agent.kill()
        assert eventually(lambda: not spare.is_running())


def test_the_death_of_the_zygote_harms_no_actor_and_another_one_starts() -> None:
    with session():
        counter = moo.spawn(Counter)
        counter.add(5)
        for _ in range(2):
            (zygote,), spare = zygotes(), spare_process()
            zygote.kill()
            assert eventually(lambda s=spare: not s.is_running())  # type: ignore[misc]
            assert moo.spawn(Counter).add(2) == 2
            assert eventually(lambda z=zygote: zygotes() not in ([z], []))  # type: ignore[misc]
        # The agent finds a request first, and the death when it passes that on.
        agent, (zygote,) = agent_of(os.getpid()), zygotes()
        stop(agent.pid)
        other = moo.spawn(Counter)
        zygote.kill()
        assert eventually(lambda: zygote.status() == psutil.STATUS_ZOMBIE)
        agent.send_signal(signal.SIGCONT)
        assert other.add(2) == 2
        assert counter.add(1) == 6


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
