# SPDX-License-Identifier: MIT
"""Resources that actors need of their hosts: processors, GPUs and memory."""

from typing import Annotated

import msgspec
from msgspec import Meta

from mooactor.control.messages import Name, Text

MOST_THINGS, MOST_BYTES = 10**9, 10**18  # of a host: cores or GPUs, and memory
ROUNDING = 1e-9  # of sums of amounts
_Quantity = Annotated[float, Meta(ge=0, le=MOST_BYTES)]
Labels = Annotated[dict[Text, Text], Meta(max_length=1 << 10)]


class Amount(msgspec.Struct, frozen=True):
    """Processors, GPUs and bytes of memory: needed, reserved, or there."""

    cpus: _Quantity = 0.0
    gpus: _Quantity = 0.0
    memory: _Quantity = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.cpus + other.cpus, self.gpus + other.gpus, self.memory + other.memory
        )

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(
            self.cpus - other.cpus, self.gpus - other.gpus, self.memory - other.memory
        )

    def __bool__(self) -> bool:
        return any((self.cpus, self.gpus, self.memory))

    def fits(self, room: "Amount") -> bool:
        """Whether `room` has as much of each."""
        return (
            self.cpus <= room.cpus + ROUNDING
            and self.gpus <= room.gpus + ROUNDING
            and self.memory <= room.memory + ROUNDING
        )

    def shown(self) -> "Amount":
        """For others: sums of fractions may be a little less than nothing."""
        return Amount(max(0.0, self.cpus), max(0.0, self.gpus), max(0.0, self.memory))

    def __str__(self) -> str:
        return self.like(self)

    def like(self, asked: "Amount") -> str:
        """In words, as far as the kinds that `asked` has."""
        said = []
        if asked.cpus:
            said.append(f"{self.cpus:g} CPU{_s(self.cpus)}")
        if asked.gpus:
            said.append(f"{self.gpus:g} GPU{_s(self.gpus)}")
        if asked.memory:
            said.append(f"{max(0.0, self.memory) / 2**30:.3g} GiB")
        return ", ".join(said) or "nothing"


def _s(number: float) -> str:
    return "" if number == 1 else "s"


class Needs(msgspec.Struct, frozen=True, omit_defaults=True):
    """An actor's wishes for its host."""

    amount: Amount = Amount()
    host: Name = ""  # empty: any
    labels: Labels = {}
    pack: bool = False  # on hosts that are used already; else spread

    def __str__(self) -> str:
        said = [str(self.amount)] if self.amount else []
        said += [f"label {key}={value}" for key, value in self.labels.items()]
        return ", ".join(said) or "nothing"
