# SPDX-License-Identifier: MIT
"""``mooactor top``: `mooactor status`, again and again, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from mooactor.cli import status
from mooactor.cli.client import Client

_CLEAR = "\x1b[H\x1b[2J"


def run(options: argparse.Namespace) -> int:
    """Show it every `options.interval` seconds; --json: an object a line."""
    try:
        with Client(options.connect, options.key_file) as client:
            while True:
                began = time.monotonic()
                _show(status.look(client), as_json=options.json)
                until = began + options.interval
                client.wait(lambda: False, max(0.0, until - time.monotonic()))
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # `mooactor top | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _show(found: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found), flush=True)
        return
    head = time.strftime("%H:%M:%S  Ctrl-C ends this")
    clear = _CLEAR if sys.stdout.isatty() else ""
    print(f"{clear}{head}\n{status.as_text(found)}\n", flush=True)
