# SPDX-License-Identifier: MIT
"""The program's ``__main__``: one module in every process of a session.

A class or function that ``__main__`` has under its own name is a *definition*. It has a
key, and pickles name it by that. The first pickle for a process also has a *table*:
each definition by value that the process may lack, the definitions and the global
variables of ``__main__`` that those refer to, and the script's file. The receiver makes
the definitions in its own ``__main__``, and knows them by their keys from then on.

* A definition that a process has is never rebuilt: one that comes back is the
  receiver's own, with its attributes, and a global variable that is there stays as it
  is.
* Functions made in another process have the receiver's ``__main__`` as their globals.
* A definition that has taken the place of another one of that name (a notebook's cell
  ran again) has a key of its own, and takes that place in every process that has
  received the other; objects of both go on working.
* A receiver tells the sender what it has made (KNOWS), so a definition is sent to it
  once, or a few times until the sender hears of that.
* Of what cannot be copied, locks, context variables, caches and thread-locals are made
  anew, and generators of random numbers are seeded anew (`generators`). Anything else
  is an error that names it.

A table begins with a byte that no pickle begins with: see `loads`.
"""

from __future__ import annotations

import contextvars
import functools
import importlib
import io
import os
import pickle
import struct
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Set
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import cloudpickle
from cloudpickle import cloudpickle as reducers

from mooactor.control import generators, inspection
from mooactor.control.keys import actor_of
from mooactor.tensors import codec as layout

#: A global variable of so many bytes is warned of, once.
LARGE_BYTES = 8_000_000

_HEAD = struct.Struct("<BxxxII")  # 0, the table's bytes, the number of its buffers
_MAIN = "__main__"
_GLOBAL = "="  # before the name of a global variable, among keys
_CACHED = type(functools.lru_cache(lambda: None))
_LOCKS = {
    type(threading.Lock()): threading.Lock,
    type(threading.RLock()): threading.RLock,
}
# Caches, and what each thread has of its own.
_EMPTY = weakref.WeakKeyDictionary, weakref.WeakValueDictionary, threading.local
_type = type


def _tell_nobody(process_id: int, keys: bytes) -> None: ...


class _State:
    """Of this process."""

    def __init__(self) -> None:
        self.process_id = 0  # that it has in its session
        self.mark = ""  # what its keys begin with
        self.pid = 0
        self.count = 0
        self.keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.objects: dict[str, Any] = {}  # by key; for good: they may come back
        self.received: set[str] = set()  # the keys of those that others made
        self.coming: dict[str, Definition] = {}  # of the table that is being read
        self.tell: Callable[[int, bytes], object] = _tell_nobody
        # The keys that other processes have: each of an actor what it was spawned with,
        # and each process what it has sent, or has said that it has.
        self.given: dict[int, frozenset[str]] = {}  # by actor
        self.sent: dict[int, set[str]] = {}  # by process
        self.warned: set[str] = set()
        self.bare: dict[str, Any] = {}  # by name: objects that lack their state yet


_state = _State()
_lock = threading.RLock()


class _PickleFor(threading.local):
    """The receivers that this thread pickles for: processes, none if they are not known
    yet, and a set for the keys that the table has."""

    targets: tuple[int, ...] = ()
    sent: set[str] | None = None
    met = False  # definitions, some of which the targets may have had

    def replace(
        self, targets: tuple[int, ...], sent: set[str] | None
    ) -> tuple[tuple[int, ...], set[str] | None]:
        """Set both; returns what they were."""
        before = self.targets, self.sent
        self.targets, self.sent = targets, sent
        return before


pickle_for = _PickleFor()


class Definition(NamedTuple):
    """One row of a table."""

    key: str
    qualname: str
    current: bool  # not one whose name another one has taken
    data: bytes


def begin(
    process_id: int = 0, tell: Callable[[int, bytes], object] = _tell_nobody
) -> None:
    """This process takes part in a session, or in none any more. `tell` posts a KNOWS,
    and takes no lock."""
    _state.process_id, _state.tell = process_id, tell


def on_knows(process_id: int, keys: bytes) -> None:
    """A process has said what it has."""
    found = keys.decode(errors="replace").split("\0")
    _state.sent.setdefault(process_id, set()).update(found)


