# SPDX-License-Identifier: MIT
"""The cluster key: where it is found, and which files are refused."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mooactor import errors
from mooactor.control import secret

DIGITS = "0123456789abcdef" * 4
OTHER = "f" * 64


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user without any key."""
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}


def write(path: Path, text: str, mode: int = 0o600) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_key_is_read_from_the_file_that_make_wrote(tmp_path: Path) -> None:
    made = secret.make(str(tmp_path / "deep" / "key"))
    assert secret.read(made.source) == secret.Key(made.secret, made.source)
    assert stat.S_IMODE(os.stat(made.source).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "deep").st_mode) == 0o700
    assert re.fullmatch(r"[0-9a-f]{64}\n", Path(made.source).read_text())
    assert os.listdir(tmp_path / "deep") == ["key"]  # no draft is left


def test_make_keeps_a_file_that_is_there_and_replaces_it_by_force(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "key", DIGITS)
    with pytest.raises(FileExistsError):
        secret.make(path)
    assert secret.read(path).secret.hex() == DIGITS
    assert secret.read(secret.make(path, force=True).source).secret.hex() != DIGITS
    assert os.listdir(tmp_path) == ["key"]


def test_the_places_are_tried_in_their_order(
    tmp_path: Path, home: dict[str, str]
) -> None:
    assert secret.find(environment=home) is None
    default = write(Path(secret.default_path(home)), f"{1:064x}\n")
    named = write(tmp_path / "named", f"{3:064x}\n")
    option = write(tmp_path / "option", f"{4:064x}\n")
    for extra, key_file, number, source in (
        ({}, None, 1, default),
        ({secret.VARIABLE: f"{2:064x}"}, None, 2, secret.VARIABLE),
        ({secret.VARIABLE: OTHER, secret.FILE_VARIABLE: named}, None, 3, named),
        ({secret.VARIABLE: OTHER, secret.FILE_VARIABLE: named}, option, 4, option),
    ):
        found = secret.find(key_file, home | extra)
        assert found is not None
        assert int.from_bytes(found.secret, "big") == number
        assert found.source == source


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    long = (DIGITS[:-2], DIGITS + "00", "x" * 64, f"{DIGITS}\n{OTHER}")
    for text in ("", "\n", "ü", *long):
        path = write(tmp_path / "key", text)
        with pytest.raises(errors.AuthError, match="holds no key") as refused:
            secret.read(path)
        assert path in str(refused.value)
        assert "mooactor keygen" in str(refused.value)


def test_a_file_that_others_have_a_part_in_is_refused(tmp_path: Path) -> None:
    for mode in (0o644, 0o640, 0o620, 0o604, 0o710):
        path = write(tmp_path / "key", DIGITS, mode)
        with pytest.raises(errors.AuthError, match=f"chmod 600 {path}"):
            secret.read(path)
    os.chmod(path, 0o400)
    assert secret.read(path).secret.hex() == DIGITS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "key", DIGITS)
    os.chown(path, 12345, 12345)
    with pytest.raises(errors.AuthError, match="another user .uid 12345"):
        secret.read(path)


@pytest.mark.timeout(20)
def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(errors.AuthError, match="is no file"):
            secret.read(str(path))
    with pytest.raises(errors.AuthError, match="is no file|cannot be read"):
        secret.read(str(tmp_path))


def test_a_named_place_that_is_unusable_is_an_error_and_no_reason_to_go_on(
    tmp_path: Path, home: dict[str, str]
) -> None:
    write(Path(secret.default_path(home)), DIGITS)
    missing = str(tmp_path / "missing")
    for extra in ({secret.FILE_VARIABLE: missing}, {secret.VARIABLE: "short"}):
        with pytest.raises(errors.AuthError, match="cannot be read|holds no key"):
            secret.find(environment=home | extra)
    with pytest.raises(errors.AuthError, match="mooactor keygen"):
        secret.find(missing, home)


def test_without_a_key_only_local_programs_get_one_of_their_own(
    home: dict[str, str],
) -> None:
    with pytest.raises(errors.AuthError, match="run `mooactor keygen`"):
        secret.load(hosts=["10.0.0.5"], environment=home)
    made = secret.load(hosts=["::1", "localhost"], environment=home)
    assert made.made and made.source == secret.local_path(home)
    again = secret.load(hosts=["127.0.0.1"], environment=home)
    assert again.secret == made.secret and not again.made
    # it opens no port to other hosts later
    assert secret.find(environment=home) is None


def test_a_program_that_only_asks_makes_no_key(home: dict[str, str]) -> None:
    with pytest.raises(errors.AuthError, match="no key here.*`mooactor broker`"):
        secret.load(hosts=["127.0.0.1"], environment=home, may_make=False)
    assert not os.path.lexists(secret.local_path(home))
    made = secret.load(hosts=["127.0.0.1"], environment=home)
    asked = secret.load(hosts=["127.0.0.1"], environment=home, may_make=False)
    assert asked.secret == made.secret


def test_local_programs_that_start_at_once_have_one_key(home: dict[str, str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(
            pool.map(lambda _: secret.load(hosts=[], environment=home), range(32))
        )
    assert len({key.secret for key in keys}) == 1
    assert sum(key.made for key in keys) == 1


def test_a_key_is_not_shown(tmp_path: Path) -> None:
    key = secret.make(str(tmp_path / "key"))
    for text in (repr(key), str(key), f"{key}"):
        assert key.secret.hex() not in text and repr(key.secret) not in text
    assert key.fingerprint in str(key)
    assert key.fingerprint not in key.secret.hex()
