# SPDX-License-Identifier: MIT
"""The number of threads of an actor's computations: that of its CPUs, at least one.

Libraries that compute in parallel (OpenMP, BLAS, torch) take the number of their
threads from the environment when they are loaded, or else take every core. An actor is
forked from a zygote that has loaded some of them.

Invariants:

* In the zygote each such library has one thread, so it starts none. A fork then copies
  no lock that a thread holds, and no pool whose threads are gone.
* In an actor, a library that is loaded later finds its number in the environment; one
  that was loaded before is told the number that it would find there.
* The number of a library comes from ``moo.on(env=…)``, else from the environment of the
  program, else from the actor's CPUs.
* A variable of ``env=`` is never without effect: if a library has read it already, and
  has no function to change it, it is refused.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from mooactor import errors
from mooactor.process.checks import UNSET

COMMON = "OMP_NUM_THREADS"  # all of them heed it
_MOST = (1 << 31) - 1  # their functions take an int


class Library(NamedTuple):
    """A library of threads, under all names that it goes by."""

    files: tuple[str, ...]  # how the names of its files begin
    variables: tuple[str, ...]  # those that have its number; the first that is set does
    functions: tuple[tuple[str, str], ...]  # (how many, use so many); any pair will do
    families: tuple[str, ...]  # how the variables begin that it reads when loaded


def _openblas(prefix: str, suffix: str) -> tuple[str, str]:
    name = f"{prefix}openblas_%s_num_threads{suffix}"
    return name % "get", name % "set"


# As in threadpoolctl. MKL reads its variables at its first use, which is not in the
# zygote.
LIBRARIES = (
    Library(
        ("libgomp", "libiomp", "libomp"),
        (COMMON,),
        (("omp_get_max_threads", "omp_set_num_threads"),),
        ("OMP_", "GOMP_", "KMP_"),
    ),
    Library(
        ("libopenblas", "libscipy_openblas"),
        ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", COMMON),
        tuple(_openblas(p, s) for p in ("", "scipy_") for s in ("", "64_", "_64")),
        ("OPENBLAS_", "GOTO_"),
    ),
    Library(
        ("libmkl_rt",),
        ("MKL_NUM_THREADS", COMMON),
        (("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),),
        (),
    ),
    Library(
        ("libblis",),
        ("BLIS_NUM_THREADS", COMMON),
        (("bli_thread_get_num_threads", "bli_thread_set_num_threads"),),
        ("BLIS_",),
    ),
)
_OF_TORCH = ("MKL_NUM_THREADS", COMMON)
VARIABLES = frozenset(name for library in LIBRARIES for name in library.variables)


class Loaded(NamedTuple):
    """A library that the zygote has loaded."""

    library: Library
    file: str
    count: Any
    use: Any


_loaded: dict[str, Loaded] = {}  # by path
_inherited: dict[str, str] = {}  # the program's variables for threads


def number_in(text: str | None) -> int | None:
    """The number of threads that a variable's value stands for, None if it is none.
    Of a list, which gives one for each level of nesting, the first."""
    first = (text or "").partition(",")[0].strip()
    if not (first.isascii() and first.isdecimal() and len(first) < 20):
        return None
    number = int(first)
    return number if 1 <= number <= _MOST else None


def check_numbers(variables: Mapping[str, str]) -> None:
    """Raises ValueError: one that has a number of threads makes no sense. An empty one
    counts as unset."""
    for name in VARIABLES & variables.keys():
        if variables[name] and number_in(variables[name]) is None:
            raise ValueError(
                f"env[{name!r}]={variables[name]!r:.60} must be a number of threads, "
                "at least 1"
            )


# -- in the zygote ---------------------------------------------------------


def hold() -> None:
    """Have libraries that are loaded from now on use one thread: before any is."""
    for name in VARIABLES & os.environ.keys():
        _inherited[name] = os.environ[name]
    os.environ.update({**dict.fromkeys(_inherited, "1"), COMMON: "1"})


def look() -> None:
    """Find the libraries that have been loaded, for all processes forked later."""
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in maps if "/" in line}
    for path in paths - _loaded.keys():
        for library in LIBRARIES:
            if os.path.basename(path).startswith(library.files):
                _note(path, library)


def _note(path: str, library: Library) -> None:
    try:
        shared = ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return  # it was loaded from a file that is another one now
    for count, use in library.functions:
        if hasattr(shared, count) and hasattr(shared, use):
            functions = getattr(shared, count), getattr(shared, use)
            _loaded[path] = Loaded(library, os.path.basename(path), *functions)
            return


# -- in an actor -----------------------------------------------------------


def set_variables(given: Mapping[str, str], cpus: int) -> None:
    """Make the environment that of the program, with the actor's own variables, and the
    number of threads for `cpus`. Starts nothing.

    Raises:
      PlacementError: a library has read a given variable, and cannot change it.
    """
    unset = [name.removeprefix(UNSET) for name in given if name.startswith(UNSET)]
    given = {k: v for k, v in given.items() if not k.startswith(UNSET)}
    _refuse_late({**dict.fromkeys(unset, ""), **given})
    variables = {**_inherited, **given}
    for name in unset:
        variables.pop(name, None)
        os.environ.pop(name, None)
    if number_in(variables.get(COMMON)) is None:
        variables[COMMON] = str(cpus)
    os.environ.update(variables)


def _refuse_late(given: Mapping[str, str]) -> None:
    for one in _loaded.values():
        for name, value in given.items():
            if (
                name.startswith(one.library.families)
                and name not in VARIABLES
                and value != os.environ.get(name, "")
            ):
                raise errors.PlacementError(
                    f"env[{name!r}] comes too late for this actor: {one.file}, which "
                    "all actors share, read it when it was loaded; set it in the "
                    "environment of the program that calls moo.init()"
                )


def tell_libraries() -> None:
    """Have the libraries that are loaded use the numbers of `set_variables`. They may
    start threads."""
    # Torch returns OpenMP's number of this thread, and keeps a number for all threads.
    # So it is asked before OpenMP is told, and told after that: it tells OpenMP, and
    # the MKL inside of it.
    torch, number = sys.modules.get("torch"), _first_of(_OF_TORCH)
    told = torch is None or torch.get_num_threads() == number
    for one in _loaded.values():
        _tell(one)
    if torch is not None and not (told and torch.get_num_threads() == number):
        torch.set_num_threads(number)


def tell_of_thread() -> None:
    """In a later thread of an actor: OpenMP has a number for each thread, and the
    zygote's to begin with."""
    for one in _loaded.values():
        if one.library.variables == (COMMON,):
            _tell(one)


def _tell(one: Loaded) -> None:
    number = _first_of(one.library.variables)
    if one.count() != number:
        one.use(number)


def _first_of(variables: tuple[str, ...]) -> int:
    numbers = (number_in(os.environ.get(name)) for name in variables)
    # An actor may have taken the variable away since.
    return next((number for number in numbers if number is not None), 1)
