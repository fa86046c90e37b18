# SPDX-License-Identifier: MIT
"""One session of another host's on this one; see `protocol` for the messages.

It has a zygote and shared memory of its own. It has a private directory, too, unless it
is on the machine of the session's driver and can use that one's. It decides nothing:
processes are started, stopped and killed when the session's home says so, and what they
say over their lifelines goes there.

Invariants:

* When the channel to the home closes, for whatever reason, every process of the session
  here is killed, also what actors have started by other means (see `leftovers`), and
  its directory and its memory are gone.
* A session has one open guest on a host at most. The account knows a reservation by the
  session's mark and the actor's id, and `close` gives back all that has the mark.
* Nothing of the home's is unpickled here; bytes are handed on.
* A process that is faster than the channel is slowed down, and nothing of it is lost,
  for its pipes and its line are left unread while too much waits for the home. All that
  is read of it goes to the channel at once, so it stays in that order, and the channel
  counts none of it: it is what one read of each had, and all that dead ones had left in
  their sockets and pipes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mooactor.control import incarnations
from mooactor.control.channel import Channel
from mooactor.control.lifeline import Lifeline
from mooactor.control.messages import Malformed, Message, Unsendable, readable
from mooactor.host import remote
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.groups import Groups
from mooactor.host.leftovers import Leftovers
from mooactor.host.members import OF_A_MEMBER, Stop
from mooactor.host.output import LineReader, Pipes, Printer
from mooactor.host.placement import free_on, lacks
from mooactor.host.protocol import (
    TO_GUEST,
    Born,
    Close,
    Closed,
    Denied,
    Dying,
    Exited,
    Failed,
    GroupClosed,
    GroupFrame,
    Kill,
    Leave,
    Now,
    OfAProcess,
    Open,
    Opened,
    OverLine,
    Preload,
    Printed,
    Refused,
    Start,
)
from mooactor.host.site import LocalProcess, Process, Site
from mooactor.process import files
from mooactor.process.deaths import bury
from mooactor.process.needs import Amount
from mooactor.process.parcel import contents, sealed

if TYPE_CHECKING:
    from mooactor.host.daemon import HostDaemon

_AGAIN_S = 1.0  # until a directory that could not be removed is


class Guest:
    """The agent's part in a session that lives elsewhere."""

    def __init__(self, daemon: HostDaemon, channel: Channel) -> None:
        self._daemon = daemon
        self.host = daemon.offer.name
        self.mark = ""  # of the session; empty until it is opened
        self._channel = channel
        self._loop, self._resources = daemon.loop, daemon.resources
        self._lines = LineRelay(self._loop, channel)
        self._output = OutputRelay(self._loop, channel)
        self._site: Site | None = None
        self._leftovers = Leftovers(self._loop)
        self._directory = ""
        self._lock = -1
        self._groups = Groups(self._loop, self.host, self._group_says)
        self._by_line: dict[Line, LocalProcess] = {}
        self.closed = False

    def __len__(self) -> int:
        return len(self._by_line)

    def _process(self, message: OfAProcess) -> LocalProcess | None:
        assert self._site is not None
        return self._site.get(message.number)

    # -- what the home says ------------------------------------------------

    def told(self, message: Message) -> None:
        """The home has said something.

        Raises:
          Refused: that cannot be now; nothing was done.
          Malformed: a frame of a learner group is none.
          OSError: there is no room for it.
        """
        actions: dict[type[Message], Callable[[Any], None]] = {
            Open: self._open,
            Start: self._start,
            OverLine: self._line,
            Closed: self._close_line,
            Kill: self._kill,
            GroupFrame: lambda said: self._groups.take(said.place, said.frame),
            GroupClosed: lambda said: self._groups.give_back(said.place),
            Leave: self._leave,
            Preload: self._preload,
            Now: self._note_incarnation,
            Close: lambda _: self.close(),
        }
        if self._site is not None or isinstance(message, Open | Close):  # else refused
            actions[type(message)](message)

    def _post(self, message: Message) -> None:
        if not self.closed:  # an answer, or news of one of its processes
            self._channel.post(message, patient=True)

    def _open(self, message: Open) -> None:
        if self._site is not None:
            raise Refused("the session is open already")
        try:
            self._prepare(message)
        except OSError as error:
            why = f"host {self.host} cannot take part: {error}"
            self._post(Opened(readable(why)))
            return
        self._post(Opened("", self._lock < 0, files.descriptor_limit()))

    def _prepare(self, message: Open) -> None:
        place, cwd = message.place, os.fsdecode(message.place.cwd)
        if not os.path.isdir(cwd):
            raise OSError(
                f"it has no directory {cwd}, in which the program runs: share "
                "it, copy it (mooactor run --sync), or name another one (--cwd)"
            )
        python = os.fsdecode(message.python)
        if not os.access(python, os.X_OK):
            raise OSError(
                f"it has no interpreter {python}: install Python and mooactor there, "
                "or name another one (mooactor run --python)"
            )
        # Any other guest of this session ends before this one reserves anything. Its
        # home has given that guest's channel up, for it has one at a time to an agent.
        self._daemon.opens(self, message.session)
        self.mark = message.session
        near = remote.accepted(message.near)
        self._directory, self._lock = (near, -1) if near else files.make_directory()
        self._site = Site(
            self.host,
            self._loop,
            self._daemon.reaper,
            self._output,
            where=self.host,
            python=python,
            cwd=place.cwd,
            environment=self._leftovers.environment,
        )
        self._site.family = self
        self._site.configure(place.path, message.argv, message.preload)
        self._site.exec_zygote()  # which gets all that by now

    def _lacks(self, needs: Amount) -> str:
        """Why there is no room for that."""
        free = self._resources.total - self._resources.reserved()
        shares = self._resources.devices.free
        return lacks(needs, free_on(self.host, free, needs, shares), 0, 1)

    def _start(self, message: Start) -> None:
        assert self._site is not None
        number, needs = message.number, message.needs
        if self._process(message) is not None:
            raise Refused(f"there is a process {number} already")
        holder = (self.mark, message.life.actor_id)
        why = self._daemon.no_room()
        if why is not None:
            self._post(Denied(number, why))
            return
        grant = self._resources.take(holder, needs)
        if grant is None:
            self._post(Denied(number, self._lacks(needs)))
            return
        life = replace(
            grant.give(message.life),
            directory=os.fsencode(self._directory),
            reach=self._daemon.offer.reach,
            away=True,  # from its home
        )
        fds = [sealed([data]) for data in message.parcels]
        try:
            process = self._site.start(life, fds, number)
        except (OSError, TypeError) as error:
            self._post(Failed(number, readable(str(error))))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._by_line[process.line] = process

    def _line(self, message: OverLine) -> None:
        process = self._process(message)
        if process is None:
            return  # it has ended meanwhile
        if message.stops:
            self._note_leftovers(process)
        fds = [sealed([data]) for data in message.parcels]
        if message.segment is not None:
            more = self._groups.get(message.segment)
            self._loop.post(process.line, message.message, more)
        else:
            self._loop.post(process.line, message.message, fds)
        for fd in fds:
            os.close(fd)

    def _close_line(self, message: Closed) -> None:
        process = self._process(message)
        if process is not None:
            self._note_leftovers(process)
            self._loop.close_line(process.line)
            process.line.close()

    def _kill(self, message: Kill) -> None:
        assert self._site is not None
        process = self._process(message)
        if process is None:
            return
        if process.pid is not None:
            self._note_leftovers(process)
            self._site.kill(process)
        else:
            del self._by_line[process.line]
            self._site.disown(process)

    def _group_says(self, place: int, frame: bytes) -> None:
        self._post(GroupFrame(place, frame))

    def _note_leftovers(self, process: Process) -> None:
        if process.pid is not None:
            self._leftovers.note(process.pid)

    def _leave(self, message: Leave) -> None:
        self._resources.give_back((self.mark, message.holder))

    def _preload(self, message: Preload) -> None:
        assert self._site is not None
        self._site.preload(message.modules)

    def _note_incarnation(self, message: Now) -> None:
        if self._lock < 0:
            return  # the home has written it, in the same directory
        if message.incarnation is None:
            incarnations.forget(self._directory, message.id)
        else:
            incarnations.note(self._directory, message.id, message.incarnation)

    # -- what the processes say, and what becomes of them --------------------

    def handle(self, line: Line, data: bytes, fds: list[int]) -> None:
        """A process has said something: the home hears it, and decodes it."""
        process = self._by_line.get(line)
        if process is None or self.closed:
            return
        try:
            self._lines.said(process.line, process.number, data, fds)
        except (Unsendable, OSError):  # too large for a message of ours, or no parcel
            self._loop.close_line(line)

    def line_closed(self, line: Line) -> None:
        process = self._by_line.get(line)
        if process is not None:
            self._post(Closed(process.number))

    def happened(self, process: Process, message: OfAProcess) -> None:
        """News of a process, for the home."""
        if not isinstance(message, Born | Dying):
            life = self._by_line.pop(process.line).life
            if isinstance(message, Exited):
                self._remove_inbox(life.actor_id + life.incarnation)
        self._post(message)

    def _remove_inbox(self, process_id: int) -> None:
        # The data plane's socket stays: that it refuses is how a dead owner is known.
        with contextlib.suppress(OSError):
            os.unlink(f"{self._directory}/{process_id:016x}")
        bury(self._directory, process_id)

    # -- the end -------------------------------------------------------------

    def close(self, why: str = "its agent has ended this session there") -> None:
        """Kill every process of the session, and leave nothing of it. The home is told
        `why`."""
        if self.closed:
            return
        self.closed = True
        self._channel.close(why)
        if self._site is not None:
            for process in self._by_line.values():
                self._note_leftovers(process)
            self._site.close()
            self._leftovers.end()
        self._resources.forget(self.mark)
        self._groups.close()
        self._remove_directory()
        self._daemon.ended(self)

    def _remove_directory(self) -> None:
        if self._lock < 0:
            return  # it is the home's
        is_gone = files.remove_directory(self._directory)
        os.close(self._lock)
        if not is_gone:  # its processes, which are being killed, put things into it
            self._loop.later(_AGAIN_S, files.remove_abandoned_directories)


