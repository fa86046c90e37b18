# SPDX-License-Identifier: MIT
"""The files of a session: its directory, the limit on descriptors, standard streams.

**The directory.** Sockets lie in it. The agent removes it at the session's end; if
driver and agent were both killed, the agent's janitor does, or the start of the next
session.

The protocol, for those who start sessions and clean up after others at the same time:

* A directory is one of ours by its name and by the file `LOCK` in it. Others with such
  a name are left alone, unless they are empty: ``/tmp/mooactor-examples`` may well have
  a user's own files.
* A directory belongs to the holder of the lock (``flock``) on the file `LOCK` that is
  in it *now*: a lock on a file that is no longer there is worth nothing.
* The maker of a directory goes on with it once it holds that lock, and keeps it: the
  agent inherits it. Before that, the directory may be taken for an abandoned one. A
  maker that finds it taken makes another, which another cleaner would have to meet in
  the same microseconds.
* A cleaner removes only a directory that it has the lock of. Once the lock itself is
  removed, the directory may be its maker's again, and is removed only if it is empty: a
  maker puts nothing into it before its own lock. If it is not empty, a process of the
  old session has put something into it, and the cleaner takes the lock again.

So no directory in use is removed, and no start fails because others clean up.

**The limit on open files** is raised at the start of a session, and never reached.
Running out of descriptors is not an error that a call could end with: libzmq, which
accepts connections in a thread of its own, ends the process. So they are counted before
anything is opened. Invariants:

* Every process of a session has the limit of its driver, which `raise_limit` has set,
  or that of its host's agent. The least of them counts.
* There are never more actors than `capacity` of it: each process then has room for ways
  to all the others, and for `_RESERVE` files of its own.
* A process with more files of its own than that starts fewer actors.
* Connections that have proved nothing make way for others (`control.unauthenticated`).

The cost of one actor was measured (a session of 20 actors, /proc/PID/fd):

* 3 descriptors in the agent: lifeline, stdout, stderr. 8 while its birth waits for the
  zygote: their other ends, and a large constructor argument with its duplicate.
* 3 in each process that calls it: a connection each way, and ZeroMQ's own for the
  socket. 6 once arrays were passed both ways: two connections more, and the memory that
  its arrays lie in. That comes in slabs of 64 MiB and more, of which each is one.
* None in the zygote, once it is born.

And in a session of several hosts, between processes of two of them:

* None in the agent of the driver's host, and 3 (8) in that of the actor's own.
* 5 in each process that calls it: a connection each way, and two ends of a monitor. 11
  once arrays were passed both ways: for each direction a connection for messages, and
  two for bulk. With n stripes there are n for bulk, by default at most 4.

An actor's own process has some 25 open at its start, as the driver has; slabs of its
own are at most 64.

**Standard input, output and error** (0, 1, 2) of a process that was started without.
A shell closes them with ``2>&-``, and so do some supervisors. The next descriptor that
is opened then gets such a number, and what anybody prints goes into it: into the epoll
of an event loop, say. So a process of ours opens them on ``/dev/null`` first
(`open_standard_streams`). A program that uses mooactor keeps its descriptors as they
are; only none of ours takes such a number while a session starts
(`standard_streams_held`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mooactor import errors
from mooactor.errors import PlacementError

if TYPE_CHECKING:
    from mooactor.process.runtime import Runtime


PREFIX = "mooactor-"
LOCK = "mooactor.lock"
_TRIES = 10  # to remove a directory that others put something into meanwhile
_NAME = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")  # as tempfile makes them
# sun_path has 108 bytes; the longest name below is <id>-<proof>.data
_MAX_SOCKET_PATH = 107 - len("/") - 2 * 16 - len("-.data") - len("/" + PREFIX) - 8


def make_directory() -> tuple[str, int]:
    """A new directory, and the descriptor that keeps it ours while it is open.

    Raises:
      MooError: there is nowhere to make it.
      OSError: the system refused its lock.
    """
    while True:
        path = _new()
        try:
            lock = _lock(path, os.O_CREAT)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        if lock is not None:
            return path, lock


def _new() -> str:
    """A directory in the best of the bases that takes one."""
    refused = ""
    for base in _usable():
        try:
            return tempfile.mkdtemp(prefix=PREFIX, dir=base)
        except OSError as error:  # say, a kernel's file system, or one that is full
            refused += f"; {base}: {error.strerror}"
    raise errors.MooError(
        "no directory for the session's sockets: set TMPDIR to a writable directory "
        f"with a path of at most {_MAX_SOCKET_PATH} characters{refused}"
    )


def remove_directory(path: str) -> bool:
    """Remove a directory that is ours, the lock last. False: processes that are being
    killed put things into it all the time, or we may not; try again."""
    locks: list[int] = []
    try:
        for _ in range(_TRIES):
            # Without a lock it would not count as abandoned when we give up.
            if _remove_once(path) or (lock := _lock(path, os.O_CREAT)) is None:
                break  # None: it is its maker's again
            locks.append(lock)
    except OSError:
        pass
    finally:
        for lock in locks:
            os.close(lock)
    return not os.path.lexists(path)


def _remove_once(path: str) -> bool:
    """Whether it is gone, or else something was put into it meanwhile, and it has no
    lock now."""
    try:
        with os.scandir(path) as found:
            entries = list(found)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != LOCK:
                _unlink(entry.path)
        _unlink(f"{path}/{LOCK}")
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_abandoned_directories() -> None:
    """Remove the directories of sessions whose driver and agent were both killed."""
    usable = _usable()
    for name in os.listdir(usable[0]) if usable else ():
        path = os.path.join(usable[0], name)
        try:
            if not _NAME.fullmatch(name) or os.stat(path).st_uid != os.getuid():
                continue
            lock = _lock(path)
            if lock is None:
                os.rmdir(path)  # its maker was killed before it made the lock
        except OSError:
            continue  # not empty, no directory, or none that we may change
        if lock is not None:
            remove_directory(path)
            os.close(lock)


def _lock(path: str, flags: int = 0) -> int | None:
    """The lock of a directory; None if it is somebody else's, or not there."""
    file = f"{path}/{LOCK}"
    try:
        lock = os.open(file, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one that had it until now may have removed the file since we opened it.
        if os.path.samestat(os.fstat(lock), os.stat(file)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def directory_bases() -> list[str]:
    """The possible parents of sessions' directories, best first.

    ``XDG_RUNTIME_DIR`` comes last: it is removed when its user has logged out, and a
    program left in ``tmux`` or under ``nohup`` goes on. We do not ask
    `tempfile.gettempdir`: it writes a file to find out, and a process that is killed
    at that moment leaves the file.
    """
    names = ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR")
    *temporary, runtime = map(os.environ.get, names)
    candidates = (tempfile.tempdir, *temporary, "/tmp", runtime)
    return list(dict.fromkeys(os.path.abspath(base) for base in candidates if base))


def _usable() -> list[str]:
    """Writable ones whose paths leave room for socket names."""
    return [
        base
        for base in directory_bases()
        if len(base) <= _MAX_SOCKET_PATH
        and os.path.isdir(base)
        and os.access(base, os.W_OK | os.X_OK)
    ]


PER_ACTOR = 8
_RESERVE = 128
_CALLED = 3  # descriptors of a way to another process
_CALLED_AWAY = 2  # more of one to another host: its monitor, both ends
_LEAST_STRIPES, _MOST_STRIPES = 2, 4  # by default, as processors are many or few
_MOST = 1 << 20  # some containers allow a thousand times that; programs loop over it
_MOST_ACTORS = 16_000  # as many sockets as ZeroMQ is allowed, less some
_COUNT_EVERY = 16  # spawns; counting takes a microsecond for each that is open

REMEDY = (
    "raise the hard limit (`ulimit -Hn`): LimitNOFILE= of systemd, --ulimit nofile= of "
    "docker, or /etc/security/limits.conf"
)


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = reachable_limit()
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def reachable_limit() -> int:
    """The least number of descriptors of each process once `raise_limit` was called."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)


def descriptor_limit() -> int:
    """The number of descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def per_actor_away(stripes: int | None) -> int:
    """Descriptors that an actor may need in a process of another host: `PER_ACTOR` of
    a session of several hosts. `stripes`: of TCP; None: the default."""
    links = 2 * (1 + (stripes or _MOST_STRIPES))
    return _CALLED + _CALLED_AWAY + links + 1  # and a slab


def capacity(descriptors: int, own: int = 0, each: int = PER_ACTOR) -> int:
    """The number of actors in a session if each process may have so many descriptors,
    one has `own` open for other purposes, and an actor may need `each`."""
    reserve = min(_RESERVE, descriptors // 2)
    return min(_MOST_ACTORS, max(0, descriptors - max(own, reserve)) // each)


def no_room(
    who: str,
    actors: int,
    own: int = 0,
    each: int = PER_ACTOR,
    least: tuple[int, str] | None = None,
) -> str:
    """Why no more actors are started: `who` has so many already. `least`: the limit
    that counts and the host that has it, if that is another one."""
    files = f", of which {own} are open for other purposes" if own > _RESERVE else ""
    most, host = least or (descriptor_limit(), "")
    where = f" on host {host}" if host else ""
    return (
        f"{who} has {actors} actors and no room for more under the limit of {most} "
        f"open files for each process{where}{files} (an actor may need {each}); "
        f"{REMEDY}"
    )


class Room:
    """The number of further actors that this process's descriptors allow."""

    def __init__(self, parts: Runtime) -> None:
        self._parts = parts
        self._stripes = parts.network.stripes  # of TCP to other hosts, if it is set
        self._left = 0  # spawns before the next count

    def take(self, actors: int, label: str) -> None:
        """Make sure of room for `actors` more.

        Raises:
          PlacementError: there is none; nothing was started.
        """
        if actors <= self._left:
            self._left -= actors
            return
        own, known = self._count()
        several = self._parts.messenger.ways is not None
        each = per_actor_away(self._stripes) if several else PER_ACTOR
        left = capacity(descriptor_limit(), own, each) - known
        if left < actors:
            why = no_room("this process", known, own, each)
            raise PlacementError(f"{label} cannot be started: {why}", delivered=False)
        self._left = min(left, _COUNT_EVERY) - actors

    def _count(self) -> tuple[int, int]:
        """Descriptors that are not of ways to others, and actors."""
        plane = self._parts.plane.statistics()
        ways = _CALLED * len(self._parts.messenger.known())
        if self._parts.messenger.ways is not None:
            ways += _CALLED_AWAY * len(self._parts.messenger.ways)
        ways += plane["peers"] + 2 * plane["owners"]
        ways += (1 + (self._stripes or _LEAST_STRIPES)) * plane["links"]
        own = len(os.listdir("/proc/self/fd")) - 1 - ways
        return own, self._parts.links.known_alive()


_LAST = 2


def open_standard_streams() -> None:
    """Open those that are closed on ``/dev/null``, for this process and its children,
    and the streams of `sys` that are None because of that."""
    _open_closed([])
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)


@contextmanager
def standard_streams_held() -> Iterator[None]:
    """Have those that are closed open on ``/dev/null`` within, also in children that
    are started there."""
    opened: list[int] = []
    try:
        _open_closed(opened)
        yield
    finally:
        for fd in opened:
            os.close(fd)


def _open_closed(opened: list[int]) -> None:
    """Add the numbers to `opened`. The kernel takes the lowest number that is free, so
    no other thread's descriptor is ever replaced."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _LAST:
        opened.append(fd)
        os.set_inheritable(fd, True)
    os.close(fd)
