# SPDX-License-Identifier: MIT
"""The driver's side of a session: start the agent, and end everything again."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

from mooactor import errors
from mooactor.control.keys import new_process_id, new_session_key
from mooactor.process.current import set_current_runtime
from mooactor.process.lifeline import Lifeline, Message
from mooactor.process.network import Network
from mooactor.process.runtime import Runtime

_PREFIX = "mooactor-"
PRELOADABLE = ("numpy", "torch")
# sun_path has 108 bytes; the longest name below is <id>-<proof>.data
_MAX_SOCKET_PATH = 107 - len("/") - 2 * 16 - len("-.data") - len("/" + _PREFIX) - 8
_AGENT = (
    "import sys; sys.path[:] = sys.argv[2].split(':'); "
    "from mooactor.process.agent import main; main(int(sys.argv[1]))"
)


class Session:
    """An embedded runtime: one agent, and this process as its driver."""

    def __init__(
        self,
        *,
        logs: bool = True,
        memory: int | None = None,
        preload: list[str],
        network: Network,
    ) -> None:
        _require_linux()
        _require_gil()
        _remove_abandoned()
        self._pid = os.getpid()
        self.preload = preload
        self.directory = tempfile.mkdtemp(prefix=_PREFIX, dir=_short_directory())
        ours, theirs = socket.socketpair()
        try:
            self._agent = _start_agent(theirs, self.directory)
        except BaseException:
            ours.close()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        finally:
            theirs.close()
        key = new_session_key()
        lifeline = Lifeline(ours)
        config = _config(self.directory, key, logs, memory, self.modules(), network)
        lifeline.send(config)
        try:
            self.runtime = Runtime(
                self.directory,
                key,
                new_process_id(),
                lifeline,
                memory_limit=memory,
                network=network,
            )
        except BaseException:
            lifeline.close()  # which ends the agent
            self._agent.wait()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self.runtime.agent.on_log = _print_log
        self.runtime.agent.on_agent_lost = self._agent_lost
        self.runtime.pump.start_helper()
        set_current_runtime(self.runtime)

    def modules(self) -> list[str]:
        """What forked actors should find imported already."""
        loaded = [name for name in PRELOADABLE if name in sys.modules]
        return loaded + self.preload

    def _agent_lost(self) -> None:
        if self.runtime.closed:
            return
        print("mooactor: the host's agent is gone; the session ends", file=sys.stderr)
        threading.Thread(target=self.close, daemon=True).start()

    def close(self, grace: float = 3.0) -> None:
        """Stop every actor, wait until all are gone, and free everything.

        Actors get `grace` seconds for their current call and `on_stop`; those that
        need longer are killed.
        """
        runtime = self.runtime
        if runtime.closed:
            return
        if os.getpid() != self._pid:
            return  # a forked child owns nothing of this
        runtime.agent.on_agent_lost = None
        try:
            runtime.flush()
            runtime.agent.tell(op="shutdown", grace=grace)
        except errors.ActorUnavailable:
            pass  # it is gone already, and so are the actors
        try:
            self._agent.wait(grace + 5.0)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()
        runtime.close()
        set_current_runtime(None)
        shutil.rmtree(self.directory, ignore_errors=True)


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
            "mooactor needs Python's global lock, which this free-threaded Python "
            "runs without: set PYTHON_GIL=1 in the environment"
        )


def _start_agent(line: socket.socket, directory: str) -> subprocess.Popen[bytes]:
    # The agent removes the directory when it ends, and holds this lock until then.
    lock = os.open(f"{directory}/lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path = ":".join(entry or os.getcwd() for entry in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _AGENT, str(line.fileno()), path],
            pass_fds=(line.fileno(), lock),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.close(lock)


def _config(
    directory: str,
    key: bytes,
    logs: bool,
    memory: int | None,
    preload: list[str],
    network: Network,
) -> Message:
    return {
        "directory": directory,
        "key": key,
        "forward_logs": logs,
        "logs_by_lifeline": not _stdout_is_descriptor(),
        "memory_limit": memory,
        "network": network,
        "preload": preload,
        "path": [path or os.getcwd() for path in sys.path],
        "argv": sys.argv,
    }


def _stdout_is_descriptor() -> bool:
    """Whether what is written to descriptor 1 shows up where `print` does; not so in
    a notebook."""
    try:
        return sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):
        return False


def _print_log(message: Message) -> None:
    stream = sys.stdout if message["stream"] == 1 else sys.stderr
    print(message["line"], file=stream, flush=True)


def _short_directory() -> str:
    """A writable directory whose path leaves room for socket names."""
    for candidate in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if (
            candidate
            and len(candidate) <= _MAX_SOCKET_PATH
            and os.path.isdir(candidate)
            and os.access(candidate, os.W_OK | os.X_OK)
        ):
            return candidate
    raise errors.MooError(
        "no directory for the session's sockets: set TMPDIR to a writable directory "
        f"with a path of at most {_MAX_SOCKET_PATH} characters"
    )


def _remove_abandoned() -> None:
    """Directories of sessions whose driver and agent were both killed."""
    base = _short_directory()
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if not name.startswith(_PREFIX):
            continue
        try:
            if os.stat(path).st_uid != os.getuid():
                continue
            lock = os.open(f"{path}/lock", os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # its agent lives
        finally:
            os.close(lock)


_session: Session | None = None
_session_lock = threading.Lock()


def start_session(**options: Any) -> Session:
    """Start this process's session.

    Raises:
      MooError: it has one already.
    """
    global _session
    with _session_lock:
        if _session is not None and not _session.runtime.closed:
            raise errors.MooError("a session runs already; moo.shutdown() ends it")
        _session = Session(**options)
        atexit.register(_session.close)
        return _session


def current_session() -> Session | None:
    """The session that this process drives, if any."""
    if _session is None or _session.runtime.closed:
        return None
    return _session


def end_session() -> None:
    """End this process's session, if there is one."""
    session = current_session()
    if session is not None:
        atexit.unregister(session.close)
        session.close()
