# SPDX-License-Identifier: MIT
"""A call with several results: ``.options(num_returns=n)``, a Ref for each.

It is one call, whose reply is taken apart here. Invariant: the Refs are done together,
all with values or all with the same error; from then on each holds its own value only,
so that dropping one frees its memory, independently of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mooactor.actors.handle import RemoteMethod
from mooactor.actors.ref import Ref
from mooactor.process.objects.future import Arrival
from mooactor.process.objects.holds import Hold


class SplitMethod(RemoteMethod):
    """A method whose calls give a tuple of Refs."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and wait for the values; a coroutine of an async method."""
        if self._kind == "async":
            return self._all(args, kwargs)
        self._refuse_to_block()
        return tuple(ref.get() for ref in self.remote(*args, **kwargs))

    async def _all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tuple([await ref for ref in self.remote(*args, **kwargs)])

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Start the call and return a Ref for each of its values."""
        whole = self._start(args, kwargs, self._form)
        return split(whole, self._options.num_returns or 1)


def split(whole: Ref[Any], n: int) -> tuple[Ref[Any], ...]:
    """A Ref for each of the `n` values of a Ref to a tuple or list."""
    share = _Share(whole, n)
    refs = tuple(share.refs)
    whole.listen(share.arrived)
    return refs


class PartRef(Ref[Any]):
    """One of the results of a call. `parts`: the call, while it is under way."""

    __slots__ = ("_share", "_index", "parts")

    def __init__(self, whole: Ref[Any], index: int, share: _Share) -> None:
        Ref.__init__(self, whole._runtime, f"{whole._label}[{index}]", whole._timeout)
        self._share = share
        self._index = index
        self.parts: Sequence[Ref[Any]] = (whole,)

    def cancel(self) -> bool:
        """Give up the call, and all of its results with it."""
        return any(whole.cancel() for whole in self.parts)

    def expire(self) -> None:
        """The deadline of the call, and of all its results, has passed."""
        for whole in self.parts:
            whole.expire()

    def _give_up(self) -> None:
        others = list(self._share.refs)
        if all(ref.home is None and not ref._listeners for ref in others):
            self.cancel()

    def __del__(self) -> None:
        self._share.drop(self._index)


class _Share:
    """The common part of the Refs of one call: its reply, taken apart once.

    Any method may be entered while another call of it is under way, by a thread or a
    signal handler, and left by an exception anywhere.
    """

    def __init__(self, whole: Ref[Any], n: int) -> None:
        self.whole: Ref[Any] | None = whole
        self._label = whole._label
        self._count = n
        self._values: list[Any] | None = None
        self._dropped: set[int] = set()
        self.refs = [PartRef(whole, index, self) for index in range(n)]  # until done

    def arrived(self) -> None:
        """The call has ended; in the thread that completes it."""
        for index, ref in enumerate(self.refs):
            part = _Part(self, index)
            if self.whole is None or self.whole.is_here():
                ref.set_raw(part)
            else:
                ref.set_stored(part)
            ref.parts = ()
            ref._runtime.poller.wake()
        self.refs = []

    def take(self, index: int) -> Any:
        """One value. It is kept until `drop`, for a reader may be interrupted.

        Raises:
          BaseException: the call raised it.
          ValueError: it has another number of values.
        """
        whole = self.whole
        if whole is not None:
            values = self._checked(whole.unwrap())
            self._values = values  # the same as another thread's that was quicker
            for dropped in list(self._dropped):  # later ones see `_values`
                values[dropped] = None
            self.whole = None
        assert self._values is not None
        return self._values[index]

    def _checked(self, value: Any) -> list[Any]:
        if not isinstance(value, tuple | list):
            what = f"a {type(value).__name__}"
        elif len(value) != self._count:
            what = f"{len(value)} values"
        else:
            return list(value)
        raise ValueError(
            f"{self._label} returned {what}; .options(num_returns={self._count}) takes "
            f"a tuple or a list of {self._count}"
        )

    def drop(self, index: int) -> None:
        """Nobody will ask for this one. Called by finalizers."""
        self._dropped.add(index)
        values = self._values
        if values is not None:
            values[index] = None


class _Part:
    """Stands for one value, as a `Reply` does, until its Ref is read."""

    __slots__ = ("_share", "_index", "home")

    def __init__(self, share: _Share, index: int) -> None:
        self.home: Hold | None = None  # the whole has one
        self._share = share
        self._index = index

    def is_here(self) -> bool:
        whole = self._share.whole
        return whole is None or whole.is_here()

    def pull(self) -> list[Arrival]:
        whole = self._share.whole
        return [] if whole is None else whole.pull()

    def failure(self) -> BaseException | None:
        whole = self._share.whole
        return None if whole is None else whole.failure()

    def value(self) -> Any:
        return self._share.take(self._index)
