# SPDX-License-Identifier: MIT
"""Processes that send and receive values as the runtime does, for the tests.

A `Process` may live in a network namespace, and may have several data planes; a
`Worker` is the handle of one of them.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import tests.tensors.worker as base
from mooactor.process.system import resident_bytes
from tests.processes import stop
from tests.transports import samples

MB = 1 << 20
# In seconds: for what hangs. Above what any fault may take.
PATIENCE_S = 100.0  # for hangs only: a busy machine takes its time


class Role:
    """Requests to the process.

    A *message* is what would travel through the control plane: the pickle and the
    descriptors of what is beside it.
    """

    def __init__(self, directory: str, process_id: int, **options: Any) -> None:
        from mooactor.tensors import DataPlane
        from mooactor.tensors.network import Network

        memory_limit = options.pop("memory_limit", None)
        network = Network(tuple(options.pop("transports")), **options)
        self.plane = DataPlane(
            directory, process_id, base.KEY, network, memory_limit=memory_limit
        )
        self.sent: list[Any] = []
        self.received: list[Any] = []
        self.count = 0

    def offer(self, to: int, *recipe: Any) -> bytes:
        """A message with the value of a recipe, for a process."""
        self.sent.append(samples.build(*recipe))
        return self._message(self.sent[-1], to)

    def offer_same(self, to: int) -> bytes:
        """The last offer, for another one."""
        return self._message(self.sent[-1], to)

    def _message(self, value: Any, to: int) -> bytes:
        from mooactor.control import bodies, codec

        data, buffers = codec.encode(value)
        descriptors: list[bytes] = []
        try:
            for buffer in buffers:
                descriptors.append(self.plane.export(buffer, to))
        except BaseException:
            for descriptor in descriptors:
                self.plane.revoke(descriptor)
            raise
        return bodies.pack_attached(descriptors, data)

    def take(self, message: bytes) -> None:
        """Receive the value of a message and hold on to it."""
        from mooactor.control import bodies, codec

        descriptors, data = bodies.split_attached(message)
        fetches = [self.plane.begin(descriptor) for descriptor in descriptors]
        buffers = [fetch.result(PATIENCE_S) for fetch in fetches]
        self.received.append(codec.decode(data, buffers=buffers))

    def check(self, *recipe: Any) -> str:
        """In what the value received last is not the recipe's."""
        return samples.difference(self.received[-1], samples.build(*recipe))

    def is_unchanged(self, *recipe: Any) -> str:
        """The same for what was sent last."""
        return samples.difference(self.sent[-1], samples.build(*recipe))

    def scribble(self, which: str) -> None:
        """Overwrite what was "sent" or "received" last."""
        for leaf in samples.leaves(getattr(self, which)[-1]):
            leaf[...] = 1

    def drop(self) -> None:
        self.sent.clear()
        self.received.clear()

    def offer_until_full(self, to: int, nbytes: int) -> list[bytes]:
        """Messages of so many private bytes each, the n-th ever of the byte n."""
        import numpy as np

        from mooactor import OutOfMemory

        messages: list[bytes] = []
        try:
            while True:
                value = np.full(nbytes, self.count, np.uint8)
                messages.append(self._message(value, to))
                self.count += 1
        except OutOfMemory:
            return messages

    def first_byte(self) -> int:
        """Of what was received last."""
        return int(self.received[-1][0])

    def endpoint(self) -> bytes:
        return self.plane.endpoint()

    def introduce(self, peer: int, endpoint: bytes) -> None:
        self.plane.introduce(peer, endpoint)

    def route(self, peer: int) -> tuple[str | None, str]:
        return self.plane.route(peer)

    def statistics(self) -> dict[str, int]:
        return self.plane.statistics()

    def peer_lost(self, peer: int) -> None:
        """As the control plane says when a process died."""
        self.plane.peer_lost(peer)

    def files(self) -> Counter[str]:
        """Open descriptors of this process, by kind; its own memory aside."""
        kinds: Counter[str] = Counter()
        for fd in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue
            if not target.startswith("/memfd:mooactor-slab"):
                kinds[target.partition(":[")[0]] += 1
        return kinds

    def resident(self) -> int:
        """Bytes of memory that this process has in use, shared ones among them."""
        return resident_bytes()


class Roles:
    """The roles of one process, each with a data plane of its own."""

    def __init__(self) -> None:
        self._roles: dict[int, Role] = {}

    def start(self, directory: str, process_id: int, options: dict[str, Any]) -> None:
        self._roles[process_id] = Role(directory, process_id, **options)

    def stop(self, process_id: int) -> None:
        self._roles.pop(process_id).plane.close()

    def ask(self, process_id: int, method: str, args: tuple[Any, ...]) -> Any:
        return getattr(self._roles[process_id], method)(*args)


class Process(base.Worker):
    """A process, seen from here, with no plane yet.

    Args:
      before: the words before the command, as `Cable.on` has them.
      environment: on top of this process's.
    """

    def __init__(
        self, before: Sequence[str] = (), environment: dict[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [*before, sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                **(environment or {}),
            },
        )
        self.pid = self._process.pid

    def answer(self, seconds: float = PATIENCE_S + 5) -> Any:
        """To the oldest question that was only told. Raises what it raised."""
        out = self._process.stdout
        assert out is not None
        assert select.select([out], [], [], seconds)[0], "it hangs"
        ok, result = pickle.load(out)
        if not ok:
            raise result
        return result

    def call(self, method: str, *args: Any) -> Any:
        self.tell(method, *args)
        return self.answer()


class Worker:
    """A `Role` in a process, seen from here.

    Args:
      options: of its `DataPlane`.
    """

    def __init__(
        self,
        process: Process,
        directory: str,
        process_id: int,
        **options: Any,
    ) -> None:
        self.id = process_id
        self.process = process
        process.call("start", directory, process_id, options)

    def call(self, method: str, *args: Any) -> Any:
        """Ask and wait for the answer."""
        self.tell(method, *args)
        return self.answer()

    def tell(self, method: str, *args: Any) -> None:
        """Ask; `answer` gives the answer."""
        self.process.tell("ask", self.id, method, args)

    def answer(self, seconds: float = PATIENCE_S + 5) -> Any:
        """To the oldest question that was only told. Raises what it raised."""
        return self.process.answer(seconds)

    def settled(self) -> bool:
        """Whether it holds nothing, lends nothing and waits for nothing."""
        found = self.call("statistics")
        return not any(found[x] for x in ("leases", "used", "imports", "fetches"))

    def stop(self) -> None:
        """Close its plane. The process may go on."""
        self.process.call("stop", self.id)

    def kill(self) -> None:
        """SIGKILL the process."""
        self.process.kill()

    def freeze(self) -> None:
        stop(self.process.pid)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


if __name__ == "__main__":
    from tests.transports import worker  # what is pickled needs this name

    base.serve(worker.Roles())
