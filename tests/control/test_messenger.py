# SPDX-License-Identifier: MIT
from __future__ import annotations

from mooactor.control.messenger import longest_retry_ms


def test_many_that_start_together_are_tried_less_often_each() -> None:
    assert longest_retry_ms(1) == longest_retry_ms(8) == 8
    assert longest_retry_ms(10_000) == 64
    for peers in range(1, 256):
        tries_per_second = peers * 1000 / longest_retry_ms(peers)
        assert tries_per_second <= 4000
