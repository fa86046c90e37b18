# SPDX-License-Identifier: MIT
"""What every test gets: a leak check, and for those who ask a session.

A test fails if it leaves a process, thread, descriptor or session directory that was
not there before it. What ends by itself gets two seconds to do so.
"""

from __future__ import annotations

import gc
import glob
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

import mooactor as moo
from mooactor.process.session import current_session

_GRACE_S = 2.0

# A directory of our own, so that sessions of other programs are not taken for leaks.
_DIRECTORY = tempfile.mkdtemp(prefix="moot-")
os.environ["TMPDIR"] = tempfile.tempdir = _DIRECTORY
os.environ.pop("XDG_RUNTIME_DIR", None)


def pytest_unconfigure() -> None:
    shutil.rmtree(_DIRECTORY, ignore_errors=True)


def descriptors() -> Counter[str]:
    """What this process has open, by kind: numbers of pipes and sockets change."""
    kinds: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            continue  # a GPU's driver opens and keeps what it likes
        # Slabs of this process's own arena stay, to be used again; what is in use in
        # them, and the slabs of others, are the data plane's tests' concern.
        if not target.startswith("/memfd:mooactor-slab"):
            kinds[target.partition(":[")[0]] += 1
    return kinds


def resources() -> dict[str, Counter[str]]:
    """Everything that a test could leave behind."""
    children = psutil.Process().children(recursive=True)
    directories = glob.glob(os.path.join(tempfile.gettempdir(), "mooactor-*"))
    return {
        "process": Counter(str(child.pid) for child in children),
        "thread": Counter(thread.name for thread in threading.enumerate()),
        "descriptor": descriptors(),
        "directory": Counter(directories),
    }


def leaked(before: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """What is there now and was not before, after the grace."""
    deadline = time.monotonic() + _GRACE_S
    while True:
        gc.collect()
        now = resources()
        more = {kind: now[kind] - before[kind] for kind in now}
        more = {kind: rest for kind, rest in more.items() if rest}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.01)


@pytest.fixture(scope="module", autouse=True)
def _little_garbage() -> None:
    # Looking for leaks collects garbage after every test: not in all that was imported,
    # which takes a tenth of a second.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    if "session" in request.fixturenames:
        request.getfixturevalue("session")  # its own parts are no leak
    before = resources()
    yield
    rest = leaked(before)
    assert not rest, f"left behind: {rest}"


@contextmanager
def running_session(**options: Any) -> Iterator[Any]:
    """A session, warm; nothing of it is left afterwards."""
    before = resources()
    with moo.init(**options) as running:

        @moo.actor
        class Warm:
            def up(self) -> None: ...

        # The first actor brings the agent up; helper threads are there from now on.
        handle = moo.spawn(Warm)
        handle.up()
        moo.kill(handle)
        yield running
    rest = leaked(before)
    assert not rest, f"the session left behind: {rest}"


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """A session for all tests of a module."""
    with running_session() as running:
        yield running


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


def eventually(condition: Callable[[], object], timeout: float = 5.0) -> bool:
    """Whether `condition` becomes true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
