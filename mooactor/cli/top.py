# SPDX-License-Identifier: MIT
"""``mooactor top``: `mooactor status`, again and again, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from mooactor.cli import status
from mooactor.cli.client import Client
from mooactor.cli.failure import Failure

_CLEAR = "\x1b[H\x1b[2J"


def run(options: argparse.Namespace) -> int:
    """Show it every `options.interval` seconds; --json: an object a line."""
    try:
        with Client(options.connect, options.key_file) as client:
            found = status.look(client)
            while True:
                _show(found, as_json=options.json)
                client.wait(lambda: False, options.interval)
                found = _next(client, found)
    except KeyboardInterrupt:
        return 0


def _next(client: Client, last: dict[str, Any]) -> dict[str, Any]:
    """What is there now; if no broker answers just now the last look, with the reason
    in its `error`."""
    try:
        return status.look(client)
    except Failure as failure:
        print(f"mooactor top: {failure}", file=sys.stderr, flush=True)
        return {**last, "error": str(failure)}


def _show(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(status.as_json(found), flush=True)
        return
    head = time.strftime("%H:%M:%S  Ctrl-C ends this")
    clear = _CLEAR if sys.stdout.isatty() else ""
    print(f"{clear}{head}\n{status.as_text(found)}\n", flush=True)
