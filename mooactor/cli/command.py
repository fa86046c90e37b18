# SPDX-License-Identifier: MIT
"""The ``mooactor`` command: the choice of the subcommand, and why it fails."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from mooactor import __version__
from mooactor.cli.arguments import add_commands
from mooactor.errors import MooError
from mooactor.process import files

_DESCRIPTION = (
    "Actors for distributed machine learning: measure and diagnose this machine, debug "
    "actors, and run programs on many hosts."
)


class Failure(Exception):
    """Why a command cannot do its work: one sentence and the next step.

    `code` is the exit code. 2: the command could not begin, for its arguments or its
    surroundings. 1: it began, and did not do what was asked for.
    """

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 if all is well, also if nobody reads
    its output to the end. Characters that the encoding lacks are printed as escapes."""
    files.open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = 0
    try:
        try:
            code = _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard(1)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="mooactor", description=_DESCRIPTION)
    version = f"mooactor {__version__}"
    parser.add_argument("--version", action="version", version=version)
    add_commands(parser)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except (Failure, MooError) as error:
        with suppress(OSError):
            print(f"mooactor {options.command}: {error}", file=sys.stderr)
        if getattr(options, "json", False):  # for the program that reads it
            with suppress(OSError):
                print(json.dumps({"error": str(error)}), flush=True)
        return error.code if isinstance(error, Failure) else 2
    except KeyboardInterrupt:
        return 130


def discard(stream: int) -> None:
    """Drop what is printed to standard output (1) or error (2), which failed. The
    rest would fail again, and be the exit code of the interpreter."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream)
    os.close(null)
