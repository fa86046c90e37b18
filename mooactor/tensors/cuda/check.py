# SPDX-License-Identifier: MIT
"""Whether two processes may share GPU memory here: ``python -m`` of this module.

Prints one line: the answer of a second process to a probe of the first, for device 0
(see `peer_access`).
"""

from __future__ import annotations

import subprocess
import sys

import torch

from mooactor.tensors.cuda.driver import driver
from mooactor.tensors.cuda.peer_access import Probe, new_probe, run_probe

_TIMEOUT_S = 60.0


def main(handle: str = "", pattern: str = "") -> str:
    """Make a probe and have it run; with arguments, try that one."""
    torch.cuda.current_device()  # CUDA is initialised from here on
    found = driver()
    if found is None:
        return "no such driver"
    if handle:
        return run_probe(found, 0, Probe(bytes.fromhex(handle), bytes.fromhex(pattern)))
    probe = new_probe(found, 0)
    if probe is None:
        return "this device has no memory that could be opened"
    command = [sys.executable, "-m", __spec__.name, *(part.hex() for part in probe)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    return done.stdout.strip() or "the second process failed"


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
