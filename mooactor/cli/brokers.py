# SPDX-License-Identifier: MIT
"""`Brokers`: all brokers of a cluster, as a command finds them."""

from __future__ import annotations

from mooactor.cli.client import PATIENCE_S, Client, Row, Talk
from mooactor.host.addresses import is_reachable
from mooactor.host.members import ListBrokers, Peers, Stop

_MOST = 32


class Brokers:
    """Those that the user names, those whose stand-by one of them is, and stand-bys.

    ``answered`` has a talk with each broker that answers. ``silent`` has one with each
    address at which another one should be; stand-bys whose first broker answers are not
    among these, because that one tells them to end.

    Raises:
      Failure: none of those that the user names answers.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: dict[str, Talk] = {}
        address = client.broker.row["address"]  # fails if there is none
        self._ask([address, *client.addresses])
        talks = [talk for talk in self._asked.values() if _answer(talk)]
        found = {talk.channel.peer: talk for talk in talks if talk.channel is not None}
        self.answered = list(found.values())
        first = [one for t in talks for one in _told(t, standbys=False)]
        ids = dict(first)
        known = {peer.hex() for peer in found}
        self.silent = [
            self._asked[address]
            for address in dict.fromkeys([*client.addresses, *ids])
            # One that answers by another name is none.
            if address in self._asked
            and self._asked[address] not in talks
            and ids.get(address) not in known
        ]

    def _ask(self, addresses: list[str]) -> None:
        """Ask all at these addresses, and at those that they tell of."""
        client = self._client
        while new := [a for a in dict.fromkeys(addresses) if a not in self._asked]:
            for address in new[: _MOST - len(self._asked)]:
                talk = client.open({"address": address})
                talk.post(ListBrokers())
                self._asked[address] = talk
            client.wait(self._heard, PATIENCE_S)
            talks = self._asked.values()
            told = [one for t in talks for one in _told(t)]
            addresses = [address for address, _ in told]
            if len(self._asked) >= _MOST:
                return

    def _heard(self) -> bool:
        talks = self._asked.values()
        return all(talk.closed is not None or _answer(talk) for talk in talks)

    def rows(self) -> list[Row]:
        """The members that any of them knows."""
        found: dict[str, Row] = {}
        for broker in self.answered:
            for row in self._client.rows_of(broker):
                found.setdefault(row["id"], row)
        return list(found.values())

    def end(self, patience_s: float) -> list[Talk]:
        """Have them end; those that have not."""
        for talk in self.answered:
            talk.post(Stop())
        self._client.wait(
            lambda: all(talk.closed is not None for talk in self.answered), patience_s
        )
        return [talk for talk in self.answered if not talk.over]


def _answer(talk: Talk) -> Peers | None:
    return talk.answer(Peers)


def _told(talk: Talk, *, standbys: bool = True) -> list[tuple[str, str]]:
    """The brokers that one tells of, the first or all: address and id."""
    answer = _answer(talk)
    if answer is None:
        return []
    told = [answer.first] if answer.first is not None else []
    told += answer.standbys if standbys else []
    return [(one.address, one.id) for one in told if is_reachable(one.address)]
