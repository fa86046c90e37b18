# SPDX-License-Identifier: MIT
"""Values to send, named by *recipes*: each process can build the same ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

SHAPE = (80, 60, 40)  # more than the threshold, also of one byte a piece


@dataclasses.dataclass
class Batch:
    """Something with arrays in it."""

    name: str
    arrays: list[Any]
    inner: Batch | None = None


def build(kind: str, *what: Any) -> Any:
    """The value of a recipe."""
    return {"random": _random, "nested": _nested}[kind](*what)


def _random(nbytes: int, seed: int) -> Any:
    """Words that are all different: what has come to the wrong place shows. Random
    numbers would take seconds for a gigabyte."""
    words = np.arange(seed << 32, (seed << 32) + nbytes // 8 + 1, dtype=np.uint64)
    words *= np.uint64(0x9E3779B97F4A7C15)  # odd, so this is one to one
    return words.view(np.uint8)[:nbytes]


def _array(library: str, dtype: str) -> Any:
    numbers = np.arange(int(np.prod(SHAPE))).reshape(SHAPE) % 97
    if library == "numpy":
        return numbers.astype(dtype)
    import torch

    return torch.from_numpy(numbers).to(getattr(torch, dtype))


def _nested(library: str) -> Any:
    big, small = _array(library, "float32"), _array(library, "int16")[0, 0]
    laid_out = big.swapaxes(0, 2)
    inner = Batch("inner", [big + 1, (small,)])
    return {
        "list": [big, 7, [small]],
        ("a", "tuple"): (big, big, "text", {"deep": (small + 1,)}),
        "laid out": laid_out,
        "dataclass": Batch("outer", [big * 2], inner),
        "nothing": None,
    }


def difference(got: Any, sent: Any, at: str = "value") -> str:
    """In what `got` is not as `sent` was; empty if in nothing."""
    if type(got) is not type(sent):
        return f"{at} is a {type(got)}, not a {type(sent)}"
    if isinstance(sent, dict):
        if list(got) != list(sent):
            return f"{at} has the keys {list(got)}"
        parts = [(got[k], sent[k], f"{at}[{k!r}]") for k in sent]
    elif isinstance(sent, (list, tuple)):
        if len(got) != len(sent):
            return f"{at} has {len(got)} items"
        parts = [(g, s, f"{at}[{i}]") for i, (g, s) in enumerate(zip(got, sent))]
    elif isinstance(sent, Batch):
        return difference(vars(got), vars(sent), at)
    else:
        return _leaf_difference(got, sent, at)
    return next(filter(None, (difference(*part) for part in parts)), "")


def _leaf_difference(got: Any, sent: Any, at: str) -> str:
    if not hasattr(sent, "dtype"):
        return "" if got == sent else f"{at} is {got!r}"
    if (got.dtype, got.shape) != (sent.dtype, sent.shape):
        return f"{at} is {got.dtype} of shape {got.shape}"
    same = _in_words(got) == _in_words(sent)
    return "" if bool(same.all()) else f"{at} has other elements"


def _in_words(array: Any) -> Any:
    """Eight elements at a time: a gigabyte of single ones takes seconds to compare."""
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
        return array
    whole = array.ndim == 1 and array.flags.c_contiguous and array.size % 8 == 0
    return array.view(np.uint64) if whole else array


def leaves(value: Any) -> list[Any]:
    """All arrays in a value."""
    if isinstance(value, Batch):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if hasattr(value, "dtype") else []