def enter() -> None:
    """This process was forked to be an actor's: it gets a `__main__` of its own."""
    sys.modules[_MAIN] = ModuleType(_MAIN)
    sys.modules[_MAIN].__dict__["__builtins__"] = __builtins__


def spawned(actor_id: int, keys: set[str]) -> None:
    """Each process of that actor has these before all else that is sent to it."""
    if keys:
        _state.given[actor_id] = frozenset(keys)


def lost(process_id: int, *, for_good: bool) -> None:
    """A process is gone; `for_good`: and so is its actor."""
    _state.sent.pop(process_id, None)
    if for_good:
        _state.given.pop(actor_of(process_id), None)


def _known(process_id: int) -> tuple[Set[str], ...]:
    """The keys of what a process has."""
    given = _state.given.get(actor_of(process_id), frozenset())
    return given, _state.sent.get(process_id, frozenset())


# -- names and keys


def _main() -> dict[str, Any]:
    return sys.modules[_MAIN].__dict__


def _found(qualname: str) -> Any:
    """The value that `__main__` has under that name, or None."""
    value: Any = sys.modules[_MAIN]
    for part in qualname.split("."):
        if part == "<locals>":
            return None
        value = getattr(value, part, None)
    return value


def _is_definition(value: Any) -> bool:
    """Whether it is one, or was before another one took its name."""
    if _state.keys.get(value) is not None:
        return True
    if getattr(value, "__module__", None) != _MAIN:
        return False
    name = getattr(value, "__qualname__", None)
    return isinstance(name, str) and _found(name) is value


def _key_of(value: Any) -> str:
    key = _state.keys.get(value)
    if key is None:
        with _lock:
            if _state.pid != os.getpid():
                _state.pid, _state.mark = os.getpid(), os.urandom(8).hex()
            _state.count += 1
            key = f"{_state.mark}.{_state.count}"
            _state.keys[value], _state.objects[key] = key, value
    return key


def _defined(key: str, qualname: str) -> Any:
    """In the receiver: the definition of that key."""
    found = _state.objects.get(key)
    if found is None and key in _state.coming:
        row = _state.coming[key]
        found = pickle.loads(row.data)  # `_built` notes it before it is complete
        _install(row, found)
    if found is None:
        found = _found(qualname)
    if found is None:
        raise AttributeError(f"this process has no {qualname} of the script's")
    return found


def _built(key: str, make: Callable[..., Any], *args: Any) -> Any:
    made = make(*args)
    _state.objects[key] = made
    _state.keys[made] = key
    _state.received.add(key)
    return made


def _install(row: Definition, value: Any) -> None:
    """Under its name, unless this process has something of its own there."""
    name = row.qualname
    if "." in name or not row.current:
        return  # it is in the class that it belongs to, or has no name any more
    there = _main().get(name)
    try:
        ours = there is not None and _state.keys.get(there) not in _state.received
    except TypeError:  # a value that has no hash is no definition
        ours = True
    if not ours:
        _main()[name] = value


# -- what is written


