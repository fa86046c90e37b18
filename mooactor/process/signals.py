# SPDX-License-Identifier: MIT
"""Signals in the processes of a session.

Some are meant for the program, and reach all processes of its job. A terminal sends
Ctrl-C, and Slurm, systemd and Kubernetes SIGTERM or SIGHUP, to each of them. The
program decides what to do about it: it may save a checkpoint first, with its actors. So
a session's agent, zygotes and actors outlive these signals. They end with the program.

At SIGUSR1 a process says on stderr what it is doing, and goes on with it.
The agent, the zygote and every actor do so, and the driver if the signal has no other
use there. A report has the stack of each thread and asyncio task, the calls that this
process waits for, and, of an actor, the calls that run and those in its mailbox.

Invariants:

* A handler that somebody else has installed is never replaced, and one that somebody
  installs afterwards takes the place of this one. The end of a session removes nothing,
  because Python cannot see whether another handler was installed in C meanwhile.
* The report changes nothing, takes no lock, and raises nothing. It runs in the main
  thread between any two lines, also of this package: it reads copies that are made in
  one step, and writes to the descriptor, not to `sys.stderr`, whose lock may be held.
* No wait ends for the signal. A blocked main thread leaves its system call, runs the
  handler, and waits on.

A main thread that computes in C runs no handler before it is back in Python. So the
zygote and the actors have a second handler in front of it, in C (`faulthandler`), which
writes the stack of the interrupted thread at once. It leaves other threads out: it
would read their frames while they run, and with busy threads in Python that crashed the
process within seconds of repeated signals. On Python 3.13 and later there is no second
handler: the stack of the interrupted thread alone crashes 3.13.0 in the same way, if
the signal comes while a frame is made.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from mooactor.process import current
from mooactor.process.loops import running_loop

if TYPE_CHECKING:
    from mooactor.process.objects.future import Future


JOB_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def outlive_the_job() -> None:
    """In a process of ours: ignore them, and let others through, whatever the program
    has blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in JOB_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def pass_over() -> None:
    """In an actor's process. Not by ignoring them, which a program that it starts would
    do, too."""
    for number in JOB_SIGNALS:
        signal.signal(number, _nothing)
    os.register_at_fork(
        before=_hold, after_in_parent=_release, after_in_child=_as_usual
    )


class _Held(threading.local):
    mask: Any = ()


_held = _Held()


def _hold() -> None:
    """One that comes before the child has its usual handlers waits for them."""
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _nothing(number: int, frame: Any) -> None:
    pass


def _as_usual() -> None:
    """In a child that a method forked, of multiprocessing for instance."""
    for number in JOB_SIGNALS:
        if signal.getsignal(number) is _nothing:
            usual = signal.default_int_handler if number == signal.SIGINT else None
            signal.signal(number, usual or signal.SIG_DFL)
    _release()


Parts = Callable[[], Iterable[str]]
_SIGNAL = signal.SIGUSR1
#: Whether `faulthandler` may read the stack of a thread at any moment of it.
READS_FRAMES = sys.version_info < (3, 13)
_MOST_LINES = 40  # of one kind; the rest is counted


class _Said:
    """The beginning of this process's report, and its lines beside the stacks."""

    title = ""
    parts: Parts
    write: Callable[[str], object]
    pid = 0


# -- installing ------------------------------------------------------------


def report_on_sigusr1(
    title: str,
    parts: Parts = tuple,
    *,
    write: Callable[[str], object] | None = None,
    at_once: bool = False,
) -> None:
    """From here on SIGUSR1 makes this process report, unless the signal has another
    use. In the main thread.

    Args:
      title: the process's name, such as ``the agent``.
      parts: gives further lines.
      write: takes the report, in the midst of anything; by default descriptor 2.
      at_once: the C handler is put in front, for this process and all its forks,
        where it is safe.
    """
    if not (_is_ours() or _is_free()):
        return
    describe_process(title, parts)
    _Said.write = staticmethod(write or _to_stderr)
    signal.signal(_SIGNAL, _report)
    if at_once and READS_FRAMES:
        faulthandler.register(_SIGNAL, file=2, all_threads=False, chain=True)


def report_in_driver(wanted: bool | None) -> None:
    """The same in the user's program. None: unless it is a Slurm job, where the signal
    may be the notice of preemption, for which libraries install a handler of their own
    only where they find none."""
    if wanted is None:
        wanted = "SLURM_JOB_ID" not in os.environ
    if wanted and threading.current_thread() is threading.main_thread():
        report_on_sigusr1("the driver", lines_of_session)


def describe_process(title: str, parts: Parts) -> None:
    """Set this process's title and lines, after a fork."""
    _Said.title, _Said.parts, _Said.pid = title, staticmethod(parts), os.getpid()


def _is_ours() -> bool:
    return signal.getsignal(_SIGNAL) is _report


