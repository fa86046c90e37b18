# SPDX-License-Identifier: MIT
"""The limit on open files: raised at the start of a session, and never reached in it.

Running out of descriptors is not an error that a call could end with: libzmq, which
accepts connections in a thread of its own, ends the process. So they are counted before
anything is opened. Invariants:

* Every process of a session has the limit of its driver, which `raise_limit` has set,
  or that of its host's agent. The least of them counts.
* There are never more actors than `capacity` of it: each process then has room for ways
  to all the others, and for `_RESERVE` files of its own.
* A process with more files of its own than that starts fewer actors.
* Connections that have proved nothing make way for others (`control.strangers`).

The cost of one actor was measured (a session of 20 actors, /proc/PID/fd):

* 3 descriptors in the agent: lifeline, stdout, stderr. 8 while its birth waits for the
  zygote: their other ends, and a large constructor argument with its duplicate.
* 3 in each process that calls it: a connection each way, and ZeroMQ's own for the
  socket. 6 once arrays were passed both ways: two connections more, and the memory that
  its arrays lie in. That comes in slabs of 64 MiB and more, of which each is one.
* None in the zygote, once it is born.

And in a session of several hosts, between processes of two of them:

* None in the agent of the driver's host, and 3 (8) in that of the actor's own.
* 5 in each process that calls it: a connection each way, and two ends of a monitor. 11
  once arrays were passed both ways: for each direction a connection for messages, and
  two for bulk. With n stripes there are n for bulk, by default at most 4.

An actor's own process has some 25 open at its start, as the driver has; slabs of its
own are at most 64.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from mooactor.errors import PlacementError

if TYPE_CHECKING:
    from mooactor.control.links import Links
    from mooactor.control.messenger import Messenger
    from mooactor.process.objects.payloads import Payloads

PER_ACTOR = 8
_RESERVE = 128
_CALLED = 3  # descriptors of a way to another process
_CALLED_AWAY = 2  # more of one to another host: its monitor, both ends
_LEAST_STRIPES, _MOST_STRIPES = 2, 4  # by default, as processors are many or few
_MOST = 1 << 20  # some containers allow a thousand times that; programs loop over it
_MOST_ACTORS = 16_000  # as many sockets as ZeroMQ is allowed, less some
_COUNT_EVERY = 16  # spawns; counting takes a microsecond for each that is open

REMEDY = (
    "raise the hard limit (`ulimit -Hn`): LimitNOFILE= of systemd, --ulimit nofile= of "
    "docker, or /etc/security/limits.conf"
)


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = reachable()
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def reachable() -> int:
    """The least number of descriptors of each process once `raise_limit` was called."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)


def limit() -> int:
    """The number of descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def per_actor_away(stripes: int | None) -> int:
    """What an actor may need in a process of another host: `PER_ACTOR` of a session
    of several hosts. `stripes`: of TCP; None: the default."""
    links = 2 * (1 + (stripes or _MOST_STRIPES))
    return _CALLED + _CALLED_AWAY + links + 1  # and a slab


def capacity(descriptors: int, own: int = 0, each: int = PER_ACTOR) -> int:
    """The number of actors in a session if each process may have so many descriptors,
    one has `own` open for other purposes, and an actor may need `each`."""
    reserve = min(_RESERVE, descriptors // 2)
    return min(_MOST_ACTORS, max(0, descriptors - max(own, reserve)) // each)


def no_room(
    who: str,
    actors: int,
    own: int = 0,
    each: int = PER_ACTOR,
    least: tuple[int, str] | None = None,
) -> str:
    """Why no more actors are started: `who` has so many already. `least`: the limit
    that counts and the host that has it, if that is another one."""
    files = f", of which {own} are open for other purposes" if own > _RESERVE else ""
    most, host = least or (limit(), "")
    where = f" on host {host}" if host else ""
    return (
        f"{who} has {actors} actors and no room for more under the limit of {most} "
        f"open files for each process{where}{files} (an actor may need {each}); "
        f"{REMEDY}"
    )


class Room:
    """The number of further actors that this process's descriptors allow."""

    def __init__(
        self,
        messenger: Messenger,
        links: Links,
        payloads: Payloads,
        stripes: int | None = None,
    ) -> None:
        """`stripes`: of TCP to other hosts; None: the default."""
        self._messenger = messenger
        self._stripes = stripes
        self._links = links
        self._payloads = payloads
        self._left = 0  # spawns before the next count

    def take(self, actors: int, label: str) -> None:
        """Make sure of room for `actors` more.

        Raises:
          PlacementError: there is none; nothing was started.
        """
        if actors <= self._left:
            self._left -= actors
            return
        own, known = self._count()
        several = self._messenger.ways is not None
        each = per_actor_away(self._stripes) if several else PER_ACTOR
        left = capacity(limit(), own, each) - known
        if left < actors:
            why = no_room("this process", known, own, each)
            raise PlacementError(f"{label} cannot be started: {why}", delivered=False)
        self._left = min(left, _COUNT_EVERY) - actors

    def _count(self) -> tuple[int, int]:
        """Descriptors that are not of ways to others, and actors."""
        plane = self._payloads.plane.statistics()
        ways = _CALLED * len(self._messenger.known())
        if self._messenger.ways is not None:
            ways += _CALLED_AWAY * len(self._messenger.ways)
        ways += plane["peers"] + 2 * plane["owners"]
        ways += (1 + (self._stripes or _LEAST_STRIPES)) * plane["links"]
        return len(os.listdir("/proc/self/fd")) - 1 - ways, self._links.known_alive()
