# SPDX-License-Identifier: MIT
"""Programs and actors that fork: what the child may do, and what it holds up."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mooactor as moo
from mooactor.control import envelope
from mooactor.host.session import current_session
from mooactor.process.current import current_runtime
from tests.actors.counter import Counter
from tests.conftest import eventually
from tests.gates import wait_at
from tests.process import programs
from tests.processes import Process

OTHER = 99 << 16  # a process

pytestmark = pytest.mark.usefixtures("no_session")


def fork(child: Callable[[], object], end: Callable[[], object] | None = None) -> int:
    """Run `child` in a forked process that then ends as `end` does; its exit code,
    which is 99 if `child` raised."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        pid = os.fork()
    if pid == 0:
        try:
            child()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(99)
        if end is not None:
            end()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# -- a child that outlives its parent ------------------------------------------

DRIVER = """
    import ctypes, os, signal
    import mooactor as moo

    def leave_children():
        libc = ctypes.CDLL(None)
        pids = []
        for fork in (os.fork, libc.fork):  # the C library's runs none of Python's hooks
            pids.append(fork())
            if pids[-1] == 0:
                libc.setsid()
                while True: libc.pause()
        return pids

    @moo.actor
    class Parent:
        def __init__(self): self.owned = []
        def leave_children(self): return leave_children()
        def adopt(self):
            self.owned.append(moo.spawn(Parent))
            return self.owned[0].pid()
        def pid(self): return os.getpid()

    moo.init(logs=False)
    parent, other = moo.spawn(Parent), moo.spawn(Parent)
    pids = os.getpid(), parent.pid(), parent.adopt(), other.pid()
    print(*pids, *leave_children(), *parent.leave_children(), flush=True)
    signal.pause()
"""


def test_an_end_is_known_although_children_of_the_process_live(tmp_path: Path) -> None:
    process = programs.start(programs.write(tmp_path / "driver.py", DRIVER))
    assert process.stdout is not None
    pids = map(int, process.stdout.readline().split())
    driver, parent, owned, other, *heirs = map(Process.of, pids)
    assert len(heirs) == 4
    session = set(programs.family(driver.pid)) - {driver, *heirs}
    assert len(session) >= 5  # the agent, the zygote, three actors
    try:
        os.kill(parent.pid, signal.SIGKILL)
        assert eventually(lambda: programs.gone([parent, owned]))
        assert other.is_running()
        process.send_signal(signal.SIGKILL)
        assert eventually(lambda: programs.gone(list(session)))
        assert eventually(lambda: programs.sessions() == [])
        assert all(heir.is_running() for heir in heirs[:2])  # the user's, not ours
    finally:
        process.kill()
        for heir in heirs:
            heir.kill()  # they have the driver's output
        process.communicate()


# -- what a child asks of its parent's session -----------------------------------


@moo.actor
class Slow:
    def __init__(self) -> None:
        self.children = 0

    def wait(self, path: str) -> str:
        wait_at(path)
        return "waited"

    def pair(self, path: str) -> tuple[str, str]:
        return self.wait(path), "and"

    def count(self) -> Any:
        yield from range(1000)

    def stored(self) -> list[Any]:
        return [moo.put(list(range(5)))]

    def fork(self) -> int:
        """The exit code of a child with a session of its own, which then returns."""
        if pid := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with moo.init(logs=False):
            moo.spawn(Counter).add()
        self.children += 1
        return self.children


def refused(ask: Callable[[], object]) -> None:
    with pytest.raises(
        moo.ActorUnavailable, match=r"was forked.*moo\.init.*moo\.spawn"
    ):
        ask()


