# SPDX-License-Identifier: MIT
"""What the program of another host prints, on the launcher's stdout."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mooactor.cluster.launch.relay import Relay
from mooactor.host.eventloop import EventLoop
from tests.cluster.launched import ROOT, Launched, Terminal, command
from tests.cluster.sshd import Servers, servers
from tests.conftest import eventually

SIZE = 1 << 20


class Ends:
    """A relay between two pipes, of which the test has the outer ends."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        source, self.program = os.pipe()
        self.reader, self._out = os.pipe()
        for fd in (source, self.program, self.reader):
            os.set_blocking(fd, False)
        self.failures: list[str] = []
        self.over = False
        self.relay = Relay(self.loop, source, self._out, self.failures.append)

    def end(self) -> None:
        self.over = True

    def serve(self) -> None:
        self.loop.serve(time.monotonic())

    def print(self, data: bytes) -> int:
        """Print as much of it as there is room for; how much that was."""
        printed = 0
        with contextlib.suppress(BlockingIOError):
            while printed < len(data):
                printed += os.write(self.program, data[printed : printed + (1 << 14)])
                self.serve()
        return printed

    def read(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self.reader, 1 << 13)
        return b""

    def close(self) -> None:
        self.loop._selector.close()
        for fd in {self.program, self.reader, self._out, self.relay._fd}:
            with contextlib.suppress(OSError):
                os.close(fd)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.relay._close()
    ends.close()


def test_bytes_come_unchanged_and_at_once(ends: Ends) -> None:
    for data in (b"no newline", b"\r\0\xff", b"\n"):
        ends.print(data)
        ends.serve()
        assert ends.read() == data


def test_a_slow_reader_holds_up_the_program_and_loses_nothing(ends: Ends) -> None:
    data = random.Random(1).randbytes(SIZE)
    sent = ends.print(data)
    for _ in range(5):
        ends.serve()
        sent += ends.print(data[sent:])
    assert sent < SIZE // 2  # two pipes and what is between
    found = b""
    while len(found) < SIZE:
        found += ends.read()
        ends.serve()
        sent += ends.print(data[sent:])
    assert found == data


@pytest.mark.parametrize("held", [False, True])
def test_what_the_program_left_is_written_before_its_end_is_known(
    ends: Ends, held: bool
) -> None:
    """Also if another process has the pipe open still."""
    data = random.Random(2).randbytes(SIZE)
    sent = ends.print(data)
    ends.serve()
    sent += ends.print(data[sent:])
    if not held:
        os.close(ends.program)
    ends.relay.finish(ends.end)
    found = b""
    while not ends.over:
        found += ends.read()
        ends.serve()
    while more := ends.read():
        found += more
    assert found == data[:sent]


def test_a_reader_that_goes_is_gone_for_the_program_and_no_failure(ends: Ends) -> None:
    os.close(ends.reader)
    ends.print(b"x")
    ends.serve()
    with pytest.raises(BrokenPipeError):
        os.write(ends.program, b"y")
    ends.relay.finish(ends.end)
    assert ends.over and ends.failures == []


def test_a_reader_that_does_not_read_is_given_up(ends: Ends) -> None:
    ends.relay.give_up()  # it waits for none
    assert ends.print(b"x") == 1
    sent = ends.print(b"x" * SIZE)
    ends.serve()
    ends.print(b"x" * (SIZE - sent))
    ends.relay.finish(ends.end)
    assert not ends.over
    ends.relay.give_up()
    assert ends.over


# -- over ssh -----------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("ssh")) as running:
        running.add("b")
        yield running


