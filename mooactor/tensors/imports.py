# SPDX-License-Identifier: MIT
"""An import: memory of another process, on its way into this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mooactor.tensors import tickets
from mooactor.tensors.extension import ffi, lib
from mooactor.tensors.failures import import_error

if TYPE_CHECKING:
    from mooactor.tensors.fetches import Fetch
    from mooactor.tensors.plane import DataPlane


class Imported:
    """One descriptor, which can be imported once; see `Import`.

    A signal handler that raises may cut `result` short at any point. What is here by
    then is kept, so the next call of it goes on. A handler that waits may call it, too,
    at any point. Dropping this gives it back.
    """

    __slots__ = (
        "_plane",
        "_descriptor",
        "_out",
        "_size",
        "_fetches",
        "_views",
        "_result",
    )

    def __init__(self, plane: DataPlane, descriptor: bytes) -> None:
        self._plane = plane
        self._descriptor = descriptor
        self._out = ffi.new("void **")
        self._size = ffi.new("size_t *")
        # Of these the first one counts.
        self._fetches: list[Fetch] = []  # if it comes from another host
        self._views: list[Iterator[Any]] = []
        self._result: list[Any] = []

    def result(self) -> Any:
        """As `DataPlane.import_`. May be called again, for the same result."""
        if not self._result:
            if not self._out[0]:
                if self._plane.is_remote(self._descriptor):
                    return self._fetched()
                self._import()
            if self._out[0]:
                self._finish()
        return self._result[0]

    def _import(self) -> None:
        descriptor = self._descriptor
        err = lib.moo_import_once(
            self._plane.pointer,
            descriptor,
            len(descriptor),
            lib.MOO_CONTACT_MS,
            self._out,
            self._size,
        )
        if err == lib.MOO_EINVAL and tickets.is_ticket(descriptor):
            self._result.extend(map(tickets.Ticket, (self._plane,), (descriptor,)))
        elif err:
            raise import_error(err)

    def _finish(self) -> None:
        """The memory gets its finalizer and its place here in one step, and once: a
        view is made when it is iterated over."""
        if not self._views:
            self._views.append(self._plane.view(self._out[0], self._size[0]))
        self._result.extend(self._views[0])
        self.__class__ = Imported

    def _fetched(self) -> Any:
        if not self._fetches:
            self._fetches.append(self._plane.fetching(self._descriptor))
        return self._fetches[0].begin().result()


class Import(Imported):
    """One that may have memory without a finalizer; made by `DataPlane.importing`.

    Once it has its result it becomes an `Imported`, which has no ``__del__``: Python
    drops a Ctrl-C that comes while it runs one, and each array has an import.
    """

    __slots__ = ()

    def __del__(self) -> None:
        try:
            out, result = self._out, self._result
        except AttributeError:
            return  # a signal handler cut `__init__` short
        if out[0] and not result:
            self._plane.drop(out[0])
