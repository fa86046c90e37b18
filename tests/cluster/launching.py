# SPDX-License-Identifier: MIT
"""The ``mooactor`` command, which launches the hosts of `members`. Their starters have
a patience of `SILENCE` seconds with a silent launcher, if that is set, and so has each
ssh with its other side."""

import os
import re

from mooactor import cli
from mooactor.cluster.launch import plan, program, ssh

SILENCE = "TEST_SILENCE_S"


def main() -> None:
    plan.MODULE = "tests.cluster.members"
    if seconds := os.environ.get(SILENCE):
        text = re.sub(
            rb"SILENCE_S = [\d.]+", b"SILENCE_S = " + seconds.encode(), program._STARTER
        )
        program._HEAD = b"%d\n%s" % (len(text), text)
        interval = f"Interval={float(seconds) / ssh._LOOKS:.0f}"
        ssh._OPTIONS = tuple(re.sub(r"Interval=\d+", interval, o) for o in ssh._OPTIONS)
    raise SystemExit(cli.main())
