# SPDX-License-Identifier: MIT
"""The session of a program: its beginning (`init`), its end (`shutdown`) and its actors
(`actors`, `lookup`).

The driver's runtime starts by itself when the program first needs it. An actor's
process has one from its birth, a forked child has none, and after a session was lost
the program has to ask for another.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from mooactor import errors
from mooactor.control import codec
from mooactor.control.messages import LONGEST_S
from mooactor.host import session as _session
from mooactor.host.session import Awaited
from mooactor.process import checks
from mooactor.process.current import (
    current_runtime,
    is_forked,
    known_runtime,
    refuse_in_actor,
)
from mooactor.process.loops import refuse_to_block
from mooactor.process.protocol import GetHandle, ListActors, LookUp, Row
from mooactor.process.runtime import Runtime
from mooactor.tensors.network import choose
from mooactor.times import GRACE_S

if TYPE_CHECKING:
    from mooactor.host.driver_joins import Joining

ADDRESS = "MOOACTOR_ADDRESS"
PORTS = "MOOACTOR_PORTS"
_MOST_OF_A_SEED = (1 << 64) - 1


class Running:
    """The result of `init`: use it with ``with``, or ignore it."""

    def __init__(self, session: _session.Session) -> None:
        self._session = session

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.close(awaited=Awaited.after(kind), deliver=True)

    def close(self, grace: float | None = GRACE_S) -> None:
        """End the session, as `moo.shutdown` does."""
        self._session.close(_grace(grace), deliver=True)

    def __repr__(self) -> str:
        state = "ended" if self._session.runtime.closed else "running"
        return f"<mooactor session, {state}>"


def init(
    address: str | None = None,
    *,
    debug: bool | None = None,
    local: bool = True,
    logs: bool = True,
    memory: float | None = None,
    namespace: str | None = None,
    preload: Sequence[str] = (),
    seed: int | None = None,
    setup: str | Callable[[], object] | None = None,
    sigusr1: bool | None = None,
    transport: str | Sequence[str] | None = None,
) -> Running:
    """Start a session: on this machine alone, or on those of a cluster.

    With the address of a broker, or ``MOOACTOR_ADDRESS`` in the environment, the
    session joins that cluster, and actors may be on any of its hosts. This machine
    takes part while the program lives. The key is that of ``MOOACTOR_KEY_FILE``,
    ``MOOACTOR_KEY`` or ``~/.config/mooactor/key``. ``MOOACTOR_BIND`` has the address to
    listen on for other hosts, by default the one on the way to the broker, and
    ``MOOACTOR_PORTS`` the ports, such as ``20000-29999``.

    It raises this process's soft limit on open files to the hard one, which all that it
    starts inherits. If ``mooactor stop`` or its agent's death has just ended the last
    session, it waits for the rest of that end.

    Args:
      address: a broker's ``tcp://host:port``, or several with commas between them, for
        a session of several hosts.
      debug: whether `breakpoint` in an actor stops it until ``mooactor attach`` comes;
        by default what ``MOOACTOR_DEBUG`` says, else it is passed over. Actors of a
        ``mooactor host`` go by that variable of its.
      local: whether actors may be on this machine, too, in a session of several hosts.
        If a ``mooactor host`` of the same name runs here, they are its.
      logs: whether what actors print appears here, each line with its actor's name.
      memory: bytes of shared memory that one process may hold, a whole number such as
        ``8e9``; by default half of the memory of the machine or of its control group.
      namespace: shares the names of actors with the other sessions of this cluster
        that give the same one: `lookup` finds their actors, and no two actors have one
        name. Everything else stays each session's own: its actors end with it.
      preload: modules that every actor will need: imported once, shared by all.
      seed: the start of the actors' random streams, at least 0 and below 2**64:
        `random`, numpy's and torch's draw the same numbers again in each actor of the
        same name, and in each without a name that is the same in the order in which its
        spawner spawns those. By default nobody can repeat them. The streams of this
        program are its own, and not touched.
      setup: what the process of each actor does first, on every host: a function
        without arguments, or "module:function". It is the place for what a script does
        at its top and actors do not have, such as `gymnasium.register`,
        `torch.set_default_dtype` or `logging.basicConfig`. If it raises, the actor does
        not start, and that is the cause.
      sigusr1: whether the signal makes this program print on stderr what it is doing,
        as it makes every actor do; by default it does, except in a Slurm job, where
        it may be the notice of preemption. A handler of yours is never replaced, and
        nothing is installed outside the main thread.
      transport: the allowed transports of arrays and tensors: some of "shm", "ofi" and
        "tcp", in a list or separated by commas. By default what ``MOOACTOR_TRANSPORT``
        says, or "auto": the best, which on one machine is shared memory.

    Raises:
      MooError: a session runs already, as it does in every method of an actor, or this
        platform cannot start one.
      TypeError, ValueError: an argument, or a variable, makes no sense.
      PlacementError: the working directory of this process is gone.
      ActorUnavailable: the only allowed transport is missing here, or no broker
        answers.
      AuthError: there is no key, or it is unusable.
      VersionMismatch: the broker has a mooactor that this one cannot talk to.
      OSError: ``MOOACTOR_BIND`` is no address of this host.
    """
    refuse_in_actor("moo.init()")
    checks.flag("logs", logs)
    if debug is not None:
        checks.flag("debug", debug)
    if sigusr1 is not None:
        checks.flag("sigusr1", sigusr1)
    if memory is not None:
        least = os.sysconf("SC_PAGESIZE")
        memory = min(checks.size("memory", memory, least=least), sys.maxsize)
    if seed is not None:
        seed = checks.count("seed", seed, "a whole number", most=_MOST_OF_A_SEED)
    modules, prelude = _module_names(preload), _setup(setup)
    checks.flag("local", local)
    if namespace is not None:
        namespace = checks.name("namespace", namespace)
    joining, network = _joining(address, local, namespace), choose(transport)
    if joining is not None:
        network.between_hosts("*", None)  # refused here, before anything starts
        # Where to listen is for each host to say; `joining` has it for this one.
        network = replace(network, bind=None)
    return Running(
        _session.start_session(
            debug=debug,
            logs=logs,
            memory=memory,
            preload=modules,
            network=network,
            seed=seed,
            setup=prelude,
            sigusr1=sigusr1,
            membership=joining,
        )
    )


def _setup(said: Any) -> bytes | None:
    """The bytes that travel for `setup`."""
    if said is None:
        return None
    if isinstance(said, str):
        module, _, function = said.partition(":")
        if not (module and function.isidentifier()):
            raise ValueError(
                f'setup={said!r} must be "module:function", or a function itself'
            )
    else:
        checks.function("setup", said)
    try:
        return codec.encode_in_band(said)
    except Exception as error:
        raise TypeError(f"setup={said!r} cannot be pickled: {error}") from error


def _joining(address: str | None, local: bool, namespace: str | None) -> Joining | None:
    """How to join the cluster that the program or its environment names."""
    if address is not None:
        checks.text("address", address, "the address of a broker")
    named = address or os.environ.get(ADDRESS)
    if not named and namespace is not None:
        raise ValueError(
            f"namespace={namespace!r} is for sessions of one cluster, and this session "
            f"has none: give moo.init the address of a broker, or set {ADDRESS}"
        )
    if not named:
        return None
    from mooactor.control import secret  # only here: others need none of it
    from mooactor.host import addresses
    from mooactor.host.driver_joins import Joining

    brokers, bind = addresses.parse_list(named), choose(None).bind
    hosts = [broker.host for broker in brokers]
    key = secret.load(hosts=[*hosts, bind] if bind else hosts)
    ports = os.environ.get(PORTS)
    return Joining(
        brokers,
        key,
        local,
        bind,
        addresses.parse_ports(ports) if ports else None,
        namespace,
    )


def _module_names(preload: object) -> list[str]:
    if isinstance(preload, str) or not isinstance(preload, Iterable):
        raise TypeError(
            f"{checks.shown('preload', preload)} must be a list of names of modules"
        )
    return [
        checks.text(f"preload[{index}]", name, "the name of a module")
        for index, name in enumerate(preload)
    ]


def shutdown(grace: float | None = GRACE_S) -> None:
    """End the session: every actor stops, nothing is left. Without one, do nothing.

    It waits up to `grace` seconds until the calls and tells of this process have ended;
    if some have not, a sentence on stderr says how many it gives up. Then every actor
    stops: `on_stop` runs, in what is left of the grace or in a second. An actor that
    needs longer is killed. Ctrl-C ends the wait at once.

    Args:
      grace: seconds; None waits for as long as it takes.

    Raises:
      MooError: this is an actor's process, whose session is not its to end.
      TypeError, ValueError: `grace` is no number of seconds.
      KeyboardInterrupt: Ctrl-C was pressed meanwhile; the session has ended.
    """
    refuse_in_actor("moo.shutdown()")
    seconds = _grace(grace)
    session = _session.current_session()
    if session is not None:
        session.close(seconds, deliver=True)


def _grace(seconds: float | None) -> float:
    checked = checks.seconds("grace", seconds)
    return math.inf if checked is None else max(0.0, checked)


def ensure_runtime() -> Runtime:
    """This process's runtime; the driver's starts by itself, one for all threads."""
    try:
        return current_runtime()
    except errors.ActorUnavailable:
        if is_forked():
            raise  # a session there must be started explicitly
    with _session.starts:
        _session.refuse_within_start()
        if known_runtime() is None:
            _session.refuse_after_loss()
            init()
        return current_runtime()


@dataclass(frozen=True)
class ActorInfo:
    """One actor of the session, as it was when `actors` was called.

    ``label`` is its class and name as errors have it; ``pid`` is None between two
    processes; ``state`` is ``"starting"``, ``"running"`` or ``"waiting to restart"``.
    ``owner`` is the label of the actor that spawned it and that it ends with, None if
    it belongs to the driver or, `detached`, to the session.
    """

    id: int
    label: str
    name: str | None
    pid: int | None
    state: str
    restarts: int
    owner: str | None
    detached: bool

    @property
    def handle(self) -> Any:
        """The actor's handle.

        Raises:
          ActorUnavailable: it is over by now.
        """
        found = ensure_runtime().agent.ask(GetHandle(self.id)).value
        if not isinstance(found, bytes) or not found:  # empty: it is just ending
            raise errors.ActorUnavailable(
                f"{self.label} has ended and has no handle any more; spawn it again"
            )
        return pickle.loads(found)


def actors() -> list[ActorInfo]:
    """The actors of this session that are not over, in the order they were spawned.

    Raises:
      ActorUnavailable: the session is over.
    """
    rows = cast(list[Row], ensure_runtime().agent.ask(ListActors()).value)
    return [_info(row) for row in rows]


def _info(row: Row) -> ActorInfo:
    return ActorInfo(
        int(row.id, 16),
        row.label,
        row.name,
        row.pid,
        row.state,
        row.incarnation,
        row.owner,
        row.detached,
    )


def lookup(name: str, timeout: float | None = 0.0) -> Any:
    """The handle of the actor spawned under `name`.

    Args:
      timeout: seconds to wait for it to appear; None: for ever.

    Raises:
      ActorUnavailable: there is none of that name.
      TypeError, ValueError: the name is no string, or the timeout no time.
      RuntimeError: with a timeout on a running event loop, which it would freeze.
    """
    name, timeout = checks.name("name", name), checks.seconds("timeout", timeout)
    if timeout is not None:
        timeout = min(max(timeout, 0.0), LONGEST_S)
    if timeout is None or timeout > 0:
        instead = "`await asyncio.to_thread(moo.lookup, name, timeout)`"
        refuse_to_block(f"an actor named {name!r}", instead)
    wait_s = None if timeout is None else timeout + 60.0
    found = ensure_runtime().agent.ask(LookUp(name, timeout), wait_s).value
    if not isinstance(found, bytes):
        raise errors.ActorUnavailable(
            f"no actor is named {name!r}"
            + (f" after {timeout} s" if timeout else "; lookup can wait: timeout=…")
        )
    return pickle.loads(found)
