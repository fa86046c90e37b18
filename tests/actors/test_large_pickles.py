# SPDX-License-Identifier: MIT
"""A value that does not fit into a message is refused, and nobody dies of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from mooactor.control import codec

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize(
    "encode",
    [
        codec.encode,
        lambda value: codec.encode_args((value,)),
        lambda value: codec.encode({"inside": value}),
        codec.encode_in_band,
    ],
    ids=["a value", "arguments", "inside", "in band"],
)
def test_every_way_to_a_pickle_has_the_limit(
    monkeypatch: Any, encode: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(codec, "MAX_BYTES", 1000)
    encode(b"x" * 900)
    with pytest.raises(ValueError, match=r"1\d\d\d bytes.*numpy"):
        encode(b"x" * 1001)


def test_the_arrays_of_one_message_are_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(codec, "MAX_BUFFERS", 3)
    arrays = [np.zeros(1 << 17, np.uint8) for _ in range(4)]
    codec.encode(arrays[:3])
    with pytest.raises(ValueError, match="4 large arrays.*stack them"):
        codec.encode(arrays)


@moo.actor
class Echo:
    def take(self, data: bytes) -> int:
        return len(data)


def test_a_large_argument_is_named(spawn: Any, monkeypatch: Any) -> None:
    echo = spawn(Echo)
    monkeypatch.setattr(codec, "MAX_BYTES", 1000)
    with pytest.raises(TypeError, match=r"argument 0 \(a bytes\).*numpy"):
        echo.take(b"x" * 2000)
    with pytest.raises(TypeError, match=r"numpy"):
        moo.put(b"x" * 2000)
    assert echo.take(b"x" * 500) == 500
