# SPDX-License-Identifier: MIT
"""What lives is listed, also while other threads add and drop."""

from __future__ import annotations

import sys
import threading

from mooactor.process.objects.living import Living


class One:
    pass


def test_it_keeps_nothing_alive_and_lists_each_once() -> None:
    living, ones = Living[One](), [One() for _ in range(3)]
    for one in [*ones, ones[0]]:
        living.add(one)
    assert living.all() == ones
    del one, ones[0]
    assert living.all() == ones
    ones.clear()
    assert living.all() == []


def test_threads_may_add_and_drop_while_others_list() -> None:
    living, stays, over = Living[One](), [One() for _ in range(200)], threading.Event()
    failures: list[BaseException] = []
    for one in stays:
        living.add(one)

    def lists() -> None:
        try:
            while not over.is_set():
                assert set(stays) <= set(living.all())
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    lister = threading.Thread(target=lists)
    try:
        lister.start()
        for _ in range(5000):
            living.add(One())
    finally:
        sys.setswitchinterval(interval)
        over.set()
        lister.join()
    assert not failures
