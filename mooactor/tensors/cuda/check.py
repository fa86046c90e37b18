# SPDX-License-Identifier: MIT
"""Whether two processes may share GPU memory here: ``python -m`` of this module.

Prints one line: the verdict of a second process on an offer of the first, for device 0
(see `peer_access`).
"""

from __future__ import annotations

import subprocess
import sys

import torch

from mooactor.tensors.cuda.driver import driver
from mooactor.tensors.cuda.peer_access import Offer, new_offer, tried

_TIMEOUT_S = 60.0


def main(handle: str = "", pattern: str = "") -> str:
    """Make an offer and have it tried; with arguments, try that one."""
    torch.cuda.current_device()  # CUDA is initialised from here on
    found = driver()
    if found is None:
        return "no such driver"
    if handle:
        return tried(found, 0, Offer(bytes.fromhex(handle), bytes.fromhex(pattern)))
    offer = new_offer(found, 0)
    if offer is None:
        return "this device has no memory that could be opened"
    command = [sys.executable, "-m", __spec__.name, *(part.hex() for part in offer)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    return done.stdout.strip() or "the second process failed"


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
