# SPDX-License-Identifier: MIT
"""Every dtype and layout, below and above the threshold, through a pickle."""

from __future__ import annotations

import collections
import io
import itertools
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from mooactor.tensors import THRESHOLD, codec

torch = pytest.importorskip("torch")


class Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return codec.reduce(obj)


def journey(obj: Any) -> tuple[Any, list[int]]:
    """The arriving value, and the sizes of the buffers that went beside the pickle."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    Pickler(stream, 5, buffer_callback=buffers.append).dump(obj)
    raw = [bytearray(buffer.raw()) for buffer in buffers]
    return pickle.loads(stream.getvalue(), buffers=raw), [len(r) for r in raw]


DTYPES = [
    *("?", "i1", "u1", "<i2", ">i2", "<u4", "<i8", "<f2", "<f4", ">f8", "<c8", ">c16"),
    *("S5", "<U3", ">U3", "<M8[ns]", "<m8[D]", "V7"),
    *([np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", "S3")])]),
    np.dtype("f8", metadata={"unit": "m"}),
    np.dtype(np.longdouble),
]


def values(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    # Small bytes only: every pattern of them is a value of every dtype.
    raw = np.random.default_rng(3).integers(0, 2, size, np.uint8)
    array = np.ndarray(shape, dtype, raw.tobytes()) if size else np.empty(shape, dtype)
    return array


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    assert type(a) is type(b)
    assert a.dtype == b.dtype
    assert a.dtype.byteorder == b.dtype.byteorder
    assert a.dtype.metadata == b.dtype.metadata
    assert a.shape == b.shape
    assert a.tobytes() == b.tobytes()


SHAPES = [(), (0,), (0, 5), (3,), (2, 3, 4), (100_000,), (30, 40, 50)]


def test_numpy_dtypes_survive():
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        array = values(dtype, shape)
        received, beside = journey(array)
        same(received, array)
        assert received.flags.writeable
        assert beside == ([array.nbytes] if array.nbytes >= THRESHOLD else [])


LAYOUTS = {
    "fortran": lambda a: np.asfortranarray(a),
    "permuted": lambda a: a.transpose(1, 2, 0),
    "sliced": lambda a: a[::2, 1:, ::3],
    "reversed": lambda a: a[::-1, :, ::-1],
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "with an axis of one": lambda a: a[:, None].transpose(3, 0, 1, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_layouts_survive(layout):
    small, large = (4, 3, 6), (40, 30, 60)
    for dtype, shape in itertools.product(["<f4", "<M8[s]", "<U3"], [small, large]):
        array = LAYOUTS[layout](values(dtype, shape))
        received, _ = journey(array)
        same(received, array)
        assert received.flags.writeable
        if layout in ("fortran", "permuted"):
            assert received.strides == array.strides


def test_repeated_elements_are_sent_once():
    array = np.broadcast_to(np.arange(3.0)[:, None], (3, 10**5))
    received, beside = journey(array)
    same(received, array)
    assert beside == []
    received += 1  # writable, each element by itself
    assert received[2, 10**4] == 3
    tensor = torch.arange(3.0)[:, None].expand(3, 10**12)
    received, _ = journey(tensor)
    assert received.shape == tensor.shape
    assert received.stride() == tensor.stride()
    assert received[2, 10**11] == 2


def test_arrays_of_objects_and_subclasses_are_left_to_numpy():
    masked, _ = journey(np.ma.masked_less(np.arange(100_000), 10))
    assert isinstance(masked, np.ma.MaskedArray)
    assert masked.mask.sum() == 10
    array = np.array([1, "two", None] * 20_000, dtype=object)
    received, beside = journey(array)
    assert received.dtype == object
    assert list(received) == list(array)
    assert beside == []


def torch_dtypes() -> list[Any]:
    found = [getattr(torch, name) for name in dir(torch)]
    plain = {d for d in found if isinstance(d, torch.dtype) and "q" not in str(d)}
    return sorted(plain, key=str)


def patterned(dtype: Any, count: int) -> Any:
    raw = torch.arange(count * dtype.itemsize, dtype=torch.int64) % 2
    return raw.to(torch.uint8).view(dtype)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_torch_dtypes_survive():
    for dtype, count in itertools.product(torch_dtypes(), (0, 1, 100, 100_000)):
        tensor = patterned(dtype, count)
        received, beside = journey(tensor)
        assert received.dtype == dtype
        assert torch.equal(received.view(torch.uint8), tensor.view(torch.uint8))
        assert beside == ([tensor.nbytes] if tensor.nbytes >= THRESHOLD else [])


TORCH_LAYOUTS = {
    "zero-dimensional": lambda t: t.sum(),
    "channels last": lambda t: t.to(memory_format=torch.channels_last),
    "permuted": lambda t: t.permute(3, 1, 0, 2),
    "transposed": lambda t: t.flatten(1).T,
    "sliced": lambda t: t[:, 1:, ::2],
    "an offset": lambda t: t[1:],
    "conjugated": lambda t: t.to(torch.complex64).conj(),
    "negated lazily": lambda t: t.to(torch.complex64).conj().imag,
}


@pytest.mark.parametrize("layout", TORCH_LAYOUTS)
def test_torch_layouts_survive(layout):
    shapes, dtypes = [(3, 4, 5, 6), (6, 20, 30, 40)], [torch.float32, torch.bfloat16]
    for shape, dtype in itertools.product(shapes, dtypes):
        base = torch.arange(float(np.prod(shape))).view(shape).to(dtype)
        tensor = TORCH_LAYOUTS[layout](base)
        received, _ = journey(tensor)
        assert received.dtype == tensor.dtype
        assert torch.equal(received, tensor)
        if layout in ("channels last", "permuted", "transposed"):
            assert received.stride() == tensor.stride()
        received.zero_()  # it is writable


@pytest.mark.parametrize("count", [10, 100_000])
def test_gradients_are_wanted_where_they_were(count):
    for wanted in (False, True):
        tensor = torch.ones(count, requires_grad=wanted)
        parameter = torch.nn.Parameter(torch.ones(count), requires_grad=wanted)
        for sent in (tensor, parameter):
            received, _ = journey(sent)
            assert type(received) is type(sent)
            assert received.requires_grad is wanted
            assert received.is_leaf
    inner = torch.ones(count, requires_grad=True) * 2
    received, _ = journey(inner)
    assert received.requires_grad
    assert received.is_leaf


def test_a_module_arrives_whole():
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
    received, beside = journey(model)
    assert beside == [300 * 300 * 4]
    for name, value in model.state_dict().items():
        assert torch.equal(received.state_dict()[name], value)
    received, _ = journey(model.state_dict())
    assert isinstance(received, collections.OrderedDict)


def test_an_object_met_twice_arrives_as_one():
    tensor, array = torch.ones(50_000), np.ones(50_000)
    (a, b, c, d), beside = journey([tensor, tensor, array, array])
    assert a is b
    assert c is d
    assert len(beside) == 2


@pytest.mark.filterwarnings("ignore")  # torch's own, about itself
def test_special_tensors_are_left_to_torch():
    sparse = torch.eye(300).to_sparse()
    received, _ = journey(sparse)
    assert received.is_sparse
    assert torch.equal(received.to_dense(), torch.eye(300))
    quantised = torch.quantize_per_tensor(torch.rand(100), 0.1, 0, torch.qint8)
    received, _ = journey(quantised)
    assert received.is_quantized
    meta, _ = journey(torch.empty(3, device="meta"))
    assert meta.is_meta


def test_attributes_of_a_tensor_survive():
    tensor = torch.ones(50_000)
    tensor.name_of_mine = "weights"
    received, _ = journey(tensor)
    assert received.name_of_mine == "weights"


def test_it_works_without_buffers_beside_the_pickle():
    for obj in (values("<f4", (100_000,)), torch.ones(100_000)):
        stream = io.BytesIO()
        Pickler(stream, 5).dump(obj)
        received = pickle.loads(stream.getvalue())
        assert (received == obj).all()
        received[0] = 1


def test_nothing_is_imported_before_it_is_needed():
    program = (
        "import sys\n"
        "from mooactor.tensors import codec\n"
        "assert codec.reduce(object()) is NotImplemented\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'numpy' not in sys.modules\n"
        "import numpy\n"
        "assert codec.reduce(numpy.ones(3)) is not NotImplemented\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
