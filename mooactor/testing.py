# SPDX-License-Identifier: MIT
"""For tests of programs that use mooactor.

`VirtualClock` is time that a test advances. Whatever takes a clock (the default is the
machine's) or has its timers made by one runs on it without waiting::

    from mooactor.testing import VirtualClock

    class Patience:
        def __init__(self, clock):
            self.over = False
            clock.timers().after(30.0, self._end)

        def _end(self):
            self.over = True

    def test_patience_ends_after_half_a_minute():
        clock = VirtualClock()
        patience = Patience(clock)
        clock.advance(29.9)
        assert not patience.over
        clock.advance(0.2)
        assert patience.over
"""

from __future__ import annotations

from mooactor.control.clock import REAL, Clock, Timer, Timers, VirtualClock

__all__ = ["REAL", "Clock", "Timer", "Timers", "VirtualClock"]
