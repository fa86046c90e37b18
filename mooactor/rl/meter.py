# SPDX-License-Identifier: MIT
"""`Meter`: means of measurements, by name; `Pace`: the interval of reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor


class Meter:
    """Collects numbers and 0-d tensors by name until they are read.

    Tensors are not looked at before that, so adding one does not wait for a GPU.
    """

    def __init__(self) -> None:
        self._samples: dict[str, list[float | Tensor]] = defaultdict(list)

    def add(self, facts: Mapping[str, float | Tensor]) -> None:
        """Add one number or 0-d tensor under each name."""
        for name, value in facts.items():
            self._samples[name].append(value)

    def values(self, name: str) -> Tensor:
        """The values added under ``name``, ``[n]`` float64 on the CPU."""
        samples = self._samples.get(name, [])
        tensors = [sample for sample in samples if isinstance(sample, Tensor)]
        if len(tensors) == len(samples) > 0:
            return torch.stack(tensors).double().cpu()  # one wait for all
        return torch.tensor([float(sample) for sample in samples], dtype=torch.float64)

    def means(self) -> dict[str, float]:
        """The mean under each name, without NaN unless all values are NaN."""
        return {name: float(self.values(name).nanmean()) for name in self._samples}


class Pace:
    """The number of updates to ask for at a time, for a report every ``period_s``.

    It begins at one, and at most doubles each time. With ``always`` it is constant.
    """

    def __init__(self, period_s: float, *, always: int | None = None) -> None:
        self._period_s = period_s
        self._always = always
        self.updates = 1 if always is None else always

    def adapt(self, elapsed_s: float) -> None:
        """Take into account that the last ``updates`` took ``elapsed_s``."""
        if self._always is None:
            wanted = round(self.updates * self._period_s / elapsed_s)
            self.updates = max(1, min(wanted, 2 * self.updates))