class FromHome:
    """The channel's listener: hands its messages to the guest."""

    def __init__(self, guest: Guest, stop: Callable[[], None]) -> None:
        """`stop`: have the agent end."""
        self._guest = guest
        self._stop = stop

    def handle(self, channel: Channel, data: bytes) -> None:
        """One message of the home's, or of ``mooactor stop``."""
        try:
            message = TO_GUEST.decode(data)
            if isinstance(message, Stop):
                self._stop()
            elif isinstance(message, OF_A_MEMBER):  # that looks for a broker here
                channel.close("this is a host, no broker")
                self._guest.close()
            else:
                self._guest.told(message)
        except (Malformed, Refused, OSError) as error:
            print(f"mooactor: a session ends here: {error!s:.200}", file=sys.stderr)
            self._guest.close(f"its agent cannot go on: {error!s:.200}")
        except Exception as error:  # a bug: not the end of all sessions
            traceback.print_exc(file=sys.stderr)
            self._guest.close(f"its agent cannot go on: {error!r:.200}")

    def channel_closed(self, channel: Channel, why: str) -> None:
        """The home is gone, or has closed the session here."""
        self._guest.close()


_MOST_KEPT = 1 << 21
_MOST_PRINTED = 1 << 19  # bytes that the home has not handled yet: it takes 10 ms
_PER_LINE = 1 << 6  # bytes that a line costs beside its text, about
_PER_MESSAGE = 1 << 12
_RETRY_S = 0.01


