# SPDX-License-Identifier: MIT
"""The parsers of the subcommands for clusters, and the options that these share."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import TypeAlias

from mooactor.process.needs import MOST_THINGS

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_commands(commands: _Commands) -> None:
    """Add them all."""
    _add_keygen(commands)
    _add_broker(commands)
    _add_host(commands)
    status = commands.add_parser("status", help="hosts, sessions and their actors")
    _complete(status, "status", "one JSON object, no tables")
    _add_top(commands)
    _add_logs(commands)
    stop = commands.add_parser("stop", help="end the sessions, hosts and the broker")
    _complete(stop, "stop", "one JSON object")


def run_by(module: str, name: str = "run") -> Callable[[argparse.Namespace], int]:
    """``mooactor.cli.MODULE.NAME``, imported when it is called."""

    def run(options: argparse.Namespace) -> int:
        found = importlib.import_module(f"mooactor.cli.{module}")
        return int(getattr(found, name)(options))

    return run


def add_key_option(parser: argparse.ArgumentParser) -> None:
    """``--key-file``, which every command of a cluster has."""
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        type=some,
        help="the cluster's key (default: MOOACTOR_KEY_FILE, MOOACTOR_KEY, else "
        "~/.config/mooactor/key)",
    )


def some(text: str) -> str:
    """The type of an option whose value is no empty string: without the option there is
    a default, which is not meant."""
    if not text:
        raise argparse.ArgumentTypeError(
            "its value is empty: write one, or leave the option out"
        )
    return text


def add_ports_option(
    parser: argparse.ArgumentParser, what: str = "listen on these ports only"
) -> None:
    """``--ports``, for firewalls: a range."""
    parser.add_argument("--ports", metavar="A-B", type=_ports, help=what)


def add_offers(parser: argparse.ArgumentParser, of_each: str = "") -> None:
    """What a host offers, or each of several."""
    for option, what in (("--num-cpus", "cores"), ("--num-gpus", "GPUs")):
        meaning = f"{what} to offer{of_each} (default: all)"
        parser.add_argument(option, metavar="N", type=_whole, help=meaning)
    meaning = f"memory to offer{of_each}, such as 64GB (default: all)"
    parser.add_argument("--memory", metavar="M", help=meaning)


def _ports(text: str) -> range:
    from mooactor.host.addresses import parse_ports

    try:
        return parse_ports(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _complete(parser: argparse.ArgumentParser, module: str, as_json: str) -> None:
    """The options of a command that asks a cluster something."""
    parser.add_argument("--json", action="store_true", help=as_json)
    parser.add_argument(
        "--connect",
        metavar="ADDR",
        type=some,
        help="the broker, or several with commas (default: MOOACTOR_ADDRESS, else "
        "127.0.0.1)",
    )
    add_key_option(parser)
    parser.set_defaults(run=run_by(module))


def _add_keygen(commands: _Commands) -> None:
    keygen = commands.add_parser("keygen", help="make the key of a cluster")
    keygen.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        type=some,
        help="default: ~/.config/mooactor/key",
    )
    keygen.add_argument("--force", action="store_true", help="replace a key there")
    keygen.add_argument(
        "--show",
        action="store_true",
        help="the fingerprint of the key that commands use here, or of FILE; make none",
    )
    keygen.set_defaults(run=run_by("keygen"))


def _add_broker(commands: _Commands) -> None:
    broker = commands.add_parser("broker", help="introduce hosts and drivers")
    broker.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        type=some,
        help="ADDR may be an interface's name; default: port 4431, of all addresses if "
        "there is a key, else of loopback",
    )
    broker.add_argument(
        "--standby-of",
        metavar="ADDR",
        type=some,
        help="be the second broker beside that one",
    )
    add_ports_option(broker, "listen on one of these ports")
    add_key_option(broker)
    broker.set_defaults(run=run_by("broker"))


def _add_top(commands: _Commands) -> None:
    top = commands.add_parser("top", help="the same, live, until Ctrl-C")
    top.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="seconds between two looks (default 1)",
    )
    _complete(top, "top", "one JSON object a line")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 3600")
    return value


def _add_logs(commands: _Commands) -> None:
    logs = commands.add_parser("logs", help="what an actor has printed")
    logs.add_argument("name", metavar="NAME", help="of the actor")
    logs.add_argument(
        "-f", "--follow", action="store_true", help="go on until the actor ends"
    )
    _complete(logs, "logs", "one JSON object a line")


def _add_host(commands: _Commands) -> None:
    host = commands.add_parser("host", help="offer this machine to sessions")
    host.add_argument(
        "--join", required=True, metavar="ADDR[,ADDR]", help="the broker, or several"
    )
    meaning = "of this host (default: MOOACTOR_HOST_NAME, or the kernel's name)"
    host.add_argument("--name", type=some, help=meaning)
    add_offers(host)
    host.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for moo.on(…, labels=…); again for more",
    )
    host.add_argument(
        "--bind",
        metavar="ADDR",
        type=some,
        help="listen there: a numeric address, the name of an interface, or * for all; "
        "default: on the way to the broker",
    )
    add_ports_option(host)
    add_key_option(host)
    host.add_argument(
        "--wait",
        action="store_true",
        help="go on trying if the broker has another key, in place of ending",
    )
    # Of hosts that a rank of a job starts.
    host.add_argument("--with-broker", action="store_true", help=argparse.SUPPRESS)
    host.set_defaults(run=run_by("host"))


def _whole(text: str) -> int:
    """The type of an option that is a number of things."""
    if (
        not text.isdecimal()
        or len(text) > len(str(MOST_THINGS))
        or int(text) > MOST_THINGS
    ):
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is no whole number of at most {MOST_THINGS}"
        )
    return int(text)
