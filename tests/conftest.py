# SPDX-License-Identifier: MIT
"""A leak check for every test, and sessions for tests that use them.

A test fails if it leaves a process, thread, descriptor, file or network namespace that
was not there before it; its leftovers are ended, so that no later test fails for them.
Processes and threads that end by themselves have all the time that a busy machine may
need. Nothing outlives the run, for every end of it: see tests/processes.py.

The fixture `session` is a warm session that all modules share which preload the same
packages. After each module its actors are killed, and it must hold no more than before;
one that does, or that was lost, is not used again. A test without that fixture finds no
session.
"""

from __future__ import annotations

import functools
import gc
import glob
import inspect
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

import mooactor as moo
import mooactor.host.session as session_module
from mooactor.host.session import current_session
from mooactor.process.current import known_runtime
from tests.guardian import Guardian
from tests.processes import VARIABLE, Process, Run

# The wait for things that end by themselves. Only a failing test waits so long.
_GRACE_S = 15.0


class _State:
    """Of this run, in the process that runs the tests."""

    run: Run
    directory: str
    interrupted = False


def pytest_configure() -> None:
    runner = Process.of(os.getpid())
    # A directory of our own, so that sessions of other programs are no leaks.
    _State.directory = tempfile.mkdtemp(prefix="moot-")
    _State.run = Run(os.path.basename(_State.directory), runner)
    os.environ["TMPDIR"] = tempfile.tempdir = _State.directory
    os.environ[VARIABLE] = _State.run.name
    os.environ.pop("XDG_RUNTIME_DIR", None)
    Guardian(_State.run, _State.directory)
    # A program that was started in the background ignores Ctrl-C, and its children,
    # too.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # when those that do not run are out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that share a warm session come first, one after the other, then those that
    may take long, then those with many tests: at the end of a run in several processes
    none is left with a long file alone."""
    weights: Counter[str] = Counter(map(_file, items))
    ranks: dict[str, tuple[Any, ...]] = {}
    for item in items:
        if (limit := item.get_closest_marker("timeout")) is not None:
            weights[_file(item)] += int(1000 * limit.args[0])
        if _file(item) not in ranks:
            warm = "session" in getattr(item, "fixturenames", ())
            ranks[_file(item)] = (0, _preloaded(item.module)) if warm else (1, ())  # type: ignore[attr-defined]
    items.sort(key=lambda item: (*ranks[_file(item)], -weights[_file(item)]))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


FILE_BUDGET_S = 20.0  # of a file of tests in `make test`


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which files took more than their budget."""
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                spent[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
    over = [(s, file) for file, s in spent.items() if s > FILE_BUDGET_S]
    if over:
        terminalreporter.section(f"files that took more than {FILE_BUDGET_S:.0f} s")
        for seconds, file in sorted(over, reverse=True):
            terminalreporter.write_line(f"{seconds:6.1f} s  {file}")


def pytest_keyboard_interrupt() -> None:
    _State.interrupted = True  # after Ctrl-C there is no leak check


def pytest_unconfigure() -> None:
    Warm.end()
    _State.run.end()
    shutil.rmtree(_State.directory, ignore_errors=True)


def descriptors() -> Counter[str]:
    """This process's open descriptors, by kind: numbers of pipes and sockets change."""
    kinds: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            continue  # a GPU's driver opens and keeps files of its own
        # Slabs of this process's own arena stay, to be used again; what is in use in
        # them, and the slabs of others, are the data plane's tests' concern.
        if not target.startswith("/memfd:mooactor-slab"):
            kinds[target.partition(":[")[0]] += 1
    return kinds


# pytest and torch keep these for any time.
_KEPT = ("pytest-of-", "torchinductor_")


def files() -> Counter[str]:
    """Temporary ones, and any in /dev/shm with our name."""
    names = [
        name for name in os.listdir(_State.directory) if not name.startswith(_KEPT)
    ]
    found = [os.path.join(_State.directory, name) for name in names]
    return Counter(found + glob.glob("/dev/shm/*moo*"))


def resources() -> dict[str, Counter[Any]]:
    """Everything that a test could leave behind."""
    return {
        "process": Counter(_State.run.lasting()),
        "thread": Counter(thread.name for thread in threading.enumerate()),
        "descriptor": descriptors(),
        "file": files(),
        "network namespace": Counter(glob.glob(f"/run/netns/*-{os.getpid()}-*")),
    }


def spare(pid: int, *children: str) -> None:
    """A program, and those of its children with these names, outlast tests: no leak."""
    below = Process.of(pid).descendants()
    named = [process.pid for process in below if process.name() in children]
    _State.run.spared.update([pid, *named])


def leaked(before: dict[str, Counter[Any]]) -> dict[str, Counter[Any]]:
    """The resources that are new, after the grace."""
    deadline = time.monotonic() + _GRACE_S
    while True:
        gc.collect()
        now = resources()
        more = {kind: now[kind] - before[kind] for kind in now}
        more = {kind: rest for kind, rest in more.items() if rest}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.01)


def check_for_leaks(before: dict[str, Counter[Any]], who: str) -> None:
    """Fail if there is more than before, and put an end to it."""
    if _State.interrupted:
        return
    rest = leaked(before)
    if not rest:
        return
    commands = [process.command() for process in rest.get("process", ())]
    _State.run.end(set(rest.get("process", ())))
    for path in rest.get("file", ()):
        shutil.rmtree(path, ignore_errors=True)
    raise AssertionError(f"{who} left behind: {rest} {commands or ''}")


