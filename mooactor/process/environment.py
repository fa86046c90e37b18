# SPDX-License-Identifier: MIT
"""The surroundings that a fork must not share: a process's place, its random streams.

**The place** is the host, the working directory and the path of imports.
Invariant: an actor starts where its spawner is when it spawns it, and starts there
again after each death. That costs nothing while the spawner is where the zygote is,
from which the actor is forked: then no place is sent.

**Random streams**: every actor's process draws numbers of its own.
An actor is forked with its generators in the state of the zygote's, so all that are
loaded are seeded anew before any code of the user's runs: `random`, `numpy.random` and
torch's, of the CPU and of GPUs. Without ``moo.init(seed=…)`` the system gives the seed.

With it each seed is a digest (BLAKE2b) of the actor's identity only:

* of an actor with a name, the session's seed, the name, and the number of earlier
  actors with the name in this session;
* of any other, the seed of the process that spawns it, and the number of actors without
  a name that this process spawned before;
* of both, the number of restarts, so that a restarted actor, and the actors that it
  spawns, do not repeat the numbers of its predecessor.

Hence no two processes of a session share a stream, and what other processes do at the
same time changes no seed. A library that is loaded later is seeded when its import
ends: the stream does not depend on who imported it first. The driver's own generators
are the program's, and left alone.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from mooactor import errors
from mooactor.control import generators
from mooactor.control.messages import Path, Paths, encode

if TYPE_CHECKING:
    from mooactor.process.protocol import Life

HOST_VARIABLE = "MOOACTOR_HOST_NAME"
MOST_OF_A_HOST_NAME = 255


def host_name() -> str:
    """The name of this host, as sessions know it: the kernel's, or what
    MOOACTOR_HOST_NAME says.

    Raises:
      ValueError: it says what is no name.
    """
    said = os.environ.get(HOST_VARIABLE)
    return check_host_name(HOST_VARIABLE, said) if said else socket.gethostname()


def check_host_name(what: str, name: str) -> str:
    """`name`, if it can be that of a host; `what` says it.

    Raises:
      ValueError: it cannot.
    """
    if not is_host_name(name):
        raise ValueError(
            f"{what}={name!r:.80} is no name of a host: write 1 to "
            f"{MOST_OF_A_HOST_NAME} printable characters"
        )
    return name


def is_host_name(name: str) -> bool:
    return 0 < len(name) <= MOST_OF_A_HOST_NAME and name.isprintable()


class Place(msgspec.Struct, frozen=True):
    """A working directory and a `sys.path`, without the empty entry that stands for
    the former. Both are as `os.fsencode` makes them: they may be no UTF-8."""

    cwd: Path
    path: Paths

    def __post_init__(self) -> None:
        if any(b"\0" in name for name in (self.cwd, *self.path)):
            raise ValueError("a path has a zero byte")

    @classmethod
    def here(cls) -> Place:
        """The present place of this process.

        Raises:
          PlacementError: its working directory is gone.
        """
        try:
            cwd = os.getcwdb()
        except OSError as error:
            raise errors.PlacementError(
                "the working directory of this process, in which actors would "
                f"start, cannot be read ({error.strerror}): call os.chdir with a "
                "directory that exists"
            ) from None
        return cls(cwd, [os.fsencode(str(entry)) or cwd for entry in sys.path])

    def enter(self) -> None:
        """Make it this process's.

        Raises:
          PlacementError: the directory cannot be entered.
        """
        try:
            os.chdir(self.cwd)
        except OSError as error:
            cwd = os.fsdecode(self.cwd)
            raise errors.PlacementError(
                f"the actor's working directory {cwd!r}, in which its spawner "
                f"was, cannot be entered ({error.strerror}): spawn it from a "
                "directory that is not removed"
            ) from None
        sys.path[:] = map(os.fsdecode, self.path)
        _forget_relative()


def _forget_relative() -> None:
    # The due part of `importlib.invalidate_caches`: finders of relative entries look in
    # the old working directory, and a path that was no directory may be one here.
    for entry, finder in list(sys.path_importer_cache.items()):
        if finder is None or not os.path.isabs(entry):
            del sys.path_importer_cache[entry]


_SEED_BYTES = 16


class Streams:
    """The seed of one process, and those of the actors that it spawns.

    Args:
      session: the seed given to `moo.init`; None for streams that nobody can repeat.
      who: plain values that no other process of the session has.
    """

    def __init__(self, session: int | None, *who: Any) -> None:
        self._session = session
        self._own = None if session is None else _digest(session, *who)
        self._spawned = itertools.count()

    @classmethod
    def of_driver(cls, session: int | None) -> Streams:
        """Those of the program that called `moo.init`."""
        return cls(session, "driver")

    @classmethod
    def of_actor(cls, life: Life) -> Streams:
        """Those of an actor's process, from its birth message."""
        if life.name is None:
            who: tuple[Any, ...] = ("number", life.stream)
        else:
            who = ("name", life.name, life.namesakes)
        return cls(life.seed, *who, life.incarnation)

    def next(self) -> bytes | None:
        """A number for the next actor without a name, different for each."""
        if self._own is None:
            return None
        return _digest(self._own, next(self._spawned))

    def begin(self) -> None:
        """Have this process draw from its own streams from now on. Takes no numbers
        from any generator, and does not initialise CUDA."""
        own = self._own or os.urandom(_SEED_BYTES)
        for name, seed in _GENERATORS.items():
            seed_this = partial(seed, own=_digest(own, name))
            module = sys.modules.get(name)
            if module is not None:
                seed_this(module)
            elif self._own is not None:  # else its import seeds it from the system
                after_import(name, seed_this)
        generators.seed_from(lambda number: _digest(own, "generator", number))


