# SPDX-License-Identifier: MIT
"""Exceptions to bytes and back, for any behaviour of their classes.

An exception crosses as a list of *nodes*: one for itself, and one for each exception
that it is chained to or has as a member of a group. The receiver rebuilds each node
without calling its constructor, because a constructor may take other arguments than
``args`` and may have side effects: the nearest builtin base makes the object, then its
attributes are set. A class that defines its own pickling is pickled by that, if the
result can be unpickled again.

Invariants:

* `encode` and `decode` never fail, even if ``__str__``, ``__reduce__``, ``__setattr__``
  or the arguments do. The exceptions that pass are those of signal handlers.
* The exception arrives as its own type if the receiver has that type, and its class
  lets its parts be read. Otherwise a `RemoteError` stands in for it and says why.
* An argument or attribute that cannot be pickled is left out, and a note says so.
* Every traceback is printed once: a node has the text of its own traceback only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from mooactor.control import script
from mooactor.control.complaints import pass_interruption
from mooactor.control.inspection import (
    CAUSE,
    CONTEXT,
    MAX_TEXT,
    SUPPRESS,
    builtin_base_of,
    name_of,
    notes_of,
    pickles_itself,
    readable_text,
    short_repr,
    shortened,
    slots_of,
    trace_of,
)
from mooactor.errors import RemoteError, text_of

#: Bytes that the parts of one exception may have.
MAX_BYTES = 1 << 30
_MAX_NODES = 1000
_LONG_TEXTS = 8  # nodes with texts as long as that
Dumps = Callable[[Any], bytes]


class Node(NamedTuple):
    """One exception, as plain values. Other nodes are named by their index."""

    name: str
    text: str
    trace: str
    whole: bytes  # pickled by its own class
    cls: bytes  # pickled apart: the class,
    args: bytes  # the arguments for its builtin base,
    state: bytes  # and the attributes
    lost: list[str]  # parts that could not be pickled, and why
    notes: list[str]
    cause: int | None
    context: int | None
    suppress: bool
    members: list[int]


# -- to bytes ------------------------------------------------------------------


def encode(
    error: BaseException, where: str, dumps: Dumps, max_bytes: int = MAX_BYTES
) -> bytes:
    """An exception with all that it is chained to; `dumps` pickles its parts.

    Never fails. Parts of more than `max_bytes` are left out.
    """
    try:
        return _encoded(error, where, dumps, max_bytes)
    except BaseException as problem:
        pass_interruption(problem)
        name, why = name_of(type(error)), f"it cannot be read: {text_of(problem)}"
        text = f"{name}: {text_of(error)} ({why})"
        other = RemoteError(text, type_name=name, reason=why)
        return _encoded(other, where, dumps, max_bytes)


def _encoded(error: BaseException, where: str, dumps: Dumps, max_bytes: int) -> bytes:
    chain = _chain_of(error)
    index = {id(one): i for i, one in enumerate(chain)}
    nodes = []
    for one in chain:
        node = _node(one, index, _Parts(dumps, max_bytes))
        max_bytes -= len(node.whole) + len(node.args) + len(node.state)
        nodes.append(tuple(node))
    return pickle.dumps((nodes, where), 5)


def _members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group; of any other there are none."""
    return error.exceptions if isinstance(error, BaseExceptionGroup) else ()


def _chain_of(error: BaseException) -> list[BaseException]:
    """The exception, those it is chained to, and their members; nearest first."""
    found = [error]
    seen = {id(error)}
    for one in found:
        for other in (*_members_of(one), one.__cause__, one.__context__):
            if other is not None and id(other) not in seen and len(found) < _MAX_NODES:
                seen.add(id(other))
                found.append(other)
    return found


def _node(error: BaseException, index: dict[int, int], parts: _Parts) -> Node:
    cls = type(error)
    members = [index[id(m)] for m in _members_of(error) if id(m) in index]
    whole = cls_data = args = state = b""
    if pickles_itself(cls) and not members:
        whole = parts.try_whole(error)
    if not whole:
        parts.lost.clear()
        cls_data = parts.pickled(cls, "its class")
        args, state = parts.args_and_state(error) if cls_data else (b"", b"")
    number = index[id(error)]
    most = MAX_TEXT if number < _LONG_TEXTS else MAX_TEXT // 64
    return Node(
        name=name_of(cls),
        text=shortened(readable_text(error), most),
        trace=shortened(trace_of(error, always=not number), most),
        whole=whole,
        cls=cls_data,
        args=args,
        state=state,
        lost=list(parts.lost),
        notes=[shortened(note, most) for note in notes_of(error)],
        cause=_index_of(error.__cause__, index),
        context=_index_of(error.__context__, index),
        suppress=error.__suppress_context__,
        members=members,
    )


