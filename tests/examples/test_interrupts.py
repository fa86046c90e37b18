# SPDX-License-Identifier: MIT
"""Ctrl-C, once and twice."""

from __future__ import annotations

import signal

import pytest

from impala import interrupts


def test_the_first_is_a_request_and_the_second_an_interrupt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts() as interrupted:
        assert not interrupted.is_set()
        signal.raise_signal(signal.SIGINT)
        assert interrupted.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "the checkpoint is being saved" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
