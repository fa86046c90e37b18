# SPDX-License-Identifier: MIT
"""The ``mooactor`` command: the choice of the subcommand, what it prints, and why it
fails.

A write of standard output or error that fails raises `OutputLost`, so it is not taken
for another OSError of the command, which keeps its own message or traceback. What is
printed after that goes nowhere. Characters that the encoding lacks are printed as
escapes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from mooactor import __version__
from mooactor.cli.arguments import Commands, add_commands
from mooactor.errors import MooError
from mooactor.process import files

_DESCRIPTION = (
    "Actors for distributed machine learning: measure and diagnose this machine, debug "
    "actors, and run programs on many hosts."
)


class Failure(Exception):
    """Its text is one sentence and the next step; `code` is the exit code.

    2: the command could not begin, for its arguments or its surroundings.
    1: it began, and did not do what was asked for.
    """

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 if all is well, also if nobody reads
    its output to the end."""
    code = 0
    files.open_standard_streams()
    with guarded():
        try:
            code = _run(arguments)
            flush()
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
        flush()  # the help
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
    commands = add_commands(parser)
    try:
        return parser.parse_args(words)
    except _WrongLine as wrong:
        try:
            argparse.ArgumentParser.error(wrong.parser, str(wrong))
        finally:
            if _asks_for_json(commands, words):
                _print_error(str(wrong))


def _asks_for_json(commands: Commands, words: Sequence[str]) -> bool:
    """Whether ``--json``, perhaps shortened, is an option there. After ``mooactor run``
    it may be one of the script's."""
    named = next((word for word in words if word in commands.choices), "")
    command = commands.choices.get(named)
    if command is None or command.get_default("json") is None:
        return False
    return any(len(word) > 2 and "--json".startswith(word) for word in words)


# -- streams ----------------------------------------------------------------------


class OutputLost(Exception):
    """Nobody reads the stream any more (`unread`), or it cannot be written. `fd`: 1
    or 2."""

    def __init__(self, error: OSError, fd: int) -> None:
        super().__init__(error.strerror or str(error))
        self.unread = isinstance(error, BrokenPipeError)
        self.fd = fd


class _Stream(io.TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._lost(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._lost(error) from None

    def _lost(self, error: OSError) -> OutputLost:
        # Its buffer still has text, which the interpreter writes when it exits.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        return OutputLost(error, self.fileno())


@contextmanager
def guarded() -> Iterator[None]:
    """Have both streams be like this."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = ours = _guard(sys.stdout), _guard(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for own, theirs in zip(ours, before, strict=True):
            if own is not theirs:
                with suppress(OutputLost):  # there is another error to tell of
                    own.flush()
                own.detach()


def flush() -> None:
    """Write what standard output still has to write."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _guard(stream: Any) -> Any:
    if not isinstance(stream, io.TextIOWrapper):  # closed, or somebody's own
        return stream
    stream.flush()
    return _Stream(
        stream.buffer,
        stream.encoding,
        "backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
