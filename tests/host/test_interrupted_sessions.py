# SPDX-License-Identifier: MIT
"""A session that is interrupted at its start, that ends while threads wait in it, or
after which somebody still asks."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import mooactor as moo
from mooactor.host import session
from tests.actors.counter import Counter
from tests.marks import slow, soak
from tests.process import programs

HEAD = """
    import signal, threading, time
    import mooactor as moo

    class Sleeper:
        def sleep(self, seconds: float) -> float:
            time.sleep(seconds)
            return seconds
"""


# It gets the signal at the first line of the session's module that its start runs, then
# at the second one, and so on, until a start is through.
EVERY_LINE = """
    import os, signal, sys, tempfile, threading
    import mooactor as moo
    from mooactor.host import driver_joins, session
    from mooactor.process.system import children

    class Worker:
        def ping(self):
            return "pong"

    class Interrupted(BaseException):
        pass

    def interrupt(*_):
        raise Interrupted

    class Lines:
        def __init__(self, last):
            self.last, self.seen = last, []

        def __call__(self, frame, event, about):
            if frame.f_code.co_filename != session.__file__:
                return None
            if event == "exception" and about[0] is moo.ActorUnavailable:
                self.last = 0  # no broker has answered: the start is undone
            if event == "line" and frame.f_lineno not in self.seen:
                self.seen.append(frame.f_lineno)
                if len(self.seen) == self.last:
                    signal.raise_signal(number)
            return self

    def left():
        return (
            [open(f"/proc/{pid}/cmdline").read() for pid in children()],
            [x for x in os.listdir(tempfile.gettempdir()) if x.startswith("mooactor-")],
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            signal.getsignal(signal.SIGINT),
            session.current_session(),
        )

    def start(last):
        lines = Lines(last)
        sys.settrace(lines)
        try:
            moo.init(*sys.argv[3:])
        except Interrupted:
            return lines
        except moo.ActorUnavailable:
            return None
        finally:
            sys.settrace(None)
        return None

    number, step = getattr(signal, sys.argv[1]), int(sys.argv[2])
    signal.signal(number, interrupt)
    driver_joins.PATIENCE_S = 0.01
    with moo.init():
        moo.spawn(Worker).ping()
    before, count = left(), 0
    while (lines := start(count + 1)) is not None:
        assert left() == before, (lines.seen[-1], left(), before)
        count += step
    moo.shutdown()
    assert left() == before
    print(count, moo.spawn(Worker).ping())
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", [slow(3), soak(1)])  # at one line of so many
@pytest.mark.parametrize(
    ("number", "brokers"),
    [("SIGALRM", []), ("SIGINT", ["tcp://127.0.0.1:1"])],
    ids=["handler of the program's", "Ctrl-C, and no broker"],
)
def test_a_start_that_is_interrupted_at_any_line_leaves_nothing(
    tmp_path: Path, number: str, brokers: list[str], step: int
) -> None:
    program = programs.write(tmp_path / "program.py", EVERY_LINE)
    done = programs.run(program, number, str(step), *brokers, timeout=280)
    assert done.returncode == 0, done.stderr
    count, said = done.stdout.split()
    assert int(count) > 80
    assert said == "pong"


@pytest.mark.slow
def test_a_signal_handler_may_end_the_session_that_the_program_waits_in(
    tmp_path: Path,
) -> None:
    program = programs.write(
        tmp_path / "program.py",
        HEAD
        + """
    if __name__ == "__main__":
        moo.init()
        handle = moo.spawn(Sleeper)
        handle.sleep(0)
        signal.signal(signal.SIGALRM, lambda *_: moo.shutdown())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            handle.sleep(60)
        except moo.MooError as error:
            print("ended:", error)
    """,
    )
    done = programs.run(program)
    assert done.returncode == 0, done.stderr
    assert "ended" in done.stdout


