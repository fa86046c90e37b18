# SPDX-License-Identifier: MIT
"""Actors on another host that print all the time."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

import mooactor as moo
from tests.clusters import Cluster
from tests.conftest import at_best, eventually
from tests.host.where import Where, on

_MANY = 20_000  # lines: more than the pipe and all buffers on the way take


class Prints:
    """Prints until it is killed."""

    def go_on(self, many: str) -> None:
        for number in range(1 << 60):
            print("step", number, "loss", 0.123)
            if number == _MANY:
                open(many, "w").close()

    def count(self, lines: int) -> None:
        """Print so many, and die."""
        sys.stdout.write("".join(f"{number}\n" for number in range(lines)))
        print("the end", end="", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def death_known_after(host: str) -> float:
    """Seconds."""
    handle = on(host).spawn()
    pid, waiting = handle.pid(), handle.sleep.remote(1000)
    start = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(moo.ActorDied):
        waiting.get(timeout=60.0)
    return time.monotonic() - start


@pytest.mark.quiet
def test_what_an_actor_prints_holds_up_no_death_and_no_spawn(
    here: Cluster, tmp_path: Path
) -> None:
    """The promise is 50 ms on this machine, and 100 ms on others, printing or not."""
    many = tmp_path / "many"
    with moo.init(logs=False):
        moo.on(Prints, host="a").spawn().go_on.tell(str(many))
        assert eventually(many.exists)
        for host, bound_s in (("a", 0.1), ("b", 0.1), ("d", 0.05)):
            assert at_best(lambda host=host: death_known_after(host), bound_s)
        assert moo.on(Where, host="a").group(4).call(Where.host).get() == ["a"] * 4


def test_all_that_an_actor_prints_comes_in_order_also_the_last_words_of_a_dead_one(
    here: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for lines in (3, 30_000):
        with moo.init(local=False):
            capfd.readouterr()
            dying = [moo.on(Prints, host="a").spawn() for _ in range(2)]
            for ref in [one.count.remote(lines) for one in dying]:
                with pytest.raises(moo.ActorDied):
                    ref.get(timeout=60.0)
        printed: dict[str, list[str]] = {}
        for line in capfd.readouterr().out.splitlines():
            prefix, _, text = line.partition(") ")
            assert "host=a" in prefix
            printed.setdefault(prefix, []).append(text)
        whole = [*map(str, range(lines)), "the end"]
        assert list(printed.values()) == [whole, whole]
