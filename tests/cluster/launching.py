# SPDX-License-Identifier: MIT
"""The ``mooactor`` command, which launches the hosts of `members`."""

from mooactor import cli
from mooactor.cluster.launch import plan


def main() -> None:
    plan.MODULE = "tests.cluster.members"
    raise SystemExit(cli.main())
