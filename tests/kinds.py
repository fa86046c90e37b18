# SPDX-License-Identifier: MIT
"""One array or tensor of each kind that the table in docs/allreduce.md names.

A value has shape ``[2, …]``, so that two members can scatter it, and no two equal
elements, so that no wrong order of bytes goes unnoticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_PAGE = Path(__file__).parents[1] / "docs" / "allreduce.md"


def table() -> dict[str, tuple[str, str]]:
    """By kind: what the page says of collectives, and of calls."""
    _, _, rest = _PAGE.read_text().partition("| kind | in collectives |")
    rows = rest.split("\n\n")[0].splitlines()[2:]
    cells = [[c.strip() for c in row.strip("|").split("|")] for row in rows]
    return {kind: (together, called) for kind, together, called in cells}


def _numbers(dtype: Any) -> Any:
    return (np.arange(10).reshape(2, 5) + 1.5).astype(dtype)


def _record(order: str) -> Any:
    array = np.empty((2, 3), [("a", order + "i4"), ("b", order + "f8"), ("c", "S3")])
    array["a"], array["b"], array["c"] = 7, [[1, 2, 3], [4, 5, 6]], b"xyz"
    return array


def _torch() -> Any:
    import torch

    return torch


def _complex() -> Any:
    torch = _torch()
    return torch.complex(torch.arange(10.0), torch.arange(10.0) + 1).view(2, 5)


def _quantized() -> Any:
    torch = _torch()
    return torch.quantize_per_tensor(torch.arange(10.0).view(2, 5), 0.5, 3, torch.qint8)


def _nested() -> Any:  # jagged ones are tensors of other tensors, slow to import
    torch = _torch()
    return torch.nested.nested_tensor([torch.arange(3.0), torch.arange(2.0)])


def _masked_tensor() -> Any:
    torch = _torch()
    data = torch.arange(10.0).view(2, 5)
    return torch.masked.masked_tensor(data, data > 3)


def _unaligned() -> Any:
    raw = bytearray(1) + _numbers("f4").tobytes()
    return np.frombuffer(raw, "f4", offset=1).reshape(2, 5)


# By the row of the table: one or more of that kind.
MAKERS: dict[str, list[Callable[[], Any]]] = {
    "contiguous numbers": [
        lambda: _numbers("f4"),
        lambda: _numbers("i8"),
        lambda: _torch().arange(10.0).view(2, 5),
        lambda: _torch().arange(10.0).view(2, 5).to(_torch().bfloat16),
    ],
    "strided, reversed, permuted or unaligned": [
        lambda: np.repeat(_numbers("f4"), 2, axis=1)[:, ::2],
        lambda: _numbers("f8")[::-1, ::-1],
        lambda: np.asfortranarray(_numbers("f8")),
        lambda: _torch().arange(20.0).view(5, 4).t()[::2],
        _unaligned,
    ],
    "byte-swapped arrays": [lambda: _numbers(">f4"), lambda: _numbers(">i8")],
    "booleans, complex numbers, dates, strings": [
        lambda: _numbers("f4") > 4,
        lambda: _numbers("c16"),
        lambda: _numbers("i8").astype(">M8[s]"),
        lambda: _numbers("f4").astype("<U5"),
        lambda: _numbers("f4").astype(">U5"),
        _complex,
    ],
    "records": [lambda: _record("<"), lambda: _record(">")],
    "dtypes with metadata": [
        lambda: _numbers(np.dtype("f8", metadata={"unit": "m"})),
    ],
    "arrays of `np.broadcast_to`": [
        lambda: np.broadcast_to(np.float32([[1], [2]]), (2, 5)),
    ],
    "read-only arrays": [lambda: np.frombuffer(_numbers("f4").tobytes(), "f4")],
    "expanded tensors": [lambda: _torch().tensor([[1.0], [2.0]]).expand(2, 5)],
    "tensors with a conjugate or negative bit": [
        lambda: _complex().conj(),
        lambda: _complex().conj().imag,
        lambda: _complex().conj()[:, ::2],
    ],
    "zero tensors of autograd": [lambda: _torch()._efficientzerotensor((2, 5))],
    "quantized tensors": [_quantized],
    "sparse tensors": [
        lambda: _torch().eye(2).to_sparse(),
        lambda: _torch().eye(2).to_sparse_csr(),
    ],
    "nested tensors": [_nested],
    "tensors on the meta device": [lambda: _torch().empty(2, 5, device="meta")],
    "tensors of other tensors": [_masked_tensor],
    "masked arrays": [lambda: np.ma.masked_less(_numbers("f4"), 4)],
    "arrays of Python objects": [lambda: np.array([[1, "a"], [None, 2]], object)],
}


def is_torch(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, _torch().Tensor)


def values(value: Any) -> Any:
    """The values of an array or tensor as nested lists, as its library reads them."""
    if not is_torch(value):
        return value.tolist()
    if value.is_nested:
        return [part.tolist() for part in value.unbind()]
    if value.is_meta:
        return tuple(value.shape)
    if type(value).__name__ == "MaskedTensor":
        return value.get_data().tolist(), value.get_mask().tolist()
    if value.is_quantized:
        return value.int_repr().tolist(), value.q_scale(), value.q_zero_point()
    if value.layout is not _torch().strided:
        value = value.to_dense()
    if value._is_zerotensor():
        value = value.clone()
    return value.tolist()
