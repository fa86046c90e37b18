# SPDX-License-Identifier: MIT
"""``mooactor host``: offer this machine to the sessions of a cluster."""

from __future__ import annotations

import argparse

from mooactor.cli.amounts import bytes_of
from mooactor.cli.failure import Failure
from mooactor.cli.serving import Serving, about
from mooactor.control import secret
from mooactor.host import addresses
from mooactor.host.driver_joins import reach_of
from mooactor.host.keeper import Keeper, Offer
from mooactor.process.place import host_name
from mooactor.tensors.interfaces import listen_address


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or `mooactor stop`."""
    offer, key = _offer(options)
    serving = Serving("mooactor host")
    if not key.source.startswith("/proc/"):  # a launcher's: all its hosts have that one
        serving.log(about(key))
    news = _News(serving, offer.name, key)
    try:
        try:
            keeper = Keeper(
                offer,
                serving.loop,
                serving.log,
                news.joined,
                news.lost,
                serving.stop,
            )
        except (OSError, ValueError) as error:
            raise Failure(str(error)) from None
        try:
            serving.run(keeper.node, keeper.look, keeper.due)
        finally:
            keeper.close()
    finally:
        serving.close()
    return 0


class _News:
    """What is said of the brokers. One that was never joined may be the wrong one."""

    def __init__(self, serving: Serving, name: str, key: secret.Key) -> None:
        self._serving = serving
        self._name = name
        self._key = key
        self._joined: set[str] = set()
        self._reasons: dict[str, str] = {}  # said of those that were not joined yet

    def joined(self, broker: str) -> None:
        if not self._joined:
            self._serving.ready(f"mooactor host {self._name} joined {broker}")
        else:
            self._serving.log(f"joined {broker}")
        self._joined.add(broker)

    def lost(self, broker: str, why: str) -> None:
        if broker in self._joined:
            self._serving.log(f"lost the broker at {broker}: {why}")
        elif self._reasons.get(broker) != why:
            self._reasons[broker] = why
            self._serving.log(
                f"no broker at {broker} yet ({why}): is `mooactor broker` running "
                f"there, with the same key ({self._key.fingerprint})?"
            )


def _offer(options: argparse.Namespace) -> tuple[Offer, secret.Key]:
    try:
        brokers = addresses.parse_list(options.join)
        labels = dict(map(_label, options.label))
        memory = None if options.memory is None else bytes_of(options.memory)
        bind = listen_address(options.bind, "--bind") if options.bind else None
    except ValueError as error:
        raise Failure(str(error)) from None
    hosts = [broker.host for broker in brokers]
    key = secret.load(options.key_file, hosts=[*hosts, bind] if bind else hosts)
    reach = reach_of(brokers, bind, options.ports, local=key.local)
    name = options.name or host_name()
    offer = Offer(
        name,
        [str(broker) for broker in brokers],
        key.secret,
        {**reach, "host": name},
        options.num_cpus,
        options.num_gpus,
        memory,
        labels,
    )
    return offer, key


def _label(said: str) -> tuple[str, str]:
    key, equals, value = said.partition("=")
    if not key or not equals:
        raise ValueError(f"--label {said!r} is no label: write KEY=VALUE")
    return key, value