def _is_free() -> bool:
    """Whether the kernel has the default disposition, too: Python does not know of
    handlers that were installed in C."""
    if signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
        return False
    try:
        with open("/proc/self/status", "rb") as file:
            masks = [
                int(line.split()[1], 16)
                for line in file
                if line.startswith((b"SigCgt", b"SigIgn"))
            ]
    except OSError:
        return False
    return not any(mask >> (_SIGNAL - 1) & 1 for mask in masks)


# -- reporting -------------------------------------------------------------


def _report(number: int, frame: FrameType | None) -> None:
    """The signal's handler."""
    try:
        _Said.write("".join(f"{line}\n" for line in _lines(frame)))
    except Exception as error:  # a bug here must not end what was interrupted
        _to_stderr(f"mooactor: the report of SIGUSR1 failed: {error!r}\n")


def _to_stderr(text: str) -> None:
    left = memoryview(text.encode(errors="replace"))
    try:
        while left:
            left = left[os.write(2, left) :]
    except OSError:
        pass  # closed, or full and non-blocking


def _lines(frame: FrameType | None) -> Iterator[str]:
    pid = os.getpid()
    child = "" if pid == _Said.pid else f"a fork of process {_Said.pid}, "
    yield f"mooactor: {child}{_Said.title} (process {pid}) on SIGUSR1:"
    yield from _threads(frame)
    yield from _tasks()
    if not child:
        yield from (f"  {line}" for line in _Said.parts())


def _threads(interrupted: FrameType | None) -> Iterator[str]:
    """The stack of each thread, the most recent call first."""
    here = threading.get_ident()
    # Not threading.enumerate(), which takes a lock that this very thread may hold.
    threads: list[threading.Thread] = list(vars(threading)["_active"].values())
    known = {thread.ident: thread for thread in threads}
    for ident, frame in sys._current_frames().items():
        thread = known.get(ident)
        name = "that Python did not start" if thread is None else thread.name
        yield f"  thread {name}{_number(thread)}:"
        yield from _stack(interrupted if ident == here else frame)


def _number(thread: threading.Thread | None) -> str:
    """The system's number of the thread."""
    if thread is None:
        return ""
    # After a fork Python has the parent's number of the main thread.
    is_main = thread is threading.main_thread()
    return f" ({os.getpid() if is_main else thread.native_id})"


def _stack(frame: FrameType | None) -> Iterator[str]:
    left = _MOST_LINES
    while frame is not None and left:
        yield _place(frame)
        frame, left = frame.f_back, left - 1
    if frame is not None:
        yield "    ..."


def _place(frame: FrameType) -> str:
    # No source lines: reading files is too much for a handler.
    code = frame.f_code
    return (
        f'    File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}'
    )


def _tasks() -> Iterator[str]:
    """The tasks of the loop that runs in this thread, each with its stack."""
    loop = running_loop()
    if loop is None:
        return
    import asyncio

    tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in tasks[:_MOST_LINES]:
        yield f"  task {task.get_name()}:"
        frames = [_place(frame) for frame in _awaited(task.get_coro())]
        yield from reversed(frames)
    if len(tasks) > _MOST_LINES:
        yield f"  and {len(tasks) - _MOST_LINES} more tasks"


def _awaited(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of its awaited ones, as far as they are
    Python's."""
    while coroutine is not None:
        kind = next(
            (k for k in ("cr", "gi", "ag") if hasattr(coroutine, k + "_frame")), ""
        )
        if not kind:
            return
        frame = getattr(coroutine, kind + "_frame")
        if frame is not None:
            yield frame
        what = "gi_yieldfrom" if kind == "gi" else kind + "_await"
        coroutine = getattr(coroutine, what)


# -- the lines of processes ------------------------------------------------


def lines_of_session() -> Iterator[str]:
    """The calls under way of a process in a session, and those it serves."""
    runtime = current.known_runtime()
    if runtime is None or runtime.closed:
        yield "no session runs here"
        return
    yield from _listed("waits for", map(_call, runtime.caller.outstanding()))
    worker: Any = runtime.server
    if worker is not None:
        running = list(worker.running.values())
        yield from _listed("runs", (_name(job) for job in running))
        yield from _listed("has queued", map(_name, worker.mailbox.waiting()))


def _call(future: Future) -> str:
    # Not its repr, which decodes replies that have arrived.
    label = str(getattr(future, "_label", "a call"))
    return f"{future.link.label}.{label}, a tell" if future.told else label


class _Job(Protocol):
    """A call that an actor has."""

    name: bytes
    cancelled: bool
    parked: bool


def _name(job: _Job) -> str:
    more = ", cancelled" if job.cancelled else ", waits for its consumer" * job.parked
    return job.name.decode(errors="replace") + more


def _listed(verb: str, names: Iterable[str]) -> Iterator[str]:
    """Equal lines as one, with their number."""
    counted = Counter(names)
    total = counted.total()
    yield f"{verb}: {f'{total} calls' if total != 1 else '1 call'}"
    for name, count in counted.most_common(_MOST_LINES):
        yield f"  {name}" + (f" ({count} times)" if count > 1 else "")
    if len(counted) > _MOST_LINES:
        yield f"  and {len(counted) - _MOST_LINES} more"
