# SPDX-License-Identifier: MIT
"""`init` and `shutdown`: when the runtime is there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from types import TracebackType

from mooactor import errors
from mooactor.process import session as _session
from mooactor.process.network import choose


class Running:
    """What `init` returns: use it with ``with``, or ignore it."""

    def __init__(self, session: _session.Session) -> None:
        self._session = session

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After Ctrl-C nobody wants to wait for calls under way.
        grace = 0.2 if kind is not None and issubclass(kind, KeyboardInterrupt) else 3.0
        self.close(grace)

    def close(self, grace: float = 3.0) -> None:
        """End the session: actors get `grace` seconds to finish what they do."""
        with _unbothered():
            self._session.close(grace)

    def __repr__(self) -> str:
        state = "ended" if self._session.runtime.closed else "running"
        return f"<mooactor session, {state}>"


class _unbothered:
    """A second Ctrl-C during the end must not leave processes behind."""

    def __enter__(self) -> None:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def init(
    address: str | None = None,
    *,
    logs: bool = True,
    memory: int | None = None,
    preload: Sequence[str] = (),
    transport: str | Sequence[str] | None = None,
) -> Running:
    """Start the embedded runtime on this machine.

    Args:
      address: a broker's ``tcp://host:port``, for a session of several hosts.
      logs: whether what actors print appears here, each line with its actor's name.
      memory: bytes of shared memory that one process may hold; by default half of
        what the machine, or its control group, has.
      preload: modules that every actor will need: imported once, shared by all.
      transport: what arrays and tensors may travel by: some of "shm", "ofi" and "tcp",
        in a list or separated by commas. By default what ``MOOACTOR_TRANSPORT`` says,
        or "auto": what is best, which on one machine is shared memory.

    Raises:
      MooError: a session runs already, or this platform cannot start one.
      ValueError: there is no such transport, or a variable makes no sense.
      ActorUnavailable: the one transport that is allowed cannot be had here.
      OSError: ``MOOACTOR_BIND`` is no address of this host.
    """
    if address is not None:
        raise errors.PlacementError(
            f"cannot join {address}: this version runs sessions on one machine only; "
            "leave the address out"
        )
    return Running(
        _session.start_session(
            logs=logs,
            memory=memory,
            preload=list(preload),
            network=choose(transport),
        )
    )


def shutdown() -> None:
    """End the session: every actor stops, nothing is left. Without one, do nothing."""
    session = _session.current_session()
    if session is not None:
        with _unbothered():
            _session.end_session()
