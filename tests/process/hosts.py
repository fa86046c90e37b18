# SPDX-License-Identifier: MIT
"""A session of several hosts, without their agents: real processes and connections, and
in the test's own process one agent for all of them, which knows where each process is.

A host is a directory. `Hosts.driver` is a runtime
in this process; `Hosts.start` makes an actor's process. The agent can have one process
reach another through a `Proxy`, whose connections can be broken.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mooactor.actors.handle import Handle
from mooactor.control.keys import new_process_id, new_session_key
from mooactor.control.lifeline import Lifeline, LifelineClosed
from mooactor.control.messages import Malformed, Message, encode
from mooactor.control.reach import Reach
from mooactor.process import parcel
from mooactor.process.actor import life as life_module
from mooactor.process.current import set_current_runtime
from mooactor.process.environment import Streams
from mooactor.process.exits import ExitRecord
from mooactor.process.interface import interface_of
from mooactor.process.protocol import (
    REQUESTS,
    Died,
    Gone,
    Life,
    Locate,
    Located,
    Reachable,
    Reply,
    Watch,
    death_notice,
)
from mooactor.process.runtime import Runtime
from mooactor.tensors.network import Network

LOOPBACK = "127.0.0.1"


_KILLED = ExitRecord("signal", signal=9)


def _unread(end: socket.socket) -> int:
    count = fcntl.ioctl(end, termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", count)[0])


class Proxy:
    """Forwards TCP connections to one address; `cut` resets all that stand."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.came = 0  # bytes, of both directions
        self.record: bytearray | None = None  # those sent by who connected
        self._resume = threading.Event()
        self._resume.set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.refusing = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            for one, other, forward in ((near, far, True), (far, near, False)):
                pump = threading.Thread(target=self._pump, args=(one, other, forward))
                pump.daemon = True
                self._threads.append(pump)
                pump.start()

    def _pump(self, one: socket.socket, other: socket.socket, forward: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self.came += len(data)
                if forward and self.record is not None:
                    self.record += data
                self._resume.wait()
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def within(self) -> int:
        """Bytes that came so far, and those that came and were not read yet."""
        with self._lock:
            ends = [end for pair in self._pairs for end in pair]
            return self.came + sum(map(_unread, ends))

    def hold(self) -> None:
        """Keep what comes, until `cut` drops it or `go_on` forwards it."""
        self._resume.clear()

    def go_on(self) -> None:
        self._resume.set()

    def cut(self) -> int:
        """Reset every connection; returns their number."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                reset = struct.pack("ii", 1, 0)
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        self._resume.set()
        return len(pairs)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(10)
        self._listener.close()
        self.cut()
        for thread in self._threads[1:]:
            thread.join(10)


@dataclass(eq=False)
class Member:
    """A process of the session, as the agent knows it."""

    line: Lifeline | None  # None: there is no such process yet
    process_id: int
    host: str
    place: Reachable | None = None
    sought_by: list[Lifeline] = field(default_factory=list)
    notice: Died | None = None


class Agent:
    """Replies `reachable`, `locate` and `watch`. One thread."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self.proxies: dict[int, Proxy] = {}  # by the process that they lead to
        self.told: list[tuple[int, type[Message]]] = []  # from which process, what
        self.introduces = False  # tell who is sought where the seeker is
        self.complete = False  # no process will come that is not a member now
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._lock = threading.RLock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, line: Lifeline, process_id: int, host: str) -> Member:
        with self._lock:
            earlier = self.members.get(process_id)
            member = Member(line, process_id, host)
            if earlier is not None:  # it was sought before there was a process
                member.sought_by = earlier.sought_by
            self.members[process_id] = member
            self._selector.register(line, selectors.EVENT_READ, member)
        self._waker.send(b"\0")
        return member

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select():
                with self._lock:
                    if key.data is None:
                        self._woken.recv(100)
                    elif not self._ended:
                        self._read(key.data)

    def _read(self, member: Member) -> None:
        assert member.line is not None
        try:
            received = member.line.receive_nowait()
        except LifelineClosed:
            self._selector.unregister(member.line)
            return
        for data, _ in received:
            try:
                message = REQUESTS.decode(data)
            except Malformed:
                continue  # as a real agent does with one that wants no answer
            self.told.append((member.process_id, type(message)))
            if isinstance(message, Reachable):
                self._reachable(member, message)
            elif isinstance(message, Locate):
                self._locate(member, message)
            elif isinstance(message, Watch):
                self._watch(member, message)
            elif message.rid is not None:
                _post(member.line, Reply(message.rid, failed="no"))

    def _of(self, process_id: int) -> Member:
        if process_id not in self.members:
            self.members[process_id] = Member(None, process_id, "?")
        return self.members[process_id]

    def _reachable(self, member: Member, message: Reachable) -> None:
        member.place = message
        for line in member.sought_by:
            self._answer(line, member)
        member.sought_by.clear()

    def _locate(self, member: Member, message: Locate) -> None:
        assert member.line is not None
        if self.complete and message.id not in self.members:
            _post(member.line, Gone(message.id))
            return
        sought = self._of(message.id)
        if sought.notice is not None:
            _post(member.line, Gone(sought.process_id))
        elif sought.place is None:
            sought.sought_by.append(member.line)
        else:
            self._answer(member.line, sought)

    def _watch(self, member: Member, message: Watch) -> None:
        process_id = message.id + message.incarnation
        if self.complete and process_id not in self.members:
            _post(member.line, death_notice(process_id, ExitRecord("unknown")))
            return
        watched = self._of(process_id)
        if watched.notice is not None:
            _post(member.line, watched.notice)

    def _answer(self, line: Lifeline, member: Member) -> None:
        assert member.place is not None
        asker = next(m for m in self.members.values() if m.line is line)
        same = asker.host == member.host
        address = member.place.address
        proxy = self.proxies.get(member.process_id)
        if proxy is not None:
            address = f"tcp://{LOOPBACK}:{proxy.port}"
        endpoint = b"" if same else member.place.endpoint
        address = "" if same else address
        where = (member.process_id, member.host, address, endpoint)
        _post(line, Located(*where, same=same))
        if self.introduces and asker.place is not None and not same:
            self._introduce(asker, member)

    def _introduce(self, asker: Member, member: Member) -> None:
        assert asker.place is not None
        place = asker.place
        where = (asker.process_id, asker.host, place.address, place.endpoint)
        _post(member.line, Located(*where, caller=True))

    def expect(self, process_id: int) -> None:
        """That process lives, and has not said where it can be reached."""
        with self._lock:
            self._of(process_id)

    def proxy(self, process_id: int) -> Proxy:
        """From here on that process is reached through a proxy."""
        with self._lock:
            place = self.members[process_id].place
            assert place is not None, "it is not reachable yet"
            host, _, port = place.address.removeprefix("tcp://").rpartition(":")
            proxy = self.proxies[process_id] = Proxy((host, int(port)))
            return proxy

    def tell_of_death(self, process_id: int, record: ExitRecord = _KILLED) -> None:
        """As when its host is lost: its watchers get the notice."""
        with self._lock:
            member = self._of(process_id)
            member.notice = death_notice(process_id, record)
            for watcher in self.members.values():
                # One that starts expects nothing but its life; it asks later.
                if watcher is not member and watcher.place is not None:
                    _post(watcher.line, member.notice)

    def close(self) -> None:
        self._ended = True
        self._waker.send(b"\0")
        self._thread.join(10)
        self._selector.close()
        self._woken.close()
        self._waker.close()
        for member in self.members.values():
            if member.line is not None:
                member.line.close()
        for proxy in self.proxies.values():
            proxy.close()


