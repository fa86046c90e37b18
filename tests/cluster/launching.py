# SPDX-License-Identifier: MIT
"""The ``mooactor`` command, which launches the hosts of `members`. Their starters have
a patience of `SILENCE` seconds with a silent launcher, if that is set, and after a
signal the program has `GRACE` seconds."""

import os
import re

from mooactor import cli
from mooactor.cluster.launch import launch, plan, program

SILENCE, GRACE = "TEST_SILENCE_S", "TEST_GRACE_S"


def main() -> None:
    plan.MODULE = "tests.cluster.members"
    if seconds := os.environ.get(SILENCE):
        text = re.sub(
            rb"SILENCE_S = [\d.]+", b"SILENCE_S = " + seconds.encode(), program._STARTER
        )
        program._HEAD = b"%d\n%s" % (len(text), text)
    if seconds := os.environ.get(GRACE):
        launch.SCRIPT_GRACE_S = float(seconds)
    raise SystemExit(cli.main())
