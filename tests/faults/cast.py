# SPDX-License-Identifier: MIT
"""The operations under way when a fault strikes, and the table of how it ends.

A table has a line for each fault and a column for each operation:

* ``runs``: a call that runs; ``queued``: one behind it; ``retried``: one with retries;
* ``later``: a call that is made when the fault is known, or over;
* ``stream``: a stream that is being read;
* ``there``: the Ref of the call that runs, awaited by another actor's method;
* ``handed``: the same Ref as an argument of a call to another actor;
* ``put``: a value that lives with the victim;
* ``group``: a call to a group of the victim and another actor, of which that ends well;
* ``news``: what a monitor tells: (S)tarted, (D)ied, (R)estarted, stopped (X). At last
  each victim is killed.

A cell is ``ok``, or the call ends with the line's error, whose `delivered` is ``ran``
(True), ``no`` (False) or ``?`` (None).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.clusters import Cluster
from tests.conftest import eventually
from tests.gates import wait_at
from tests.processes import Process

WAIT_S = 60.0
_SAID = {True: "ran", False: "no", None: "?"}
_NEWS = {moo.Started: "S", moo.Died: "D", moo.Restarted: "R", moo.Stopped: "X"}
_DATA = 1 << 20


@moo.actor(max_concurrency=3)
class Victim:
    """Has a thread for a call that waits, for a stream, and for what it shall do."""

    def pid(self) -> int:
        return os.getpid()

    def wait(self, gate: Path) -> int:
        wait_at(gate)
        return 1

    def items(self, gate: Path) -> Iterator[int]:
        yield 1
        wait_at(gate)
        yield 2

    def obey(self, order: Path, begun: Path) -> None:
        """Do what is written there once there is that file."""
        begun.touch()
        wait_at(order)
        getattr(self, order.read_text())()

    def go_on(self) -> None: ...

    def exit(self) -> None:
        print("last words", file=sys.stderr)
        os._exit(7)

    def leave(self) -> None:
        raise SystemExit(3)

    def crash(self) -> None:
        print("last words", file=sys.stderr)
        signal.raise_signal(signal.SIGSEGV)

    def hold(self) -> None:
        """Longer than any patience with a host."""
        # PyDLL keeps the GIL while the C function sleeps.
        ctypes.PyDLL(None).usleep(4_000_000)

    def echo(self, value: Any = None) -> Any:
        return value

    def put(self) -> list[Any]:
        """A Ref to a value that lives here."""
        return [moo.put(np.ones(_DATA, np.uint8))]


@moo.actor(max_concurrency=8)
class Bystander(Victim):
    def look_in(self, box: list[Any]) -> Any:
        return box[0].get()


class Scene:
    """One victim, and all that is under way with it."""

    def __init__(self, victim: Any, other: Any, directory: Path) -> None:
        self.victim, self._other = victim, other
        self._gate, self._order = directory / "gate", directory / "order"
        self.process = Process.of(victim.pid())
        other.pid()
        (stored,) = victim.put()
        self._news = moo.monitor(victim)
        self.runs = victim.wait.remote(self._gate)
        stream = victim.items(self._gate)
        assert next(stream) == 1
        begun = directory / "begun"
        self.obeys = victim.obey.remote(self._order, begun)
        assert eventually(begun.exists)
        group = moo.Group([victim, other]).call(Victim.echo, 3)
        self.under_way: dict[str, Callable[[], Any]] = {
            "runs": self.runs.get,
            "queued": victim.echo.remote(3).get,
            "retried": victim.echo.options(retries=3).remote(3).get,
            "stream": lambda: list(stream),
            "there": other.look_in.remote([self.runs]).get,
            "handed": other.echo.remote(self.runs).get,
            "put": stored.get,
            "group": lambda: _of_victim(group.get(return_exceptions=True)),
        }

    def order(self, what: str) -> None:
        """Have the victim do that."""
        new = self._order.with_suffix(".new")
        new.write_text(what)
        new.rename(self._order)

    def go_on(self) -> None:
        """All that is still there goes on to its end."""
        self._gate.touch()
        if not self._order.exists():
            self.order("go_on")

    def known(self) -> None:
        """Wait until the call that runs has ended."""
        self.runs.exception(timeout=WAIT_S)

    def ends(self) -> dict[str, str]:
        """Of all operations, when the fault is over."""
        self.known()
        found = {"later": end_of(self.victim.echo.remote(3).get)}
        found |= {name: end_of(get) for name, get in self.under_way.items()}
        moo.kill(self.victim)
        moo.kill(self._other)
        found["news"] = "".join(_NEWS[type(event)] for event in self._news)
        return found


def _of_victim(results: list[Any]) -> Any:
    first, second = results
    assert second == 3
    if isinstance(first, BaseException):
        raise first
    return first


def end_of(get: Callable[..., Any]) -> str:
    """ "ok", or the error with the kind of its cause and what it says of the call."""
    try:
        get()
    except moo.MooError as error:
        cause = getattr(error, "cause", None)
        kind = "" if cause is None else f" {cause.kind}"
        return f"{type(error).__name__}{kind} {_SAID[error.delivered]}"
    return "ok"


def lines_of(table: str) -> dict[str, dict[str, str]]:
    """The ends of all operations, by fault and column."""
    head, *lines = (
        [cell.strip() for cell in line.split("|")] for line in table.strip().split("\n")
    )
    return {
        fault: {
            column: cell if cell == "ok" or column == "news" else f"{error} {cell}"
            for column, cell in zip(head[2:], cells, strict=True)
        }
        for fault, error, *cells in lines
    }


@contextlib.contextmanager
def driving(made: Cluster) -> Iterator[Cluster]:
    """This process is a driver on d, whose broker is there, too."""
    with pytest.MonkeyPatch.context() as patch, made.network.inside("d"):
        for key, value in made.environment("d").items():
            patch.setenv(key, value)
        patch.setenv("MOOACTOR_HOST_NAME", "d")
        with moo.init(made.address, local=False):
            yield made
