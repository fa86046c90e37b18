# SPDX-License-Identifier: MIT
"""A program of the launch, here or on another host, as the launcher sees it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import IO, Any

from mooactor.cluster.launch import signals, ssh, starter
from mooactor.cluster.launch.output import Output
from mooactor.cluster.launch.relay import Relay
from mooactor.cluster.launch.targets import LaunchError, Target
from mooactor.host.eventloop import EventLoop
from mooactor.host.output import LineReader, one_by_one

_STARTER = Path(starter.__file__).read_bytes()
_HEAD = b"%d\n%s" % (len(_STARTER), _STARTER)
_READER_S = 0.3  # for the last output of a program that was ended by force
_ANSWER_S = 0.5  # for word of its end; an ssh whose network is gone brings none


class Program:
    """One that a `starter` runs: it is started at once, and read by the loop.

    Its stdout is read for the line that says that it is ready, then passed on by lines.
    With `inherits` both its outputs are the launcher's own, and unchanged.

    Args:
      label: what stands before its lines.
      ready: a pattern of the line by which it says that it is ready.

    Raises:
      LaunchError: it cannot be started from here.
    """

    def __init__(
        self,
        loop: EventLoop,
        output: Output,
        target: Target,
        python: str,
        order: dict[str, Any],
        *,
        label: str,
        ready: str = "",
        inherits: bool = False,
    ) -> None:
        self.target = target
        # Its exit code, once it has ended and what it printed is written; 1 if its code
        # is 0 and that cannot be written.
        self.code: int | None = None
        self.ready: re.Match[str] | None = None
        self._loop, self._output, self._label = loop, output, label
        self._python, self._pattern = python, ready
        self._missing = ""
        self._relay: Relay | None = None
        self._lost = False
        stdout, stderr = _own_outputs() if inherits else (subprocess.PIPE,) * 2
        try:
            self._process = subprocess.Popen(
                ssh.words(target, python),
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                process_group=0,  # Ctrl-C is the launcher's, who passes it on
                preexec_fn=signals.unblock,
            )
        except OSError as error:
            raise LaunchError(
                f"host {target.name}: {error.filename} cannot be run "
                f"({error.strerror}): name another interpreter with --python"
            ) from None
        self._readers = [] if inherits else self._watch_output()
        if self._process.stdout is not None and inherits:
            self._relay = Relay(loop, _own(self._process.stdout), 1, self._lose)
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.watch(self._pidfd, self._ended)
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._unsent = _HEAD + json.dumps(order).encode() + b"\n"
        self._waits_for_room = False
        self._send_more()
        loop.later(starter.BEAT_S, self._beat)

    @property
    def pid(self) -> int | None:
        """Of its starter, or of the ssh to it; None: that has ended, and is reaped."""
        return self._process.pid if self._process.returncode is None else None

    @property
    def loss(self) -> str | None:
        """Why its exit code may not be that of the program on its host, or None."""
        status = self._process.returncode
        return None if self.target.is_here else ssh.loss(status)

    @property
    def failure(self) -> str:
        """Why it ended, without the host's name."""
        return self._missing or ssh.failure(*self._end)

    @property
    def failure_to_start(self) -> str:
        """The same of one that was never ready; the next step is in it, always."""
        return self._missing or ssh.failure_to_start(*self._end)

    @property
    def _end(self) -> tuple[Target, str, int, str]:
        last = next((line for line in reversed(self._words) if line.strip()), "")
        return self.target, self._python, self.code or 0, last.strip()

    # -- what it prints -----------------------------------------------------

    def _watch_output(self) -> list[LineReader]:
        readers = []
        for pipe, emit in (
            (self._process.stdout, self._out),
            (self._process.stderr, self._err),
        ):
            if pipe is not None:
                fd = _own(pipe)
                readers.append(reader := LineReader(fd, one_by_one(emit)))
                self._loop.watch(fd, partial(self._read, reader))
        return readers

    def _read(self, reader: LineReader) -> None:
        if not reader.read():
            self._loop.unwatch(reader.fd)

    @property
    def _words(self) -> list[str]:
        """The last lines of its stderr, or if it had none, of its stdout."""
        tails = [list(reader.tail) for reader in reversed(self._readers)]
        return next(filter(None, tails if self.ready is None else tails[:1]), [])

    def _out(self, line: bytes) -> None:
        found = None if self.ready else self._for_us(line.decode(errors="replace"))
        before = line if found is None else found.string[: found.start()].encode()
        if before or found is None:
            self._output.line(self._label, before)

    def _for_us(self, text: str) -> re.Match[str] | None:
        """The end of a line that says that the program is ready, or what is missing.
        What a shell prints as it starts, before that, may have no end of line."""
        if found := re.search(f"{re.escape(starter.FAILED)}(.*)", text):
            self._missing = found[1]
        elif self._pattern and (found := re.search(f"{self._pattern}$", text)):
            self.ready = found
        return found

    def _err(self, line: bytes) -> None:
        self._output.line(self._label, line.rstrip(b"\r"))  # which ssh adds

    def _lose(self, why: str) -> None:
        self._lost = True
        self._output.say(
            f"the output of the program cannot be written ({why}), and the rest of it "
            "is lost: make room there, or write it elsewhere"
        )

    # -- what it is told ----------------------------------------------------

    def signal(self, number: int, typed: bool = False) -> None:
        """Have it signalled, on its host. No terminal does that."""
        self._tell({"signal": int(number)})

    def _beat(self) -> None:
        """Let its starter know that somebody is there."""
        if self.code is None and not self._stdin.closed:
            if not self._unsent:
                self._tell({})
            self._loop.later(starter.BEAT_S, self._beat)

    def _tell(self, message: dict[str, Any]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        self._send_more()

    def _send_more(self) -> None:
        try:
            while self._unsent and not self._stdin.closed:
                sent = os.write(self._stdin.fileno(), self._unsent)
                self._unsent = self._unsent[sent:]
        except BlockingIOError:
            if not self._waits_for_room:
                self._waits_for_room = True
                self._loop.watch_room(self._stdin.fileno(), self._send_more)
            return
        except OSError:
            self._unsent = b""  # it has ended, which its pidfd tells
        if self._waits_for_room:
            self._waits_for_room = False
            self._loop.unwatch(self._stdin.fileno())

    def end(self, grace_s: float = starter.GRACE_S) -> None:
        """Have it end: its starter has it do so, and kills it after the grace. Nobody
        waits much longer for the starter or for the reader of its output."""
        self._take_leave(grace_s)
        self._loop.later(grace_s + _ANSWER_S, self.kill)
        if self._relay is not None:
            self._loop.later(grace_s + _READER_S, self._relay.give_up)

    def _take_leave(self, grace_s: float) -> None:
        if not self._stdin.closed:
            self._tell({"grace_s": grace_s})
            self._loop.unwatch(self._stdin.fileno())
            with contextlib.suppress(OSError):
                self._stdin.close()

    def kill(self) -> None:
        """End the starter or the ssh to it; the other end learns it from its stdin."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()
        for reader in self._readers:
            self._loop.unwatch(reader.fd)
            reader.finish()
        self._take_leave(starter.GRACE_S)
        settle = partial(self._settle, code if code >= 0 else 128 - code)
        if self._relay is None:
            settle()
        else:
            self._relay.finish(settle)

    def _settle(self, code: int) -> None:
        self.code = code or int(self._lost)


def _own_outputs() -> tuple[int | None, int | None]:
    """What an ssh has as stdout and stderr, None for ours, to print what a program of
    another host prints.

    ssh drops what it cannot write, and tells nobody. So we write its stdout, unless
    that is a terminal. If both go to one file, they share a pipe, and stay in order.
    """
    if os.isatty(1):
        return None, None
    one = os.path.samestat(os.fstat(1), os.fstat(2))
    return subprocess.PIPE, subprocess.STDOUT if one else None


def _own(pipe: IO[bytes]) -> int:
    """A descriptor of the pipe, which is closed."""
    fd = os.dup(pipe.fileno())
    pipe.close()
    os.set_blocking(fd, False)
    return fd
