# SPDX-License-Identifier: MIT
"""`Run`: a run's directory and checkpoints, the checks before it goes on, its end."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from impala.runlog import holds_run
from impala.settings import SettingsError, Within, flag
from mooactor.rl import State, load_checkpoint, save_checkpoint

LOCK = ".lock"


@dataclass(frozen=True)
class RunSettings:
    """Where a run is kept, and whether it goes on."""

    run_dir: Path | None = None
    """Where metrics, curve, checkpoint and recording go. Default: runs/ENV-TIME, with
    -2, -3 and so on behind it if another program has taken that name."""
    resume: bool = False
    """Go on from the newest checkpoint in --run-dir. With --deterministic the games are
    played again up to where they were, and the metrics are those of one whole run."""
    checkpoint_every_s: Annotated[float, Within(0)] = 60.0
    """Seconds between checkpoints, of which the last three are kept. The end, and
    Ctrl-C, always save one."""


class Run:
    """A new run, or with ``--resume`` one that goes on from its newest checkpoint.

    A checkpoint holds the program's state, with ``steps`` in it, and beside that its
    ``format``, the ``settings`` and the number of resumes (``resumes``).

    The directory is made, and locked until `close` or the end of the program: no other
    can use it meanwhile. Only one process of a program makes a run.

    Args:
      settings: the directory, and the options.
      title: a new run's directory is runs/TITLE-TIME, unless ``settings`` say where.
      values: all settings of the program by name, plain values; see `flatten`.
      fixed: names of those that may not change in a run that goes on.
      free: names of those whose change is not worth mentioning.
      format_number: of the checkpoints that the program can go on from.

    Attributes:
      directory: the run's directory.
      saved: the checkpoint to go on from; None for a new run.
      resumes: how often the run was resumed before and now.
      changed: a sentence for each setting that has changed, and may.

    Raises:
      SettingsError: the directory holds another run or is in use by another program,
        there is nothing to resume, the checkpoint cannot be read, or a setting has
        changed that is fixed.
    """

    def __init__(
        self,
        settings: RunSettings,
        title: str,
        values: Mapping[str, Any],
        *,
        fixed: Collection[str] = (),
        free: Collection[str] = (),
        format_number: int = 1,
    ) -> None:
        self._settings = settings
        self._values = dict(values)
        self._format = format_number
        self.directory = _make_directory(settings, title)
        self.saved: State | None = None
        self.resumes = 0
        self.changed: list[str] = []
        self._lock = DirectoryLock(self.directory)
        try:
            if settings.resume:
                self.saved = self._load()
                self.resumes = self.saved["resumes"] + 1
                self.changed = self._compare(self.saved["settings"], fixed, free)
            elif holds_run(self.directory):
                raise SettingsError(
                    f"{self.directory} holds a run already: go on with it by --resume, "
                    "or choose another --run-dir"
                )
        except BaseException:
            self.close()
            raise
        self._saved_at = time.monotonic()

    def close(self) -> None:
        """Let other programs have the directory. Safe to call twice."""
        self._lock.close()

    def has_made(self, steps: int) -> bool:
        """Whether the checkpoint to go on from has so many ``steps`` already."""
        return self.saved is not None and int(self.saved["steps"]) >= steps

    @property
    def save_is_due(self) -> bool:
        """Whether ``--checkpoint-every-s`` have passed since the last `save`."""
        elapsed_s = time.monotonic() - self._saved_at
        return elapsed_s > self._settings.checkpoint_every_s

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint with ``state``; see `save_checkpoint`."""
        own = {
            "format": self._format,
            "settings": self._values,
            "resumes": self.resumes,
        }
        save_checkpoint(self.directory, {**own, **state})
        self._saved_at = time.monotonic()

    def _load(self) -> State:
        try:
            saved = load_checkpoint(self.directory)
        except (FileNotFoundError, ValueError) as error:
            raise SettingsError(f"--resume: {error}") from error
        if saved.get("format") != self._format:
            raise SettingsError(
                f"--resume: {self.directory} is of another version of this program"
            )
        return saved

    def _compare(
        self, before: Mapping[str, Any], fixed: Collection[str], free: Collection[str]
    ) -> list[str]:
        lines = []
        for name, value in self._values.items():
            if name in free or value == before[name]:
                continue
            if name in fixed:
                raise SettingsError(
                    f"--resume: {self.directory} was trained with {flag(name)} "
                    f"{before[name]}, not {value}; give the same, or start a new run"
                )
            lines.append(f"changed: {flag(name)} was {before[name]}, and is {value}")
        return lines


def _make_directory(settings: RunSettings, title: str) -> Path:
    """The directory that the settings name, or a new one."""
    directory = settings.run_dir
    if directory is None:
        if settings.resume:
            raise SettingsError("--resume needs --run-dir: the run to go on with")
        return _make_new_directory(title)
    if not settings.resume:
        directory.mkdir(parents=True, exist_ok=True)
    elif not directory.is_dir():
        raise SettingsError(f"--resume: no checkpoint in {directory}: it is not there")
    return directory


def _make_new_directory(title: str) -> Path:
    """One that nobody else has made: programs may begin in the same second."""
    name = f"{title}-{time.strftime('%Y%m%d-%H%M%S')}"
    name = name.replace(":", "-").replace("/", "-")
    Path("runs").mkdir(exist_ok=True)
    for number in itertools.count(1):
        directory = Path("runs", name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            directory.mkdir()
            return directory
    raise AssertionError("unreachable")


class DirectoryLock:
    """The lock of a directory that exists, held until `close` or the program's end.

    It is of the open file ``.lock``, so it is free again if the program is killed, and
    the file stays. No program that this one starts gets the descriptor, nor do actors:
    they are forks of a process that is not a fork of this one.

    Raises:
      SettingsError: another program holds it, or this one does already.
    """

    def __init__(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(directory / LOCK, flags, 0o666)
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise SettingsError(
                f"{directory} is in use by another program: wait for its end, or "
                "choose another --run-dir"
            ) from None
        except OSError:
            pass  # a network file system without locks: go on without

    def close(self) -> None:
        """Let others have the directory. Safe to call twice."""
        self._close()


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event that is yielded; a second one interrupts as usual.

    Main thread only, as signal handlers are.
    """
    interrupted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        print("\nstopping: the checkpoint is being saved", file=sys.stderr, flush=True)
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
