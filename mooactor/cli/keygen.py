# SPDX-License-Identifier: MIT
"""``mooactor keygen``: make the key of a cluster."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from mooactor.cli.command import Failure
from mooactor.control import secret


def run(options: argparse.Namespace) -> int:
    """Write a new key, and say where it is; or say which one there is."""
    if options.show:
        return _show(options.file)
    target = options.file or secret.default_path()
    parent = os.path.dirname(os.path.abspath(target))
    if options.file is not None and not os.path.isdir(parent):
        raise Failure(
            f"there is no directory {parent} for the key: make it, or name another file"
        )
    try:
        key = secret.make(target, force=options.force)
    except FileExistsError:
        raise Failure(
            f"{target} exists, and whoever uses it would lose their cluster: name "
            "another file, or replace it with --force"
        ) from None
    except OSError as error:
        raise Failure(
            f"{target} cannot be written: {error.strerror}; name a file that can be, "
            "as in `mooactor keygen FILE`"
        ) from None
    print(f"mooactor key {key.fingerprint} in {target}")
    print(_next_step(target, default=options.file is None), file=sys.stderr)
    return 0


def _show(file: str | None) -> int:
    """Print the fingerprint, to compare it with another host's."""
    found = secret.find(file)
    if found is None:
        raise Failure("there is no key here: make one with `mooactor keygen`")
    print(f"mooactor {found}")
    return 0


def _next_step(path: str, *, default: bool) -> str:
    """How the key gets to other hosts. Their home directories may be elsewhere, and
    have no directory for it yet."""
    copy = f"scp -p {shlex.quote(path)} HOST:"
    if not default:
        return (
            "copy it to every host of the cluster, and name it there with --key-file: "
            f"{copy}"
        )
    there = ".config/mooactor"
    return (
        f"copy it to every host of the cluster: ssh HOST mkdir -p -m 700 {there} && "
        f"{copy}{there}/key"
    )
