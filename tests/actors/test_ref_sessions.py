# SPDX-License-Identifier: MIT
"""Refs that leave their messages, and those that outlive their session."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import mooactor as moo
from tests.actors.keeper import Keeper, number_in, value
from tests.process import programs


def test_a_ref_pickled_by_hand_can_be_read_several_times(no_session: None) -> None:
    with moo.init():
        keeper = moo.spawn(Keeper)
        pickled = pickle.dumps(keeper.make.remote(12))
        for _ in range(3):
            keeper.keep(0, pickle.loads(pickled))
            assert number_in(pickle.loads(pickled).get()) == 12
            keeper.drop(0)
        assert number_in(pickle.loads(pickled).get()) == 12


def test_a_ref_of_an_ended_session_says_so(no_session: None) -> None:
    with moo.init():
        ref = moo.put(value(1))
        pickled = pickle.dumps(ref)
    with pytest.raises(moo.ActorUnavailable, match="session"):
        pickle.dumps(ref)
    with moo.init():
        with pytest.raises(moo.ActorUnavailable, match="session"):
            pickle.loads(pickled).get(timeout=20)
        keeper = moo.spawn(Keeper)
        with pytest.raises(moo.ActorUnavailable, match="session"):
            keeper.ignore([ref])
        with pytest.raises(moo.ActorUnavailable, match="session"):
            moo.put([ref])


def test_a_ref_of_an_ended_session_is_done_where_no_session_runs(
    no_session: None,
) -> None:
    with moo.init(logs=False):
        keeper = moo.spawn(Keeper)
        (borrowed,) = keeper.put(1)
    assert borrowed.done()
    assert moo.wait([borrowed], timeout=30) == ([borrowed], [])


def test_a_handle_kept_on_disk_is_of_no_use_to_another_program(
    tmp_path: Path, no_session: None
) -> None:
    script = """
        import pickle, sys
        import mooactor as moo
        sys.path.append(sys.argv[1])
        from tests.actors.counter import Counter
        with moo.init():
            counter = moo.spawn(Counter)
            counter.add()
            with open("kept", "wb") as file:
                pickle.dump(counter, file)
            print("kept", flush=True)
            input()
            print(counter.add())
    """
    root = str(Path(__file__).parents[2])
    other = programs.start(programs.write(tmp_path / "keep.py", script), root)
    assert other.stdout is not None
    assert other.stdout.readline() == "kept\n"
    with moo.init(logs=False):
        ref = pickle.loads((tmp_path / "kept").read_bytes()).add.remote()
        assert ref.state and "another program" in str(ref.exception())
    out, err = other.communicate("\n", timeout=40)  # whose session goes on
    assert out == "2\n", err
