# SPDX-License-Identifier: MIT
"""Checkpoints: what comes back, what is kept, and what is refused."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

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


@pytest.mark.parametrize("links", [True, False])
def test_the_last_three_are_kept_with_hard_links_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError("no links")))
    for count in range(6):
        save_checkpoint(tmp_path, {"steps": count})
        assert steps(tmp_path) == list(range(count, -1, -1))[:3]
        assert load_checkpoint(tmp_path) == {"steps": count}
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES)


class Crash(BaseException):
    """The program ends here."""


@pytest.mark.parametrize("saved", [1, 3])
@pytest.mark.parametrize("survived", range(4))
def test_a_crash_between_any_two_renames_leaves_a_newest_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, survived: int
) -> None:
    """And another one at the same place costs no older checkpoint."""
    for count in range(saved):
        save_checkpoint(tmp_path, {"steps": count})
    left, newest = 0, saved - 1

    def crash_after(call: Any) -> Any:
        def counted(*paths: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash
            call(*paths)

        return counted

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", crash_after(os.replace))
        patched.setattr(os, "link", crash_after(os.link))
        for _ in range(2):
            left = survived
            with suppress(Crash):
                save_checkpoint(tmp_path, {"steps": 100})
                newest = 100
            assert load_checkpoint(tmp_path) == {"steps": newest}
    found = steps(tmp_path)
    assert set(found) <= {100, *range(saved)}
    assert len(set(found)) >= saved - 1

    for count in range(200, 203):  # and all goes on as before
        save_checkpoint(tmp_path, {"steps": count})
        assert load_checkpoint(tmp_path) == {"steps": count}
    assert steps(tmp_path) == [202, 201, 200]


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


def test_a_missing_newest_is_told_of_with_the_older_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing to resume$"):
        load_checkpoint(tmp_path)
    for count in range(2):
        save_checkpoint(tmp_path, {"steps": count})
    (tmp_path / NAMES[0]).unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.1\.pt loads: copy it"):
        load_checkpoint(tmp_path)


def spoiled() -> dict[str, bytes]:
    """Files that may stand where a checkpoint should."""
    found = {"empty": b"", "text": b"no checkpoint at all\n"}
    values = {"list": [1, 2, 3], "code": {"steps": Path("here")}, "": {"steps": 1}}
    for name, value in values.items():
        torch.save(value, file := io.BytesIO())
        found[name] = file.getvalue()
    found["truncated"] = found[""][: len(found.pop("")) // 2]
    return found


@pytest.mark.parametrize("wrong", spoiled().values(), ids=spoiled())
def test_a_file_that_does_not_load_is_named_with_an_older_one(
    tmp_path: Path, wrong: bytes
) -> None:
    save_checkpoint(tmp_path, {"steps": 0})
    (tmp_path / NAMES[0]).write_bytes(wrong)
    with pytest.raises(ValueError, match=r"checkpoint\.pt was cut short or is") as only:
        load_checkpoint(tmp_path)
    assert "loads" not in str(only.value)

    (tmp_path / NAMES[0]).unlink()
    for count in range(4):
        save_checkpoint(tmp_path, {"steps": count})
    (tmp_path / NAMES[0]).write_bytes(wrong)
    (tmp_path / NAMES[1]).write_bytes(wrong)
    with pytest.raises(ValueError, match=r"checkpoint\.2\.pt loads: copy it") as both:
        load_checkpoint(tmp_path)
    assert len(str(both.value).splitlines()) == 1
    (tmp_path / NAMES[0]).write_bytes((tmp_path / NAMES[2]).read_bytes())
    assert load_checkpoint(tmp_path) == {"steps": 1}
