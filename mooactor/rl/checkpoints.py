# SPDX-License-Identifier: MIT
"""The last three checkpoints of a run: checkpoint.pt, checkpoint.1.pt, checkpoint.2.pt.

The newest is checkpoint.pt, and there is one at every moment from the first on.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHECKPOINT = "checkpoint.pt"
State = dict[str, Any]  # tensors and plain values, by name
OLDER = ("checkpoint.1.pt", "checkpoint.2.pt")


def save_checkpoint(directory: Path, state: Mapping[str, Any]) -> None:
    """Make ``state``, tensors and plain values, the newest checkpoint.

    The former two are kept as checkpoint.1.pt and checkpoint.2.pt. A crash at any
    moment leaves a checkpoint.pt that loads, the former one or the new one. The new
    file is read once before it takes its place.

    Raises:
      ValueError: a floating-point tensor in ``state`` holds a NaN or an infinity, or
        ``state`` holds more than tensors and plain values. The former ones are kept.
    """
    _check_finite(state, "")

    def write(partial: Path) -> None:
        _write(state, partial)
        _shift(directory)

    replace_file(directory / CHECKPOINT, write)


def load_checkpoint(directory: Path) -> State:
    """Read the newest checkpoint of `save_checkpoint`; tensors come to the CPU.

    Only tensors and plain values are unpickled, so that no file can run code.

    Raises:
      FileNotFoundError: there is none.
      ValueError: checkpoint.pt was cut short, or is no checkpoint. Either message names
        the newest of the older checkpoints that loads.
    """
    path = directory / CHECKPOINT
    try:
        return _read(path)
    except FileNotFoundError:
        text = f"no checkpoint in {directory}: nothing to resume"
        raise FileNotFoundError(text + _way_out(directory)) from None
    except OSError:
        raise  # it names the file and what is wrong with it
    except Exception as error:
        text = f"{path} was cut short or is no checkpoint ({type(error).__name__})"
        raise ValueError(text + _way_out(directory)) from error


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Let ``write`` fill a file beside ``path``, which then takes its place at once."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _read(path: Path) -> State:
    state = torch.load(path, weights_only=True, map_location="cpu")
    if not isinstance(state, dict):
        raise TypeError(f"{path} holds no dict")
    return state


def _way_out(directory: Path) -> str:
    for name in OLDER:
        try:
            _read(directory / name)
        except Exception:
            continue
        return f"; {directory / name} loads: copy it to {CHECKPOINT} to go on from it"
    return ""


def _check_finite(value: Any, where: str) -> None:
    """Raise `ValueError` that names the first tensor that is not finite."""
    if isinstance(value, Tensor):
        inexact = value.is_floating_point() or value.is_complex()
        if inexact and not torch.isfinite(value).all():
            raise ValueError(
                f"{where} holds a NaN or an infinity: nothing was saved, and the "
                "former checkpoints are kept to go on from"
            )
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            _check_finite(entry, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            _check_finite(entry, f"{where}.{index}")


def _write(state: Mapping[str, Any], path: Path) -> None:
    """Write ``state``, wait until it is on disk, and check that it can be read."""
    try:
        torch.save(dict(state), path)
        with path.open("rb") as file:  # a rename may be on disk before the contents
            os.fsync(file.fileno())
        _read(path)
    except (pickle.PickleError, AttributeError, TypeError) as error:
        raise ValueError(
            "the checkpoint holds more than tensors and plain values, so it could not "
            "be loaded again: turn numpy's numbers into int and float, for example"
        ) from error


def _shift(directory: Path) -> None:
    """Make room: checkpoint.pt stays where it is and is checkpoint.1.pt as well."""
    paths = [directory / name for name in (CHECKPOINT, *OLDER)]
    if not paths[0].exists():
        return
    if paths[1].exists() and paths[0].samefile(paths[1]):
        return  # a crash came between this and the new checkpoint.pt
    for older, newer in zip(paths[:1:-1], paths[-2:0:-1], strict=True):
        if newer.exists():
            os.replace(newer, older)
    try:
        os.link(paths[0], paths[1])
    except OSError:  # a file system without links
        replace_file(paths[1], lambda partial: shutil.copy2(paths[0], partial))
