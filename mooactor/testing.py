# SPDX-License-Identifier: MIT
"""For tests of programs that use mooactor: time that a test advances. A part that takes
a clock, or timers that one has made, runs on it without waiting::

    from mooactor.testing import VirtualClock

    def test_it_rings_after_a_minute():
        clock, rings = VirtualClock(), []
        clock.timers().after(60.0, lambda: rings.append(clock.now()))
        clock.advance(59.9)
        assert rings == []
        clock.advance(10.0)
        assert rings == [60.0]
"""

from mooactor.control.clock import REAL, Clock, Timer, Timers, VirtualClock

__all__ = ["REAL", "Clock", "Timer", "Timers", "VirtualClock"]
