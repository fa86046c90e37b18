# SPDX-License-Identifier: MIT
"""``python -m tests.fuzz.run [--seconds 600] [--seed N] [TARGET …]``: one after the
other, each for so long. Without names it runs all; a failure is raised with its seed.
"""

from __future__ import annotations

import argparse
import random
import time

from tests.fuzz.targets import TARGETS, Target

_BETWEEN_CHECKS_S = 10.0


def run(target: Target, rng: random.Random, seconds: float, steps: int = 0) -> int:
    """Make cases for so long, and at least so many steps; returns the cases."""
    end = time.monotonic() + seconds
    cases = done = 0
    check_at = time.monotonic() + _BETWEEN_CHECKS_S
    while done < steps or time.monotonic() < end:
        cases += target.step(rng)
        done += 1
        if time.monotonic() > check_at:
            target.check()
            check_at = time.monotonic() + _BETWEEN_CHECKS_S
    target.check()
    return cases


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.run")
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32)
    )
    options = parser.parse_args()
    for name in options.targets or list(TARGETS):
        print(f"{name}: seed {options.seed}", flush=True)
        begun = time.monotonic()
        with TARGETS[name]() as target:
            cases = run(target, random.Random(options.seed), options.seconds)
        took = time.monotonic() - begun
        print(f"{name}: {cases} cases in {took:.0f} s, clean", flush=True)


if __name__ == "__main__":
    main()