class _Parts:
    """Pickles the parts of one exception, and notes failures."""

    def __init__(self, dumps: Dumps, max_bytes: int) -> None:
        self._dumps = dumps
        self._left = max_bytes
        self.lost: list[str] = []

    def pickled(self, value: Any, what: str) -> bytes:
        """The pickle of `value`, tried also in unpickling; empty if that fails."""
        try:
            data = self._dumps(value)
            if len(data) > self._left:
                raise ValueError(f"it has {len(data)} bytes")
            pickle.loads(data)
        except BaseException as error:
            pass_interruption(error)
            self.lost.append(f"{what} ({shortened(text_of(error), 200)})")
            return b""
        return data

    def try_whole(self, error: BaseException) -> bytes:
        """Pickled by its class's own way; empty if that gives no exception."""
        data = self.pickled(error, "the exception")
        if data and not isinstance(pickle.loads(data), BaseException):
            return b""
        return data

    def args_and_state(self, error: BaseException) -> tuple[bytes, bytes]:
        """The arguments of `_rebuilt` beside the class."""
        args, state = taken_apart(error)
        state.pop("__notes__", None)
        if _members_of(error):
            args = args[:1]  # the members are nodes
        return self._pickled_args(args), self._pickled_state(state)

    def _pickled_args(self, args: tuple[Any, ...]) -> bytes:
        data = self.pickled(args, "")
        if data:
            return data
        self.lost.pop()
        kept = [
            arg if self.pickled(arg, f"argument {i}") else short_repr(arg)
            for i, arg in enumerate(args)
        ]
        return self.pickled(tuple(kept), "the arguments")

    def _pickled_state(self, state: dict[str, Any]) -> bytes:
        data = self.pickled(state, "")
        if data:
            return data
        self.lost.pop()
        kept = {k: v for k, v in state.items() if self.pickled(v, f"attribute {k!r}")}
        return self.pickled(kept, "the attributes")


def taken_apart(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for the builtin base of an exception, and its attributes."""
    args, state = _builtin_parts(error)
    state.update(slots_of(error))
    if not isinstance(args, tuple):
        args = ()
    return args, {key: value for key, value in state.items() if type(key) is str}


def _builtin_parts(error: BaseException) -> tuple[Any, dict[str, Any]]:
    base: Any = builtin_base_of(type(error))
    _, args, *state = base.__reduce__(error)
    return args, dict(state[0] or {}) if state else {}


# -- and back ------------------------------------------------------------------


def decode(payload: bytes | memoryview) -> BaseException:
    """The exception of `encode`, with the remote tracebacks as notes. Never fails."""
    try:
        rows, where = pickle.loads(payload)
        nodes = [Node(*row) for row in rows]
        made = _all_made(nodes)
        for i, node in enumerate(nodes):
            _chain(made[i], node, made)
            _annotate(made[i], node, where)
        return made[0]
    except BaseException as error:
        pass_interruption(error)
        return RemoteError(f"an exception could not be read: {text_of(error)}")


def _all_made(nodes: list[Node]) -> dict[int, BaseException]:
    """By index; the members of a group before the group."""
    made: dict[int, BaseException] = {}
    while len(made) < len(nodes):
        for i in reversed(range(len(nodes))):
            if i not in made and all(member in made for member in nodes[i].members):
                made[i] = _made(nodes[i], made)
    return made


def _made(node: Node, made: dict[int, BaseException]) -> BaseException:
    """The exception of one node, as complete as possible, at least a stand-in."""
    if node.whole:
        error = _loaded(node.whole, "the exception", node.lost)
        if isinstance(error, BaseException):
            return error
    cls = _loaded(node.cls, "its class", node.lost)
    if isinstance(cls, type) and issubclass(cls, BaseException):
        args = _loaded(node.args, "the arguments", node.lost)
        args = (node.text,) if args is None else args
        state = _loaded(node.state, "the attributes", node.lost)
        if node.members:
            args = (*args, [made[i] for i in node.members])
        try:
            return set_attributes(made_of(cls, args), state or {})
        except BaseException as error:
            pass_interruption(error)
            node.lost.append(f"the object ({text_of(error)})")
    why = "; ".join(node.lost) or "this process has no such class"
    message = f"{node.name}: {node.text} (its own type could not be restored: {why})"
    return RemoteError(message, type_name=node.name, reason=why)


def _loaded(data: bytes, what: str, lost: list[str]) -> Any:
    if not data:
        return None
    try:
        return script.loads(data)
    except BaseException as error:
        pass_interruption(error)
        lost.append(f"{what} ({text_of(error)})")
        return None


def made_of(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """An exception of `cls`, made by its builtin base: no code of the class's runs."""
    base: Any = builtin_base_of(cls)
    error: BaseException = base.__new__(cls, *args)
    base.__init__(error, *args)
    return error


def set_attributes(error: BaseException, state: dict[str, Any]) -> BaseException:
    """Give an exception its attributes, past its class's ``__setattr__``."""
    for name, value in state.items():
        try:
            object.__setattr__(error, name, value)
        except (AttributeError, TypeError):
            vars(error)[name] = value  # behind a property
    return error


def reduce(error: BaseException) -> tuple[Any, ...]:
    """For a pickler that meets an exception inside a value."""
    args, state = taken_apart(error)
    return made_of, (type(error), args), state, None, None, set_attributes


def _chain(error: BaseException, node: Node, made: dict[int, BaseException]) -> None:
    if node.cause in made and made[node.cause] is not error:
        CAUSE.__set__(error, made[node.cause])
    if node.context in made and made[node.context] is not error:
        CONTEXT.__set__(error, made[node.context])
    SUPPRESS.__set__(error, node.suppress)


def _annotate(error: BaseException, node: Node, where: str) -> None:
    """Set its notes, also where its class refuses them."""
    notes = [*node.notes]
    if node.lost and type(error) is not RemoteError:
        notes.append(f"Lost on the way ({where}): {'; '.join(node.lost)}")
    if node.trace:
        notes.append(f"Remote traceback ({where}):\n{node.trace}")
    if notes:
        vars(error)["__notes__"] = notes


def _index_of(error: BaseException | None, index: dict[int, int]) -> int | None:
    return None if error is None else index.get(id(error))
