# SPDX-License-Identifier: MIT
"""Checkpoints: what comes back, what is kept, and what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mooactor.rl import load_checkpoint, save_checkpoint

NAMES = ["checkpoint.pt", "checkpoint.1.pt", "checkpoint.2.pt"]


def steps(directory: Path) -> list[int]:
    """The ``steps`` of all checkpoints, the newest first; each must load."""
    paths = [directory / name for name in NAMES if (directory / name).exists()]
    return [torch.load(path, weights_only=True)["steps"] for path in paths]


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3).get_state()
    state = {
        "steps": 7,
        "network": {"w": torch.randn(3), "b": torch.randn(2).half()},
        "recent": [1.0, float("nan")],
        "generators": (generator, None, True, "text", b"bytes"),
        2**40: torch.tensor([1, 2]),
    }
    save_checkpoint(tmp_path, state)
    loaded = load_checkpoint(tmp_path)
    assert list(loaded) == list(state)
    for name, weight in loaded["network"].items():
        assert torch.equal(weight, state["network"][name])  # type: ignore[index]
    assert loaded["steps"] == 7 and repr(loaded["recent"]) == "[1.0, nan]"
    assert torch.equal(loaded["generators"][0], generator)
    assert loaded["generators"][1:] == (None, True, "text", b"bytes")


def test_the_last_three_are_kept(tmp_path: Path) -> None:
    for count in range(6):
        save_checkpoint(tmp_path, {"steps": count})
        assert steps(tmp_path) == list(range(count, -1, -1))[:3]
        assert load_checkpoint(tmp_path) == {"steps": count}
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES)


def test_they_are_kept_without_hard_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: Any) -> None:
        raise PermissionError("this file system has no links")

    monkeypatch.setattr(os, "link", refuse)
    for count in range(5):
        save_checkpoint(tmp_path, {"steps": count})
    assert steps(tmp_path) == [4, 3, 2]
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES)


class Crash(BaseException):
    """The program ends here."""


@pytest.mark.parametrize("survived", range(4))
@pytest.mark.parametrize("saved", [1, 3])
def test_a_crash_between_any_two_renames_leaves_a_newest_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int, saved: int
) -> None:
    for count in range(saved):
        save_checkpoint(tmp_path, {"steps": count})
    left = survived

    def crash_after(call: Any) -> Any:
        def counted(*paths: Any) -> None:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            call(*paths)

        return counted

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", crash_after(os.replace))
        patched.setattr(os, "link", crash_after(os.link))
        try:
            save_checkpoint(tmp_path, {"steps": 100})
            newest = 100
        except Crash:
            newest = saved - 1
    assert load_checkpoint(tmp_path) == {"steps": newest}
    assert set(steps(tmp_path)) <= {100, *range(saved)}

    for count in range(200, 203):  # and all goes on as before
        save_checkpoint(tmp_path, {"steps": count})
        assert load_checkpoint(tmp_path) == {"steps": count}
    assert steps(tmp_path) == [202, 201, 200]


def test_a_crash_before_the_last_rename_costs_no_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in range(3):
        save_checkpoint(tmp_path, {"steps": count})
    replace = os.replace

    def crash(source: Path, target: Path) -> None:
        if target.name == NAMES[0]:
            raise Crash
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", crash)
        for _ in range(3):
            with pytest.raises(Crash):
                save_checkpoint(tmp_path, {"steps": 100})
    assert steps(tmp_path) == [2, 2, 1]
    save_checkpoint(tmp_path, {"steps": 3})
    assert steps(tmp_path) == [3, 2, 1]


SAVER = """
import itertools, sys
from pathlib import Path
import torch
from mooactor.rl import save_checkpoint
for count in itertools.count():
    save_checkpoint(Path(sys.argv[1]), {"steps": count, "w": torch.ones(100_000)})
    print(count, flush=True)
"""


@pytest.mark.slow
def test_a_program_that_is_killed_leaves_a_newest_that_loads(tmp_path: Path) -> None:
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert saver.stdout is not None
    with saver.stdout:
        while int(saver.stdout.readline()) < 5:
            pass
        saver.send_signal(signal.SIGKILL)
        told = [5, *map(int, saver.stdout.read().split())]
    saver.wait()
    newest = load_checkpoint(tmp_path)["steps"]
    assert told[-1] <= newest <= told[-1] + 1
    assert len(steps(tmp_path)) >= 2


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"w": torch.tensor([1.0, torch.nan])}, "w"),
        ({"net": {"a": torch.ones(2), "b": -torch.inf * torch.ones(1)}}, r"net\.b"),
        ({"opt": {"state": {0: [torch.tensor(torch.inf)]}}}, r"opt\.state\.0\.0"),
        ({"half": (torch.tensor([torch.nan]).half(),)}, r"half\.0"),
    ],
)
def test_what_is_not_finite_is_not_saved_and_named(
    tmp_path: Path, state: dict[str, Any], named: str
) -> None:
    save_checkpoint(tmp_path, {"steps": 7})
    with pytest.raises(ValueError, match=f"^{named} holds a NaN"):
        save_checkpoint(tmp_path, state)
    assert load_checkpoint(tmp_path) == {"steps": 7}
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


@pytest.mark.parametrize("value", [lambda: None, np.float64(1.0), Path("here")])
def test_what_could_not_be_loaded_again_is_not_saved(
    tmp_path: Path, value: Any
) -> None:
    save_checkpoint(tmp_path, {"steps": 7})
    with pytest.raises(ValueError, match="more than tensors and plain values"):
        save_checkpoint(tmp_path, {"steps": value})
    assert load_checkpoint(tmp_path) == {"steps": 7}
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_resuming_from_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing to resume$"):
        load_checkpoint(tmp_path)


def test_a_newest_that_was_removed_is_told_of_with_the_older_one(
    tmp_path: Path,
) -> None:
    for count in range(2):
        save_checkpoint(tmp_path, {"steps": count})
    (tmp_path / NAMES[0]).unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.1\.pt loads: copy it"):
        load_checkpoint(tmp_path)


def truncated(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("no checkpoint at all\n")


def a_list(path: Path) -> None:
    torch.save([1, 2, 3], path)


def code(path: Path) -> None:
    torch.save({"steps": Path("here")}, path)


@pytest.mark.parametrize("spoil", [truncated, emptied, text, a_list, code])
def test_a_file_that_does_not_load_is_named_with_an_older_one(
    tmp_path: Path, spoil: Any
) -> None:
    save_checkpoint(tmp_path, {"steps": 0})
    spoil(tmp_path / NAMES[0])
    with pytest.raises(ValueError, match=r"checkpoint\.pt was cut short or is") as only:
        load_checkpoint(tmp_path)
    assert "loads" not in str(only.value)

    (tmp_path / NAMES[0]).unlink()
    for count in range(4):
        save_checkpoint(tmp_path, {"steps": count})
    spoil(tmp_path / NAMES[0])
    spoil(tmp_path / NAMES[1])
    with pytest.raises(ValueError, match=r"checkpoint\.2\.pt loads: copy it") as both:
        load_checkpoint(tmp_path)
    assert len(str(both.value).splitlines()) == 1
    (tmp_path / NAMES[0]).write_bytes((tmp_path / NAMES[2]).read_bytes())
    assert load_checkpoint(tmp_path) == {"steps": 1}
