# SPDX-License-Identifier: MIT
"""``mooactor host``: offer this machine to the sessions of a cluster."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from mooactor.cli.command import Failure
from mooactor.cli.serving import Serving, about
from mooactor.cluster.registry import check_labels
from mooactor.control import secret
from mooactor.control.fingerprints import OTHER_KEY
from mooactor.host import addresses
from mooactor.host.daemon import HostDaemon, Offer
from mooactor.host.driver_joins import reach_of
from mooactor.host.members import FAREWELL
from mooactor.host.protocol import Refused
from mooactor.process.environment import check_host_name, host_name
from mooactor.tensors.interfaces import listen_address
from mooactor.times import BROKER_LOST_S

# After `times.NAME_PATIENCE_S`. A busy broker may know a silent end 8 s later.
_LENIENT_S = 5.0


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or `mooactor stop`."""
    offer, key = _offer(options)
    serving = Serving("mooactor host")
    if not key.source.startswith("/proc/"):  # all hosts of a launcher have that key
        serving.log(about(key))
    news = _News(
        serving,
        offer.name,
        key,
        waits=options.wait,
        with_broker=options.with_broker,
    )
    try:
        try:
            daemon = HostDaemon(offer, serving.loop, news, serving.stop)
        except (OSError, ValueError) as error:
            raise Failure(str(error)) from None
        serving.describe("the agent", daemon.report)
        try:
            serving.run(daemon.node, daemon.look, lambda: None)
        finally:
            daemon.close()
    finally:
        serving.close()
    if news.refusal is not None:
        raise Failure(news.refusal, code=1)
    return 0


class _News:
    """The messages on the brokers: of each that is not there, each reason once.

    A host whose name another one has, and that never joined any, ends: no `mooactor
    stop` would reach it, and later it could take that name. So does one with another
    key than its broker, unless it `waits`. `refusal` says why, then.

    Args:
      with_broker: end with the only broker that there is.
    """

    def __init__(
        self,
        serving: Serving,
        name: str,
        key: secret.Key,
        *,
        waits: bool = False,
        with_broker: bool = False,
    ) -> None:
        self._serving = serving
        self._waits, self._with_broker = waits, with_broker
        self._name = name
        self._key = key
        self.refusal: str | None = None
        self._has_joined = False  # any
        self._present: set[str] = set()
        self._reasons: dict[str, set[str]] = {}  # said of those that are not present

    def joined(self, broker: str, notes: list[str]) -> None:
        for note in notes:
            self._serving.log(note)
        if not self._has_joined:
            self._serving.ready(f"mooactor host {self._name} joined {broker}")
        else:
            self._serving.log(f"joined {broker}")
        self._has_joined = True
        self._present.add(broker)
        self._reasons.pop(broker, None)

    def lost(self, broker: str, why: str) -> None:
        said = self._reasons.setdefault(broker, set())
        is_new = why not in said
        said.add(why)
        if broker in self._present:
            self._present.discard(broker)
            self._serving.log(f"lost the broker at {broker}: {why}")
            if self._with_broker:
                self._follow(broker, why)
        elif is_new:  # a lost one is tried every few seconds, for ever
            step = secret.next_step(why, self._key)
            self._serving.log(f"no broker at {broker} yet ({why}): {step}")

    def _follow(self, broker: str, why: str) -> None:
        if why == FAREWELL:
            self._serving.stop()
            return

        def look() -> None:
            if broker not in self._present:
                self.refusal = f"the broker at {broker} is gone, and the run is over"
                self._serving.stop()

        self._serving.loop.later(BROKER_LOST_S, look)

    def refused(self, broker: str, why: str, hopeless: bool) -> None:
        text = f"the broker at {broker} refuses this host: {why}"
        self._serving.log(text)
        if not hopeless:
            return
        if OTHER_KEY not in why:
            # Of a host that was killed the broker may not know yet.
            self._serving.loop.later(_LENIENT_S, lambda: self._give_up(text))
        elif not self._waits:
            step = secret.next_step(why, self._key)
            self._give_up(f"{text}: {step}; with --wait it goes on trying")

    def _give_up(self, text: str) -> None:
        if not self._has_joined:
            self.refusal = text
            self._serving.stop()


def _offer(options: argparse.Namespace) -> tuple[Offer, secret.Key]:
    try:
        brokers = addresses.parse_list(options.join)
        name = _name(options.name)
        labels = dict(map(_label, options.label))
        check_labels(labels)
        bind = listen_address(options.bind, "--bind") if options.bind else None
    except (ValueError, Refused) as error:
        raise Failure(str(error)) from None
    hosts = [broker.host for broker in brokers]
    key = secret.load(options.key_file, hosts=[*hosts, bind] if bind else hosts)
    reach = reach_of(brokers, bind, options.ports, local=key.local)
    offer = Offer(
        name,
        [str(broker) for broker in brokers],
        key.secret,
        replace(reach, host=name),
        options.num_cpus,
        options.num_gpus,
        options.memory,
        labels,
    )
    return offer, key


def _name(said: str | None) -> str:
    """The name of this host. The kernel's may be none that is possible."""
    if said is not None:
        return check_host_name("--name", said)
    return check_host_name("the host's name", host_name())


def _label(said: str) -> tuple[str, str]:
    key, equals, value = said.partition("=")
    if not key or not equals:
        raise ValueError(f"--label {said!r} is no label: write KEY=VALUE")
    return key, value
