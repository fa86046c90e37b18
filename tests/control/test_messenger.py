# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

from mooactor.control.envelope import KEY_BYTES
from mooactor.control.messenger import Messenger


def test_a_thread_that_sends_after_the_end_is_not_told_of_sockets(
    tmp_path: Path,
) -> None:
    messenger = Messenger(str(tmp_path), 1 << 16, bytes(KEY_BYTES))
    messenger.peer(2 << 16).send(b"before")
    messenger.close(linger_ms=0)
    for process_id in (2 << 16, 3 << 16):
        peer = messenger.peer(process_id)
        peer.send(b"after")
        assert not peer.connected
