# SPDX-License-Identifier: MIT
"""Every kind of array and tensor as an argument and a result: its very value.

The table in docs/allreduce.md says what arrives; `tests/kinds.py` has one of each kind.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests import kinds
from tests.actors.counter import Counter

pytest.importorskip("torch")  # and so the zygote has it


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, about itself
def test_every_kind_comes_back_with_its_values(spawn: Any) -> None:
    echo = spawn(Counter).echo
    for kind, (_, verdict) in kinds.table().items():
        for make in kinds.MAKERS[kind]:
            sent, back = make(), echo(make())
            assert type(back) is type(sent), kind
            assert back.dtype == sent.dtype, kind
            assert kinds.values(back) == kinds.values(sent), kind
            if not kinds.is_torch(sent):
                assert back.dtype.metadata == sent.dtype.metadata
                assert back.flags.writeable, kind
            if "resolved" in verdict:
                assert not (back.is_conj() or back.is_neg() or back._is_zerotensor())