class Table:
    """All that a receiver of a pickle may lack."""

    def __init__(self, targets: tuple[int, ...]) -> None:
        self._known = [_known(target) for target in targets]
        self.rows: dict[str, Definition] = {}
        self._names: dict[str, str] = {}  # of globals: the function that refers to it
        self._imports: dict[str, None] = {}

    def add(self, value: Any) -> str:
        """Note a definition, and all that it refers to; returns its key."""
        key = _key_of(value)
        if not self._has(key) and key not in self.rows:
            current = _found(value.__qualname__) is value
            row = Definition(key, value.__qualname__, current, b"")
            self.rows[key] = row  # before its data: definitions refer to each other
            self.rows[key] = row._replace(data=self._data_of(value))
            owner, _, rest = row.qualname.partition(".")
            if rest and current:
                self.add(_found(owner))
        return key

    def _has(self, key: str) -> bool:
        """Whether all receivers do; not if they are not known."""
        known = self._known
        return bool(known) and all(any(key in one for one in each) for each in known)

    def _data_of(self, value: Any) -> bytes:
        stream = io.BytesIO()
        try:
            Definer(stream, self, value).dump(value)
        except Exception as error:
            what = f"{value.__qualname__} of the script"
            raise pickle.PicklingError(f"{what}: {error}") from error
        return stream.getvalue()

    def refers(self, function: FunctionType, names: dict[str, Any]) -> None:
        """A function refers to these globals of `__main__`."""
        for name in names:
            if not self._has(_GLOBAL + name):
                self._names.setdefault(name, function.__qualname__)
        for module in reducers._find_imported_submodules(
            function.__code__, names.values()
        ):
            self._imports[module.__name__] = None

    def __bool__(self) -> bool:
        """Whether a receiver lacks anything."""
        return bool(self.rows or self._names)

    def pack(self, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
        """The table's bytes. Its large arrays come first in `buffers`, if given."""
        data, names, mine = self._globals(buffers is not None)
        if buffers is not None:
            buffers[:0] = mine
        if pickle_for.sent is not None:
            pickle_for.sent.update(self.rows, (_GLOBAL + name for name in names))
        main = sys.modules[_MAIN]
        file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
        content = (
            _state.process_id,
            [tuple(row) for row in self.rows.values()],
            data,
            names,
            list(self._imports),
            (file and os.path.abspath(file), spec and spec.name, main.__doc__),
        )
        packed = pickle.dumps(content, 5)
        return _HEAD.pack(0, len(packed), len(mine)) + packed

    def _globals(
        self, apart: bool
    ) -> tuple[bytes, list[str], list[pickle.PickleBuffer]]:
        """The values one after the other: what two of them share stays shared."""
        stream = io.BytesIO()
        names: list[str] = []
        buffers: list[pickle.PickleBuffer] = []
        definer = Definer(stream, self, None, buffers.append if apart else None)
        while left := sorted(self._names.keys() - names):  # one may refer to others
            for name in left:
                at, held = stream.tell(), len(buffers)
                try:
                    definer.dump(_main().get(name))
                except Exception as error:
                    raise self._refusal(name, error) from error
                size = stream.tell() - at + sum(b.raw().nbytes for b in buffers[held:])
                if size >= LARGE_BYTES and name not in _state.warned:
                    self._warn_of(name, size)
                names.append(name)
        return stream.getvalue(), names, buffers

    def _refusal(self, name: str, error: Exception) -> Exception:
        kind = _type(_main().get(name)).__qualname__
        return pickle.PicklingError(
            f"the global {name!r} of the script, which {self._names[name]} refers to, "
            f"is a {kind}: {error}. Make it in a function, or in a module of its own"
        )

    def _warn_of(self, name: str, size: int) -> None:
        _state.warned.add(name)
        warnings.warn(
            f"the global {name!r} of the script ({size / 1e6:.0f} MB) is copied to "
            f"each actor, because {self._names[name]} refers to it: pass it as an "
            "argument (moo.put makes one copy for all)",
            stacklevel=2,
        )


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what is sent; `table` is what its receiver may lack, None if nothing."""

    table: Table | None = None
    _defines = False  # what the receiver will have by name, not a value of now

    def reducer_override(self, obj: Any) -> Any:
        reduced = layout.reduce(obj)
        if reduced is not NotImplemented:
            return reduced
        cls = _type(obj)
        if issubclass(cls, BaseException) and not inspection.pickles_itself(cls):
            from mooactor.control import exceptions

            return exceptions.reduce(obj)
        if cls is CodeType:
            return _reduce_code_with_its_file(obj)
        if cls is FunctionType or cls is _CACHED or issubclass(cls, type):
            return self._reduce_definition(obj)
        if issubclass(cls, ModuleType):
            name = obj.__name__  # whatever its type: torch has modules of its own
            if sys.modules.get(name) is obj and name != _MAIN:
                return importlib.import_module, (name,)
        if cls is object or cls.__module__ == _MAIN:
            return self._reduce_named(obj, cls)
        return NotImplemented

    def _reduce_named(self, obj: Any, cls: Any) -> Any:
        """By its name in `__main__`, if it has one: ``MISSING = Missing()`` is compared
        by identity. One with a state is a value, except where it is part of a
        definition, as a default argument is."""
        as_is = self._defines or "__reduce__" in vars(cls)
        if getattr(obj, "__dict__", None) and not as_is:
            return NotImplemented
        reduced: Any = obj.__reduce_ex__(5)
        if isinstance(reduced, str):  # it says so itself
            state, has_more = getattr(obj, "__dict__", None), False
        else:
            make, args, *rest = reduced
            state = rest[0] if rest else None
            bare = getattr(make, "__name__", "") == "__newobj__" and args == (cls,)
            has_more = not bare or any(one is not None for one in rest[1:])
        name = next((name for name, value in _main().items() if value is obj), None)
        if name is None or has_more or (state and not as_is):
            return NotImplemented
        named = _named, (name, cls, as_is)
        return (*named, (name, state), None, None, _set_once) if state else named

    def _reduce_definition(self, obj: Any) -> Any:
        if _type(obj) is _CACHED:
            by_name = obj.__module__ != _MAIN
        elif isinstance(obj, type) and obj.__module__ == "builtins":
            by_name = True  # or as cloudpickle names it: some are not found there
        else:
            by_name = reducers._should_pickle_by_reference(obj)
        if by_name:
            return super().reducer_override(obj)
        if _is_definition(obj):
            owner, _, name = obj.__qualname__.rpartition(".")
            if owner and not isinstance(obj, type) and _found(owner) is not None:
                return getattr, (_found(owner), name)
            return _defined, (self._table().add(obj), obj.__qualname__)
        return self.by_value(obj)

    def _table(self) -> Table:
        if self.table is None:
            pickle_for.met = True
            self.table = Table(pickle_for.targets)
        return self.table

    def by_value(self, obj: Any) -> Any:
        """As cloudpickle does it, but for a function's globals and a class's slots."""
        if _type(obj) is FunctionType:
            return self._reduce_function(obj)
        if _type(obj) is _CACHED:
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        make, args, state = reducers._dynamic_class_reduce(obj)[:3]
        if make is reducers._make_skeleton_class:
            kept = {"__qualname__"}
            if "__slots__" in vars(obj) and NamedTuple not in args[2]:  # has its own
                kept.add("__slots__")
            args[3].update((name, getattr(obj, name)) for name in kept)
        _complete.add(obj)
        return make, args, state, None, None, _complete_class

    def _reduce_function(self, function: FunctionType) -> Any:
        make, args, state, *rest = self._dynamic_function_reduce(function)
        name = function.__globals__.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is None or vars(module) is not function.__globals__:
            return make, args, state, *rest  # of no module: its globals go with it
        if reducers._is_registered_pickle_by_value(module):
            return make, args, state, *rest  # as the program has asked for
        names = state[1]["__globals__"]
        state[1]["__globals__"], state[1]["_cloudpickle_submodules"] = {}, []
        if name == _MAIN and names:
            self._table().refers(function, names)
        code, _, _, _, closure = args
        return _function, (name, code, closure), state, *rest


class Definer(Pickler):
    """Pickles one definition by value, or global variables."""

    _defines = True

    def __init__(
        self,
        stream: io.BytesIO,
        table: Table,
        root: Any,
        buffer_callback: Callable[[Any], object] | None = None,
    ) -> None:
        super().__init__(stream, 5, buffer_callback=buffer_callback)
        self.table = table
        self._root = root

    def reducer_override(self, obj: Any) -> Any:
        if obj is self._root:
            make, args, *rest = self.by_value(obj)
            if make is reducers._make_skeleton_class:
                args = (*args[:4], None, *args[5:])  # known by its key
            return _built, (_key_of(obj), make, *args), *rest
        if _type(obj) in (FunctionType, _CACHED) and self._is_method(obj):
            return self.by_value(obj)
        made = _made_anew(obj)
        return super().reducer_override(obj) if made is None else made

    def _is_method(self, function: Any) -> bool:
        """Of the class that is being defined, or of one within it."""
        root = self._root
        return isinstance(root, type) and function.__qualname__.startswith(
            root.__qualname__ + "."
        )


def _reduce_code_with_its_file(code: CodeType) -> tuple[Any, ...]:
    """As cloudpickle, which leaves the name of the file out since 3.1.3: tracebacks
    and debuggers show the lines of that file."""
    make, args = cloudpickle.Pickler.dispatch_table[CodeType](code)
    filename = "".join(code.co_filename)  # not shared, so equal code has equal pickles
    return make, (*args[:10], filename, *args[11:])


# -- what is made anew


def _made_anew(obj: Any) -> Any:
    """How to pickle what is no plain value; None if it is one."""
    cls = _type(obj)
    if cls in _LOCKS:
        return _LOCKS[cls], ()
    if cls is contextvars.ContextVar:
        return _variable, (obj.name, *_default_of(obj))
    if issubclass(cls, _EMPTY):
        return cls, ()
    if obj is os.environ:  # as ``from os import environ`` has it
        return getattr, (os, "environ")
    return generators.reduce(obj)


def _default_of(variable: contextvars.ContextVar[Any]) -> tuple[Any, ...]:
    """Its default, if it has one."""
    try:
        return (contextvars.Context().run(variable.get),)
    except LookupError:
        return ()


@functools.cache
def _variable(name: str, *default: Any) -> contextvars.ContextVar[Any]:
    """One for each name."""
    if default:
        return contextvars.ContextVar(name, default=default[0])
    return contextvars.ContextVar(name)


# -- what is read


def _function(module: str, code: CodeType, closure: Any) -> FunctionType:
    namespace = vars(sys.modules.get(module) or importlib.import_module(module))
    return FunctionType(code, namespace, None, None, closure)


def _named(name: str, cls: Any, as_is: bool) -> Any:
    """The receiver's own, whose state may be another one if it is taken `as_is`."""
    found = _main().get(name)
    kind: Any = _type(found)
    if kind is cls:
        as_is = as_is or not getattr(found, "__dict__", None)
        return found if as_is else cls.__new__(cls)
    made = _state.bare[name] = cls.__new__(cls)
    if found is None or _state.keys.get(kind) in _state.received:
        _main()[name] = made  # in place of one of a class that was replaced
    return made


def _set_once(obj: Any, named: tuple[str, Any]) -> None:
    """Only if it was made just now: what the receiver has stays as it is."""
    name, state = named
    if _state.bare.pop(name, None) is not obj:
        return
    if hasattr(obj, "__setstate__"):
        obj.__setstate__(state)
        return
    state, slots = state if isinstance(state, tuple) else (state, {})
    if state:
        vars(obj).update(state)
    for name, value in slots.items():
        setattr(obj, name, value)


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


_complete: weakref.WeakSet[Any] = weakref.WeakSet()


def _complete_class(cls: Any, state: Any) -> Any:
    """Only once: what the receiver has is not rebuilt."""
    if cls not in _complete:
        _complete.add(cls)
        reducers._class_setstate(cls, state)
    return cls


def loads(data: Any, *, buffers: Any = None) -> Any:
    """The value of a pickle of `Pickler`'s, with a table before it or without."""
    if data[0]:
        return pickle.loads(data, buffers=buffers)
    _, size, count = _HEAD.unpack_from(data)
    at = _HEAD.size
    view, buffers = memoryview(data), list(buffers or ())
    with _lock:
        _take_in(pickle.loads(view[at : at + size]), buffers[:count])
    return pickle.loads(view[at + size :], buffers=buffers[count:])


def _take_in(content: Any, buffers: list[Any]) -> None:
    sender, rows, data, names, imports, (file, spec, doc) = content
    main = _main()
    for name, value in (("__file__", file), ("__doc__", doc)):
        if main.get(name) is None:
            main[name] = value
    if spec and main.get("__spec__") is None:
        main["__spec__"] = types.SimpleNamespace(name=spec)
    for module in imports:
        importlib.import_module(module)
    coming = {row[0]: Definition(*row) for row in rows if row[0] not in _state.objects}
    before, _state.coming = _state.coming, {**_state.coming, **coming}
    try:
        for key, row in coming.items():
            _defined(key, row.qualname)
        values = pickle.Unpickler(io.BytesIO(data), buffers=buffers)
        for name in names:
            main.setdefault(name, values.load())
    except BaseException:
        for key in coming:  # it may be half made
            _state.objects.pop(key, None)
        raise
    finally:
        _state.coming = before
    keys = {*(row[0] for row in rows), *(_GLOBAL + name for name in names)}
    theirs = _state.sent.setdefault(sender, set())
    if not keys <= theirs:
        theirs |= keys
        _state.tell(sender, "\0".join(keys).encode())