def _post(line: Lifeline | None, message: Message) -> None:
    if line is None:
        return
    with contextlib.suppress(LifelineClosed, OSError):
        line.post(message)


class Hosts:
    """Several hosts."""

    def __init__(self, *names: str) -> None:
        self.key = new_session_key()
        self.agent = Agent()
        self.directories = {name: tempfile.mkdtemp(prefix="moot-h-") for name in names}
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.ports: tuple[int, int] | None = None
        self._runtimes: list[Runtime] = []

    def reach(self, host: str) -> Reach:
        return Reach(LOOPBACK, LOOPBACK, host, self.ports)

    def driver(self, host: str = "a", network: Network | None = None) -> Runtime:
        """A runtime in this process, made by a thread that is on the host."""
        process_id = new_process_id()
        ours, theirs = socket.socketpair()
        self.agent.add(Lifeline(ours), process_id, host)
        runtime = Runtime(
            self.directories[host],
            self.key,
            process_id,
            Lifeline(theirs),
            network=network,
            streams=Streams(None),
            reach=self.reach(host),
        )
        runtime.housekeeper.start()
        self._runtimes.append(runtime)
        set_current_runtime(runtime)
        return runtime

    def handle(self, cls: type, actor_id: int) -> Any:
        """For the runtime of this process; the actor need not exist yet."""
        mark = self._runtimes[-1].session_mark
        interface = interface_of(cls)
        return Handle(actor_id, 0, interface.label, interface, mark)

    def start(
        self, host: str, cls: type, *args: Any, actor_id: int | None = None
    ) -> Any:
        """Start an actor, and return its handle."""
        actor_id = new_process_id() if actor_id is None else actor_id
        interface = interface_of(cls)
        packed = parcel.pack((cls, args, {}), "the constructor's arguments")
        assert packed.data is not None
        life = Life(
            actor_id,
            0,
            interface.label,
            {},
            1,
            os.fsencode(self.directories[host]),
            self.key,
            None,
            Network(),
            payload=packed.data,
            reach=self.reach(host),
        )
        ours, theirs = socket.socketpair()
        program = f"from tests.process.hosts import main; main({theirs.fileno()})"
        child = self.children[actor_id] = subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,
        )
        theirs.close()
        assert child.stdin is not None
        with child.stdin as stdin:
            stdin.write(encode(life))
        self.agent.add(Lifeline(ours), actor_id, host)
        return self.handle(cls, actor_id)

    def proxy_to(self, process_id: int) -> Proxy:
        """From here on it is reached through a proxy, once it can be reached at all."""
        ours = self.agent.members[process_id]
        while ours.place is None:
            threading.Event().wait(0.001)
        return self.agent.proxy(process_id)

    def kill(self, handle: Any, number: int = signal.SIGKILL) -> None:
        """Kill its process; nobody is told of it."""
        os.kill(self.children[handle._actor_id].pid, number)

    def close(self) -> None:
        for child in self.children.values():
            child.kill()
            child.wait(20)
        for runtime in self._runtimes:
            runtime.close()
        set_current_runtime(None)
        self.agent.close()
        for directory in self.directories.values():
            shutil.rmtree(directory)


@contextlib.contextmanager
def hosts(*names: str, driver: str = "a") -> Iterator[Hosts]:
    """Hosts on the loopback interface, with a driver on one of them."""
    made = Hosts(*names)
    try:
        made.driver(driver)
        yield made
    finally:
        made.close()


def main(fd: int) -> None:
    """In an actor's process. Its life comes on stdin: notices may wait already."""
    life = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Life)
    life_module.live(life, socket.socket(fileno=fd), lambda: None, lambda: None)
