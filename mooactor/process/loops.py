# SPDX-License-Identifier: MIT
"""Event loops that run beside us: blocking in one, and reading in one.

Blocking in a thread that runs an event loop freezes everything else in that loop, so
blocking forms refuse to, before anything is sent. A notebook is the exception: its
kernel runs a loop of its own in the thread that runs the cells, and a cell that blocks
holds up nothing else. A cell is recognised by the task that runs it: the outermost
coroutine of that task is ipykernel's or IPython's. A task that the user made
(``asyncio.create_task`` in a cell) is an asyncio program like any other.

asyncio takes a twelfth of the time that `import mooactor` takes, so it is imported
where a program uses it: one that has not done so runs no loop.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

    Loop: TypeAlias = asyncio.AbstractEventLoop

_SHELLS = ("IPython", "ipykernel")
_DETACH_S = 1.0


def running_loop() -> Loop | None:
    """The event loop that runs in this thread."""
    events = sys.modules.get("asyncio.events")  # another thread may import it just now
    loop: Loop | None = getattr(events, "_get_running_loop", _none)()
    return loop


def _none() -> None:
    return None


def blocks_a_loop() -> bool:
    """Whether blocking this thread now would freeze an asyncio program."""
    return running_loop() is not None and not _runs_a_cell()


def _runs_a_cell() -> bool:
    if "IPython" not in sys.modules:
        return False
    import asyncio

    task = asyncio.current_task()
    frame = getattr(task.get_coro(), "cr_frame", None) if task is not None else None
    module = "" if frame is None else str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] in _SHELLS


def refuse_to_block(what: str, instead: str) -> None:
    """Raise if waiting for `what` would freeze an asyncio program.

    Raises:
      RuntimeError: it would; the message says what to write `instead`.
    """
    if blocks_a_loop():
        raise RuntimeError(
            f"waiting for {what} would block the running event loop; write {instead} "
            "here"
        )


class LoopReaders:
    """Descriptors of one session, and the event loops that read them.

    Invariant: a loop has readers of these descriptors only while they are open. The
    next session gets the same numbers, and a selector that has a number already does
    not look whether it is still the same file. So `detach` returns when every loop
    has dropped them, and each loop does that in its own thread.
    """

    def __init__(self, readers: Sequence[tuple[int, Callable[[], object]]]) -> None:
        self._readers = readers
        self._loops: list[Loop] = []

    def __len__(self) -> int:
        return len(self._loops)

    def attach(self, loop: Loop) -> bool:
        """Read in `loop`, too; False if it does so already. In the loop's thread."""
        if loop in self._loops:
            return False
        self._loops = [known for known in self._loops if not known.is_closed()]
        self._loops.append(loop)
        owners = _owners.setdefault(loop, {})
        for fd, callback in self._readers:
            loop.remove_reader(fd)  # of a session that ended while this loop was stuck
            loop.add_reader(fd, callback)
            owners[fd] = self
        return True

    def detach(self) -> None:
        """Read no more. A loop that runs in another thread gets a second for it."""
        loops, self._loops = self._loops, []
        for loop in loops:
            if loop.is_closed():
                continue
            if loop.is_running() and loop is not running_loop():
                self._drop_there(loop)
            else:
                self._drop(loop)

    def _drop(self, loop: Loop) -> None:
        owners = _owners.get(loop, {})
        for fd, _ in self._readers:
            if owners.get(fd) is self:  # else the number is another session's by now
                del owners[fd]
                loop.remove_reader(fd)

    def _drop_there(self, loop: Loop) -> None:
        dropped = threading.Event()

        def drop() -> None:
            self._drop(loop)
            dropped.set()

        try:
            loop.call_soon_threadsafe(drop)
        except RuntimeError:
            return  # it was closed meanwhile
        dropped.wait(_DETACH_S)


_owners: WeakKeyDictionary[Loop, dict[int, LoopReaders]] = WeakKeyDictionary()
