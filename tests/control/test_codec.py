# SPDX-License-Identifier: MIT
"""Classes and functions of ``__main__`` cross by value."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from mooactor.control import codec

SOURCE = """
class Shape:
    def area(self):
        def outer():
            return (lambda: 1 / 0)()
        return outer()
"""


def copy_of_class() -> Any:
    """As a program that is run as ``/home/me/train.py`` makes it."""
    names = {"__name__": "__main__"}
    exec(compile(SOURCE, "/home/me/train.py", "exec"), names)
    data, buffers = codec.encode(names["Shape"])
    assert not buffers
    return pickle.loads(data)


def test_code_keeps_the_name_of_its_file_and_its_lines() -> None:
    try:
        copy_of_class()().area()
    except ZeroDivisionError as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
    assert [(frame.filename, frame.lineno) for frame in frames] == [
        ("/home/me/train.py", 6),
        ("/home/me/train.py", 5),
        ("/home/me/train.py", 5),
    ]


def test_equal_code_has_equal_pickles() -> None:
    one, other = copy_of_class(), copy_of_class()
    assert codec.encode(one.area.__code__) == codec.encode(other.area.__code__)
