# SPDX-License-Identifier: MIT
"""The choice of the subcommand. Each imports its modules only when it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from mooactor import __version__
from mooactor.cli import clustering, streams
from mooactor.cli.failure import Failure
from mooactor.cli.launchers import add_launchers
from mooactor.cli.streams import OutputLost
from mooactor.errors import MooError
from mooactor.process import standard


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 if all is well, also if nobody reads
    its output to the end."""
    code = 0
    standard.open_all()
    with streams.guarded():
        try:
            code = _run(arguments)
            streams.flush()
        except OutputLost as lost:
            return code or _lost(lost)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        options = _parser().parse_args(arguments)
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
        with suppress(OutputLost):
            print(json.dumps({"error": str(error)}), flush=True)
    return code


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mooactor", description=_DESCRIPTION)
    version = f"mooactor {__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_bench(commands)
    _add_doctor(commands)
    _add_attach(commands)
    clustering.add_commands(commands)
    add_launchers(commands)
    return parser


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

    return report.run(options.only, quick=options.quick, as_json=options.json)


def _attach(options: argparse.Namespace) -> int:
    from mooactor.cli import attach

    return attach.run(options.process)


def _doctor(options: argparse.Namespace) -> int:
    from mooactor.cli.doctor import report

    return report.run(as_json=options.json)
