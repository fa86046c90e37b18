# SPDX-License-Identifier: MIT
"""The choice of the subcommand. Each imports its modules only when it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn, TypeAlias

from mooactor import __version__
from mooactor.cli import clustering, streams
from mooactor.cli.failure import Failure
from mooactor.cli.launchers import add_launchers
from mooactor.cli.streams import OutputLost
from mooactor.errors import MooError
from mooactor.process import files


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 if all is well, also if nobody reads
    its output to the end."""
    code = 0
    files.open_standard_streams()
    with streams.guarded():
        try:
            code = _run(arguments)
            streams.flush()
        except OutputLost as lost:
            return code or _lost(lost)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        options = _parsed(words)
    except OutputLost as lost:
        return 2 if lost.fd == 2 else _lost(lost)
    finally:
        streams.flush()  # the help
    try:
        return int(options.run(options))
    except Failure as failure:
        return _failed(options, failure, failure.code)
    except MooError as error:
        return _failed(options, error, 2)
    except KeyboardInterrupt:
        return 130


def _failed(options: argparse.Namespace, error: Exception, code: int) -> int:
    """Say why on stderr; with ``--json`` also on stdout, for the program that reads
    it."""
    with suppress(OutputLost):
        print(f"mooactor {options.command}: {error}", file=sys.stderr)
    if getattr(options, "json", False):
        _print_error(str(error))
    return code


def _print_error(why: str) -> None:
    with suppress(OutputLost):
        print(json.dumps({"error": why}), flush=True)


def _lost(lost: OutputLost) -> int:
    """The exit code of a command whose output ends early."""
    if lost.unread:  # `mooactor status | head`
        return 0
    with suppress(OutputLost):
        print(
            f"mooactor: the output cannot be written ({lost}), and the rest of it is "
            "lost: make room there, or write it elsewhere",
            file=sys.stderr,
        )
    return 1


class _WrongLine(Exception):
    """What is wrong with a command line, and the parser that says so."""

    def __init__(self, parser: argparse.ArgumentParser, text: str) -> None:
        super().__init__(text)
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    """Says with an exception what is wrong; its commands' parsers do so, too."""

    def error(self, message: str) -> NoReturn:
        raise _WrongLine(self, message)


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options. It ends the program if they are wrong, and says why as `_failed`
    does."""
    parser = _Parser(prog="mooactor", description=_DESCRIPTION)
    version = f"mooactor {__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = _add_commands(parser)
    try:
        return parser.parse_args(words)
    except _WrongLine as wrong:
        try:
            argparse.ArgumentParser.error(wrong.parser, str(wrong))
        finally:
            if _asks_for_json(commands, words):
                _print_error(str(wrong))


def _asks_for_json(commands: _Commands, words: Sequence[str]) -> bool:
    """Whether ``--json``, perhaps shortened, is an option there. After ``mooactor run``
    it may be one of the script's."""
    named = next((word for word in words if word in commands.choices), "")
    command = commands.choices.get(named)
    if command is None or command.get_default("json") is None:
        return False
    return any(len(word) > 2 and "--json".startswith(word) for word in words)


def _add_commands(parser: argparse.ArgumentParser) -> _Commands:
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_bench(commands)
    _add_doctor(commands)
    _add_attach(commands)
    clustering.add_commands(commands)
    add_launchers(commands)
    return commands


_DESCRIPTION = (
    "Actors for distributed machine learning: measure and diagnose this machine, debug "
    "actors, and run programs on many hosts."
)
_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_bench(commands: _Commands) -> None:
    bench = commands.add_parser("bench", help="measure this machine beside its peers")
    bench.add_argument("--json", action="store_true", help="one JSON object, no table")
    bench.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="measure the rows whose name begins so (again for more); 'list' lists",
    )
    bench.add_argument(
        "--quick", action="store_true", help="fewer rounds: half a minute, noisier"
    )
    bench.set_defaults(run=_bench)


def _add_doctor(commands: _Commands) -> None:
    doctor = commands.add_parser("doctor", help="what works here, and the remedies")
    doctor.add_argument("--json", action="store_true", help="a JSON list, no table")
    doctor.set_defaults(run=_doctor)


def _add_attach(commands: _Commands) -> None:
    attach = commands.add_parser(
        "attach", help="debug an actor that has stopped at a breakpoint()"
    )
    attach.add_argument(
        "process", nargs="?", help="its process id, or the path of its socket"
    )
    attach.set_defaults(run=_attach)


def _bench(options: argparse.Namespace) -> int:
    from mooactor.cli.bench import report

    return report.run(options.only, options.quick, options.json)


def _attach(options: argparse.Namespace) -> int:
    from mooactor.cli import attach

    return attach.run(options.process)


def _doctor(options: argparse.Namespace) -> int:
    from mooactor.cli.doctor import report

    return report.run(as_json=options.json)
