# SPDX-License-Identifier: MIT
"""`Client`: makes calls and notes them, in the driver and in actors."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import numpy as np

import mooactor as moo
from mooactor.actors.handle import Handle
from tests.chaos.history import History

TIMEOUT_S = 60.0
_NOTHING: Any = object()


def id_of(handle: Any) -> str:
    """The actor's id, as histories have it."""
    return f"{handle._actor_id:016x}"


def digest(value: Any) -> Any:
    """The sign of a value in a history: itself, or an array's checksum."""
    if isinstance(value, np.ndarray):
        sum_ = zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data)
        return f"{value.dtype}{list(value.shape)}:{sum_:08x}"
    if isinstance(value, Handle):
        return id_of(value)
    if isinstance(value, moo.Ref):
        return "Ref"
    if isinstance(value, list | tuple):
        return [digest(one) for one in value]
    return value


class Client:
    """The calls of one thread or task: they have one order.

    Args:
      name: of this client, among those of its process.
    """

    def __init__(self, notes: History, name: str) -> None:
        self.notes, self.name = notes, name
        self._number = 0

    def new(self, kind: str) -> str:
        """An id for something of this client."""
        self._number += 1
        return f"{self.notes.who}/{self.name}/{kind}{self._number}"

    def start(
        self,
        to: Any,
        method: str,
        *args: Any,
        argument: Any = None,
        expect: Any = _NOTHING,
        retries: int = 0,
        timeout: float = TIMEOUT_S,
        via: tuple[Any, ...] = (),
        cancels: bool = False,
        tell: bool = False,
        items: int | None = None,
    ) -> Pending:
        """Call a method, whose first argument is the call's id."""
        call = self.new("c")
        facts: dict[str, Any] = {"retries": retries, "timeout": timeout}
        facts |= {"argument": digest(argument), "tell": tell, "cancels": cancels}
        facts["via"] = [id_of(other) for other in via]
        if expect is not _NOTHING:
            facts["expect"] = digest(expect)
        if items is not None:
            facts["items"] = items
        self._note_sent(call, to, method, facts)
        bound, ref = getattr(to, method), None
        options = {"timeout": timeout, **({"retries": retries} if retries else {})}
        try:
            if tell:
                bound.tell(call, *args)
            else:
                ref = bound.options(**options).remote(call, *args)
        except moo.ActorUnavailable as error:  # the session is over here
            if not tell:
                self.note_end(call, error)
        return Pending(self, call, ref)

    def _note_sent(
        self, call: str, to: Any, method: str, facts: dict[str, Any]
    ) -> None:
        whom = {"to": id_of(to), "client": self.name}
        self.notes.note("sent", call=call, method=method, **whom, **facts)

    def call(self, to: Any, method: str, *args: Any, **facts: Any) -> Any:
        """Call a method and wait for its value; None after an error."""
        return self.start(to, method, *args, **facts).end()

    def call_group(self, group: Any, value: Any) -> list[Any]:
        """Call `shout` of all members; each member's call is one call."""
        call = self.new("g")
        ids = [f"{call}@{id_of(member)}" for member in group]
        facts = {"retries": 0, "timeout": TIMEOUT_S, "argument": digest(value)}
        for member, one in zip(group, ids, strict=True):
            self._note_sent(one, member, "shout", facts | {"expect": digest(value)})
        ref = group.shout.call(call, value)
        ends = ref.get(TIMEOUT_S + 30, return_exceptions=True)
        for one, end in zip(ids, ends, strict=True):
            self.note_end(one, end)
        return list(ends)

    def note_end(self, call: str, end: Any) -> None:
        """The end of a call: an exception, or its value."""
        if isinstance(end, BaseException):
            self.notes.note("ended", call=call, how="error", **error_facts(end))
        else:
            self.notes.note("ended", call=call, how="value", value=digest(end))

    def put(self, data: Any) -> list[Any]:
        """The name of a new Ref, and the Ref."""
        name, ref = self.new("ref"), moo.put(data)
        self.notes.note("made", ref=name, value=digest(data))
        return [name, ref]

    def read(self, name: str, ref: Any) -> None:
        """Read a Ref that may be another process's."""
        read = self.new("r")
        self.notes.note("reading", read=read, ref=name)
        try:
            facts = {"how": "value", "value": digest(ref.get(TIMEOUT_S))}
        except Exception as error:
            facts = {"how": "error", **error_facts(error)}
        self.notes.note("read", read=read, ref=name, **facts)

    def remove(self, handle: Any, how: str) -> None:
        """`moo.stop` or `moo.kill`."""
        self.notes.note("removing", actor=id_of(handle), how=how)
        getattr(moo, how)(handle)
        self.notes.note("removed", actor=id_of(handle))

    def look_up(self, name: str) -> Any:
        """`moo.lookup`; None if there is none."""
        look = self.new("l")
        self.notes.note("looking", look=look, name=name)
        try:
            found = moo.lookup(name)
        except moo.ActorUnavailable:
            found = None
        actor = "" if found is None else id_of(found)
        self.notes.note("found", look=look, name=name, actor=actor)
        return found


def error_facts(error: BaseException) -> dict[str, Any]:
    """The words of a history on an error."""
    return {
        "error": type(error).__name__,
        "delivered": getattr(error, "delivered", None),
        "text": str(error)[:300],
    }


class Pending:
    """A call under way. `ref`: its Ref or stream; None of a tell, and of a call that
    has ended at once."""

    def __init__(self, client: Client, call: str, ref: Any) -> None:
        self._client, self.call, self.ref = client, call, ref

    def end(self) -> Any:
        """Wait for its end, and note it. Returns the value, None after an error."""
        if self.ref is None:
            return None
        try:
            value = self._take() if isinstance(self.ref, moo.Stream) else self._get()
        except Exception as error:
            # Not if the wait for it has timed out, which must not be its end.
            if isinstance(self.ref, moo.Stream) or self.ref.done():
                self._client.note_end(self.call, error)
            return None
        self._client.note_end(self.call, value)
        return value

    async def ended(self) -> Any:
        """As `end`, on an event loop. It is dropped when the coroutine that waits for
        it is cancelled, because the caller of that has died."""
        if self.ref is None:
            return None
        try:
            value = await self.ref
        except asyncio.CancelledError as error:
            facts = error_facts(error)
            self._client.notes.note("ended", call=self.call, how="dropped", **facts)
            raise
        except Exception as error:
            self._client.note_end(self.call, error)
            return None
        self._client.note_end(self.call, value)
        return value

    def _get(self) -> Any:
        return self.ref.get(2 * TIMEOUT_S)

    def _take(self) -> None:
        for n, value in enumerate(self.ref):
            self._client.notes.note("item", call=self.call, n=n, value=value)
