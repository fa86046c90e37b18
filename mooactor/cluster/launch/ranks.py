# SPDX-License-Identifier: MIT
"""A launch by srun, mpirun, torchrun or Kubernetes: they have started this command on
every host.

Rank 0 runs the broker, a host and the program. The first process of each other host
runs a host, which ends with the program; further ones on the same host have nothing to
do.
"""

from __future__ import annotations

import time

from mooactor.cluster.launch import addresses, rendezvous
from mooactor.cluster.launch.environment import Rank
from mooactor.cluster.launch.launch import Launch
from mooactor.cluster.launch.plan import Plan
from mooactor.cluster.launch.rendezvous import Meeting
from mooactor.cluster.launch.targets import LaunchError, Target
from mooactor.cluster.launch.watch import Watch

_POLL_S = 0.2
_SIGNALLED = 128  # a shell's
_STOP_S = 1.0  # of the end: for the other hosts to learn of it
# The broker is started again if it was killed; longer than this, and the run is over.
_BROKER_LOST_S = 8.0


class First(Launch):
    """Rank 0.

    Args:
      path: the file that tells the other hosts of the broker; None: they know.
    """

    def __init__(self, plan: Plan, rank: Rank, path: str | None) -> None:
        super().__init__(plan)
        self._rank, self._path = rank, path
        self._watch: Watch | None = None

    def _address_here(self) -> str:
        first = self._rank.first
        if self._rank.hosts == 1:
            return "127.0.0.1"
        own = addresses.own()
        named = self.plan.address or (addresses.resolved(first) if first else None)
        return addresses.bracketed(named if named else own[0])

    def _listen(self) -> str:
        if self._rank.hosts == 1:
            return "127.0.0.1" if self.plan.ports else "127.0.0.1:0"
        if self._path is None:
            return f"*:{rendezvous.port_of(self._rank, self.plan.ports)}"
        return "*" if self.plan.ports else "*:0"

    def gather(self, port: int) -> None:
        """Wait until all hosts have joined."""
        if self._rank.hosts == 1:
            return
        if self._path is not None:
            others = map(addresses.bracketed, addresses.own())
            named = [self._own_address, *others]
            at = [f"tcp://{address}:{port}" for address in dict.fromkeys(named)]
            rendezvous.publish(self._path, Meeting(self.plan.key, at))
        key = bytes.fromhex(self.plan.key)
        watch = Watch(self.loop, key, f"tcp://{self._own_address}:{port}", members=True)
        self._watch = watch
        wanted = self.plan.min_hosts or self._rank.hosts or 1
        latest = time.monotonic() + self.plan.patience_s
        if not self.wait(lambda: len(watch.hosts) >= wanted, latest):
            raise LaunchError(
                f"{len(watch.hosts)} of {wanted} hosts have joined in "
                f"{self.plan.patience_s:.0f} s ({', '.join(watch.hosts)}): look at the "
                "output of the others, or say --min-hosts N"
            )

    def _end(self) -> None:
        if self._path is not None:
            rendezvous.withdraw(self._path)
        if self._watch is not None:
            self._stop_others(self._watch)
            self._watch.close()
        super()._end()

    def _stop_others(self, watch: Watch) -> None:
        others = [name for name in watch.hosts if name != self._rank.host]
        for name in others:
            watch.stop(name)
        latest = time.monotonic() + _STOP_S
        while any(name in watch.hosts for name in others):
            if time.monotonic() >= latest:
                return
            self.loop.serve(latest)


class Further(Launch):
    """The first process of another host."""

    def __init__(self, plan: Plan, rank: Rank, path: str | None) -> None:
        super().__init__(plan)
        self._rank, self._path = rank, path

    def run(self) -> int:
        """See `Launch.run`; 0 after a signal. srun and mpirun take the highest code of
        all ranks, and signal the others once that of rank 0 is not 0: it shall count.
        """
        code = super().run()
        return 0 if code > _SIGNALLED else code

    def _run(self) -> int:
        key, address = self._broker_address()
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        target = Target(self._rank.host, "localhost")
        program = self.hosts.start_one(target, host, int(port))
        latest = time.monotonic() + self.plan.patience_s
        self.wait(lambda: bool(program.ready) or program.code is not None, latest)
        if program.ready is None:
            raise LaunchError(self.hosts.reason(program))
        self.hosts.running.append(program)
        return self._stay(Watch(self.loop, key, address))

    def _broker_address(self) -> tuple[bytes, str]:
        """The key, and where the broker answers."""
        latest = time.monotonic() + self.plan.patience_s
        while time.monotonic() < latest:
            meeting = self._meeting()
            found = addresses.reachable(meeting.addresses) if meeting else None
            if meeting and found:
                self.plan.key = meeting.key
                return bytes.fromhex(meeting.key), found
            self.wait(lambda: False, time.monotonic() + _POLL_S)
        where = f"in {self._path}" if self._path else f"at {self._rank.first}"
        raise LaunchError(
            f"host {self._rank.host} has found no broker {where} in "
            f"{self.plan.patience_s:.0f} s: look at the output of rank 0"
        )

    def _meeting(self) -> Meeting | None:
        if self._path is not None:
            return rendezvous.read(self._path)
        port = rendezvous.port_of(self._rank, self.plan.ports)
        first = addresses.bracketed(self._rank.first or "")
        return Meeting(self.plan.key, [f"tcp://{first}:{port}"])

    def _stay(self, watch: Watch) -> int:
        """Until the host has been told to end, or there is nobody to tell it.

        Invariant: after a signal the host stays for as long as rank 0 may need it. The
        end of a job signals all ranks at the same time, and what the program saves then
        may be on this host. Rank 0 tells the host to end once the program has.
        """

        def over() -> bool:
            told = any(program.code == 0 for program in self.hosts.running)
            return told or watch.lost_s > _BROKER_LOST_S

        try:
            while not over() and not self._has_stayed():
                self.loop.serve(time.monotonic() + _POLL_S)
                if not over():  # a host that was told to end is not to be missed
                    self.hosts.mind()
        finally:
            watch.close()
        if watch.lost_s <= _BROKER_LOST_S or self._is_over(watch):
            return 0
        self.output.say("the broker is gone, and the run is over")
        return 1

    def _has_stayed(self) -> bool:
        at = self._interrupted_at
        longest_s = self.plan.grace_s + _STOP_S
        return at is not None and time.monotonic() >= at + longest_s

    def _is_over(self, watch: Watch) -> bool:
        """Whether rank 0 has ended the run, which it may have done while the host here
        could not be told, as it was just being started again. Then rank 0 alone says
        how the run went."""
        withdrawn = self._path is not None and rendezvous.read(self._path) is None
        return watch.told_to_end or withdrawn


def run(plan: Plan, rank: Rank, folder: str, *, key_is_named: bool) -> int:
    """Do this rank's part; the exit code is that of the program on rank 0."""
    path = None
    if not (key_is_named and rank.first):
        path = rendezvous.path_of(rank, folder)
    if rank.number == 0:
        return First(plan, rank, path).run()
    if rank.local:
        return 0
    return Further(plan, rank, path).run()
