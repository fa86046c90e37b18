# SPDX-License-Identifier: MIT
"""``make bench-all``: one table of the rows of ``mooactor bench`` and of those here."""

from __future__ import annotations

import argparse
import sys

from mooactor.cli.bench import report
from mooactor.cli.command import Failure

NAMES = (
    *("weights", "network", "fabric", "rings", "environments"),
    *("broker", "hosts", "connections", "deaths"),
)
GROUPS = [*report.GROUPS, *(f"tests.bench.{name}" for name in NAMES)]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    try:
        return report.run(options.only, options.quick, options.json, GROUPS)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code


if __name__ == "__main__":
    raise SystemExit(main())
