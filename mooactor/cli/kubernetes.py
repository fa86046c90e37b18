# SPDX-License-Identifier: MIT
"""``mooactor kubernetes``: write the manifest of a job."""

from __future__ import annotations

import argparse
import os

from mooactor.cli.amounts import bytes_of, quantity
from mooactor.cli.failure import Failure
from mooactor.cli.slurm import job_name, run_words
from mooactor.cluster.launch import kubernetes, variables
from mooactor.cluster.launch.plan import GRACE_S
from mooactor.cluster.launch.targets import LaunchError


def run(options: argparse.Namespace) -> int:
    """Print it.

    Raises:
      Failure: there can be none.
    """
    try:
        objects = kubernetes.manifest(
            name=options.name or job_name(options.script),
            hosts=options.hosts,
            image=options.image,
            words=run_words(options),
            variables=variables.named(options.env, os.environ),
            python=options.python or "python3",
            namespace=options.namespace,
            cpus=options.cpus,
            gpus=options.gpus,
            memory=_memory(options.memory),
            secret=options.secret,
            grace_s=options.grace or GRACE_S,
        )
    except LaunchError as error:
        raise Failure(str(error)) from None
    print(kubernetes.text(objects))
    return 0


def _memory(said: str | None) -> str | None:
    try:
        return None if said is None else quantity(bytes_of(said))
    except ValueError as error:
        raise Failure(str(error)) from None
