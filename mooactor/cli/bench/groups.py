# SPDX-License-Identifier: MIT
"""The groups of rows, in the order of the table."""

from __future__ import annotations

from mooactor.cli.bench import (
    allreduce,
    arrays,
    broker,
    calls,
    connections,
    deaths,
    environments,
    fabric,
    hosts,
    network,
    rings,
    startup,
    weights,
)
from mooactor.cli.command import Failure

GROUPS = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        calls,
        arrays,
        weights,
        allreduce,
        network,
        fabric,
        rings,
        startup,
        environments,
        broker,
        hosts,
        connections,
        deaths,
    )
}


def names() -> list[str]:
    """The name of every row, as ``--only`` takes them."""
    return [name for module in GROUPS.values() for name in module.NAMES]


def groups_with(wanted: list[str] | None) -> list[str]:
    """The groups that hold a row whose name begins with one of `wanted`.

    Raises:
      Failure: something wanted begins no name.
    """
    if not wanted:
        return list(GROUPS)
    for prefix in wanted:
        if not any(name.startswith(prefix) for name in names()):
            raise Failure(
                f"no row has a name that begins with {prefix!r}: `mooactor bench "
                "--only list` lists all names"
            )
    return [
        group
        for group, module in GROUPS.items()
        if any(name.startswith(tuple(wanted)) for name in module.NAMES)
    ]