@pytest.fixture
def launch(hosts: Servers, tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Start ``mooactor run --hosts b script.py`` with this text as the script."""
    started: list[Launched] = []

    def launch(script: str, stdout: int | None = None, **more: bool) -> Launched:
        (tmp_path / "script.py").write_text(script)
        words = ["--hosts", "b", "script.py"]
        run = Launched(words, tmp_path, hosts.environment(), stdout=stdout, **more)
        started.append(run)
        return run

    yield launch
    for each in started:
        if each.process.poll() is None:
            each.signal(signal.SIGKILL)
            each.process.wait()


PROGRESS = """
import os, time
os.write(1, b"\\r50 %")
time.sleep(1000)
"""
# It goes on for as long as somebody reads.
ENDLESS = """
import os, signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.write(1, b"up\\n")
while True:
    os.write(1, b"x" * 4095 + b"\\n")
"""
LARGE = """
import hashlib, os, random, sys
data = random.Random(3).randbytes(1 << 20)
for _ in range(100):
    sys.stdout.buffer.write(data)
sys.stdout.flush()
os._exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("code", "expected"), [(0, 1), (7, 7)])
def test_output_that_cannot_be_written_is_an_error(
    launch: Callable[..., Launched], code: int, expected: int
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    run = launch(f"print('hello', flush=True); raise SystemExit({code})", full)
    os.close(full)
    assert run.end() == expected, run.err
    (line,) = (t for t in run.err.splitlines() if t.startswith("mooactor run: "))
    assert "cannot be written (No space left on device)" in line


@pytest.mark.slow
def test_a_program_whose_output_cannot_be_written_is_told(
    launch: Callable[..., Launched],
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    run = launch(ENDLESS, full)
    os.close(full)
    assert run.end() == 128 + signal.SIGPIPE, run.err


@pytest.mark.slow
def test_a_program_ends_when_nobody_reads_any_more(
    launch: Callable[..., Launched],
) -> None:
    reader, writer = os.pipe()
    run = launch(ENDLESS, writer)
    os.close(writer)
    assert os.read(reader, 3) == b"up\n"
    os.close(reader)
    assert run.end() == 128 + signal.SIGPIPE, run.err
    assert "cannot be written" not in run.err


@pytest.mark.slow
def test_a_line_without_its_end_shows_at_once(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    run = launch(PROGRESS)
    out = tmp_path / "stdout"
    assert eventually(lambda: out.read_bytes() == b"\r50 %", 60), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 130, run.err


@pytest.mark.slow
def test_much_output_comes_whole_to_a_file_and_to_a_slow_reader(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    expected = hashlib.sha256(random.Random(3).randbytes(SIZE) * 100).digest()
    run = launch(LARGE)
    assert run.end() == 3, run.err
    assert hashlib.sha256((tmp_path / "stdout").read_bytes()).digest() == expected

    reader, writer = os.pipe()
    run = launch(LARGE, writer)
    os.close(writer)
    found = hashlib.sha256(os.read(reader, 1))
    time.sleep(0.5)  # all that is between is full
    while piece := os.read(reader, 1 << 16):
        found.update(piece)
    os.close(reader)
    assert run.end() == 3, run.err
    assert found.digest() == expected


@pytest.mark.slow
def test_ctrl_c_ends_a_program_whose_output_waits_for_its_reader(
    launch: Callable[..., Launched],
) -> None:
    reader, writer = os.pipe()
    run = launch(ENDLESS.replace("SIG_DFL", "SIG_IGN"), writer)
    os.close(writer)
    assert os.read(reader, 3) == b"up\n"
    time.sleep(0.5)  # all that is between is full
    before = time.monotonic()
    run.signal(signal.SIGINT)
    assert run.end() != 0, run.err
    # Three seconds are promised, to a machine that does nothing else.
    assert time.monotonic() - before < 10
    os.close(reader)


@pytest.mark.slow
def test_both_streams_stay_in_order_in_one_file(
    launch: Callable[..., Launched],
) -> None:
    script = (
        "import os, time\n"
        "for n in range(20): os.write(1 + n % 2, b'line %d\\n' % n); time.sleep(0.02)"
    )

    def found() -> list[str]:
        run = launch(script, one_file=True)
        assert run.end() == 0, run.out
        return [line for line in run.out.splitlines() if line.startswith("line ")]

    # An sshd that finds both streams readable at once, on a busy machine, takes one.
    assert any(found() == [f"line {n}" for n in range(20)] for _ in range(3))


@pytest.mark.slow
def test_a_terminal_is_left_to_ssh(hosts: Servers, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRESS)
    terminal = Terminal(
        [*command(), "--hosts", "b", "script.py"],
        tmp_path,
        {**hosts.environment(), "PYTHONPATH": str(ROOT)},
    )
    try:
        terminal.wait_for("\r50 %")
        terminal.type("\x03")
        assert terminal.process.wait(60) == 130
    finally:
        terminal.close()
