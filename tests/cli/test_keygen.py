# SPDX-License-Identifier: MIT
"""``mooactor keygen``, and commands that find no place for a key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mooactor.cli import main
from mooactor.control import secret

Capture = pytest.CaptureFixture[str]


def test_it_makes_a_key_and_keeps_one_that_is_there(
    tmp_path: Path, capsys: Capture
) -> None:
    path = str(tmp_path / "key")
    assert main(["keygen", path]) == 0
    made = secret.read(path)
    out, err = capsys.readouterr()
    assert out == f"mooactor key {made.fingerprint} in {path}\n"
    assert "copy it to every host" in err and "--key-file" in err
    assert f"scp -p {path} HOST:\n" in err
    assert main(["keygen", path]) == 2
    assert "--force" in capsys.readouterr().err
    assert secret.read(path) == secret.Key(made.secret, path)
    assert main(["keygen", "--force", path]) == 0
    assert secret.read(path).secret != made.secret


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_it_replaces_files_only(
    force: list[str], tmp_path: Path, capsys: Capture
) -> None:
    pipe, target, link, dangling = (tmp_path / name for name in ("p", "t", "l", "d"))
    os.mkfifo(pipe)
    target.write_text("kept")
    link.symlink_to("t")
    dangling.symlink_to("nowhere")
    before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    for path in (pipe, link, dangling, tmp_path):
        assert main(["keygen", *force, str(path)]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        why = "no regular file, and is not replaced: name a file"
        assert said.startswith(f"mooactor keygen: {path} is {why}")
    after = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    assert after == before and target.read_text() == "kept"


def test_it_shows_the_fingerprint_of_the_key_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name in (secret.VARIABLE, secret.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["keygen", "--show"]) == 2
    assert "there is no key here" in capsys.readouterr().err
    own = secret.make(secret.default_path())
    other = secret.make(str(tmp_path / "other"))
    for words, key in (([], own), ([other.source], other)):
        assert main(["keygen", "--show", *words]) == 0
        shown = f"mooactor key {key.fingerprint} from {key.source}\n"
        assert capsys.readouterr().out == shown
    assert sorted(os.listdir(tmp_path)) == ["mooactor", "other"]


def test_without_a_file_it_takes_the_default_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["keygen"]) == 0
    path = f"{tmp_path}/mooactor/key"
    out, err = capsys.readouterr()
    assert path in out
    assert "ssh HOST mkdir -p -m 700 .config/mooactor && scp -p " in err
    assert f"{path} HOST:.config/mooactor/key" in err
    found = secret.find()
    assert found is not None and found.source == path
    for place, why in (
        ("/proc/self/key", "cannot be written"),
        (f"{tmp_path}/no/key", f"there is no directory {tmp_path}/no for the key"),
    ):
        assert main(["keygen", place]) == 2
        assert why in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
