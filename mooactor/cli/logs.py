# SPDX-License-Identifier: MIT
"""``mooactor logs``: what an actor has printed, and goes on to print.

Several actors may be meant: those of one class that have no names, or of several
sessions. So each line says whose it is, as in the output of the program.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from mooactor.cli.client import Client, Talk, homes
from mooactor.cli.command import Failure
from mooactor.cli.status import shown
from mooactor.control.messages import Message
from mooactor.host.output import prefix_of
from mooactor.host.protocol import End, LeftOut, Line, Logs

PATIENCE_S = 10.0  # without --follow, from one piece of news to the next


def run(options: argparse.Namespace) -> int:
    """Print the lines of the actor of this name, of every session that has one."""
    code = 0 if options.follow else 130
    with Client(options.connect, options.key_file, interrupted=code) as client:
        return _follow(client, options)


def _follow(client: Client, options: argparse.Namespace) -> int:
    reader = _Reader(options.json)
    talks = [client.open(row, reader.heard) for row in homes(client.rows())]
    for talk in talks:
        talk.post(Logs(options.name, options.follow))

    def over() -> bool:
        return all(id(t) in reader.ended or t.closed is not None for t in talks)

    if options.follow:
        client.wait(over, None)
    else:
        _wait_while_lines_come(client, over, reader)
    _check(options.name, talks, reader)
    return 0


def _check(name: str, talks: list[Talk], reader: _Reader) -> None:
    """Raises Failure: the lines of an actor are not all there, or there is none."""
    silent = [talk for talk in talks if id(talk) not in reader.ended]
    lost = [talk for talk in silent if id(talk) in reader.found]
    if lost:
        raise Failure(_lost(name, lost[0]), 1)
    if reader.found:
        return
    if silent:
        raise Failure(
            f"{len(silent)} of {len(talks)} sessions did not answer, and no other has "
            f"an actor called {name!r}: try again; `mooactor status` says "
            "which sessions are busy or ending",
            1,
        )
    raise Failure(
        f"no session has an actor called {name!r}: `mooactor status` lists "
        "those that there are",
        1,
    )


def _wait_while_lines_come(
    client: Client, over: Callable[[], bool], reader: _Reader
) -> None:
    while True:
        reader.news = False
        client.wait(lambda: over() or reader.news, PATIENCE_S)
        if over() or not reader.news:
            return


def _lost(name: str, talk: Talk) -> str:
    why = talk.closed or f"it has said nothing for {PATIENCE_S:g} s"
    return (
        f"the session of {talk.row['name']}, which has {name!r}, cannot be heard any "
        f"more ({why}): `mooactor status` says whether it is still there"
    )


class _Reader:
    """Prints what the sessions say. `found` and `ended`: the talks with those that have
    the actor, and that have said all."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.found: set[int] = set()
        self.ended: set[int] = set()
        self.news = False  # something has come

    def heard(self, talk: Talk, message: Message) -> None:
        self.news = True
        if isinstance(message, LeftOut):
            self._print_gap(talk, message.lines)
        elif isinstance(message, Line):
            self.found.add(id(talk))
            self._print(talk, message)
        elif isinstance(message, End):
            self.ended.add(id(talk))
            if message.found:
                self.found.add(id(talk))
            if message.why is not None:
                self._print_end(talk, message.label or "", message.why)

    def _print(self, talk: Talk, message: Line) -> None:
        line, stream = message.line, message.stream
        host, label, pid = message.host or talk.row["name"], message.label, message.pid
        if self._as_json:
            about = {"label": label, "pid": pid}
            if message.id:
                about |= {"id": message.id, "incarnation": message.incarnation}
            _print_json(talk, line=line, stream=stream, host=host, **about)
            return
        line = shown(prefix_of(label, pid, host).decode()) + line
        print(line, file=sys.stderr if stream == 2 else sys.stdout, flush=True)

    def _print_gap(self, talk: Talk, lines: int) -> None:
        if self._as_json:
            _print_json(talk, left_out=lines)
        else:
            text = f"mooactor logs: {lines} lines are left out here: they came faster "
            print(f"{text}than they were read", file=sys.stderr, flush=True)

    def _print_end(self, talk: Talk, label: str, why: str) -> None:
        if self._as_json:
            _print_json(talk, ended=label, why=why)
        else:
            text = shown(f"mooactor logs: {label} has ended: {why}")
            print(text, file=sys.stderr, flush=True)


def _print_json(talk: Talk, **fields: Any) -> None:
    print(json.dumps({**fields, "session_host": talk.row["name"]}), flush=True)
