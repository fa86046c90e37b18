# SPDX-License-Identifier: MIT
"""The broker: it introduces the hosts and the drivers of a cluster to each other.

One process, one thread, one event loop. Its knowledge is in the `Registry`, and its
members tell it again each second; so a broker that was killed and started again is
what it was within two seconds, and meanwhile only new joins and new lookups wait. It
never sees a call or a tensor.

Its messages are those of `host.members`, over channels that nobody without the key can
open. One that is malformed is answered by a `Refusal`.

A broker sends no heartbeats of its own: 10 000 connections with three a second would
keep a core busy. Members send them, and say `Still`: a broker lets go of a channel at
which it hears nothing.

A *stand-by* is a broker like any other. It needs no copy of the first one's memory:
the members that it is introduced to announce themselves to both.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from mooactor.cluster import registry
from mooactor.cluster.registry import Announcement, Registry
from mooactor.control.addresses import own
from mooactor.control.channel import Channel
from mooactor.control.messages import Malformed, Message, readable
from mooactor.control.node import Node
from mooactor.host import membership
from mooactor.host.addresses import is_reachable
from mooactor.host.members import (
    FAREWELL,
    FROM_BROKER,
    MAX_BYTES,
    TO_BROKER,
    Announce,
    AnnounceAgain,
    Brokers,
    Joined,
    Refusal,
    Size,
    StandBy,
    Still,
    Stop,
    Watch,
)
from mooactor.host.membership import Later
from mooactor.host.protocol import Refused
from mooactor.times import MEMBER_SILENCE_S

MAX_STANDBYS = 8
# Of a message to a broker. The largest that it takes is an announcement; one that is
# larger still gets a sentence, up to here.
MOST_BYTES = 4 * MAX_BYTES
_PAUSE_S = 1.0
_CLIENT_SILENCE_S = 60.0  # its host has vanished: it has never left
_REPORTED = 100
_LARGE = 64  # members; from here on each is told when their number has doubled
_COMPARED = 64  # members whose versions a new one's are compared with


def listening(
    key: bytes, bind: str, port: int | None, ports: Sequence[int] | None
) -> Node:
    """A node for a broker.

    Raises:
      MooError: it cannot listen there.
    """
    return Node(
        key,
        bind=bind,
        port=port,
        ports=ports,
        advertise=own() if bind in ("0.0.0.0", "::") else None,
        beat_s=0,
        late_acks=True,
        most_bytes=MOST_BYTES,
    )


class Broker:
    """Answers the members and clients at the channels of a node.

    Args:
      node: whose channels it accepts. The caller serves it.
      later: calls a function after so many seconds.
      log: takes a line for each thing that an operator may want to know.
      stop: is called when a client asks the broker to end.
    """

    def __init__(
        self,
        node: Node,
        later: Later,
        log: Callable[[str], None],
        stop: Callable[[], None],
    ) -> None:
        self.registry = Registry(_post)
        self._node, self._later = node, later
        self._log = log
        self._stop = stop
        self._standbys: dict[Channel, str] = {}
        self._now = node.clock.now
        self._looked = self._now()
        self._lenient_until = 0.0
        self._actions: dict[type[Message], Callable[[Channel, Any], None]] = {
            Announce: self._announce,
            Still: self._still,
            Watch: lambda channel, _: self.registry.watch(channel),
            StandBy: self._standby,
            Stop: self._end,
        }
        node.accept = lambda channel: self
        later(_PAUSE_S / 2, self.look)

    def statistics(self) -> dict[str, int]:
        """Numbers of those that it serves."""
        return {
            **self._node.statistics(),
            "members": len(self.registry),
            "watchers": self.registry.watchers,
            "stand_bys": len(self._standbys),
        }

    def report(self) -> Iterator[str]:
        """For SIGUSR1: the numbers, and the members that announced something last."""
        yield ", ".join(f"{name} {value}" for name, value in self.statistics().items())
        for each in islice(self.registry.latest(), _REPORTED):
            yield f"{each} at {each.address}"

    # -- channels ----------------------------------------------------------

    def handle(self, channel: Channel, data: bytes) -> None:
        """Act on a message; one that makes no sense is answered with the reason."""
        try:
            message = TO_BROKER.decode(data)
            self._actions[type(message)](channel, message)
        except (Malformed, Refused) as refusal:
            channel.post(Refusal(readable(str(refusal))))
        except Exception as error:  # a bug: not the end of the cluster
            self._log(f"a bug, in a message of {channel.address}: {error!r}")
            traceback.print_exc(file=sys.stderr)
            channel.post(Refusal(readable(f"{error!r:.200}")))

    def channel_closed(self, channel: Channel, why: str) -> None:
        """A member or client is gone, or out of reach for too long."""
        self.registry.unwatch(channel)
        last = self.registry.leave(channel, why)
        if last is not None:
            self._say_gone(last, why)
        address = self._standbys.pop(channel, None)
        if address is not None:
            self._log(f"the stand-by {address} has left: {why}")
            self._tell_of_standbys()

    # -- requests ----------------------------------------------------------

    def _announce(self, channel: Channel, message: Announce) -> None:
        new = registry.read(message)
        known = self.registry.is_member(channel)
        why = self.registry.announce(channel, new)
        if why is not None:
            channel.post(Refusal(why, taken=True))
        elif not known:
            self._welcome(channel, new)

    def _welcome(self, channel: Channel, new: Announcement) -> None:
        others = islice(self.registry.latest(), _COMPARED)
        notes = registry.differences(new, others)
        brokers, members = list(self._standbys.values()), len(self.registry)
        channel.post(Joined(brokers, members, notes))
        if members >= _LARGE and members.bit_count() == 1:
            self._tell_members(Size(members))
        article = "" if new.kind == "host" else "a "
        self._log(f"{article}{new} has joined from {new.address}")
        for note in notes:
            self._log(f"{new}: {note}")

    def _say_gone(self, last: Announcement, why: str) -> None:
        """`why` is worth saying only of a member that did not take its leave."""
        if last.kind == "host":
            self._log(f"{last} has left" + ("" if why == FAREWELL else f": {why}"))
        elif why != FAREWELL:
            self._log(f"the {last} is lost: {why}")
        else:
            self._log(f"the {last} has ended")

    def _still(self, channel: Channel, message: Still) -> None:
        if not self.registry.still(channel, message.load):
            channel.post(AnnounceAgain())

    def _standby(self, channel: Channel, message: StandBy) -> None:
        address = message.address
        if channel.peer == self._node.id:
            raise Refused("a broker is no stand-by of itself")
        if not is_reachable(address):
            raise Refused(f"address={address!r:.80} is not tcp://ADDR:PORT")
        if len(self._standbys) >= MAX_STANDBYS:
            raise Refused(f"a broker has at most {MAX_STANDBYS} stand-bys")
        if self._standbys.get(channel) == address:
            return
        self._standbys[channel] = address
        self._log(f"the stand-by {address} has joined")
        channel.post(self._tell_of_standbys())

    def _end(self, channel: Channel, message: Stop) -> None:
        self._log("was told to end")
        for standby in self._standbys:
            standby.post(Stop())
        self._stop()

    def _tell_of_standbys(self) -> Brokers:
        message = Brokers(list(self._standbys.values()))
        self._tell_members(message)
        return message

    def _tell_members(self, message: Message) -> None:
        for member in self.registry.members():
            member.post(message)

    # -- time --------------------------------------------------------------

    def look(self) -> None:
        """Let go of members, and of others, that have been silent for too long; and
        again after a while."""
        self._later(_PAUSE_S / 2, self.look)
        now = self._now()
        if now - self._looked > _PAUSE_S:
            # This process was stopped, or busy: what members have said is still unread.
            self._lenient_until = now + MEMBER_SILENCE_S
        self._looked = now
        for channel in self._node.channels() if now >= self._lenient_until else ():
            member, silent_s = self.registry.is_member(channel), channel.silent_s
            most_s = MEMBER_SILENCE_S if member else _CLIENT_SILENCE_S
            if channel.is_open and silent_s >= most_s:
                self._drop(channel, f"it has said nothing for {silent_s:.1f} s")

    def _drop(self, channel: Channel, why: str) -> None:
        channel.close(why)  # one that was only slow comes back
        self.channel_closed(channel, why)


def _post(channel: Channel, message: Message) -> None:
    channel.post(message)


class Standby:
    """The second broker's side: it keeps itself known to the first one.

    Args:
      node: of the second broker.
      address: of the first one.
      later: calls a function after so many seconds.
      log: takes a line for each thing that an operator may want to know: that the
        first broker has taken this one, that it is gone, and each new reason why there
        is none.
      stop: is called when the first broker was told to end.
    """

    RETRY_S = 0.5
    REPEAT_S = 10.0

    def __init__(
        self,
        node: Node,
        address: str,
        later: Later,
        log: Callable[[str], None],
        stop: Callable[[], None],
    ) -> None:
        self._node, self._address, self._later, self._log = node, address, later, log
        self._stop = stop
        self._closed = False
        self._joined = False
        self._reasons: set[str] = set()  # said since it has joined last
        self._open()

    def _open(self) -> None:
        if self._closed:
            return
        self._channel = membership.connect(self._node, self._address, self)
        self._say(self._channel)

    def _say(self, channel: Channel) -> None:
        """Be heard of now and then, for as long as this channel is there."""
        if channel.is_open and not self._closed:
            channel.post(StandBy(self._node.address))
            self._later(self.REPEAT_S, partial(self._say, channel))

    def end_first(self) -> None:
        """This broker was told to end: the first one ends, too."""
        self._channel.post(Stop())

    def handle(self, channel: Channel, data: bytes) -> None:
        try:
            message = FROM_BROKER.decode(data)
        except Malformed:
            return  # it is of a later version
        if isinstance(message, Refusal):
            why = f"{message.why:.300}"
            self._say_once(why, f"the broker {self._address}: {why}")
        elif isinstance(message, Brokers) and not self._joined:
            self._joined = True
            self._reasons.clear()
            self._log(f"has joined the first broker at {self._address}")
        elif isinstance(message, Stop):
            self._log(f"the broker {self._address} was told to end")
            self._stop()

    def channel_closed(self, channel: Channel, why: str) -> None:
        """The first broker is gone, or was never there: try again soon, for ever."""
        if channel is not self._channel or self._closed:
            return
        if self._joined:
            self._joined = False
            self._reasons.add(why)
            self._log(f"the first broker at {self._address} is gone: {why}")
        else:
            self._say_once(
                why,
                f"is no stand-by of {self._address} yet ({why}): is `mooactor broker` "
                "running there, with the same key?",
            )
        self._later(self.RETRY_S, self._open)

    def _say_once(self, why: str, text: str) -> None:
        if why not in self._reasons:
            self._reasons.add(why)
            self._log(text)

    def close(self) -> None:
        self._closed = True
