# SPDX-License-Identifier: MIT
"""A home's side of another host: its agent starts the processes there.

The messages between a home and a `guest.Guest`, over one channel, are those of
`protocol`. When the channel closes, the home takes all processes of it for
dead, and the guest kills them: neither asks the other.

A driver and a `mooactor host` may well run side by side. Then the processes of both
talk through sockets in the directory of the session, and share memory, as on one host.
Host names tell nothing of that; an `Invitation` has what is compared: the kernel's boot
id, the namespaces that matter, the name in `HOST_ID` (which plays several hosts on one
machine), and the directory itself, which must be the same one and the user's own.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from mooactor.control.messages import Malformed, Message, encode, readable
from mooactor.host.eventloop import EventLoop, FarLine
from mooactor.host.protocol import (
    TO_HOME,
    Born,
    Close,
    Closed,
    Dying,
    Exited,
    GroupFrame,
    Invitation,
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
from mooactor.host.site import Process
from mooactor.process.needs import Amount
from mooactor.process.parcel import contents, sealed
from mooactor.process.protocol import Life, Reply, Stop

if TYPE_CHECKING:
    from mooactor.control.channel import Channel
    from mooactor.host.home import Home


_OF_ONE_THAT_IS_BORN = (Dying, Exited)
_OF_ANY = (OverLine, Closed)
_NONSENSE = "it sent a message that cannot be acted on"


class RemoteLine(FarLine):
    """The lifeline of a process of another host."""

    def __init__(self, site: RemoteSite, number: int) -> None:
        super().__init__(number)
        self._site = site

    def hand_on(self, message: Message, fds: Sequence[int]) -> None:
        segment = message.segment if isinstance(message, Reply) else None
        stops, data = isinstance(message, Stop), encode(message)
        self._site.post(OverLine(self.number, data, stops, segment, []), fds)

    def close(self) -> None:
        self._site.post(Closed(self.number))


class RemoteProcess(msgspec.Struct, eq=False):
    """A process of another host."""

    line: RemoteLine
    pid: int | None = None
    cores: list[int] = []
    cuda_visible_devices: str | None = None


class RemoteSite:
    """As a `site.Site`. The channel may still be on its way to the host: what is
    posted meanwhile is sent once it is there."""

    def __init__(self, host: str, loop: EventLoop, home: Home) -> None:
        self.host = host
        self._loop = loop
        self._home = home
        self._channel: Channel | None = None
        self._processes: dict[int, RemoteProcess] = {}
        self._numbers = 0
        self._preloaded: set[str] = set()
        self.closed = False
        self.files = 0  # that its processes may open; 0: not known yet
        self.near = False  # its processes are in the directory of the home's own ones

    def __len__(self) -> int:
        return len(self._processes)

    def open(self, channel: Channel, message: Open) -> None:
        """Have the session hosted at the other end."""
        self._channel = channel
        self.post(message)

    def post(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send one message to a guest; dropped once the channel is closed. The contents
        of `fds` become its parcels; the descriptors stay the caller's."""
        if not self.closed and self._channel is not None:
            # The home has what is in a start until that actor is over.
            patient = isinstance(message, Start)
            self._channel.post(message, list(map(contents, fds)), patient=patient)

    # -- for the home ------------------------------------------------------

    def start(
        self,
        life: Life,
        fds: Sequence[int],
        needs: Amount,
    ) -> RemoteProcess:
        """As a `Site` does; TypeError: it is larger than a message may be."""
        if self.closed:
            raise OSError(f"host {self.host} is gone")
        self._numbers += 1
        line = RemoteLine(self, self._numbers)
        process = RemoteProcess(line)
        self._processes[line.number] = process
        self._loop.watch_line(line, self._home)
        try:
            self.post(Start(line.number, life, needs, []), fds)
        except BaseException:  # its host has never heard of it, nor will its home
            self._let_go(process)
            raise
        return process

    def preload(self, modules: list[str]) -> None:
        more = [module for module in modules if module not in self._preloaded]
        if more:
            self._preloaded.update(more)
            self.post(Preload(more))

    def kill(self, process: Process) -> None:
        assert isinstance(process, RemoteProcess)
        self.post(Kill(process.line.number))

    def disown(self, process: Process) -> None:
        assert isinstance(process, RemoteProcess)
        self.post(Kill(process.line.number))
        self._let_go(process)

    def leave(self, holder: int) -> None:
        """An actor does not run there any more: give back what it had reserved."""
        self.post(Leave(holder))

    def note(self, actor_id: int, incarnation: int | None) -> None:
        """Leave a note of an actor's next incarnation there; see `incarnations`."""
        self.post(Now(actor_id, incarnation))

    def close(self) -> None:
        """The session is over: nothing of it shall run there."""
        self.post(Close())
        self._end("the session has ended")

    # -- the channel's listener --------------------------------------------

    def handle(self, channel: Channel, data: bytes) -> None:
        """A message of the guest's, from an authenticated agent of this cluster."""
        try:
            self._act_on(channel, TO_HOME.decode(data))
        except (Malformed, Refused) as error:
            self._refuse(channel, f"{_NONSENSE}: {error!s:.200}")
        except OSError as error:  # of this host: there is no descriptor left, say
            self._refuse(channel, f"this host cannot act on its messages: {error}")
        except Exception as error:  # a bug: not the end of the session
            traceback.print_exc(file=sys.stderr)
            self._refuse(channel, f"{_NONSENSE}: {error!r:.200}")

    def _refuse(self, channel: Channel, why: str) -> None:
        channel.close(why)
        self._end(why, begun=True)

    def _act_on(self, channel: Channel, message: Message) -> None:
        if isinstance(message, Printed):
            lines = message.lines.split(b"\n")
            self._home.logs.emit(message.stream, message.printer, lines)
        elif isinstance(message, GroupFrame):
            self._home.masters.take(self, message.place, message.frame)
        elif isinstance(message, Opened):
            self.near, self.files = message.near, message.files
            if message.why:
                channel.close()
                self._end(message.why, begun=False)
        elif isinstance(message, OfAProcess) and (
            process := self._processes.get(message.number)
        ):
            self._refuse_out_of_turn(process, message)
            self._of_process(process, message)

    def _refuse_out_of_turn(self, process: RemoteProcess, message: OfAProcess) -> None:
        of_one_born = isinstance(message, _OF_ONE_THAT_IS_BORN)
        if not isinstance(message, _OF_ANY) and of_one_born != bool(process.pid):
            what = type(message).__name__
            raise Refused(f"process {message.number} cannot be {what} now")

    def _of_process(self, process: RemoteProcess, message: OfAProcess) -> None:
        if isinstance(message, OverLine):
            fds = [sealed([data]) for data in message.parcels]
            self._loop.arrived(process.line, message.message, fds)
        elif isinstance(message, Closed):
            self._loop.close_line(process.line)
        else:
            if isinstance(message, Born):
                process.pid, process.cores = message.pid, message.cores
                process.cuda_visible_devices = message.devices
            elif not isinstance(message, Dying):
                self._let_go(process)
            self._home.happened(process, message)

    def _let_go(self, process: RemoteProcess) -> None:
        del self._processes[process.line.number]
        self._loop.close_line(process.line)

    def channel_closed(self, channel: Channel, why: str) -> None:
        """The host cannot be reached, has died, or has closed the channel."""
        self._end(why)

    def _end(self, why: str, begun: bool | None = None) -> None:
        if self.closed:
            return
        self.closed, channel = True, self._channel
        if channel is not None:
            channel.close()
        if begun is None:  # nothing was sent if the channel has never stood
            begun = channel is not None and bool(channel.peer)
        with self._loop.together():
            while self._processes:  # news of one may end others that are here, too
                process = next(iter(self._processes.values()))
                self._let_go(process)
                self._home.host_lost(process, why, begun)
        self._home.site_closed(self, why)


HOST_ID = "MOOACTOR_HOST_ID"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAMESPACES = ("net", "pid", "user")  # a mount namespace shows in the directory


def _here() -> list[str]:
    with open(_BOOT_ID) as file:
        boot = file.read().strip()
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in _NAMESPACES]
    return [boot, *spaces, readable(os.environ.get(HOST_ID, ""))]


def invitation(directory: str) -> Invitation | None:
    """To use this directory, for an agent that can."""
    try:
        found = os.stat(directory)
        here = _here()
    except OSError:
        return None  # there is no /proc, say
    return Invitation(here, os.fsencode(directory), found.st_dev, found.st_ino)


def accepted(invitation: Invitation | None) -> str | None:
    """The directory, if it can be used from here."""
    if invitation is None:
        return None
    directory = os.fsdecode(invitation.directory)
    try:
        found = os.stat(directory)
        same = (invitation.device, invitation.inode) == (found.st_dev, found.st_ino)
        if invitation.machine != _here() or not same:
            return None
    except (OSError, ValueError):
        return None
    ours = found.st_uid == os.geteuid() and os.access(directory, os.W_OK | os.X_OK)
    return directory if ours else None
