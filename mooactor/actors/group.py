# SPDX-License-Identifier: MIT
"""`Group`: several actors of one class, in rank order. `Map`: results of one method
over many items, spread over a group.

Invariants of a `Map`, at every moment between two steps of the consumer:

* at most ``members * in_flight`` items have been taken whose results the consumer has
  not (one more, after a step that a signal handler has cut short), and at most
  `in_flight` of them are under way at one member;
* an item is in exactly one state: waiting to be sent, under way, or settled;
* an item is sent again only if it certainly did not run, or if `retries` allows it;
* the error of an item says what is known of all its attempts.

Only the consumer's own thread sends, so a consumer that stops stops everything.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from itertools import islice
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from mooactor import errors
from mooactor.actors.api import wait
from mooactor.actors.handle import Handle, RemoteMethod, handle_of
from mooactor.actors.monitor import Monitor
from mooactor.actors.ref import Ref, Told, news_of
from mooactor.control import envelope
from mooactor.control.complaints import was_interrupted
from mooactor.process import checks
from mooactor.process.calls import Form, either, speak_for_all
from mooactor.process.checks import shown
from mooactor.process.current import current_runtime
from mooactor.process.deadlock import Wait
from mooactor.process.loops import refuse_to_block
from mooactor.process.objects.future import Arrival
from mooactor.process.objects.holds import Hold
from mooactor.process.runtime import Runtime
from mooactor.process.supervision import Restarted, Started

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class _MapOptions(TypedDict, total=False):
    ordered: bool
    in_flight: int
    retries: int
    timeout: float | None


class Group(Generic[T]):
    """Calls go to all members; results come as lists in rank order.

    ``group[i]`` is a handle and ``group[i:j]`` a group. ``group.method.call(…)`` is
    the same as ``group.call(Class.method, …)``, which type checkers understand.
    """

    def __init__(self, handles: Sequence[T]) -> None:
        checks.kind("handles", handles, Iterable, "a list of handles")
        self.__dict__["_handles"] = list(handles)  # `__setattr__` refuses
        for index, handle in enumerate(self._handles):
            handle_of(handle, f"handles[{index}]")

    _handles: list[T]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"cannot set {name!r} on a group: state lives in its actors; add a method "
            "that sets it, and call that on the group"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            f"cannot delete {name!r} of a group: state lives in actors"
        )

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[T]:
        return iter(self._handles)

    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> Group[T]: ...
    def __getitem__(self, index: Any, /) -> Any:
        if isinstance(index, slice):
            return Group(self._handles[index])
        return self._handles[index]

    @overload
    def call(
        self,
        function: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> GatheredRef[R]: ...
    @overload
    def call(
        self,
        function: Callable[Concatenate[T, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> GatheredRef[R]: ...
    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method on every member with the same arguments.

        They are encoded once, and large arrays cross in one shared copy. The result is
        a Ref to the list of values; it fails with the first member's error, once all
        are done.
        """
        return gather(self._broadcast(_name(function), args, kwargs, 0))

    def call_each(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], /
    ) -> GatheredRef[Any]:
        """Call a method on every member, each with its own argument tuple.

        Raises:
          ValueError: the number of tuples is not that of the members.
          TypeError: they are no tuples, or the method cannot be called so. Then none
            is called; one that cannot be pickled may be found after others were.
        """
        _check_tuples(arguments)
        if len(arguments) != len(self._handles):
            raise ValueError(
                f"arguments has {len(arguments)} tuples for {len(self._handles)} "
                "members: give one tuple for each member"
            )
        methods = self._methods(_name(function))
        calls = list(zip(methods, map(tuple, arguments), strict=True))
        for method, args in calls:
            method._spec.check(args, {})
        with _all_or_none() as refs:
            for method, args in calls:
                refs.append(method.remote(*args))
        return gather(refs)

    def tell(
        self,
        function: Callable[Concatenate[T, P], Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """As `call`, one way."""
        self._broadcast(_name(function), args, kwargs, envelope.ONE_WAY)

    @overload
    def map(
        self,
        function: Callable[[T, A], Coroutine[Any, Any, R]],
        items: Iterable[A | Ref[A]],
        /,
        **options: Unpack[_MapOptions],
    ) -> Map[R]: ...
    @overload
    def map(
        self,
        function: Callable[[T, A], R],
        items: Iterable[A | Ref[A]],
        /,
        **options: Unpack[_MapOptions],
    ) -> Map[R]: ...
    def map(
        self,
        function: Any,
        items: Any,
        /,
        *,
        ordered: bool = True,
        in_flight: int = 2,
        retries: int = 0,
        timeout: float | None = None,
    ) -> Any:
        """Call a method with each of many items, and iterate over the results.

        Each item goes to the member with the fewest under way, so that a member with
        a long one gets fewer. `items` is read as the results are taken: at most
        ``len(group) * in_flight`` items ahead. Use ``for`` or ``async for``. The
        first calls are made at once; leaving the loop early cancels those under way.
        A Ref among the items hands its value to the member.

        An item's error is raised in its place and ends the iteration, as with
        `concurrent.futures.Executor.map`. An item that certainly did not run goes to
        another member when its own dies or stops; one that may have run does so only
        with `retries`. A member that died gets no more items until it runs again.

        Args:
          ordered: results in the order of the items; else each as it comes.
          in_flight: items that one member may have at a time. With 1 it waits for the
            next one each time; with 2 it has it already.
          retries: how often an item whose member died may be sent to another one;
            your word that running it twice is harmless.
          timeout: seconds for each call; by default that of ``@method``.

        Raises:
          ValueError: the group is empty, or an argument makes no sense.
          TypeError: an argument of a wrong type.
        """
        return self._map(
            _name(function),
            items,
            timeout,
            ordered=ordered,
            in_flight=in_flight,
            retries=retries,
        )

    def _map(
        self, name: str, items: Any, timeout: float | None = None, **options: Any
    ) -> Map[Any]:
        methods = self._methods(name)
        if timeout is not None:
            methods = [method.options(timeout=timeout) for method in methods]
        return Map(methods, items, **options)

    def _methods(self, name: str) -> list[RemoteMethod]:
        """Those of the members; a handle has some of its own, such as ``__call__``."""
        find: Any = Handle.__getattr__ if name.startswith("_") else getattr
        methods = [find(handle, name) for handle in self._handles]
        if methods and methods[0]._spec.streams:
            raise TypeError(
                f"{methods[0]} is a generator, and a group's calls are for plain "
                "methods: iterate over the members' own streams"
            )
        return methods

    def _broadcast(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], flags: int
    ) -> list[Ref[Any]]:
        runtime = current_runtime()
        methods = self._methods(name)
        if not methods:
            return []
        methods[0]._spec.check(args, kwargs)
        links = [method._handle._where()[1] for method in methods]
        prepared = None
        if args or kwargs:
            processes = tuple(link.process_id for link in links)
            what = f"a group's {name}"
            prepared = runtime.arguments.prepare(what, args, kwargs, processes)
        kind: type[Ref[Any]] = Told if flags & envelope.ONE_WAY else Ref
        with _all_or_none() as refs:
            for method, link in zip(methods, links, strict=True):
                options = method._options
                ref = kind(runtime, f"{link.label}.{name}", options.timeout)
                form = Form(method._spec, options, flags)
                runtime.caller.start(link, ref, form, args, kwargs, prepared)
                refs.append(ref)
            runtime.flush()
        return refs

    def __getattr__(self, name: str) -> GroupMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        return GroupMethod(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Group, (self._handles,))

    def __repr__(self) -> str:
        return f"<Group of {len(self)}: {self._handles[:1]}>"


class GroupMethod:
    """``group.method``: the untyped spelling."""

    def __init__(self, group: Group[Any], name: str) -> None:
        for handle in group._handles[:1]:
            getattr(handle, name)  # raises AttributeError with the reason
        self._group = group
        self._name = name

    def call(self, *args: Any, **kwargs: Any) -> GatheredRef[Any]:
        """See `Group.call`."""
        return gather(self._group._broadcast(self._name, args, kwargs, 0))

    def map(self, items: Iterable[Any], /, **options: Unpack[_MapOptions]) -> Map[Any]:
        """See `Group.map`."""
        return self._group._map(self._name, items, **options)

    def tell(self, *args: Any, **kwargs: Any) -> None:
        """See `Group.tell`."""
        self._group._broadcast(self._name, args, kwargs, envelope.ONE_WAY)


class GatheredRef(Ref[list[R]]):
    """The results of several calls, in rank order; see `Group.call`. An actor that it
    is passed to inside of a list or another value gets a plain `Ref`."""

    __slots__ = ("parts",)

    gathers = True

    def __init__(self, runtime: Runtime, refs: Sequence[Ref[R]]) -> None:
        super().__init__(runtime, f"{len(refs)} calls")
        self.parts: Sequence[Ref[R]] = refs

    @overload
    def get(
        self, timeout: float | None = ..., *, return_exceptions: Literal[False] = ...
    ) -> list[R]: ...
    @overload
    def get(
        self, timeout: float | None = ..., *, return_exceptions: Literal[True]
    ) -> list[R | BaseException]: ...
    def get(
        self, timeout: float | None = None, *, return_exceptions: bool = False
    ) -> Any:
        """The values in rank order; or raise the first error in rank order.

        Args:
          timeout: seconds to wait; the calls go on if they pass.
          return_exceptions: give one value or error for each rank, and raise none.
        """
        if not return_exceptions:
            return super().get(timeout)
        if self.state <= 0:
            self._wait(timeout, read=True)
        failures = [(ref, ref.failure()) for ref in self.parts]
        return [ref.unwrap() if error is None else error for ref, error in failures]

    def cancel(self) -> bool:
        """Give all of them up; True unless all were done already."""
        given_up = [ref.cancel() for ref in self.parts]
        return any(given_up)


def gather(refs: Sequence[Ref[Any]]) -> GatheredRef[Any]:
    """One Ref to the list of the values of several."""
    runtime = current_runtime()
    whole: GatheredRef[Any] = GatheredRef(runtime, refs)

    def one_done() -> None:
        if all(ref.state for ref in refs):
            gathered = _Gathered(refs)
            if all(ref.is_here() for ref in refs):
                whole.set_raw(gathered)
            else:
                whole.set_stored(gathered)
            runtime.poller.wake()

    for ref in refs:
        ref.listen(one_done)
    if not refs:
        whole.set_value([])
    return whole


class _Gathered:
    """Decodes the members' replies in the thread that reads the whole."""

    def __init__(self, refs: Sequence[Ref[Any]]) -> None:
        self._refs = refs
        self.home: Hold | None = None  # the parts have

    def is_here(self) -> bool:
        return all(ref.is_here() for ref in self._refs)

    def pull(self) -> list[Arrival]:
        return [one for ref in self._refs for one in ref.pull()]

    def failure(self) -> BaseException | None:
        failures = (ref.failure() for ref in self._refs)
        return next((one for one in failures if one is not None), None)

    def value(self) -> list[Any]:
        try:
            return [ref.unwrap() for ref in self._refs]
        except BaseException:
            for ref in self._refs:
                ref.hear()  # this error speaks for those behind it
            raise


@contextmanager
def _all_or_none() -> Iterator[list[Ref[Any]]]:
    """Calls begun together: if one cannot be, those before it are given up."""
    refs: list[Ref[Any]] = []
    try:
        yield refs
    except BaseException:  # nobody gets them
        for ref in refs:
            ref.cancel()
        raise


def _name(function: Any) -> str:
    """The name of an unbound method, decorated or not."""
    name = getattr(function, "__name__", None)
    if name is None or isinstance(function, type):
        raise TypeError(
            f"{shown('function', function)} must be a method of the members' class, "
            "such as Learner.step"
        )
    return cast(str, name)


def _check_tuples(arguments: Any) -> None:
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        raise TypeError(
            f"{shown('arguments', arguments)} must be a list with one tuple for each "
            "member"
        )
    for index, one in enumerate(arguments):
        what = "a tuple: one argument is (x,)"
        checks.kind(f"arguments[{index}]", one, tuple | list, what)


_GONE = (errors.ActorDied, errors.ActorUnavailable)  # another member may do better


class _Member:
    """One actor of the group."""

    def __init__(self, method: RemoteMethod) -> None:
        self.method = method
        self._news: Monitor | None = None  # since it may have died
        self._runs = True

    @property
    def alive(self) -> bool:
        return self.method._handle._where()[1].cause is None

    def usable(self) -> bool:
        """Whether it runs, as far as this process knows."""
        if not self.alive:
            return False
        while self._news is not None and self._news._events:
            self._runs = isinstance(self._news._next(), Started | Restarted)
        return self._runs

    def may_have_died(self) -> None:
        """It gets no more until it is known to run. The first news of it is old: of
        one that has not died, that it was started."""
        if self._news is None and self.alive:
            self._news, self._runs = Monitor(self.method._handle), False

    def close(self) -> None:
        if self._news is not None:
            self._news.close()
            self._news = None


class _Item:
    """One item, and its progress. ``before``: whether an earlier attempt reached its
    method, as `delivered` of errors."""

    __slots__ = ("value", "ref", "member", "retries", "tried", "before", "settled")

    def __init__(self, value: Any, retries: int) -> None:
        self.value = value
        self.ref: Ref[Any] | None = None
        self.member: _Member | None = None
        self.retries = retries
        self.tried: list[_Member] = []
        self.before: bool | None = False
        self.settled = False

    @property
    def under_way(self) -> bool:
        return self.ref is not None and not self.settled

    def send_again(self, delivered: bool | None, retries: int) -> None:
        """After an attempt was lost; with so many left."""
        before = either(self.before, delivered)
        self.ref, self.before, self.retries = None, before, retries


class Map(Iterator[R_co], AsyncIterator[R_co], Generic[R_co]):
    """Iterate over it, plainly or with ``async for``, once; see `Group.map`.

    The first items are sent at once. One thread at a time may iterate. Closing it,
    dropping it and the first error all cancel what is under way.
    """

    def __init__(
        self,
        methods: Sequence[RemoteMethod],
        items: Iterable[Any],
        *,
        ordered: bool = True,
        in_flight: int = 2,
        retries: int = 0,
    ) -> None:
        """Raises TypeError, ValueError: an argument makes no sense."""
        self._taken: list[_Item] = []  # in their order; a handful
        checks.kind("items", items, Iterable, "an iterable")
        checks.flag("ordered", ordered)
        checks.count("in_flight", in_flight, "a number of items per member", least=1)
        checks.count("retries", retries, "a number of further attempts")
        if not methods:
            raise ValueError("this group has no members: map needs at least one")
        self._runtime = current_runtime()
        self._label = f"a result of {methods[0]}"
        self._members = [_Member(method) for method in methods]
        self._items = iter(items)
        self._drawn: deque[Any] = deque()  # from them, and not taken yet; one at most
        self._ordered = ordered
        self._in_flight = in_flight
        self._retries = retries
        self._failure: BaseException | None = None  # of an item, or their own iterator
        self._left: list[Ref[Any]] = []  # under way, and not wanted any more
        self._fill()

    # -- sending -----------------------------------------------------------

    def _fill(self, due: int = 0) -> None:
        """Take items, and send them; `due` of those taken are about to leave."""
        while len(self._taken) - due < len(self._members) * self._in_flight:
            try:
                if not self._drawn:
                    self._drawn.extend(islice(self._items, 1))
            except Exception as error:
                if was_interrupted(error):
                    raise
                self._failure = error  # comes after the results before it
            if not self._drawn:
                self._items = iter(())
                break
            item = _Item(self._drawn[0], self._retries)
            # No call comes between these, so no signal handler does.
            self._taken += [item]
            del self._drawn[0]
            self._send()  # at once: the next item may come in the same buffer
        self._send()

    def _send(self) -> None:
        if all(item.ref is not None for item in self._taken):
            return
        loads = self._loads()
        for item in self._taken:
            if item.ref is None:
                member = self._free_member(item, loads)
                if member is None:
                    break
                self._start(item, member)
                loads[member] += 1
        self._runtime.flush()

    def _loads(self) -> Counter[_Member]:
        """The number of items at each member; counted anew, so that it is never
        wrong."""
        return Counter(
            item.member for item in self._taken if item.member and item.under_way
        )

    def _free_member(self, item: _Item, loads: Counter[_Member]) -> _Member | None:
        members = [member for member in self._members if member.usable()]
        members = members or [member for member in self._members if member.alive]
        if not members:  # all are dead: the call to one gives the reason
            return item.member or self._members[0]
        free = [member for member in members if loads[member] < self._in_flight]
        return min(free, key=lambda m: (m in item.tried, loads[m]), default=None)

    def _start(self, item: _Item, member: _Member) -> None:
        item.member = member
        item.tried.append(member)
        try:
            item.ref = member.method.remote(item.value)
            item.ref.want()
        except BaseException as error:
            ref: Ref[Any] = Ref(self._runtime, member.method)
            interrupted = was_interrupted(error)
            ref.set_error(_unknown(member.method) if interrupted else error)
            item.ref = ref  # which raises it at the item's place
            if interrupted or not isinstance(error, Exception):
                raise

    # -- results -----------------------------------------------------------

    def _settle(self) -> None:
        """Look for ended calls, and send again those that may be."""
        for item in self._taken:
            if item.under_way and item.ref is not None and item.ref.is_here():
                error = item.ref.failure()
                if not self._is_sent_again(item, error):
                    item.value, item.settled = None, True
        self._send()

    def _is_sent_again(self, item: _Item, error: BaseException | None) -> bool:
        """Whether there is another attempt, because this one was lost."""
        if item.member is None or not isinstance(error, _GONE):
            return False
        if isinstance(error, errors.ActorDied):
            item.member.may_have_died()
        others = [m for m in self._members if m.alive and m not in item.tried]
        if error.delivered is False and others:
            item.send_again(False, item.retries)
        elif item.retries > 0 and any(m.alive for m in self._members):
            item.send_again(error.delivered, item.retries - 1)
        return item.ref is None

    def _ready(self) -> _Item | None:
        """The item whose result is next, once that is there."""
        self._settle()
        some = self._taken[:1] if self._ordered else self._taken
        return next((item for item in some if item.settled), None)

    def _result(self, item: _Item) -> R_co:
        """Its value; it is taken in the last step, which nothing can interrupt."""
        assert item.ref is not None
        error = item.ref.failure()
        if error is not None:
            speak_for_all(error, item.before)
            self._drop_all(error)
            self._ended()
            raise error
        self._fill(due=1)
        value: R_co = item.ref.unwrap()
        place = self._taken.index(item) if item in self._taken else len(self._taken)
        del self._taken[place : place + 1]
        return value

    def _drop_all(self, failure: BaseException | None) -> None:
        """From here on there is only this error to come, if any."""
        left = self._refs()
        self._left += left
        self._taken, self._failure = [], failure

    def _ended(self) -> bool:
        """Whether all results were taken.

        Raises:
          BaseException: the items' iterator, or an item, raised it; once.
        """
        if self._taken:
            return False
        self._stop()
        error, self._failure = self._failure, None
        if error is not None:
            raise error
        return True

    def _refs(self) -> list[Ref[Any]]:
        return [item.ref for item in self._taken if item.ref and item.under_way]

    # -- iterating ---------------------------------------------------------

    def __next__(self) -> R_co:
        """The next result.

        Raises:
          StopIteration: there are no more.
          BaseException: the call of this item failed, and `close` was called.
          RuntimeError: on a running event loop; use ``async for`` there.
        """
        if self._ended():
            raise StopIteration
        while (item := self._ready()) is None:
            refuse_to_block(self._label, "`async for`")
            wait(self._refs(), fetch=True)
        return self._result(item)

    async def __anext__(self) -> R_co:
        if self._ended():
            raise StopAsyncIteration
        while (item := self._ready()) is None:
            refs = self._refs()
            awaited = [one for ref in refs for one in ref.missing()]
            await news_of(self._runtime, awaited, Wait(refs, 1))
        return self._result(item)

    # -- the end -----------------------------------------------------------

    def close(self) -> None:
        """Take no more items, and cancel what is under way."""
        self._drop_all(None)
        self._stop()

    def _stop(self) -> None:
        self._items = iter(())
        self._drawn.clear()
        for ref in self._left:
            ref.cancel()
        self._left = []
        for member in self._members:
            member.close()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def __enter__(self) -> Map[R_co]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        for ref in self._refs():
            link = ref.link
            if link is not None and not ref.state and not self._runtime.closed:
                number = ref.call_id
                self._runtime.sender.post_later(
                    link.process_id, envelope.CANCEL, number
                )

    def __repr__(self) -> str:
        return f"<Map of {self._members[0].method} over {len(self._members)} members>"


def _unknown(method: RemoteMethod) -> errors.ActorUnavailable:
    return errors.ActorUnavailable(
        f"a signal handler raised while a call of {method} was sent; it may have run",
        delivered=None,
    )
