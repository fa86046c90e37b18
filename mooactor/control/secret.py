# SPDX-License-Identifier: MIT
"""The cluster key: its holders belong to the cluster.

A key is 32 random bytes. A key file has one line of 64 hex digits, belongs to the user
who reads it (or to root), and nobody else may read it.

A program looks for the key in these places and takes the first that is set. If that
one is unusable, the program is told so; it never goes on to the next.

1. the file that the option ``--key-file`` names
2. the file that the variable MOOACTOR_KEY_FILE names
3. the variable MOOACTOR_KEY, 64 hex digits
4. the file ``mooactor/key`` in XDG_CONFIG_HOME, by default ``~/.config``

Programs that only talk to others on their own host need no key from the user: `load`
makes one for them, in a file beside the fourth, and that *local* key serves for nothing
else. So a key that nobody asked for never opens a port to other hosts: `stay_here` is
the rule, for whatever listens or connects with such a key.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooactor import errors
from mooactor.control import fingerprints
from mooactor.control.addresses import is_loopback

VARIABLE = "MOOACTOR_KEY"
FILE_VARIABLE = "MOOACTOR_KEY_FILE"
KEY_BYTES = 32
#: In the reason why a connection does not come to stand, if keys may differ.
TURNED_DOWN = (
    "the handshake failed, so what listens there holds another key or is no mooactor"
)
_LOCAL = "local-key"  # the name of its file
_MOST_BYTES = 4096  # of a file that might be a key


@dataclass(frozen=True)
class Key:
    """A cluster key and where it comes from; `made`: just now, by this program."""

    secret: bytes = field(repr=False)
    source: str
    made: bool = False

    @property
    def local(self) -> bool:
        """Whether it serves on this host alone: see `stay_here`. It does also where the
        user names its file: it was made for that."""
        return os.path.basename(os.path.realpath(self.source)) == _LOCAL

    @property
    def fingerprint(self) -> str:
        return fingerprints.of(self.secret)

    def __str__(self) -> str:
        return f"key {self.fingerprint} from {self.source}"


def next_step(why: str, key: Key, otherwise: str = "") -> str:
    """The remedy for a broker that has not answered for the reason `why`, and the key
    that this program has. `otherwise`: what to do if that is no matter of the key."""
    step = otherwise or "see whether `mooactor broker` runs there, with the same key"
    if TURNED_DOWN in why or fingerprints.OTHER_KEY in why:
        step = "copy the broker's key file here, or restart the broker with this one"
    return f"{step}; the key here is {key}"


def default_path(environment: Mapping[str, str] = os.environ) -> str:
    """The key file of this user, whether it exists or not."""
    return os.path.join(_directory(environment), "key")


def local_path(environment: Mapping[str, str] = os.environ) -> str:
    """The file of the key that programs of this user on this host alone share."""
    return os.path.join(_directory(environment), _LOCAL)


def _directory(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says to ignore it then
        base = os.path.join(
            environment.get("HOME") or os.path.expanduser("~"), ".config"
        )
    return os.path.join(base, "mooactor")


def find(
    key_file: str | None = None, environment: Mapping[str, str] = os.environ
) -> Key | None:
    """The key that this program was given, or None if it was given none.

    Raises:
      AuthError: the place that was named holds no usable key.
    """
    named = key_file or environment.get(FILE_VARIABLE)
    if named:
        return read(named)
    if text := environment.get(VARIABLE):
        return Key(_parsed(text, f"the variable {VARIABLE}"), VARIABLE)
    path = default_path(environment)
    return read(path) if os.path.lexists(path) else None


def load(
    key_file: str | None = None,
    *,
    hosts: Iterable[str],
    environment: Mapping[str, str] = os.environ,
    may_make: bool = True,
) -> Key:
    """The key that this program was given. If it was given none and stays on this host,
    the key of `local_path`, which is made when it is first needed.

    `hosts`: all that it listens on or connects to, as `stay_here` takes them.
    `may_make`: false for a program that only asks others: these made the key.

    Raises:
      AuthError: there is no key and none can be made, it is unusable, or it does not
        serve for all `hosts`.
    """
    found = find(key_file, environment)
    if found is None or found.local:
        stay_here(hosts)
    return found or _local(local_path(environment), may_make)


def stay_here(hosts: Iterable[str]) -> None:
    """Refuse what nobody listens on or connects to without a key of the user's: all but
    the loopback interface.

    `hosts`: numeric addresses, names, or "*". No name but ``localhost`` will do,
    whatever it stands for at present.

    Raises:
      AuthError: one of them leads beyond this host.
    """
    for host in hosts:
        if not is_loopback(host):
            raise errors.AuthError(
                f"there is no key for {host}, and without one mooactor stays on this "
                "host: run `mooactor keygen` on one host, and copy the file that it "
                "names to the same place on the others; or name a key file with "
                f"--key-file or {FILE_VARIABLE}"
            )


def _local(path: str, may_make: bool) -> Key:
    if os.path.lexists(path):
        return read(path)
    if not may_make:
        raise errors.AuthError(
            f"there is no key here, neither one of yours nor {path}, which the first "
            "`mooactor broker` on this host makes: start it, or name the key of a "
            f"cluster that runs with --key-file or {FILE_VARIABLE}"
        )
    try:
        return make(path)
    except FileExistsError:
        return read(path)  # another program has just made it
    except OSError as error:
        raise errors.AuthError(
            f"no key can be made in {os.path.dirname(path)} ({error.strerror}): set "
            "HOME or XDG_CONFIG_HOME to a directory that can be written, or name a key "
            f"with {FILE_VARIABLE} or {VARIABLE}, or --key-file of commands"
        ) from None


def read(path: str) -> Key:
    """The key in a file.

    Raises:
      AuthError: there is no such file, others may read it, or it holds no key.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            _check(os.fstat(file.fileno()), path)
            text = file.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise errors.AuthError(
            f"the key file {path} cannot be read ({error.strerror}): make one with "
            f"`mooactor keygen {path}`, or copy that of another host there"
        ) from None
    return Key(_parsed(text, f"the key file {path}"), path)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a named pipe would wait for a writer


