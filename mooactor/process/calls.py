# SPDX-License-Identifier: MIT
"""The parts of a call, before it is bytes and after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from mooactor.control import envelope
from mooactor.errors import MooError
from mooactor.process import checks
from mooactor.process.interface import MethodSpec


@dataclass(frozen=True)
class CallOptions:
    """The options of one call. ``timeout`` in seconds, None for no deadline."""

    timeout: float | None = None
    retries: int = 0
    priority: int = 0
    stream_window: int = 16
    num_returns: int | None = None

    def changed(self, changes: Mapping[str, Any]) -> CallOptions:
        """The same with other values.

        Raises:
          TypeError: no such option, or a value of a wrong type.
          ValueError: a value that makes no sense.
        """
        checks.known_names(".options()", changes, _CHECKS)
        checked = {name: _CHECKS[name](value) for name, value in changes.items()}
        return replace(self, **checked)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "timeout": partial(checks.seconds, "timeout", positive=True),
    "retries": partial(checks.count, "retries", what="a number of further attempts"),
    "priority": partial(
        checks.count, "priority", what="a whole number", least=-128, most=127
    ),
    "stream_window": partial(
        checks.count, "stream_window", what="a number of items", least=1, most=1 << 30
    ),
    "num_returns": partial(
        checks.count, "num_returns", what="a number of values", least=1
    ),
}
DEFAULT_OPTIONS = CallOptions()


# Whether a caller waits for its call.
LATER = 0  # perhaps, by its Ref
AWAITED = 1  # it is about to await it: the chain of waiting calls travels along
BLOCKING = 2  # its thread is about to wait: also, the message leaves at once


class Form(NamedTuple):
    """The form of a call: a plain call, `remote`, `tell`, a stream."""

    spec: MethodSpec
    options: CallOptions = DEFAULT_OPTIONS
    flags: int = 0  # STREAM or ONE_WAY, see `envelope`
    waits: int = LATER


class Repeatable(NamedTuple):
    """A call that may be sent again, so many times.

    ``early``: that was done already for a break, before it is known whether the process
    lives; it is not counted yet.

    ``before``: whether an earlier attempt reached its method, as `delivered` of errors.
    """

    form: Form
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attempts_left: int
    early: bool = False
    before: bool | None = False

    def lost(self, delivered: bool | None) -> Repeatable:
        """After an attempt was lost."""
        return self._replace(before=either(self.before, delivered))

    def speaks_for_all(self, error: BaseException) -> None:
        """See `speak_for_all`."""
        speak_for_all(error, self.before)

    def counted(self) -> Repeatable:
        """After it was sent again."""
        return self._replace(attempts_left=self.attempts_left - 1, early=False)


def either(one: bool | None, other: bool | None) -> bool | None:
    """Whether one of two attempts reached its method, as `delivered` of errors."""
    if one or other:
        return True
    return None if one is None or other is None else False


def speak_for_all(error: BaseException, before: bool | None) -> None:
    """Have the error of the last attempt say what is known of those `before`, too."""
    if isinstance(error, MooError):
        error.delivered = either(before, error.delivered)


#: In a chain, set in the id of an actor whose only thread for sync methods is taken.
IN_THREAD = 1


class CallContext:
    """The facts of the call for the method that runs here; see `moo.current()`."""

    cancelled = False
    in_thread = False  # it has the one thread of an async actor
    started = True  # False: it is admitted, but has no thread yet
    thread: int | None = None  # that runs it; None: the main thread

    def __init__(
        self,
        actor_id: int,
        actor_label: str,
        caller: int,
        call_id: int,
        chain: tuple[int, ...],
        deadline: float | None,
        method: str,
    ) -> None:
        self.actor_id = actor_id
        self.actor_label = actor_label
        self.caller = caller
        self.call_id = call_id
        self.chain = chain
        self.deadline = deadline  # perf_counter seconds
        self.method = method
        self.awaits: list[Any] = []  # each `Wait` that it sleeps on

    def runs_here(self) -> bool:
        """Whether this is the thread that runs it, and not one that was started in its
        name."""
        thread = self.thread or threading.main_thread().ident
        return thread == threading.get_ident()

    @property
    def chain_entry(self) -> int:
        """The number that stands for this call in the chain of a call that it waits
        for."""
        return self.actor_id | (IN_THREAD if self.in_thread else 0)


context: ContextVar[CallContext | None] = ContextVar("mooactor call", default=None)


class Server(Protocol):
    """The callee's side, in processes that hold an actor; see `actor.worker`. Methods
    that take a record run in the poller's thread."""

    def on_call(self, record: envelope.Record) -> None: ...
    def on_cancel(self, sender: int, call_id: int) -> None: ...
    def on_credit(self, sender: int, call_id: int, items: int) -> None: ...
    def on_value(self) -> None: ...
    def on_stop(self, sender: int) -> None: ...
    def on_forward(self, sender: int, call_id: int, pair: bytes) -> bool: ...
    def will_forward(self, token: int) -> bool: ...
    def on_process_lost(self, process_id: int) -> None: ...
    def on_connection_broke(self, process_id: int, latest: float) -> None: ...
    def pass_over(self, process_id: int, mark: int) -> None: ...
    def latest_call_of(self, process_id: int) -> int: ...
    def has_ready(self) -> bool: ...
    def queued(self) -> int: ...
    def holders_of(self, sender: int, call_id: int) -> list[CallContext]: ...
    def holder_of_all(self, sender: int, total: int) -> CallContext | None: ...