@pytest.mark.slow
def test_threads_that_wait_are_released_by_the_end(tmp_path: Path) -> None:
    program = programs.write(
        tmp_path / "program.py",
        HEAD
        + """
    if __name__ == "__main__":
        moo.init()
        handles = [moo.spawn(Sleeper) for _ in range(3)]
        for handle in handles:
            handle.sleep(0)
        ends = []

        def wait(handle):
            try:
                handle.sleep(60)
            except moo.MooError as error:
                ends.append(type(error).__name__)

        threads = [threading.Thread(target=wait, args=(h,)) for h in handles]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        moo.shutdown()
        for thread in threads:
            thread.join(10)
        print(len(ends), [t.is_alive() for t in threads])
    """,
    )
    done = programs.run(program)
    assert done.stdout.strip() == "3 [False, False, False]", done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("no_session")
def test_a_ref_of_an_ended_session_touches_no_descriptor(tmp_path: Path) -> None:
    with moo.init():
        handle = moo.spawn(Counter)
        done, pending = handle.add.remote(), handle.sleep.remote(60)
        done.get()
    files = [open(tmp_path / f"{n}", "wb+", buffering=0) for n in range(64)]
    try:
        called: list[object] = []
        for ref in (done, pending):
            ref.add_done_callback(called.append)
            ref.done()
            ref.cancel()
        del handle, ref, done, pending
        assert all(os.fstat(file.fileno()).st_size == 0 for file in files)
        assert len(called) == 2
    finally:
        for file in files:
            file.close()


# -- several that want a session, or still want the one that ends --------------------

USES = {
    "stats": moo.stats,
    "hosts": moo.hosts,
    "put": lambda: moo.put(1),
    "spawn": lambda: moo.spawn(Counter),
    "init": moo.init,
}


@pytest.mark.usefixtures("no_session")
def test_threads_that_spawn_first_get_one_session() -> None:
    together, answers = threading.Barrier(4), []

    def first(number: int) -> None:
        together.wait()
        answers.append(moo.spawn(Counter, number).add(1))

    threads = [threading.Thread(target=first, args=(n,)) for n in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(answers) == [1, 2, 3, 4]
    finally:
        moo.shutdown()


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("use", USES)
def test_a_signal_handler_within_a_start_is_refused_and_that_goes_on(
    monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    said: list[str] = []

    def handle(*_: object) -> None:
        with pytest.raises(moo.MooError) as caught:
            USES[use]()
        said.append(str(caught.value))

    def raise_signal() -> None:
        signal.raise_signal(signal.SIGUSR2)
        remove_abandoned()

    remove_abandoned = session.directories.remove_abandoned
    monkeypatch.setattr(session.directories, "remove_abandoned", raise_signal)
    before = signal.signal(signal.SIGUSR2, handle)
    try:
        with moo.init():
            assert ["just starting a session" in text for text in said] == [True]
            assert moo.spawn(Counter).add(1) == 1
    finally:
        signal.signal(signal.SIGUSR2, before)


class Slow:
    """Its pickling waits."""

    begun = threading.Event()
    goes_on = threading.Event()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        Slow.begun.set()
        assert Slow.goes_on.wait(60)
        return Slow, ()


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("again", [False, True], ids=["no other", "another"])
@pytest.mark.parametrize("several", [False, True], ids=["spawn", "group"])
def test_a_spawn_that_outlives_its_session_starts_nothing(
    again: bool, several: bool
) -> None:
    Slow.begun.clear()
    Slow.goes_on.clear()
    errors: list[BaseException] = []

    def spawn() -> None:
        on = moo.on(Counter, num_cpus=0.1)
        try:
            on.group(2, Slow()) if several else on.spawn(Slow())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=spawn)
    with moo.init():
        thread.start()
        assert Slow.begun.wait(60)
    try:
        if again:
            moo.init()
        Slow.goes_on.set()
        thread.join(60)
        assert [type(error) for error in errors] == [moo.ActorUnavailable]
        assert "the session has ended" in str(errors[0])
        assert (session.current_session() is not None) == again
        assert not again or moo.actors() == []
    finally:
        moo.shutdown()
