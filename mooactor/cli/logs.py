# SPDX-License-Identifier: MIT
"""``mooactor logs``: what one actor has printed, and goes on to print."""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from typing import Any

from mooactor.cli.client import Client, Talk, homes
from mooactor.cli.failure import Failure

PATIENCE_S = 10.0  # without --follow


def run(options: argparse.Namespace) -> int:
    """Print the lines of the actor of this name, of every session that has one."""
    try:
        with Client(options.connect, options.key_file) as client:
            return _follow(client, options)
    except KeyboardInterrupt:
        if options.follow:
            return 0
        raise
    except BrokenPipeError:  # `mooactor logs NAME | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _follow(client: Client, options: argparse.Namespace) -> int:
    found: set[int] = set()
    ended: set[int] = set()
    heard = partial(_heard, found, ended, options.json)
    talks = [client.open(row, heard) for row in homes(client.rows())]
    for talk in talks:
        talk.post({"op": "logs", "name": options.name, "follow": options.follow})

    def over() -> bool:
        return all(id(talk) in ended or talk.closed is not None for talk in talks)

    in_time = client.wait(over, None if options.follow else PATIENCE_S)
    if found:
        return 0
    silent = sum(id(talk) not in ended for talk in talks)
    if silent or not in_time:
        raise Failure(f"{silent} of {len(talks)} sessions did not answer", 1)
    raise Failure(
        f"no session has an actor called {options.name!r}: `mooactor status` lists "
        "those that there are",
        1,
    )


def _heard(
    found: set[int], ended: set[int], as_json: bool, talk: Talk, message: dict[str, Any]
) -> None:
    if message.get("ev") == "log":
        found.add(id(talk))
        _print(talk, message, as_json)
    elif message.get("ev") == "end":
        ended.add(id(talk))
        if message.get("found", True):
            found.add(id(talk))


def _print(talk: Talk, message: dict[str, Any], as_json: bool) -> None:
    line, stream = str(message.get("line")), message.get("stream")
    if as_json:
        fields = {"line": line, "stream": stream, "host": talk.row["name"]}
        print(json.dumps(fields), flush=True)
    else:
        print(line, file=sys.stderr if stream == 2 else sys.stdout, flush=True)
