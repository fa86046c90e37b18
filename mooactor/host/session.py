# SPDX-License-Identifier: MIT
"""The driver's side of a session: start the agent, and end everything again.

At the end it waits for its own calls, and for tells, for which nobody else waits. Only
then it asks the actors to stop, so that those which a call needs are there until it has
ended. Both together have the grace; its rest, or a second, is for the actors to stop
in. Invariants:

* The end takes no longer than the grace and a second, even if actors hang.
* A session in which nothing is outstanding is not held up.
* Tells that are given up are reported, in one sentence on stderr.
* Ctrl-C ends each of the waits at once. It takes effect when the end is complete: no
  processes are left behind for it.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from enum import Enum
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mooactor import errors
from mooactor.control.complaints import say
from mooactor.control.keys import new_process_id, new_session_key, session_mark
from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import LONGEST_S
from mooactor.host import leftovers
from mooactor.process import files, signals
from mooactor.process.actor import debugger
from mooactor.process.agent_client import AGENT_DIED
from mooactor.process.current import set_current_runtime
from mooactor.process.environment import Place, Streams, host_name
from mooactor.process.losses import summary
from mooactor.process.objects.future import Future
from mooactor.process.protocol import Configure, Log, Shutdown
from mooactor.process.runtime import Runtime
from mooactor.process.system import MOUNT_PROC, why_no_proc
from mooactor.tensors.network import Network
from mooactor.times import GRACE_S, KILLED_S

if TYPE_CHECKING:
    from mooactor.host.driver_joins import Joining

#: The time that actors have to stop if the wait for calls has used the grace up.
_LEAST_S = 1.0
#: The same after Ctrl-C.
_HURRIED_S = 0.2
_LOOK_MS = 50  # the delay until a Ctrl-C is seen


class Awaited(Enum):
    """Calls that the end of a session waits for."""

    ALL = "calls and tells"
    TELLS = "tells"
    NOTHING = "nothing"

    @classmethod
    def after(cls, raised: type[BaseException] | None) -> Awaited:
        """The calls that an end waits for if `raised` caused the end.

        An error is no reason to lose a tell, which should have its effect even without
        its sender. Results of calls are not wanted any more. A user who presses Ctrl-C,
        which an asyncio program sees as a cancellation, wants the end now.
        """
        if raised is None or issubclass(raised, SystemExit):
            return cls.ALL
        import asyncio

        hurried = (KeyboardInterrupt, asyncio.CancelledError)
        return cls.NOTHING if issubclass(raised, hurried) else cls.TELLS


def ended_by() -> type[BaseException] | None:
    """The exception that ends the program, in an exit handler; None: there is none."""
    if hasattr(sys, "ps1"):
        return None  # it is of an earlier line of an interactive program
    return getattr(sys, "last_type", None)


class Hurry:
    """Ctrl-C while the session ends: it is kept in mind, and raises nothing."""

    def __init__(self) -> None:
        self.hurried = False

    @contextlib.contextmanager
    def watch(self, deliver: bool) -> Iterator[None]:
        """Take SIGINT over. With `deliver`, one that came goes to the program's own
        handler in the end."""
        before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
        if before is None or before is signal.SIG_IGN:
            yield  # another thread's, not Python's, or of no interest
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            if self.hurried and deliver:
                signal.raise_signal(signal.SIGINT)

    def _note(self, *_: object) -> None:
        self.hurried = True


class Ending:
    """One end of one session."""

    def __init__(
        self,
        parts: Runtime,
        agent: subprocess.Popen[bytes],
        grace_s: float,
        awaited: Awaited,
        hurry: Hurry,
    ) -> None:
        self._parts = parts
        self._agent = agent
        self._grace_s = grace_s if awaited is not Awaited.NOTHING else _HURRIED_S
        self._awaited = awaited
        self._hurry = hurry
        self._agent_lost = False

    def run(self) -> None:
        """Wait, have the actors stop, and return when the agent is gone."""
        parts, start = self._parts, perf_counter()
        if self._awaited is not Awaited.ALL:
            parts.results.ending = True
        parts.agent.on_agent_lost = self._lost
        parts.caller.close_streams()
        parts.flush()
        rest = self._wait_for_calls(start + self._grace_s)
        self._say(rest)
        parts.caller.give_up(rest)
        # Read once: a Ctrl-C after this moment shortens the grace told here.
        hurried = self._hurry.hurried
        self._shut_down(self._left(start + self._grace_s, hurried), rest, hurried)

    def _left(self, until: float, hurried: bool) -> float:
        """The seconds that actors have to stop in."""
        if hurried:
            return min(self._grace_s, _HURRIED_S)
        return max(until - perf_counter(), min(self._grace_s, _LEAST_S))

    def _lost(self) -> None:
        self._agent_lost = True
        self._parts.poller.wake()

    # -- calls -------------------------------------------------------------

    def _wait_for_calls(self, until: float) -> list[Future]:
        """The calls that have not ended by then, or at a Ctrl-C."""
        rest: list[Future] = []

        def done() -> bool:
            # Called with each message: it looks at each ended call once, and at all
            # calls only when none is left of the last look.
            while rest and rest[-1].state:
                rest.pop()
            rest.extend(() if rest else self._outstanding())
            return not rest or self._agent_lost or self._hurry.hurried

        if self._awaited is not Awaited.NOTHING:
            deadline = None if math.isinf(until) else until
            self._parts.poller.wait(done, deadline)
        return self._parts.caller.outstanding()

    def _outstanding(self) -> list[Future]:
        found = self._parts.caller.outstanding()
        if self._awaited is Awaited.TELLS:
            return [future for future in found if future.told]
        return found

    def _say(self, rest: list[Future]) -> None:
        """Report losses that would otherwise be silent. The Refs of calls report their
        own, so without a wait for calls none of them is named."""
        said = rest
        if self._awaited is not Awaited.ALL or self._hurry.hurried:
            said = [future for future in rest if future.told]
        if not said:
            return
        if self._parts.agent.because:
            why = self._parts.agent.because
        elif self._agent_lost:
            why = "the host's agent is gone"
        elif self._hurry.hurried or self._awaited is Awaited.NOTHING:
            why = "it was interrupted"
        else:
            why = (
                f"they took longer than {self._grace_s:g} s; moo.shutdown(grace=…) "
                "waits as long as you say"
            )
        say(f"mooactor: the end of the session gave up {summary(said)}: {why}")

    # -- actors ------------------------------------------------------------

    def _shut_down(self, grace_s: float, rest: list[Future], hurried: bool) -> None:
        """Have every actor stop. Those whose calls were given up are not waited for
        once the others have ended. `hurried`: `grace_s` knows of a Ctrl-C."""
        given_up = {future.link.actor_id for future in rest if future.link}
        self._tell(grace=grace_s, given_up=list(given_up))
        until = perf_counter() + grace_s + KILLED_S
        if self._agent.poll() is not None:
            return  # its pid may be another process's by now
        with self._poller() as poller:
            while self._agent.poll() is None:
                poller.poll(_LOOK_MS)
                if self._hurry.hurried and not hurried:
                    hurried = True
                    self._tell(grace=0.0, given_up=[])
                    until = perf_counter() + KILLED_S
                if perf_counter() > until:
                    self._agent.kill()

    def _tell(self, *, grace: float, given_up: list[int]) -> None:
        with contextlib.suppress(errors.ActorUnavailable):  # gone, and the actors too
            grace = min(grace, LONGEST_S)
            self._parts.agent.tell(Shutdown(grace, given_up))

    @contextlib.contextmanager
    def _poller(self) -> Iterator[select.poll]:
        """Its event is the agent's end. It has none if that is gone, and reaped by
        somebody else: `Popen.poll` knows then."""
        poller = select.poll()
        try:
            pidfd = os.pidfd_open(self._agent.pid)
        except OSError:  # or no descriptor is left: then the agent is looked for
            yield poller
            return
        try:
            poller.register(pidfd, select.POLLIN)
            yield poller
        finally:
            os.close(pidfd)


PRELOADABLE = ("numpy", "torch", "mooactor.learner.group")
_AGENT = (
    "import sys; sys.path[:] = sys.argv[2].split(':'); "
    "from mooactor.host.agent import main; main(*map(int, sys.argv[1::2]))"
)


class Session:
    """An embedded runtime: one agent, and this process as its driver.

    Invariant of its start: each part is noted in the line that makes it, so `undo` ends
    it from wherever an exception has come, that of a signal handler included. Ctrl-C,
    which may come within a line, waits meanwhile.
    """

    _agent: subprocess.Popen[bytes]
    runtime: Runtime  # from the end of `begin` on

    def __init__(self, preload: list[str]) -> None:
        self._pid = os.getpid()
        self._closing = threading.RLock()
        self.preload = preload
        self.lost = ""  # what ended it, if that was not this program
        self.directory = ""
        self._fds: list[int] = []  # of the agent, until it has them; so is lines[1]
        self._lines: tuple[socket.socket, ...] = ()

    # -- the start ---------------------------------------------------------

    def begin(
        self,
        *,
        logs: bool = True,
        memory: int | None = None,
        network: Network,
        debug: bool | None = None,
        seed: int | None = None,
        setup: bytes | None = None,
        sigusr1: bool | None = None,
        membership: Joining | None = None,
    ) -> None:
        """Start it; `undo` is due if this raises.

        `membership`: how to join a cluster; None: all is on this host.

        Raises:
          ActorUnavailable: no broker has taken this session.
          ValueError: MOOACTOR_HOST_NAME is no name.
        """
        _require_linux()
        _require_gil()
        if (why := why_no_proc()) is not None:
            raise errors.MooError(f"no actor can be started here: {why}; {MOUNT_PROC}")
        files.raise_limit()
        files.remove_abandoned_directories()
        place = Place.here()
        host_name()  # refused here, and not by the agent
        process_id, own_key = new_process_id(), new_session_key()
        key = own_key if membership is None else membership.session_key()
        reach = None if membership is None else membership.reach()
        with Hurry().watch(deliver=True), files.standard_streams_held():
            self._start_agent(debug, place)
            lifeline = Lifeline(self._lines[0])
            lifeline.send(
                Configure(
                    os.fsencode(self.directory),
                    key,
                    process_id,
                    session_mark(own_key).hex(),
                    place,
                    os.fsencode(sys.executable),
                    [os.fsencode(str(word)) for word in sys.argv],
                    [str(module) for module in self.modules()],
                    network,
                    forward_logs=logs,
                    logs_by_lifeline=not _stdout_is_descriptor(),
                    local=membership is None or membership.local,
                    pid=os.getpid(),
                    memory_limit=memory,
                    seed=seed,
                    setup=setup,
                    reach=reach,
                    cluster=None if membership is None else membership.cluster(),
                )
            )
            self.runtime = Runtime(
                self.directory,
                key,
                process_id,
                lifeline,
                memory_limit=memory,
                network=network,
                streams=Streams.of_driver(seed),
                origin=place,
                reach=reach,
            )
            self._take_part(sigusr1)
        if membership is not None:
            from mooactor.host.driver_joins import await_joined

            await_joined(self.runtime.agent, membership)

    def _start_agent(self, debug: bool | None, place: Place) -> None:
        """Start the agent, which keeps the session's directory locked while it runs."""
        self.directory, *self._fds = files.make_directory()
        self._fds.append(_pidfd())
        self._lines = socket.socketpair()
        environment = dict(os.environ)
        if debug is not None:
            environment[debugger.VARIABLE] = str(int(debug))
        environment[leftovers.VARIABLE] = os.urandom(8).hex()
        line, driver = self._lines[1].fileno(), self._fds[-1]
        path = b":".join(place.path)
        self._agent = subprocess.Popen(
            [sys.executable, "-c", _AGENT, str(line), path, str(driver)],
            pass_fds=(line, *self._fds),
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        self._leave_to_agent()

    def _leave_to_agent(self) -> None:
        """Close what is the agent's."""
        while self._fds:
            os.close(self._fds.pop())
        for line in self._lines[1:]:
            line.close()

    def _take_part(self, sigusr1: bool | None) -> None:
        self.runtime.agent.on(Log, _print_log)
        self.runtime.agent.on_agent_lost = self._agent_lost
        self.runtime.housekeeper.start()
        set_current_runtime(self.runtime)
        signals.report_in_driver(sigusr1)

    def undo(self) -> None:
        """End a start that has failed, or was interrupted."""
        with self._closing, Hurry().watch(deliver=True):
            self._tear_down()

    def modules(self) -> list[str]:
        """The modules that forked actors should find imported already."""
        loaded = [name for name in PRELOADABLE if name in sys.modules]
        return loaded + self.preload

    def disown(self) -> None:
        """In the child of a fork: the agent is not this process's child."""
        self._agent.returncode = 0

    # -- the end -----------------------------------------------------------

    def _agent_lost(self) -> None:
        if self.runtime.closed:
            return
        agent = self.runtime.agent
        if not agent.because:  # else that was said when it began
            agent.because = AGENT_DIED
            say("mooactor: the host's agent is gone; the session ends")
        self.lost = agent.because
        end = partial(self.close, GRACE_S, Awaited.NOTHING)
        threading.Thread(target=end, daemon=True).start()

    def close(
        self,
        grace: float = GRACE_S,
        awaited: Awaited = Awaited.ALL,
        *,
        deliver: bool = False,
    ) -> None:
        """Wait for calls and tells, stop every actor, wait until all are gone, and free
        everything; see `ending`.

        With `deliver`, Ctrl-C meanwhile is the program's own to handle afterwards.
        A second thread that closes it waits for the first: else a program could end
        while the session is still being removed.
        """
        if os.getpid() != self._pid:
            return  # a forked child owns nothing of this
        with self._closing:
            if not self.runtime.closed:
                self._close(grace, awaited, deliver)

    def _close(self, grace: float, awaited: Awaited, deliver: bool) -> None:
        runtime, hurry = self.runtime, Hurry()
        with hurry.watch(deliver and awaited is not Awaited.NOTHING):
            try:
                Ending(runtime, self._agent, grace, awaited, hurry).run()
            finally:
                self._tear_down()

    def _tear_down(self) -> None:
        """Free all that there is, also without an orderly end: then the end of the
        lifeline ends the agent."""
        with contextlib.ExitStack() as steps:  # the last one comes first
            steps.callback(atexit.unregister, self.close_at_exit)
            steps.callback(files.remove_directory, self.directory)
            if hasattr(self, "_agent"):
                steps.callback(self._await_agent)
            for line in self._lines:
                steps.callback(line.close)
            steps.callback(self._leave_to_agent)
            steps.callback(set_current_runtime, None, ended_by=self.lost)
            if hasattr(self, "runtime"):
                steps.callback(self.runtime.close)

    def _await_agent(self) -> None:
        try:
            self._agent.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()

    def close_at_exit(self) -> None:
        """The program has ended, and not its session."""
        self.runtime.results.ending = True
        self.close(awaited=Awaited.after(ended_by()))


def _require_linux() -> None:
    if not sys.platform.startswith("linux"):
        raise errors.MooError(
            f"mooactor starts actors on Linux only, not on {sys.platform}: it needs "
            "memfd, pidfd and epoll; classes can still be used as ordinary objects"
        )


def _require_gil() -> None:
    # Threads of one process share queues that only the GIL guards.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise errors.MooError(
            "mooactor needs Python's global interpreter lock (GIL), which is off in "
            "this free-threaded Python: set PYTHON_GIL=1 in the environment"
        )


