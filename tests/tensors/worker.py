# SPDX-License-Identifier: MIT
"""Another process with a data plane of its own, for the tests.

`Worker` is its handle. The process reads pickled (method, arguments) from its
standard input and answers (ok, result) on its standard output.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from typing import Any

from mooactor.errors import ActorUnavailable

PATIENCE_S = 100  # for hangs only: a busy machine takes its time

KEY = b"the key of this test session"


class Role:
    """Requests to the other process."""

    def __init__(self, directory: str, process_id: int) -> None:
        from mooactor.tensors import DataPlane
        from mooactor.tensors.network import Network

        allowed = os.environ.get("TEST_TRANSPORTS", "shm").split(",")
        self.plane = DataPlane(directory, process_id, KEY, Network(tuple(allowed)))
        self.kept: list[memoryview] = []

    def keep(self, descriptor: bytes) -> bytes:
        """Import and hold on to it; returns the first 16 bytes."""
        self.kept.append(self.plane.import_(descriptor))
        return bytes(self.kept[-1][:16])

    def write(self, at: int, value: int) -> None:
        """Write into the latest import, wherever that goes."""
        self.kept[-1][at] = value

    def read(self, at: int) -> int:
        return self.kept[-1][at]

    def drop(self) -> None:
        self.kept.clear()

    def discard(self, descriptor: bytes) -> None:
        self.plane.discard(descriptor)

    def make(self, value: int, nbytes: int, to: int) -> bytes:
        """Export so many bytes of that value."""
        return self.plane.export(bytes([value]) * nbytes, to)

    def statistics(self) -> dict[str, int]:
        return self.plane.statistics()

    def forked_child_says(self) -> str:
        """The error of a forked child that uses the plane."""
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                self.plane.export(b"x", 1 << 16)
            except ActorUnavailable as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        os.wait()
        with os.fdopen(read) as pipe:
            return pipe.read()

    def forked_child_lives_on(self) -> int:
        """Leave a child behind that outlives this process; returns its pid."""
        pid = os.fork()
        if pid == 0:
            os.close(0)
            os.close(1)
            os.read(os.pipe()[0], 1)  # for ever
        return pid


class Worker:
    """The other process, seen from here."""

    program = __file__

    def __init__(self, directory: str, process_id: int, **env: str) -> None:
        self.id = process_id
        self._process = subprocess.Popen(
            [sys.executable, self.program, directory, str(process_id)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        )
        self.pid = self._process.pid

    def call(self, method: str, *args: Any) -> Any:
        self.tell(method, *args)
        return self.answer()

    def answer(self) -> Any:
        """Its answer to `tell`."""
        assert self._process.stdout is not None
        ok, result = pickle.load(self._process.stdout)
        if not ok:
            raise result
        return result

    def tell(self, method: str, *args: Any) -> None:
        """Ask and do not wait for the answer."""
        assert self._process.stdin is not None
        pickle.dump((method, args), self._process.stdin)
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """It ends by itself when nobody asks any more."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self._process.send_signal(signal.SIGCONT)  # a test may have stopped it
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # a test that failed may have stopped it
            self._process.kill()
            self._process.wait()
            raise


def serve(role: Any) -> None:
    """Answer until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            method, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (True, getattr(role, method)(*args))
        except Exception as error:
            answer = (False, error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve(Role(sys.argv[1], int(sys.argv[2])))