def _digest(*fields: Any) -> bytes:
    return blake2b(encode(fields), digest_size=_SEED_BYTES).digest()


def _seed_random(random: Any, own: bytes) -> None:
    random.seed(int.from_bytes(own, "little"))


def _seed_numpy(random: Any, own: bytes) -> None:
    words = range(0, _SEED_BYTES, 4)
    random.seed([int.from_bytes(own[at : at + 4], "little") for at in words])


def _seed_torch(torch: Any, own: bytes) -> None:
    # `torch.manual_seed` does this and more, for kinds of devices that are not there,
    # and takes 2 ms of each actor's start.
    seed = int.from_bytes(own[:8], "little")
    torch.default_generator.manual_seed(seed)
    if torch.backends.cuda.is_built():
        torch.cuda.manual_seed_all(seed)  # when CUDA is initialised, if it ever is


# By module. Not by way of numpy itself, whose attribute would import it: 10 ms in each
# actor.
_GENERATORS: dict[str, Callable[..., None]] = {
    "random": _seed_random,
    "numpy.random": _seed_numpy,
    "torch": _seed_torch,
}


# -- libraries that are loaded later -------------------------------------------

Action = Callable[[ModuleType], object]


def after_import(name: str, action: Action) -> None:
    """Call `action` with the module of that name, once its code has run and before its
    importer goes on. An error of `action` is an error of the import. One action for a
    module. It costs the import of any other module one look into a dict, and nothing
    once all awaited modules are imported.
    """
    _finder.actions[name] = action
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    """Has others find the modules, and puts a loader of its own around theirs."""

    def __init__(self) -> None:
        self.actions: dict[str, Action] = {}

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name not in self.actions:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None

    def imported(self, module: ModuleType) -> None:
        action = self.actions.pop(module.__name__, None)
        if not self.actions and self in sys.meta_path:
            sys.meta_path.remove(self)
        if action is not None:
            action(module)


class _Loader(Loader):
    """Another loader, and then the action."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        # The module, and all that inspect it, must see its own loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _finder.imported(module)


_finder = _Finder()
