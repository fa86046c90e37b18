# SPDX-License-Identifier: MIT
"""A session that many start, that ends while threads wait in it, or after which
somebody still asks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

import mooactor as moo
from mooactor.host import session
from mooactor.process import files
from tests.actors.counter import Counter


@pytest.mark.usefixtures("no_session")
def test_the_end_by_a_signal_handler_releases_all_threads_that_wait() -> None:
    ends: list[BaseException | None] = []

    def wait(ref: moo.Ref[None]) -> None:
        ends.append(ref.exception())

    before = signal.signal(signal.SIGALRM, lambda *_: moo.shutdown())
    try:
        moo.init()
        refs = [moo.spawn(Counter).sleep.remote(600) for _ in range(3)]
        threads = [threading.Thread(target=wait, args=(ref,)) for ref in refs]
        for thread in threads:
            thread.start()
        signal.setitimer(signal.ITIMER_REAL, 0.3)  # while this thread waits, too
        wait(refs[0])
        for thread in threads:
            thread.join(60)
        assert len(ends) == 4 and all(isinstance(e, moo.MooError) for e in ends)
    finally:
        signal.signal(signal.SIGALRM, before)
        moo.shutdown()


# -- several that want a session, or still want the one that ends --------------------

USES: list[Callable[[], object]] = [
    moo.stats,
    moo.hosts,
    lambda: moo.put(1),
    lambda: moo.spawn(Counter),
    moo.init,
]


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
def test_a_signal_handler_within_a_start_is_refused_and_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    def handle(*_: object) -> None:
        for use in USES:
            with pytest.raises(moo.MooError) as caught:
                use()
            said.append(str(caught.value))

    def raise_signal() -> None:
        signal.raise_signal(signal.SIGUSR2)
        remove_abandoned()

    remove_abandoned = files.remove_abandoned_directories
    monkeypatch.setattr(files, "remove_abandoned_directories", raise_signal)
    before = signal.signal(signal.SIGUSR2, handle)
    try:
        with moo.init():
            refused = ["just starting a session" in text for text in said]
            assert refused == [True] * len(USES)
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
def test_a_spawn_that_outlives_its_session_starts_nothing(again: bool) -> None:
    Slow.begun.clear()
    Slow.goes_on.clear()
    errors: list[BaseException] = []

    def spawn() -> None:
        on = moo.on(Counter, num_cpus=0.1)
        try:
            on.spawn(Slow()) if again else on.group(2, Slow())
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
