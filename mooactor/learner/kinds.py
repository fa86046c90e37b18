# SPDX-License-Identifier: MIT
"""The kinds of arrays and tensors that collectives take, and their common names.

Collectives move and add bytes. So a kind whose bytes are not its value is converted to
one whose bytes are (other byte orders, lazy conjugates), or is refused if there is none
(a mask, a scale, several parts). docs/allreduce.md has the table.

Neither library is imported here: a program without torch has no tensors of it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def is_array(value: object) -> bool:
    """Whether `value` is a numpy array, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_torch(value: object) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_array(array: np.ndarray[Any, Any]) -> None:
    """Check that an array's bytes are its value, up to their order.

    Raises:
      TypeError: they are not.
    """
    if array.dtype.hasobject:
        raise TypeError(
            "an array of Python objects cannot be shared: pass an array of numbers"
        )
    if type(array) is not sys.modules["numpy"].ndarray and hasattr(array, "mask"):
        raise TypeError(
            "a masked array has a mask beside its data: pass array.filled(…), or data "
            "and mask as two arrays"
        )


def check_torch(tensor: Any) -> None:
    """Check that a tensor is one stretch of elements whose bytes are their value, but
    for strides and the bits that `is_resolved` looks at.

    Raises:
      TypeError: it is not.
    """
    torch = sys.modules["torch"]
    cls = type(tensor)
    if tensor.is_nested:
        raise TypeError("a nested tensor has several parts: pass tensor.unbind()")
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"a tensor of layout {tensor.layout} does not lie in one piece of "
            "memory: pass tensor.to_dense(), or its parts"
        )
    if tensor.is_quantized:
        raise TypeError(
            "a quantized tensor has a scale beside its data: pass tensor.dequantize()"
        )
    if tensor.is_meta:
        raise TypeError(
            "a tensor on the meta device has no data: pass one on a real device"
        )
    if tensor._is_zerotensor():
        raise TypeError("a zero tensor of autograd has no memory: pass tensor.clone()")
    if (
        cls not in (torch.Tensor, torch.nn.Parameter)
        and cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    ):
        raise TypeError(
            f"a {cls.__name__} keeps its data in other tensors: pass those tensors"
        )


def is_plain(tensor: Any) -> bool:
    """Whether it is a torch tensor whose values are its memory on this host, from first
    to last byte, in order. False also for kinds that `check_torch` refuses."""
    torch = sys.modules.get("torch")
    cls = type(tensor)
    return bool(
        torch is not None
        and (cls is torch.Tensor or cls is torch.nn.Parameter)
        and tensor.is_cpu
        and not tensor.is_nested
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


def is_resolved(tensor: Any) -> bool:
    """Whether a torch tensor's memory has its values, without a conjugate or negative
    bit that changes them when they are read."""
    return not (tensor.is_conj() or tensor.is_neg())


def name_of_dtype(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in native byte order, different for each layout.

    `dtype.name` alone calls every record of one size the same.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return f"{shape}{name_of_dtype(base)}"
    if dtype.fields is None:
        return str(dtype.name)
    found = (dtype.fields[name][:2] for name in dtype.names or ())
    fields = [f"{offset}:{name_of_dtype(field)}" for field, offset in found]
    return f"record{dtype.itemsize}{dtype.names}{fields}"


def name_of_torch(tensor: Any) -> str:
    """The name of a tensor's dtype: numpy's, where both have it."""
    name = _torch_names.get(tensor.dtype)
    if name is None:
        name = str(tensor.dtype).removeprefix("torch.")
        _torch_names[tensor.dtype] = name
    return name


_torch_names: dict[Any, str] = {}
