# SPDX-License-Identifier: MIT
"""The ``mooactor`` command, which launches the hosts of `members`. Their starters have
a patience of `SILENCE` seconds with a silent launcher, if that is set, and each ssh
looks for its other side every `LOOK` seconds."""

import os
import re

from mooactor import cli
from mooactor.cluster.launch import plan, program, ssh

SILENCE, LOOK = "TEST_SILENCE_S", "TEST_LOOK_S"


def main() -> None:
    plan.MODULE = "tests.cluster.members"
    if seconds := os.environ.get(SILENCE):
        text = re.sub(
            rb"SILENCE_S = [\d.]+", b"SILENCE_S = " + seconds.encode(), program._STARTER
        )
        program._HEAD = b"%d\n%s" % (len(text), text)
    if seconds := os.environ.get(LOOK):
        every = f"Interval={seconds}"
        ssh._OPTIONS = tuple(re.sub(r"Interval=\d+", every, o) for o in ssh._OPTIONS)
    raise SystemExit(cli.main())
