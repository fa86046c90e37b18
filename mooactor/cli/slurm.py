# SPDX-License-Identifier: MIT
"""``mooactor slurm``: write a batch script, and submit it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import mooactor
from mooactor.cli.failure import Failure
from mooactor.cluster.launch import slurm, variables
from mooactor.cluster.launch.plan import check_script, path_of_driver
from mooactor.cluster.launch.targets import LaunchError
from mooactor.host.addresses import ports_text


def run(options: argparse.Namespace) -> int:
    """Print the script, or the answer of sbatch.

    Raises:
      Failure: sbatch refuses, or is not here.
    """
    try:
        _check(options)
        lines = slurm.directives(
            nodes=options.nodes,
            job_name=options.job_name or job_name(options.script),
            cpus=options.cpus,
            gpus=options.gpus,
            mem=options.mem,
            partition=options.partition,
            account=options.account,
            time=options.time,
            more=options.sbatch,
        )
        python = options.python or sys.executable
        source = str(Path(mooactor.__file__).parents[1])
        path = path_of_driver(source, options.python)
        variables.named(options.env, os.environ)  # refused here, not in the job
        env = [word for one in options.env for word in ("--env", one)]
        words = [*env, *run_words(options)]
        script = slurm.batch_script(lines, python, words, path)
        print(script.rstrip() if options.dry_run else slurm.submit(script))
    except LaunchError as error:
        raise Failure(str(error)) from None
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse a script that is missing. The nodes share the working directory; one that
    --cwd names may be theirs alone."""
    cwd = options.cwd or os.getcwd()
    if options.module or (options.cwd and not os.path.isdir(cwd)):
        return
    check_script(options.script, cwd)


def run_words(options: argparse.Namespace) -> list[str]:
    """The words of ``mooactor run`` for the same program, without ``--env``."""
    words = ["--cwd", options.cwd] if options.cwd else []
    if getattr(options, "ports", None):
        words += ["--ports", ports_text(options.ports)]
    if options.grace is not None:
        words += ["--grace", f"{options.grace:g}"]
    module = ["-m"] if options.module else []
    return [*words, *module, options.script, *options.arguments]


def job_name(script: str) -> str:
    """A name that Slurm and Kubernetes take, from that of the script."""
    name = re.sub(r"[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")
    return name[:40].rstrip("-") or "mooactor"