def _pidfd() -> int:
    """A descriptor of this very process, by which the agent knows of its death.

    The end of the lifeline is not enough: children forked from this process have that
    line, too. Made here, it cannot be of another process that got the pid later.
    """
    try:
        return os.pidfd_open(os.getpid())
    except OSError as error:
        raise errors.MooError(
            f"this system has no pidfd ({error.strerror}), and mooactor needs it to "
            "detect the end of this program: use Linux 5.3 or newer; a container's "
            "seccomp profile may forbid pidfd_open"
        ) from error


def _stdout_is_descriptor() -> bool:
    """Whether descriptor 1 leads to the same place as `print`; not so in a notebook."""
    try:
        return sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):
        return False


def _print_log(message: Log) -> None:
    stream = sys.stdout if message.stream == 1 else sys.stderr
    print(message.line, file=stream, flush=True)


_session: Session | None = None
starts = threading.RLock()  # held by the thread that starts one, or looks for it
_under_way = threading.Lock()  # held while one starts


def refuse_within_start() -> None:
    """With `starts` held: a signal handler, or a finalizer, may have it because it has
    interrupted the thread that is just starting a session.

    Raises:
      MooError: so it is.
    """
    if _under_way.locked():
        raise errors.MooError(
            "this thread is just starting a session, and a signal handler or a "
            "finalizer, which has interrupted it, cannot use it yet: let that set a "
            "flag, or look at it later"
        )


