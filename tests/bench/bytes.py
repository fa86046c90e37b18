# SPDX-License-Identifier: MIT
"""The bytes that cross the driver's cable, and the time of a `get` from another host.

`python -m tests.bench.bytes` prints a row for each pattern of
`tests.host.test_stored_results`: the bytes on the driver's cable as multiples of the
value, and of the least that must cross. It needs network namespaces, so root. With the
path of another checkout, `python -m tests.bench.bytes PATH`, it also times a `get` of
64 MiB by that one and by this one, in turns. PAIRS says how often.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import numpy as np

import mooactor as moo
from tests.clusters import Cluster, driver_on, network
from tests.host.programs import Program
from tests.host.test_stored_results import PATTERNS, SIZE, Cast
from tests.host.where import on

PAIRS = int(os.environ.get("PAIRS", "20"))
DRIVER = """
import time
import numpy as np
import mooactor as moo

class Maker:
    def make(self):
        made = moo.empty(64 << 20, "uint8")
        made[::4096] = 1
        return made

moo.init(local=False)
maker = moo.on(Maker, host="a").spawn()

def seconds(late):
    start = time.perf_counter()
    ref = maker.make.remote()
    if late:
        moo.wait([ref])
    ref.get()
    return time.perf_counter() - start

seconds(False)
"""


class OfCheckout(Cluster):
    """A cluster whose programs are those of a checkout."""

    path = ""

    def environment(self, host: str) -> dict[str, str]:
        return {
            **super().environment(host),
            "PYTHONPATH": self.path,
            "PYTHONSAFEPATH": "1",
            "MOOACTOR_ADDRESS": self.address,
        }


def count_bytes() -> None:
    """A row for each pattern."""
    with network(["a", "b", "d"]) as net:
        made = Cluster(net, broker="d")
        try:
            made.start("a", "b")
            with driver_on(made), moo.init(local=False):
                for host in "ab":
                    moo.kill(_warmed(host))
                cast = Cast(made)
                print(f"{'pattern':26} in x value  out x value  bytes / minimum")
                for pattern, least in PATTERNS.items():
                    come, gone = cast.carried(pattern)
                    ratio = f"{(come + gone) / sum(least):.3f}" if sum(least) else "-"
                    row = f"{pattern.__name__:26} {come:10.4f} {gone:12.4f}"
                    print(f"{row} {ratio:>16}", flush=True)
        finally:
            made.close()
    print(f"the value: {SIZE >> 20} MiB; -: nothing must cross")


def _warmed(host: str) -> moo.Handle:
    made = on(host).spawn()
    made.echo(np.ones(1 << 18))
    return made


def time_gets(other: str) -> None:
    """Medians of both checkouts, in turns."""
    here = str(Path(__file__).parents[2])
    with network(["a", "d"]) as net:
        clusters, programs = [], []
        try:
            for port, path in ((4431, other), (4441, here)):
                made = OfCheckout(net, broker="d", port=port)
                made.path = path
                clusters.append(made.start("a"))
                programs.append(Program(made, DRIVER, name=f"d{port}").await_ready())
            for late in (False, True):
                pairs = [
                    [float(one.ask(f"seconds({late})")) for one in programs]
                    for _ in range(PAIRS)
                ]
                before, now = map(statistics.median, zip(*pairs, strict=True))
                ratio = statistics.median(n / b for b, n in pairs)
                what = "wait, then get" if late else "get"
                both = f"{before * 1e3:.1f} ms there, {now * 1e3:.1f} ms here"
                print(f"{what} of 64 MiB: {both}, median ratio {ratio:.3f}", flush=True)
        finally:
            for program in programs:
                program.close()
            for made in clusters:
                made.close()


if __name__ == "__main__":
    count_bytes()
    if sys.argv[1:]:
        time_gets(sys.argv[1])