class OutputRelay:
    """As `logs.Logs`. News wait behind little of what the living print: no pipe is
    read while the home has not handled `_MOST_PRINTED` bytes of it."""

    def __init__(self, loop: EventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._pipes = Pipes(loop, self._has_room)
        # Unhandled output, as bytes, and where in the channel each piece ends.
        self._printed = 0
        self._under_way: deque[tuple[int, int]] = deque()

    def begin(self, number: int, fd: int, printer: Printer) -> LineReader:
        emit = partial(self._post, number, printer)
        reader = LineReader(fd, emit, self._loop.later)
        self._pipes.watch(reader)
        return reader

    def _post(self, number: int, printer: Printer, lines: list[bytes]) -> None:
        text = b"\n".join(lines)
        self._channel.post(Printed(number, printer, text), patient=True)
        cost = len(text) + _PER_LINE * len(lines) + _PER_MESSAGE
        self._printed += cost
        self._under_way.append((self._channel.posted, cost))

    def _has_room(self) -> bool:
        handled = self._channel.handled
        while self._under_way and self._under_way[0][0] <= handled:
            self._printed -= self._under_way.popleft()[1]
        return self._printed < _MOST_PRINTED

    def end(self, reader: LineReader) -> None:
        """As `logs.Logs` has it."""
        self._pipes.unwatch(reader)
        reader.finish()


class LineRelay:
    """Messages of processes over their lines."""

    def __init__(self, loop: EventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._paused: dict[Lifeline, None] = {}
        self._due = False  # it looks again

    def said(
        self, line: Lifeline, number: int, data: bytes, fds: Sequence[int] = ()
    ) -> None:
        """Post what the process of that number has said. The contents of `fds` become
        its parcels, which are no copies; the descriptors stay the caller's.

        Raises:
          Unsendable: it is too large.
          OSError: a parcel cannot be read.
        """
        message = OverLine(number, data, False, None, [])
        self._channel.post(message, list(map(contents, fds)), patient=True)
        if self._channel.queued > _MOST_KEPT:
            self._loop.pause_reading(line)
            self._paused[line] = None
            self._look_again()

    def _look_again(self) -> None:
        if self._paused and not self._due and self._channel.is_open:
            self._due = True
            self._loop.later(_RETRY_S, self._look)

    def _look(self) -> None:
        """Read them again, one after the other, while there is room."""
        self._due = False
        while self._paused and self._channel.queued <= _MOST_KEPT:
            line = next(iter(self._paused))
            del self._paused[line]
            self._loop.resume_reading(line)
            self._loop.read_line(line)
        self._look_again()
