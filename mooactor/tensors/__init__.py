# SPDX-License-Identifier: MIT
"""The Python face of the C data plane: arrays and tensors between processes.

Only this package imports the compiled extension.
"""

from mooactor.tensors.codec import THRESHOLD
from mooactor.tensors.fetches import Fetch
from mooactor.tensors.plane import DataPlane
from mooactor.tensors.public import current, empty, move, set_current

__all__ = [
    "THRESHOLD",
    "DataPlane",
    "Fetch",
    "current",
    "empty",
    "move",
    "set_current",
]
