# SPDX-License-Identifier: MIT
"""The side of a channel that accepted it. The other side connects again when their
connection breaks; meanwhile its kernel may say that it is gone."""

from __future__ import annotations

from collections.abc import Callable

from mooactor.control import addresses, frames
from mooactor.control.channel import Channel, Keeper, Listener, Terms
from mooactor.control.outgoing import FIRST_DELAY_S, LONGEST_DELAY_S
from mooactor.control.probe import REFUSED, Probe
from mooactor.control.readiness import Readiness
from mooactor.control.router import Router

_PROBE_S = 0.5


class Route:
    """One connection to a ROUTER."""

    def __init__(self, router: Router, identity: bytes, fd: int) -> None:
        self.identity = identity
        self.fd = fd
        self._router = router

    def send(self, frame: bytes) -> bool:
        return self._router.send(self.identity, frame)

    def sent(self) -> None:
        """The node looks after all of its ROUTER's connections at once."""


class IncomingChannel(Channel):
    """``tries`` is the number of the other side's attempt that it is connected by."""

    route: Route
    tries = 0

    def __init__(
        self,
        keeper: Keeper,
        ready: Readiness,
        key: bytes,
        hello: frames.Hello,
        came_from: str,
        terms: Terms,
        ended: Callable[[IncomingChannel], None],
    ) -> None:
        """`came_from`: the host that it connects from. `ended` is called in the end."""
        super().__init__(keeper, key, hello.address, terms)
        self.peer = hello.id
        self._ready = ready
        self._ended = ended
        self._where = _where_to_ask(hello.address)
        self._came_from = came_from
        self._asking_helps = False
        self._probe: Probe | None = None
        self._probe_at: float | None = None
        self._delay_s = FIRST_DELAY_S

    def welcome(self, route: Route, frame: frames.Frame, node_id: bytes) -> bool:
        """The other side has connected, perhaps again. False: that connection has ended
        already, or began against the protocol."""
        self.route = route
        self.tries = frame.number
        self._probe_at = None
        body = frames.Welcome(node_id)
        stands = route.send(
            frames.pack_struct(frames.WELCOME, self.key, body, taken=self._in.taken)
        )
        self.attach(route, frame.taken)
        if not stands:
            route.fd = -1  # the number may be another one's
            self.lost()
        return self.connected

    def accept(self, listener: Listener) -> None:
        """It is wanted here."""
        self._listener = listener
        if self._where is not None:
            self._find_out_whether_asking_helps(*self._where)

    def _find_out_whether_asking_helps(self, host: str, port: int) -> None:
        """Behind a translation of addresses another host may have that address here,
        and its refusal would say nothing."""
        if addresses.is_same(host, self._came_from):
            self._asking_helps = True
        else:
            self._ask(host, port)

    # -- while there is no connection --------------------------------------

    def _recover(self, now: float) -> None:
        self._delay_s = FIRST_DELAY_S
        self._probe_at = now if self._asking_helps else None

    def due(self) -> float | None:
        times = [super().due(), self._probe_at]
        return min((when for when in times if when is not None), default=None)

    def tick(self, now: float) -> None:
        super().tick(now)
        if self.why is None and self._probe_at is not None and now >= self._probe_at:
            assert self._where is not None
            self._ask(*self._where)
            self._probe_at = now + _PROBE_S

    def _ask(self, host: str, port: int) -> None:
        if self._probe is not None:
            self._probe.close()
        try:
            self._probe = Probe(self._ready, host, port, self._probed)
        except OSError:
            self._probe = None  # out of descriptors: nothing is known

    def _probed(self, code: int) -> None:
        self._probe = None
        self._asking_helps = self._asking_helps or code == 0
        if code == REFUSED and self._asking_helps and self._carrier is None:
            self.end(f"the process that listened at {self.address} has ended")
        elif self._probe_at is not None:
            self._probe_at = self._now() + self._delay_s
            self._delay_s = min(2 * self._delay_s, LONGEST_DELAY_S)
            self._keeper.watch(self)

    def _release(self) -> None:
        self._probe_at = None
        if self._probe is not None:
            self._probe.close()
            self._probe = None
        self._ended(self)


def _where_to_ask(address: str) -> tuple[str, int] | None:
    try:
        host, port = addresses.parse(address)
    except ValueError:
        return None
    return (host, port) if addresses.is_numeric(host) else None
