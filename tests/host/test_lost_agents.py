# SPDX-License-Identifier: MIT
"""The agent is killed: whoever asks it is told so, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mooactor as moo
from mooactor.errors import session_ended
from mooactor.host.session import current_session
from mooactor.process.current import current_runtime
from tests.conftest import eventually
from tests.process import programs

ENDS = """
    import os, signal, sys, threading
    import mooactor as moo
    from mooactor.host.session import current_session

    class Worker:
        def ping(self):
            return 1

    def kill_agent():
        os.kill(session._agent.pid, signal.SIGKILL)

    with moo.init():
        for handle in [moo.spawn(Worker) for _ in range(3)]:
            handle.ping()
        session = current_session()
        kill_agent()
        while not session.runtime.closed:
            pass
"""


@pytest.mark.slow
def test_a_program_that_ends_while_its_session_is_lost_leaves_nothing(
    tmp_path: Path,
) -> None:
    path = programs.write(tmp_path / "ends.py", ENDS)
    for _ in range(3):
        before = programs.sessions()
        done = programs.run(path)
        assert done.returncode == 0, done.stderr
        assert programs.sessions() == before


REAPED = """
    import os, signal, sys, time
    import mooactor as moo
    from mooactor.host.session import current_session

    class Worker:
        def sleep(self, seconds):
            time.sleep(seconds)

    def wait_until(condition):
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.001)

    def reap(*_):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    moo.init()
    ref = moo.spawn(Worker).sleep.remote(60)
    session = current_session()
    agent = session._agent.pid
    if sys.argv[1] == "ignored":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    elif sys.argv[1] == "handler":
        signal.signal(signal.SIGCHLD, reap)
    os.kill(agent, signal.SIGKILL)
    if sys.argv[1] == "wait":
        try:
            os.waitpid(agent, 0)
        except ChildProcessError:
            pass  # mooactor was quicker
    try:
        ref.get()
    except moo.ActorUnavailable as error:
        print("ended")
    wait_until(lambda: session.runtime.closed)
    moo.shutdown()
    with moo.init():
        assert not os.path.exists(session.directory)
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        print("alone")
"""


@pytest.mark.parametrize("reaper", ["ignored", "handler", "wait"])
def test_a_session_ends_though_the_program_reaps_the_agent_itself(
    tmp_path: Path, reaper: str
) -> None:
    path = programs.write(tmp_path / "reaped.py", REAPED)
    done = programs.run(path, reaper)
    assert done.stdout.split() == ["ended", "alone"], done.stderr
    assert "Traceback" not in done.stderr
    assert programs.sessions() == []


@pytest.mark.parametrize("ask", ["spawn", "lookup", "actors"])
def test_a_request_that_the_agent_does_not_live_to_answer_ends_at_once(
    no_session: None, ask: str
) -> None:
    moo.init()
    session = current_session()
    assert session is not None
    os.kill(session._agent.pid, signal.SIGSTOP)  # it will not answer
    errors: list[BaseException] = []

    def request() -> None:
        try:
            if ask == "spawn":
                moo.on(Named, name="a").spawn()
            elif ask == "lookup":
                moo.lookup("a")
            else:
                moo.actors()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=request)
    thread.start()
    assert eventually(lambda: session.runtime.agent._requests)
    os.kill(session._agent.pid, signal.SIGKILL)
    thread.join()
    (error,) = errors
    assert isinstance(error, moo.ActorUnavailable), error
    assert "moo.init() starts another one" in str(error)
    moo.init()
    assert len(moo.actors()) == 0


class Named:
    """An actor."""

    def items(self) -> Iterator[int]:
        yield from range(1_000_000)


@pytest.mark.parametrize("how", ["killed agent", "shutdown"])
def test_a_consumer_is_told_that_the_session_has_ended(
    no_session: None, how: str
) -> None:
    moo.init()
    session = current_session()
    assert session is not None
    begun = threading.Event()
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            for _ in stream:
                begun.set()
        except BaseException as error:
            errors.append(error)

    stream = moo.spawn(Named).items()
    thread = threading.Thread(target=consume)
    thread.start()
    assert begun.wait(60)
    if how == "shutdown":
        moo.shutdown()
    else:
        os.kill(session._agent.pid, signal.SIGKILL)
    thread.join()
    (error,) = errors
    assert isinstance(error, moo.ActorUnavailable), repr(error)
    assert "the session has ended" in str(error)


@moo.actor
class Busy:
    def wait(self) -> None:
        threading.Event().wait()

    def forever(self) -> Iterator[int]:
        threading.Event().wait()
        yield 1


@moo.actor(max_pending=1)
class Full:
    def wait(self) -> None:
        threading.Event().wait()


def failure_of(wait: Callable[[], object]) -> Callable[[], str]:
    """What `wait`, in a thread of its own, raises; the result waits for that."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            wait()
        except moo.ActorUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return lambda: (thread.join(), str(errors[0]))[1]


@pytest.mark.parametrize(
    ("news", "why"),
    [
        ({"ev": "ended", "by": "mooactor stop"}, "mooactor stop ended it"),
        (None, "the host's agent died"),
    ],
)
def test_all_that_it_cuts_short_says_what_ended_the_session(
    no_session: None,
    news: dict[str, Any] | None,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moo.init()
    session, runtime = current_session(), current_runtime()
    assert session is not None
    call, stream = moo.spawn(Busy).wait.remote(), moo.spawn(Busy).forever()
    full = moo.spawn(Full)
    first = full.wait.remote()
    value = runtime.values.expect(1, runtime.process_id)
    tell = moo.spawn(Busy).wait
    tell.tell()
    (told,) = [one for one in runtime.caller.outstanding() if one.told]
    inbound: list[str] = []  # there is none without other hosts
    runtime.inbound = SimpleNamespace(  # type: ignore[assignment]
        close=lambda error=session_ended: inbound.append(str(error())), busy=False
    )
    no_room = threading.Event()
    monkeypatch.setattr(runtime.caller.admission, "_flush", no_room.set)
    os.kill(session._agent.pid, signal.SIGSTOP)  # it does not answer
    said = [
        failure_of(call.get),
        failure_of(lambda: next(iter(stream))),
        failure_of(full.wait),
        failure_of(lambda: runtime.agent.ask(None, op="status")),
    ]
    assert no_room.wait(60)
    assert eventually(lambda: len(runtime.caller) == 4 and runtime.agent._requests)

    if news is not None:
        runtime.agent._act_on(news, [])
    os.kill(session._agent.pid, signal.SIGKILL)

    ended = f"the session has ended, because {why}; moo.init() starts another one"
    assert [wait() for wait in said] == [ended] * len(said)
    assert eventually(lambda: inbound)
    failures = [one.failure() for one in (told, value)]
    assert [*map(str, failures), *inbound] == [ended] * 3
    over = str(runtime.over("a call"))
    assert over.startswith(f"a call: its session has ended, because {why}; create it")
    with pytest.raises(moo.ActorUnavailable) as raised:
        first.get()
    assert str(raised.value) == ended
