# SPDX-License-Identifier: MIT
"""The directory of a session: its creation, its owner, and its removal.

Sockets lie in it. The agent removes it at the session's end; if driver and agent were
both killed, the agent's janitor does, or the start of the next session.

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
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile

from mooactor import errors

PREFIX = "mooactor-"
LOCK = "mooactor.lock"
_TRIES = 10  # to remove a directory that others put something into meanwhile
_NAME = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")  # as tempfile makes them
# sun_path has 108 bytes; the longest name below is <id>-<proof>.data
_MAX_SOCKET_PATH = 107 - len("/") - 2 * 16 - len("-.data") - len("/" + PREFIX) - 8


def make() -> tuple[str, int]:
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


def remove(path: str) -> bool:
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


def remove_abandoned() -> None:
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
            remove(path)
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


def bases() -> list[str]:
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
        for base in bases()
        if len(base) <= _MAX_SOCKET_PATH
        and os.path.isdir(base)
        and os.access(base, os.W_OK | os.X_OK)
    ]
