# SPDX-License-Identifier: MIT
"""The environment variables that a launch gives to its hosts and to the program.

They go to the hosts over the stdin of ssh, never on a command line. Those that the user
names come with ``--env``, as with ``mpirun -x``. Settings of mooactor itself go along
without being named, because all hosts of a session should have the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mooactor.cluster.launch.targets import LaunchError

_PREFIX = "MOOACTOR_"
#: The launch itself says these on each host: keys, and where things are.
_OF_THE_LAUNCH = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "KEY",
        "KEY_FILE",
        "ADDRESS",
        "HOST_NAME",
        "PORTS",
        "HOSTS",
        "FIRST",
        "JOB",
    )
)
#: These hold for one host.
_OF_A_HOST = frozenset(
    f"{_PREFIX}{name}" for name in ("BIND", "HOST_ID", "NETNS", "SESSION_MARK")
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """mooactor's own variables that hold for all hosts of a session."""
    kept_back = _OF_THE_LAUNCH | _OF_A_HOST
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(_PREFIX) and name not in kept_back
    }


def named(options: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Those of ``--env NAME`` and ``--env NAME=VALUE``; the last of a name counts.

    Raises:
      LaunchError: one is no variable, is not set here, or is the launch's own.
    """
    return dict(_variable(option, environ) for option in options)


def _variable(option: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not _NAME.fullmatch(name) or "\0" in value:
        raise LaunchError(f"--env {name!r} is no variable: write NAME or NAME=VALUE")
    if name in _OF_THE_LAUNCH:
        raise LaunchError(
            f"--env {name} cannot be given: the launch sets it on each host itself "
            "(see --key-file, --ports and --address)"
        )
    if not equals and name not in environ:
        raise LaunchError(f"--env {name}: it is not set here; write --env {name}=VALUE")
    return name, value if equals else environ[name]
