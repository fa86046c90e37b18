# SPDX-License-Identifier: MIT
"""``mooactor broker``: run a broker until it is told to end."""

from __future__ import annotations

import argparse
import ipaddress
import socket
from functools import partial

from mooactor.cli.command import Failure
from mooactor.cli.serving import Serving, about
from mooactor.cluster.broker import Broker, Standby, listening
from mooactor.control import secret
from mooactor.control.node import Node
from mooactor.host import addresses
from mooactor.host.addresses import Address
from mooactor.host.members import FAREWELL
from mooactor.process import files
from mooactor.tensors import interfaces

_LOOPBACK = "127.0.0.1"


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or `mooactor stop`."""
    first = _first(options.standby_of) if options.standby_of else None
    key, bind, port = _where(options)
    files.raise_limit()  # each member has a connection
    serving = Serving("mooactor broker")
    try:
        node = listening(key.secret, bind, port, options.ports)
        try:
            _serve(serving, node, key, first)
        finally:
            node.close()
    finally:
        serving.close()
    return 0


def _serve(
    serving: Serving, node: Node, key: secret.Key, first: Address | None
) -> None:
    later, standby = serving.loop.later, None

    def end() -> None:
        if standby is not None:
            standby.end_first()
        serving.stop()

    broker = Broker(node, later, serving.log, end)
    serving.describe("mooactor broker", broker.report)
    serving.log(about(key))
    try:
        node.tell_fingerprint(partial(_strange, serving, key))
    except OSError as error:
        serving.log(f"programs with another key are not told: {error.strerror} (UDP)")
    if first is not None:
        standby = Standby(node, str(first), later, serving.log, serving.stop)
    serving.ready(f"mooactor broker at {node.address}")
    serving.run(node)
    for channel in node.channels():
        channel.close(FAREWELL)
    if standby is not None:
        standby.close()


def _strange(serving: Serving, key: secret.Key, host: str, theirs: str) -> None:
    serving.log(
        f"a program on {host} holds another key, {theirs}, and is not let in; the key "
        f"here is {key}"
    )


def _where(options: argparse.Namespace) -> tuple[secret.Key, str, int | None]:
    """The key, the address to bind, and the port, None for one of --ports."""
    port = None if options.ports else addresses.BROKER_PORT
    if options.listen is None:
        key = secret.find(options.key_file)
        if key is None or key.local:
            key = secret.load(options.key_file, hosts=[_LOOPBACK])
            return key, _LOOPBACK, port
        return key, "*", port
    listen = _address(options.listen, default_port=-1)
    host = interfaces.addresses().get(listen.host, listen.host)
    key = secret.load(options.key_file, hosts=[host])
    host = _numeric(host)
    if key.local:
        secret.stay_here([host])  # a name may stand for anything
    chosen = port if listen.port == -1 else listen.port
    return key, host, chosen


def _address(text: str, default_port: int = addresses.BROKER_PORT) -> Address:
    try:
        return addresses.parse(text, default_port)
    except ValueError as error:
        raise Failure(str(error)) from None


def _first(text: str) -> Address:
    """The broker that this one is the stand-by of."""
    try:
        (found,) = addresses.parse_list(text)
    except ValueError as error:
        raise Failure(f"--standby-of takes one address: {error}") from None
    return found


def _numeric(host: str) -> str:
    """The address of this host that a name stands for."""
    if host == "*":
        return host
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise Failure(
            f"the name {host} has no address ({error.strerror}): give --listen an "
            "address of this host, or *"
        ) from None