def test_whatever_a_child_asks_of_the_session_is_refused_at_once(
    tmp_path: Path,
) -> None:
    gate = str(tmp_path / "gate")
    with moo.init(logs=False):
        slow, group = moo.spawn(Slow), moo.on(Slow).group(2)
        borrowed = slow.stored()[0]
        pending = slow.wait.remote(gate)
        first, second = slow.pair.options(num_returns=2).remote(gate)
        gathered = group.call(Slow.wait, gate)
        stream = moo.spawn(Slow).count()
        next(stream)
        events = moo.monitor(slow)
        next(events)
        mapped = group.map(Slow.wait, [gate] * 4)

        runtime = current_runtime()
        kept = runtime.sender, runtime.messenger, runtime.objects

        async def awaited(ref: Any) -> Any:
            return await ref

        def child() -> None:
            waiting = [pending, second, borrowed]
            assert moo.wait(waiting, num_returns=3, timeout=30) == (waiting, [])
            assert pending.done() and not pending.cancel()
            refused(pending.get)
            refused(first.get)
            refused(second.get)
            refused(gathered.get)
            assert all(gathered.get(return_exceptions=True))
            refused(borrowed.get)
            refused(lambda: asyncio.run(awaited(pending)))
            refused(lambda: list(stream))
            refused(lambda: next(events))
            refused(lambda: next(mapped))
            refused(lambda: slow.wait(gate))
            refused(lambda: slow.wait.remote(gate))
            refused(lambda: slow.wait.tell(gate))
            refused(lambda: group.call(Slow.wait, gate))
            refused(lambda: moo.spawn(Slow))
            refused(lambda: moo.put(1))
            refused(lambda: moo.kill(slow))
            refused(moo.actors)
            # Nor does anything that has kept a part of the runtime act with it.
            refused(lambda: kept[0].post(OTHER, envelope.CREDIT, 1))
            refused(lambda: kept[1].peer(OTHER))
            refused(kept[2].new_id)
            stream.close()
            events.close()
            mapped.close()
            moo.shutdown()

        assert fork(child) == 0
        Path(gate).touch()
        assert pending.get() == first.get() == "waited" and second.get() == "and"
        assert gathered.get() == list(mapped)[:2] == ["waited", "waited"]
        assert list(stream) == list(range(1, 1000))
        assert borrowed.get() == list(range(5))


END = """
    import os, sys
    import mooactor as moo
    class Adds:
        def __init__(self): self.n = 0
        def add(self): self.n += 1; return self.n

    with moo.init() as running:
        adds = moo.spawn(Adds)
        adds.add()
        kept = [moo.put(bytes(1 << 20)), adds.add.remote()]
        for end in ("exit", "_exit", "close", "exception"):
            pid = os.fork()
            if pid == 0:
                if end == "exit": sys.exit(7)
                if end == "_exit": os._exit(7)
                if end == "close": running.close(); os._exit(7)
                raise ValueError("in the child")
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        found = len(kept[0].get()), os.listdir(sys.argv[1]) > []
        print(adds.add(), kept[1].get(), *found)
"""


def test_the_end_of_a_child_changes_nothing_for_its_parent(tmp_path: Path) -> None:
    path = programs.write(tmp_path / "main.py", END)
    done = programs.run(path, os.environ["TMPDIR"])
    assert done.stdout == f"7\n7\n7\n1\n3 2 {1 << 20} True\n", done.stderr
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.count("Error") == 2  # and its source line


def test_children_may_have_sessions_of_their_own_and_pools_may_be_forked() -> None:
    with moo.init(logs=False), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        counter, slow = moo.spawn(Counter), moo.spawn(Slow)
        counter.add(41)

        def child() -> None:
            with moo.init(logs=False):
                assert moo.spawn(Counter, 4).add(1) == 5
                with pytest.raises(moo.ActorUnavailable, match="earlier session"):
                    counter.add(1)
            assert moo.spawn(Counter).add() == 1  # a session starts by itself again
            moo.shutdown()
            assert current_session() is None

        assert fork(child) == 0
        ref = counter.add.remote(1)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
            pool.close()
            pool.join()
        assert ref.get() == 42
        for _ in range(2):  # a child of a method's ends with the method
            assert slow.fork() == 0
