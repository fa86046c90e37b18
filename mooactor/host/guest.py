# SPDX-License-Identifier: MIT
"""One session of another host's on this one; see `remote` for the messages.

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
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from mooactor.control import incarnations
from mooactor.control.channel import Channel
from mooactor.control.lifeline import Message
from mooactor.control.plain import NotPlain
from mooactor.host import machine
from mooactor.host.eventloop import EventLoop, Line
from mooactor.host.fields import Refused
from mooactor.host.groups import Groups
from mooactor.host.leftovers import Leftovers
from mooactor.host.nursery import Nursery
from mooactor.host.parcels import file_of
from mooactor.host.placement import free_on, lacks
from mooactor.host.reaper import Reaper
from mooactor.host.relayed import RelayedLines, RelayedOutput
from mooactor.host.remote_fields import MOST_OF_DEVICES, TO_GUEST, check
from mooactor.host.resources import Amount, Resources
from mooactor.host.site import End, LocalProcess, Process, Site
from mooactor.process import files
from mooactor.process.deaths import bury
from mooactor.process.place import Place

_AGAIN_S, _TRIES = 0.1, 50  # to remove a directory
_MOST_OF_A_NAME = 80
_OF_BROKERS = ("announce", "still", "hosts", "watch", "standby", "peers")


class Guest:
    """The agent's part in a session that lives elsewhere."""

    def __init__(
        self,
        host: str,
        channel: Channel,
        loop: EventLoop,
        reaper: Reaper,
        resources: Resources,
        reach: Message,
        no_room: Callable[[], str | None],
        on_open: Callable[[Guest, str], None],
        on_end: Callable[[Guest], None],
    ) -> None:
        """`no_room`: why this agent can have no more processes; None: it can.
        `on_open` ends any other guest of the session with this mark."""
        self.host = host
        self.mark = ""  # of the session; empty until it is opened
        self._channel = channel
        self._relayed = RelayedLines(loop, channel)
        self._output = RelayedOutput(loop, channel)
        self._loop = loop
        self._reaper = reaper
        self._resources = resources
        self._reach = reach
        self._no_room = no_room
        self._on_open = on_open
        self._on_end = on_end
        self._site: Site | None = None
        self._leftovers = Leftovers(loop)
        self._directory = ""
        self._lock = -1
        self._groups = Groups(loop)
        self._processes: dict[int, Process] = {}
        self._numbers: dict[Process, int] = {}
        self._by_line: dict[Line, int] = {}
        self._ids: dict[int, int] = {}  # of processes
        self.closed = False

    def __len__(self) -> int:
        return len(self._processes)

    # -- what the home says ------------------------------------------------

    def told(self, message: Message) -> None:
        """The home has said something.

        Raises:
          Refused: it is malformed; nothing was done.
          OSError: there is no room for it.
        """
        what = check(message, TO_GUEST)
        actions: dict[str, Callable[[Message], None]] = {
            "open": self._open,
            "reserve": self._reserve,
            "start": self._start,
            "line": self._line,
            "closed": self._close_line,
            "kill": self._kill,
            "disown": self._kill,
            "leave": self._leave,
            "preload": self._preload,
            "now": self._note_incarnation,
            "close": lambda _: self.close(),
        }
        if self._site is not None or what in ("open", "close"):  # else it was refused
            actions[what](message)

    def _post(self, what: str, **fields: Any) -> None:
        if self.closed:
            return
        if "number" in fields:
            self._relayed.news({"what": what, **fields})
        else:
            self._channel.post({"what": what, **fields})

    def _open(self, message: Message) -> None:
        if self._site is not None:
            raise Refused("the session is open already")
        try:
            self._prepare(message)
        except OSError as error:
            why = f"host {self.host} cannot take part: {error}"
            self._post("opened", why=why)
            return
        about = {"near": self._lock < 0, "files": files.descriptor_limit()}
        self._post("opened", why="", **about)

    def _prepare(self, message: Message) -> None:
        place = Place.of_plain(message["place"])
        if not os.path.isdir(place.cwd):
            raise OSError(
                f"it has no directory {place.cwd}, in which the program runs: share "
                "it, copy it (mooactor run --sync), or name another one (--cwd)"
            )
        python = message["python"]
        if not os.access(python, os.X_OK):
            raise OSError(
                f"it has no interpreter {python}: install Python and mooactor there, "
                "or name another one (mooactor run --python)"
            )
        # Any other guest of this session ends before this one reserves anything. Its
        # home has given that guest's channel up, for it has one at a time to an agent.
        self._on_open(self, message["session"])
        self.mark = message["session"]
        near = machine.accepted(message.get("near"))
        self._directory, self._lock = (near, -1) if near else files.make_directory()
        nursery = Nursery(
            self._loop,
            python=python,
            cwd=place.cwd,
            environment=self._leftovers.environment,
        )
        self._site = Site(
            self.host, self._loop, nursery, self._reaper, self._output, where=self.host
        )
        self._site.family = self
        nursery.configure(place.path, message["argv"], message["preload"])
        nursery.exec_zygote()  # which gets all that by now

    def _reserve(self, message: Message) -> None:
        holders = [(self.mark, one) for one in message["holders"]]
        needs, note = Amount.of_plain(message["needs"]), self._no_room() or ""
        if not note:
            room = self._resources.take_all(holders, needs)
            if room < len(holders):
                note = self._lacks(needs, room, len(holders))
        self._post("reserved", number=message["number"], note=note)

    def _lacks(self, needs: Amount, room: int = 0, count: int = 1) -> str:
        """Why there is no room for more than so many of them."""
        free = self._resources.total - self._resources.reserved()
        shares = self._resources.devices.free
        return lacks(needs, free_on(self.host, free, needs, shares), room, count)

    def _start(self, message: Message) -> None:
        assert self._site is not None
        number, life = message["number"], message["life"]
        if number in self._processes:
            raise Refused(f"there is a process {number} already")
        holder = (self.mark, message["holder"])
        needs = Amount.of_plain(message["needs"])
        why = self._no_room()
        if why is not None:
            self._post("denied", number=number, note=why)
            return
        grant = self._resources.take(holder, needs)
        if grant is None:
            self._post("denied", number=number, note=self._lacks(needs))
            return
        life = grant.give(life)
        life["directory"], life["reach"] = self._directory, self._reach
        life["away"] = True  # from its home
        fds = [file_of(data) for data in message.get("parcels") or ()]
        try:
            process = self._site.start(life, fds, message.get("tries") or 0)
        except (OSError, TypeError) as error:
            self._post("failed", number=number, note=str(error))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._ids[number] = life["actor_id"] + life["incarnation"]
        self._processes[number] = process
        self._numbers[process] = self._by_line[process.line] = number

    def _line(self, message: Message) -> None:
        process = self._processes.get(message["number"])
        if process is None:
            return  # it has ended meanwhile
        said = message["message"]
        if said.get("ev") == "stop":
            self._note_leftovers(process)
        fds = [file_of(data) for data in message.get("parcels") or ()]
        if said.get("ev") == "reply" and "segment" in said:
            name, size = said.pop("segment")
            self._loop.post(process.line, said, self._groups.get(name, size))
        else:
            self._loop.post(process.line, said, fds)
        for fd in fds:
            os.close(fd)

    def _close_line(self, message: Message) -> None:
        process = self._processes.get(message["number"])
        if process is not None:
            self._note_leftovers(process)
            self._loop.close_line(process.line)
            process.line.close()

    def _kill(self, message: Message) -> None:
        assert self._site is not None
        process = self._processes.get(message["number"])
        if process is None:
            return
        if process.pid is not None:
            self._note_leftovers(process)
            self._site.kill(process)
        else:
            self._forget(process)
            self._site.disown(process)

    def _note_leftovers(self, process: Process) -> None:
        if process.pid is not None:
            self._leftovers.note(process.pid)

    def _leave(self, message: Message) -> None:
        self._resources.give_back((self.mark, message["holder"]))

    def _preload(self, message: Message) -> None:
        assert self._site is not None
        self._site.preload(message["modules"])

    def _note_incarnation(self, message: Message) -> None:
        if self._lock < 0:
            return  # the home has written it, in the same directory
        incarnation = message.get("incarnation")
        if incarnation is None:
            incarnations.forget(self._directory, message["id"])
        else:
            incarnations.note(self._directory, message["id"], incarnation)

    # -- what the processes say, and what becomes of them --------------------

    def handle(self, line: Line, message: Message, fds: list[int]) -> None:
        """A process has said something: the home hears it."""
        number = self._by_line.get(line)
        if number is None or self.closed:
            return
        about = {"what": "line", "number": number, "message": message}
        try:
            self._relayed.said(line, about, fds)
        except (NotPlain, OSError):  # too large for a message of ours, or no parcel
            self._loop.close_line(line)

    def line_closed(self, line: Line) -> None:
        number = self._by_line.get(line)
        if number is not None:
            self._post("closed", number=number)

    def born(self, process: Process) -> None:
        number = self._numbers[process]
        devices = process.cuda_visible_devices
        if devices is not None:  # anything, if the user has set it
            devices = devices[:MOST_OF_DEVICES]
        self._post(
            "born",
            number=number,
            pid=process.pid,
            cores=process.cores,
            devices=devices,
        )

    def lost(self, process: Process) -> None:
        self._post("lost", number=self._forget(process))

    def failed(self, process: Process, note: str) -> None:
        self._post("failed", number=self._forget(process), note=note)

    def dying(self, process: Process) -> None:
        self._post("dying", number=self._numbers[process])

    def exited(self, process: Process, end: End) -> None:
        self._remove_inbox(self._ids[self._numbers[process]])
        number = self._forget(process)
        about = {"status": end.status, "stderr": list(end.stderr), "oom": end.oom}
        news = partial(self._post, "exited", number=number, **about)
        self._output.after(cast(LocalProcess, process).readers, news)

    def _remove_inbox(self, process_id: int) -> None:
        # The data plane's socket stays: that it refuses is how a dead owner is known.
        with contextlib.suppress(OSError):
            os.unlink(f"{self._directory}/{process_id:016x}")
        bury(self._directory, process_id)

    def _forget(self, process: Process) -> int:
        number = self._numbers.pop(process)
        del self._processes[number], self._ids[number]
        self._by_line.pop(process.line, None)
        return number

    # -- the end -------------------------------------------------------------

    def close(self, why: str = "its agent has ended this session there") -> None:
        """Kill every process of the session, and leave nothing of it. The home is told
        `why`."""
        if self.closed:
            return
        self.closed = True
        self._relayed.clear()
        self._output.clear()
        self._channel.close(why)
        if self._site is not None:
            for process in self._processes.values():
                self._note_leftovers(process)
            self._site.close()
            self._leftovers.end()
        self._resources.forget(self.mark)
        self._groups.close()
        self._remove_directory()
        self._on_end(self)

    def _remove_directory(self, tries: int = _TRIES) -> None:
        """Its processes are being killed, and may still put something into it."""
        if self.tidy_up() or not tries:
            self._unlock()
        else:
            self._loop.later(_AGAIN_S, partial(self._remove_directory, tries - 1))

    def tidy_up(self) -> bool:
        """Remove the directory, if it is there still. Whether it is gone."""
        if self._lock >= 0 and files.remove_directory(self._directory):
            self._unlock()
        return self._lock < 0

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


class FromHome:
    """The channel's listener: hands its messages to the guest."""

    def __init__(self, guest: Guest, stop: Callable[[str], None]) -> None:
        """`stop`: have the agent end; it is told who wants that."""
        self._guest = guest
        self._stop = stop

    def handle(self, channel: Channel, message: Message) -> None:
        """One message of the home's, or of ``mooactor stop``."""
        if message.get("op") == "stop":
            by = message.get("by")
            self._stop(by[:_MOST_OF_A_NAME] if type(by) is str else "mooactor stop")
            return
        if message.get("op") in _OF_BROKERS:  # a member that looks for one here
            channel.close("this is a host, no broker")
            self._guest.close()
            return
        try:
            self._guest.told(message)
        except (Refused, OSError) as error:
            print(f"mooactor: a session ends here: {error!s:.200}", file=sys.stderr)
            self._guest.close(f"its agent cannot go on: {error!s:.200}")
        except Exception as error:  # a bug: not the end of all sessions
            traceback.print_exc(file=sys.stderr)
            self._guest.close(f"its agent cannot go on: {error!r:.200}")

    def channel_closed(self, channel: Channel, why: str) -> None:
        """The home is gone, or has closed the session here."""
        self._guest.close()