def _check(found: os.stat_result, path: str) -> None:
    """Refuse a file that others than its reader and root have a part in."""
    if not stat.S_ISREG(found.st_mode):
        raise errors.AuthError(f"the key file {path} is no file: name one")
    if found.st_uid not in (os.geteuid(), 0):
        raise errors.AuthError(
            f"the key file {path} belongs to another user (uid {found.st_uid}): make "
            "a copy of your own with `install -m 600`, and name that"
        )
    if found.st_mode & 0o077:
        raise errors.AuthError(
            f"others may read or change the key file {path} (mode "
            f"{stat.S_IMODE(found.st_mode):04o}): run `chmod 600 {path}`, and make a "
            "new key with `mooactor keygen --force` if someone may have read it"
        )


def _parsed(text: str, where: str) -> bytes:
    digits = text.strip()
    try:
        secret = bytes.fromhex(digits)
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES or len(digits) != 2 * KEY_BYTES:
        raise errors.AuthError(
            f"{where} holds no key, which is one line of {2 * KEY_BYTES} hex digits: "
            "make one with `mooactor keygen`"
        )
    return secret


def make(path: str, *, force: bool = False) -> Key:
    """Write a new key into a file that appears at once and whole, of mode 0600.

    Raises:
      AuthError: there is something that is no regular file, and stays as it is.
      FileExistsError: there is a file, which stays as it is; not with `force`.
      OSError: the file cannot be written.
    """
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        # A rename onto a link or a device would replace that, not what it stands for.
        raise errors.AuthError(
            f"{path} is no regular file, and is not replaced: name a file, as in "
            "`mooactor keygen FILE`"
        )
    key = Key(secrets.token_bytes(KEY_BYTES), path, made=True)
    directory = os.path.dirname(os.path.abspath(path))
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd, draft = tempfile.mkstemp(dir=directory, prefix=".mooactor-key-")  # mode 0600
    try:
        with open(fd, "w") as file:
            file.write(f"{key.secret.hex()}\n")
            file.flush()
            os.fsync(fd)
        if force:
            os.replace(draft, path)
        else:
            os.link(draft, path)
    finally:
        if os.path.lexists(draft):
            os.unlink(draft)
    return key
