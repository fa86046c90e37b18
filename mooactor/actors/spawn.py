# SPDX-License-Identifier: MIT
"""Making actors: `spawn`, `on(…)` for placement and policies, and `Child`: an
actor as a supervisor is told of it.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import (
    Any,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    overload,
)

from mooactor import errors
from mooactor.actors.group import Group
from mooactor.actors.handle import Handle
from mooactor.actors.session import ensure_runtime
from mooactor.control import codec, script
from mooactor.control.complaints import was_interrupted
from mooactor.control.keys import every_incarnation, new_process_id
from mooactor.host import session as _session
from mooactor.process import checks, parcel
from mooactor.process.actor.threads import check_numbers
from mooactor.process.current import refuse_at_import
from mooactor.process.environment import Place, host_name
from mooactor.process.interface import interface_of, signature_of
from mooactor.process.needs import MOST_BYTES, MOST_THINGS, Amount, Needs
from mooactor.process.objects.borrow import Borrowing
from mooactor.process.protocol import (
    Kill,
    Member,
    Reply,
    Reserve,
    Spawn,
    Unreserve,
    packed,
)
from mooactor.process.runtime import Runtime
from mooactor.process.supervision import Restart, When
from mooactor.times import GRACE_S

P = ParamSpec("P")
T = TypeVar("T")

_HERE = ("localhost", "127.0.0.1")


def spawn(cls: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Start an actor in a process of its own and return its handle, typed as `T`.

    Returns at once: the process starts meanwhile, and calls wait for it. If the
    constructor raises, calls end with `ActorDied`, whose `cause` has the exception.
    The actor belongs to the process that spawned it and ends with it; see `on` for
    ``detached``. It starts in the working directory, and with the `sys.path`, that this
    process has now. Starts the embedded runtime if none runs.

    Raises:
      TypeError: arguments that the constructor would refuse, or cannot be pickled.
      PlacementError: the working directory of this process is gone, or there is no
        room for another process's descriptors; see docs/failures.md.
    """
    return on(cls).spawn(*args, **kwargs)


def on(
    cls: Callable[P, T],
    /,
    *,
    host: str = "",
    num_cpus: float = 0,
    num_gpus: float = 0,
    memory: float = 0,
    labels: Mapping[str, str] | None = None,
    spread: bool = False,
    pack: bool = False,
    name: str | None = None,
    restart: Restart | None = None,
    env: Mapping[str, str | None] | None = None,
    detached: bool = False,
) -> Spec[P, T]:
    """Choose placement and policies, then ``.spawn(…)``, ``.group(n, …)`` or
    ``.child(…)``.

    Args:
      host: a host of the session by name; empty for any with room.
      num_cpus: the CPUs that the host must have. In a session of several hosts they are
        reserved there, until the actor ends for good. The actor computes with as many
        threads (OpenMP, BLAS, torch), rounded down, at least 1. If the environment that
        it has from its host has ``OMP_NUM_THREADS`` or one of its kin, that counts
        instead.
      num_gpus: the number of GPUs for this actor alone; it sees no others, and numbers
        its own from 0. Less than 1: a share of one, which nobody enforces. 0: it gets
        none for itself and sees them all. They are its own until it ends for good, also
        between restarts.
      memory: the bytes that the host must have; in a session of several hosts they are
        reserved. Nothing limits what the actor uses.
      labels: the labels that the host must have, as ``mooactor host --label`` gave
        them, such as ``{"rack": "b2"}``.
      spread: whether actors go where the most free CPUs are, the driver's machine first
        among equals. That is the default: ``spread=True`` only excludes `pack`.
      pack: whether they go to the host with the fewest free CPUs that has room instead.
      name: the name for `lookup`; members of a group get ``name/rank``.
      restart: the policy after a death; by default it is not restarted.
      env: environment variables, set before the constructor runs; None unsets one.
        Numbers of threads
        among them (``OMP_NUM_THREADS``, …) hold for libraries that are loaded already,
        too. If such a library cannot apply a variable any more, the actor does not
        start: its calls fail with `ActorDied`, whose cause names the variable.
      detached: whether the actor belongs to the session. By default it belongs to the
        process that spawns it, and ends when that ends.

    Raises:
      TypeError, ValueError: an argument makes no sense; the message names it.
      PlacementError: from ``spawn``: no host of the session has that.
    """
    if not isinstance(cls, type):
        raise TypeError(f"an actor is made of a class, not of {cls!r}{_hint(cls)}")
    amount = Amount(
        checks.amount("num_cpus", num_cpus, most=MOST_THINGS),
        checks.amount("num_gpus", num_gpus, most=MOST_THINGS),
        checks.amount("memory", memory, most=MOST_BYTES),
    )
    if num_gpus > 1 and num_gpus % 1:
        raise ValueError(
            f"num_gpus={num_gpus} must be a whole number, or a share below 1 such as "
            "0.5"
        )
    where, wanted = _host(host), _checked_labels(labels)
    if checks.flag("spread", spread) and checks.flag("pack", pack):
        raise ValueError("spread=True and pack=True exclude each other: give one")
    if name is not None:
        name = checks.name("name", name)
    if restart is not None:
        checks.kind("restart", restart, Restart, "moo.Restart(max=…), or None")
    variables = checks.environment(env)
    check_numbers(variables)
    needs = Needs(amount, where, wanted, checks.flag("pack", pack))
    return Spec(cls, needs, name, restart, variables, checks.flag("detached", detached))