@pytest.fixture(scope="module", autouse=True)
def _little_garbage() -> None:
    # Looking for leaks collects garbage after every test: not in all that was imported,
    # which takes a tenth of a second.
    gc.collect()
    gc.freeze()


@functools.cache
def _preloaded(module: Any) -> tuple[str, ...]:
    """The imports that a session for this module of tests has ready. torch is here
    because some module uses it: each session of another would spend a second on it."""
    found = {inspect.getmodule(value) for value in vars(module).values()}
    ours = {m for m in found if m and m.__name__.startswith("tests.")}
    text = "\n".join(inspect.getsource(m) for m in ours | {module})
    imports = re.compile(r"import(?: |orskip\(['\"])(\w+)").findall(text)
    if "torch" in imports or re.search(
        r"^(?:from|import) mooactor\.rl", text, re.MULTILINE
    ):
        return ("numpy", "torch")
    return ("numpy",)


@pytest.fixture(scope="module", autouse=True)
def _preloads_what_the_module_uses(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "PRELOADABLE", _preloaded(request.module))
        yield


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    if "session" in request.fixturenames:
        request.getfixturevalue("session")  # its own parts are no leak
    before = resources()
    yield
    check_for_leaks(before, "the test")


@contextmanager
def running_session(**options: Any) -> Iterator[Any]:
    """A session, warm; nothing of it is left afterwards."""
    Warm.end()
    with _started(**options) as running:
        yield running


@contextmanager
def _started(**options: Any) -> Iterator[Any]:
    before = resources()
    with moo.init(**options) as running:

        @moo.actor
        class First:
            def up(self) -> None: ...

        # The first actor brings the agent up; helper threads are there from now on.
        handle = moo.spawn(First)
        handle.up()
        moo.kill(handle)
        started = resources()
        yield running
        now = resources()  # what came meanwhile is others'
    others = {kind: now[kind] - started[kind] for kind in now}
    check_for_leaks({kind: before[kind] + others[kind] for kind in now}, "the session")


def _held() -> dict[str, int]:
    """Counts of all that the session holds for its program, by kind."""
    stats = moo.stats()
    counts = {key: stats[key] for key in ("calls_pending", "values_pending", "objects")}
    memory = {key: stats["memory"][key] for key in ("blocks", "leases", "imports")}
    return {"actors": len(moo.actors()), **counts, **memory}


class Warm:
    """The session that modules share; see the module's docstring."""

    preloaded: tuple[str, ...] | None = None  # None: there is none
    running: Any = None
    used = False  # by the module whose tests run
    _session: Any = None
    _held: dict[str, int]
    _stack = ExitStack()

    @classmethod
    def get(cls, preloaded: tuple[str, ...]) -> Any:
        if cls.preloaded != preloaded or not cls._lives():
            cls.end()
            cls.running = cls._stack.enter_context(_started())
            cls._session = current_session()
            cls.preloaded, cls._held = preloaded, _held()
        return cls.running

    @classmethod
    def _lives(cls) -> bool:
        """Not so if a test has put another runtime into its place, or none."""
        session = cls._session
        if session is None or current_session() is not session:
            return False
        return known_runtime() is session.runtime

    @classmethod
    def clean(cls, who: str) -> None:
        """Kill all actors, and fail if something else is left, too."""
        if not cls._lives():
            return cls.end()
        for actor in moo.actors():
            with suppress(moo.ActorUnavailable):  # it may just have ended
                moo.kill(actor.handle)
        gc.collect()
        if not eventually(lambda: _held() == cls._held, _GRACE_S):
            found = _held()
            cls.end()
            raise AssertionError(f"{who} left in its session: {found}, not {cls._held}")

    @classmethod
    def end(cls) -> None:
        cls.preloaded = cls.running = cls._session = None
        cls._stack.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not Warm.used and "session" not in getattr(item, "fixturenames", ()):
        Warm.end()


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session for all tests of a module, warm."""
    Warm.used = True
    try:
        yield Warm.get(_preloaded(request.module))
    finally:
        Warm.used = False
    Warm.clean(request.module.__name__)


@pytest.fixture
def spawn(session: Any) -> Iterator[Callable[..., Any]]:
    """`moo.spawn`, for actors that are gone when the test is over."""
    spawned: list[Any] = []

    def spawn(what: Any, *args: Any, **kwargs: Any) -> Any:
        start = moo.spawn if isinstance(what, type) else None
        handle = start(what, *args, **kwargs) if start else what.spawn(*args, **kwargs)
        spawned.append(handle)
        return handle

    yield spawn
    for handle in spawned:
        moo.kill(handle)


@pytest.fixture
def group(session: Any) -> Iterator[Callable[..., Any]]:
    """``on(cls).group(n, …)``, for actors that are gone when the test is over."""
    groups: list[Any] = []

    def make(cls: Any, n: int, *args: Any, **kwargs: Any) -> Any:
        groups.append(moo.on(cls).group(n, *args, **kwargs))
        return groups[-1]

    yield make
    for members in groups:
        for handle in members:
            moo.kill(handle)


@pytest.fixture
def no_session() -> Iterator[None]:
    """For tests that start sessions of their own."""
    assert current_session() is None, "an earlier test left its session"
    yield
    moo.shutdown()


def at_best(measure: Callable[[], float], bound_s: float, tries: int = 5) -> bool:
    """Whether what takes `measure()` seconds takes less than `bound_s` at least once.
    A busy machine may keep a process waiting for a core, but not each time."""
    return any(measure() < bound_s for _ in range(tries))


def eventually(condition: Callable[[], object], timeout: float = 60.0) -> bool:
    """Whether `condition` becomes true in time. Only a failing test waits so long."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
