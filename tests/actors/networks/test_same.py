# SPDX-License-Identifier: MIT
"""What holds for actors in shared memory holds over every transport: the same tests."""

from __future__ import annotations

from tests.actors import test_groups, test_refs, test_streams, test_tensors

# They look at memory that is really shared, or start sessions of their own.
_ELSEWHERE = {
    "test_memory_held_by_a_killed_actor_is_free_again",
    "test_out_of_memory_names_sizes_and_holders_and_all_else_goes_on",
}

for _module in (test_tensors, test_streams, test_refs, test_groups):
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and _name not in _ELSEWHERE:
            globals()[_name] = _test