def start_session(**options: Any) -> Session:
    """Start this process's session; see `Session.begin`.

    Raises:
      MooError: it has one already, or this thread is just starting one.
    """
    with starts:
        refuse_within_start()
        if _session is not None:
            if not (_session.runtime.closed or _session.runtime.agent.was_lost):
                raise errors.MooError("a session runs already; moo.shutdown() ends it")
            _session.close(deliver=True)  # or wait for the thread that does
        with _under_way:
            return _start(**options)


def _start(*, preload: list[str], **options: Any) -> Session:
    """Start it, or leave nothing of it."""
    global _session
    last, session = _session, Session(preload)
    try:
        session.begin(**options)
        _session = session
        atexit.register(session.close_at_exit)
        return session
    except BaseException:
        _session = last
        session.undo()
        raise


def _after_fork() -> None:
    global _session, starts, _under_way
    starts, _under_way = threading.RLock(), threading.Lock()
    if _session is not None:
        _session.disown()


os.register_at_fork(after_in_child=_after_fork)


def current_session() -> Session | None:
    """The session that this process drives, if any."""
    if _session is None or _session.runtime.closed:
        return None
    return _session


def refuse_after_loss() -> None:
    """Before a session starts by itself: not in the place of one that was lost, which
    had options and actors that the program still counts on.

    Raises:
      MooError: the last session was lost.
    """
    if _session is not None and _session.lost:
        raise errors.MooError(
            "the session has ended, and its actors with it, because "
            f"{_session.lost}; moo.init() starts another one"
        )
