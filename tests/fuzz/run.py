# SPDX-License-Identifier: MIT
"""``python -m tests.fuzz.run [--seconds 600] [--cases N] [--seed N] [TARGET …]``: one
after the other, each for so long, or until it has had so many cases. Without names it
runs all; a failure is raised with its seed.

A million mutated frames over TCP to an actor and to a node, of one with the key::

    python -m tests.fuzz.run --cases 1000000 inbox node
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
from collections.abc import Callable
from typing import Protocol

from tests.fuzz import inboxes, nodes, parsers


class Target(Protocol):
    """Something that gets mutated bytes or messages."""

    def step(self, rng: random.Random) -> int:
        """Make some cases; returns their number."""

    def check(self) -> None:
        """All that must hold still holds."""


TARGETS: dict[str, Callable[[], contextlib.AbstractContextManager[Target]]] = {
    **parsers.TARGETS,
    **inboxes.TARGETS,
    **nodes.TARGETS,
}


_BETWEEN_CHECKS_S = 10.0


def run(
    target: Target, rng: random.Random, seconds: float = 0.0, least: int = 0
) -> int:
    """Make cases for so long, and at least so many; returns their number."""
    end = time.monotonic() + seconds
    cases = 0
    check_at = time.monotonic() + _BETWEEN_CHECKS_S
    while cases < least or time.monotonic() < end:
        cases += target.step(rng)
        if time.monotonic() > check_at:
            target.check()
            check_at = time.monotonic() + _BETWEEN_CHECKS_S
    target.check()
    return cases


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.run")
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=list(TARGETS))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32)
    )
    options = parser.parse_args()
    seconds = options.seconds
    if seconds is None:
        seconds = 0.0 if options.cases else 600.0
    for name in options.targets or list(TARGETS):
        print(f"{name}: seed {options.seed}", flush=True)
        begun = time.monotonic()
        with TARGETS[name]() as target:
            rng = random.Random(options.seed)
            cases = run(target, rng, seconds, options.cases)
        took = time.monotonic() - begun
        print(f"{name}: {cases} cases in {took:.0f} s, clean", flush=True)


if __name__ == "__main__":
    main()
