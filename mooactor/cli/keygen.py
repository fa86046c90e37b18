# SPDX-License-Identifier: MIT
"""``mooactor keygen``: make the key of a cluster."""

from __future__ import annotations

import argparse
import sys

from mooactor.cli.failure import Failure
from mooactor.control import secret


def run(options: argparse.Namespace) -> int:
    """Write a new key, and say where it is."""
    target = options.file or secret.default_path()
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
    where = "" if options.file is None else ", and name it there with --key-file"
    print(
        f"copy it to every host of the cluster{where}: scp -p {target} HOST:{target}",
        file=sys.stderr,
    )
    return 0
