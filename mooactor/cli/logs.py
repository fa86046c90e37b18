# SPDX-License-Identifier: MIT
"""``mooactor logs``: what an actor has printed, and goes on to print.

Several actors may be meant: those of one class that have no names, or of several
sessions. Then each line says whose it is, from the first one on: so none is printed
until all sessions have said whom they have, or take too long.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from mooactor.cli.client import Client, Talk, homes
from mooactor.cli.command import Failure
from mooactor.cli.status import shown
from mooactor.host.logs import prefix_of

_MEANT_S = 2.0  # for whom each session has
PATIENCE_S = 10.0  # without --follow, from one piece of news to the next
_ABOUT = ("label", "pid", "id", "incarnation")  # of the process that has printed a line


def run(options: argparse.Namespace) -> int:
    """Print the lines of the actor of this name, of every session that has one."""
    try:
        with Client(options.connect, options.key_file) as client:
            return _follow(client, options)
    except KeyboardInterrupt:
        if options.follow:
            return 0
        raise


def _follow(client: Client, options: argparse.Namespace) -> int:
    reader = _Reader(options.json)
    talks = [client.open(row, reader.heard) for row in homes(client.rows())]
    for talk in talks:
        talk.post({"op": "logs", "name": options.name, "follow": options.follow})

    def all_are(among: set[int]) -> bool:
        return all(id(talk) in among or talk.closed is not None for talk in talks)

    client.wait(lambda: all_are(reader.answered), _MEANT_S)
    reader.begin()
    if options.follow:
        client.wait(lambda: all_are(reader.ended), None)
    else:
        _wait_while_lines_come(client, lambda: all_are(reader.ended), reader)
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
    """Prints what the sessions say, from `begin` on. `answered`, `found` and `ended`:
    the talks with those that have said anything, that have the actor, and that have
    said all."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._actors: set[tuple[int, str]] = set()  # that are known to be meant
        self._kept: list[Callable[[], None]] | None = []  # to be printed by `begin`
        self.answered: set[int] = set()
        self.found: set[int] = set()
        self.ended: set[int] = set()
        self.news = False  # something has come

    def begin(self) -> None:
        """Print what has come, and what comes from now on as it does."""
        kept, self._kept = self._kept or [], None
        for action in kept:
            action()

    def heard(self, talk: Talk, message: dict[str, Any]) -> None:
        self.news = True
        self.answered.add(id(talk))
        for actor in (message.get("id"), *_list(message.get("actors"))):
            if isinstance(actor, str):
                self._actors.add((id(talk), actor))
                self.found.add(id(talk))
        if self._kept is None:
            self._act_on(talk, message)
        else:
            self._kept.append(partial(self._act_on, talk, message))

    def _act_on(self, talk: Talk, message: dict[str, Any]) -> None:
        if message.get("ev") == "left_out":
            self._print_gap(talk, message.get("lines"))
        elif message.get("ev") == "log":
            self.found.add(id(talk))
            self._print(talk, message)
        elif message.get("ev") == "end":
            self.ended.add(id(talk))
            if message.get("found", True):
                self.found.add(id(talk))
            if "why" in message:
                self._print_end(talk, message)

    def _print(self, talk: Talk, message: dict[str, Any]) -> None:
        line, stream = str(message.get("line")), message.get("stream")
        host = str(message.get("host") or talk.row["name"])
        if self._as_json:
            about = {key: message[key] for key in _ABOUT if key in message}
            _print_json(talk, line=line, stream=stream, host=host, **about)
            return
        label, pid = message.get("label"), message.get("pid")
        if len(self._actors) > 1 and isinstance(label, str) and isinstance(pid, int):
            line = shown(prefix_of(label, pid, host).decode()) + line
        print(line, file=sys.stderr if stream == 2 else sys.stdout, flush=True)

    def _print_gap(self, talk: Talk, lines: object) -> None:
        if self._as_json:
            _print_json(talk, left_out=lines)
        else:
            text = f"mooactor logs: {lines} lines are left out here: they came faster "
            print(f"{text}than they were read", file=sys.stderr, flush=True)

    def _print_end(self, talk: Talk, message: dict[str, Any]) -> None:
        label, why = str(message.get("label")), str(message["why"])
        if self._as_json:
            _print_json(talk, ended=label, why=why)
        else:
            text = shown(f"mooactor logs: {label} has ended: {why}")
            print(text, file=sys.stderr, flush=True)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _print_json(talk: Talk, **fields: Any) -> None:
    print(json.dumps({**fields, "session_host": talk.row["name"]}), flush=True)
