# SPDX-License-Identifier: MIT
"""For tests of channels between this process and another one."""

from __future__ import annotations

import pytest

from mooactor.control.channel import Channel
from mooactor.control.node import Node
from tests.control.nodes import Recorder, Remote, introduced


@pytest.fixture(params=["opened here", "opened there"])
def joined(
    request: pytest.FixtureRequest, here: Node, remote: Remote
) -> tuple[Channel, Recorder]:
    """A channel between the module's two nodes, and its listener on this side."""
    mine = Recorder()
    if request.param == "opened here":
        channel = here.connect(remote.address, mine)
    else:
        here.accept = mine.accept
        remote.write(connect=here.address)
        assert here.run_until(lambda: mine.channels, 20)
        (channel,) = mine.channels
    return introduced(here, channel, mine)