class Spec(Generic[P, T]):
    """An actor class with placement and policies; made by `on`."""

    def __init__(
        self,
        cls: Callable[P, T],
        needs: Needs,
        name: str | None,
        restart: Restart | None,
        env: dict[str, str],
        detached: bool,
    ) -> None:
        self._cls: Any = cls
        self._needs = needs
        self._name = name
        self._restart = restart
        self._env = env
        self._detached = detached

    def spawn(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Start one actor; see `mooactor.spawn`.

        Raises:
          ValueError: the name is taken.
          PlacementError: no host has the resources, or the working directory of this
            process is gone.
        """
        (handle,) = self._start_all([self._name], [args], kwargs)
        return cast(T, handle)

    @overload
    def group(self, n: int, /, *args: P.args, **kwargs: P.kwargs) -> Group[T]: ...
    @overload
    def group(
        self, n: int, /, *args: Any, each: Iterable[tuple[Any, ...]], **kwargs: Any
    ) -> Group[T]: ...
    def group(self, n: int, /, *args: Any, **kwargs: Any) -> Group[T]:
        """Start `n` actors with the same constructor arguments.

        Args:
          n: how many.
          each: beside those, as a list of `n` tuples: the arguments of each rank,
            which come after the common ones.

        Raises:
          ValueError: `n` is negative, `each` has another length, or a name is taken.
          TypeError: the constructor would refuse the arguments.
          PlacementError: there is no room for all; then none runs.
        """
        n = checks.count("n", n, "a number of actors")
        rows = [args]
        if "each" in kwargs:
            rows = [(*args, *row) for row in kwargs.pop("each")]
            if len(rows) != n:
                raise ValueError(
                    f"each has {len(rows)} tuples of arguments for {n} actors: give "
                    "one for each rank"
                )
        names = [None if self._name is None else f"{self._name}/{i}" for i in range(n)]
        handles = self._start_all(names, rows, kwargs, together=True)
        return Group([cast(T, handle) for handle in handles])

    def _start_all(
        self,
        names: list[str | None],
        rows: list[tuple[Any, ...]],
        kwargs: dict[str, Any],
        *,
        together: bool = False,
        member: Member | None = None,
    ) -> list[Handle]:
        """Start an actor of each name; if that fails, none runs.

        Args:
          rows: the arguments of each, or those of all.
          together: first reserve for all.
          member: see `_start`.
        """
        for row in rows:
            _check_constructor(self._cls, row, kwargs)
        refuse_at_import("moo.spawn()")
        # All that it takes belongs to one session, which may end meanwhile. Refs among
        # the arguments need it, too.
        runtime = ensure_runtime()
        runtime.room.take(len(names), self._cls.__qualname__)
        ids = [new_process_id() for _ in names]
        started: list[Handle] = []
        parcels: list[tuple[parcel.Parcel, Borrowing]] = []
        try:
            if together:
                self._place_all(runtime, ids)
            for rank, (actor_id, name) in enumerate(zip(ids, names, strict=True)):
                if rank < len(rows):
                    _close(parcels)
                    parcels.append(self._packed(runtime, rows[rank], kwargs))
                payload, borrowing = parcels[0]
                handle = self._start(
                    runtime, actor_id, payload, borrowing, name, member
                )
                started.append(handle)
            _close(parcels)
            return started
        except BaseException:
            _close(parcels)
            _undo(runtime, ids, len(started))
            raise

    def _place_all(self, runtime: Runtime, ids: list[int]) -> None:
        """Reserve for all of them, or for none."""
        if not self._is_choosy or not ids:
            return
        reply = runtime.agent.ask(Reserve(ids, self._needs))
        if reply.refused is not None:
            name = self._cls.__qualname__
            raise errors.PlacementError(
                f"a group of {len(ids)} {name} cannot be started: {reply.note}",
                delivered=False,
            )

    @property
    def _is_choosy(self) -> bool:
        """Whether there may be no place for it."""
        needs = self._needs
        return bool(needs.host or needs.labels or needs.amount != Amount())

    def child(self, *args: P.args, **kwargs: P.kwargs) -> Child[T]:
        """The actor as a child of a `Supervisor`, which spawns it. Nothing starts yet.

        ``restart`` is a limit and a back-off of this child's own, beside those of the
        supervisor. With ``host`` it runs there or not at all; without, it may come
        back on another host when its own is gone.

        Raises:
          TypeError: arguments that the constructor would refuse.
          ValueError: ``detached``: a child belongs to its supervisor.
        """
        _check_constructor(self._cls, args, kwargs)
        if self._detached:
            raise ValueError(
                "detached=True makes no sense for a child: it belongs to its "
                "supervisor; use .spawn(…) for a detached actor"
            )
        return Child(self, self._cls.__qualname__, self._name, args, kwargs)

    def _spawn_child(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str, when: When
    ) -> Handle:
        """In a supervisor's process: spawn one of its children."""
        member = Member(key, when, self._restart is not None)
        (handle,) = self._start_all([self._name], [args], kwargs, member=member)
        return handle

    def _packed(
        self, runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[parcel.Parcel, Borrowing]:
        """The class and the arguments, for a process to come."""
        label = self._cls.__qualname__
        borrowing = Borrowing(runtime.borrows)
        try:
            what = f"the constructor's arguments of {label}"
            payload = borrowing.note(parcel.pack, (self._cls, args, kwargs), what)
            return payload, borrowing
        except errors.OutOfMemory:
            raise
        except Exception as error:
            if was_interrupted(error):
                raise
            where = borrowing.note(codec.find_unpicklable, args, kwargs)
            raise TypeError(
                f"{label} or {where} of its constructor cannot be pickled: {error}"
            ) from error

    def _start(
        self,
        runtime: Runtime,
        actor_id: int,
        payload: parcel.Parcel,
        borrowing: Borrowing,
        name: str | None,
        member: Member | None = None,
    ) -> Handle:
        """`member`: its place among the children of this process, a supervisor."""
        if runtime.closed:
            raise runtime.agent.session_ended(delivered=False)
        place = Place.here()
        interface = interface_of(self._cls)
        label = interface.label if name is None else f"{interface.label}:{name}"
        mark = runtime.session_mark
        handle = Handle(actor_id, 0, label, interface, mark, watch=False)
        handle._where()  # the link is there before any notice of a death can come
        policy = self._restart
        if member is not None:
            policy = policy or Restart()  # snapshots are for every restart
        request = Spawn(
            actor_id,
            label,
            pickle.dumps(handle, 5),
            payload.data,
            name,
            policy,
            packed(self._env),
            None if place == runtime.origin else place,
            max(1, int(self._needs.amount.cpus)),
            runtime.streams.next() if name is None else None,
            self._needs,
            _preload(),
            self._detached,
            member,
        )
        if name is None and not self._is_choosy and member is None:
            runtime.agent.tell(request, payload.fds)
        else:
            _accepted(runtime.agent.ask(request, fds=payload.fds), name)
        borrowing.lend_to(every_incarnation(actor_id))  # until it ends for good
        script.spawned(actor_id, borrowing.keys)
        return handle


def _close(parcels: list[tuple[parcel.Parcel, Borrowing]]) -> None:
    while parcels:
        parcels[-1][0].close()
        parcels.pop()


def _undo(runtime: Runtime, ids: list[int], started: int) -> None:
    """Leave none of them, of which so many were started. A signal handler may have
    raised after the next one was asked for: then nobody gets its handle."""
    with suppress(errors.MooError):  # the session may be over
        agent = runtime.agent
        for actor_id in ids[:started]:
            agent.ask(Kill(actor_id))
        for actor_id in ids[started : started + 1]:
            agent.tell(Kill(actor_id))
        agent.tell(Unreserve(ids[started:]))


def _accepted(reply: Reply, name: str | None) -> None:
    """Check the agent's answer to a request for an actor."""
    if reply.refused == "no room":
        raise errors.PlacementError(reply.note, delivered=False)
    if reply.refused is not None:
        raise ValueError(
            f"the name {name!r} is taken by {reply.note}: choose another one, or "
            "stop that actor"
        )


def _hint(cls: Any) -> str:
    """Advice on what to do in its place."""
    owner = getattr(cls, "__self__", None)
    if isinstance(owner, type):
        name = owner.__qualname__
        return (
            f": spawn {name} with what its constructor takes, or give it a subclass "
            f"whose constructor does what {name}.{cls.__name__} does"
        )
    if callable(cls):
        return ": put the function into a class, as a method"
    return ""


def _host(said: str) -> str:
    """The name of the host that is meant; empty: any."""
    if said == "":
        return ""
    name: str = checks.name("host", said)
    return host_name() if name in _HERE else name


def _checked_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    if labels is None:
        return {}
    checks.kind("labels", labels, Mapping, "a dict of strings")
    return {
        checks.text("a label", key, "a name"): checks.text(
            f"labels[{key!r}]", value, "the label's value"
        )
        for key, value in labels.items()
    }


def _check_constructor(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    try:
        signature_of(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__qualname__}(): {error}") from None
    except ValueError:
        return  # some builtins have no signature
    check = getattr(cls, "__moo_check__", None)  # of `Supervisor`
    if check is not None:
        check(*args, **kwargs)


def _preload() -> list[str]:
    session = _session.current_session()
    if session is not None:
        return session.modules()
    return [name for name in _session.PRELOADABLE if name in sys.modules]


class Child(Generic[T]):
    """One child of a `Supervisor`: a class, its constructor's arguments, and when it is
    restarted. Made by `child`, or by `Spec.child`. A value that can be pickled."""

    def __init__(
        self,
        spec: Spec[..., T],
        label: str,
        name: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._spec = spec
        self._args, self._kwargs = args, kwargs
        self._restart: When = "always"
        self._grace: float | None = None
        self.name = name
        self.label = label
        self._mark = os.urandom(8).hex()  # pickled copies are the same child

    def options(
        self, *, restart: When | None = None, grace: float | None = None
    ) -> Child[T]:
        """The same child with other options; those left out stay.

        Args:
          restart: ``"always"``: after every death, the default. ``"on_failure"``: not
            if it exited with code 0. ``"never"``: its death is no failure, and
            concerns no other child.
          grace: seconds to finish its calls and its `on_stop` when the supervisor
            stops; then it is killed. By default 3, and for a supervisor what its own
            children may need.

        Raises:
          TypeError, ValueError: an option makes no sense; the message names it.
        """
        changed: Child[T] = Child.__new__(Child)
        changed.__dict__.update(self.__dict__)
        if restart is not None:
            checks.one_of("restart", restart, get_args(When))
            changed._restart = restart
        if grace is not None:
            changed._grace = checks.amount("grace", grace)
        return changed

    def _patience(self) -> float:
        """How long its stop may take, in seconds."""
        if self._grace is not None:
            return self._grace
        own = _children_among(self._args, self._kwargs)
        return GRACE_S + sum(child._patience() for child in own)

    @property
    def _key(self) -> str:
        """Under which a supervisor keeps one that it was not made with."""
        return f"{self.label}#{self._mark}" if self.name is None else self.name

    def _start(self, key: str) -> Handle:
        """In the process of its supervisor, which knows it by this key."""
        return self._spec._spawn_child(self._args, self._kwargs, key, self._restart)

    def __repr__(self) -> str:
        return f"<Child {self.label if self.name is None else self.name}>"


def _children_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Child[Any]]:
    """Those of a child that is a supervisor itself."""
    given = kwargs.get("children", args[0] if args else ())
    if not isinstance(given, list | tuple):
        return []
    return [child for child in given if isinstance(child, Child)]
