# SPDX-License-Identifier: MIT
"""``mooactor run``, ``slurm`` and ``kubernetes``: a program on many hosts."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from pathlib import Path

import mooactor
from mooactor.cli.command import Failure
from mooactor.cluster.launch import batch, job, plan
from mooactor.cluster.launch.job import Rank, rank_of
from mooactor.cluster.launch.launch import Launch
from mooactor.cluster.launch.plan import GRACE_S, LaunchError, Plan, Target
from mooactor.control import secret
from mooactor.host.addresses import ports_text

_PATIENCE_S, _PATIENCE_IN_JOB_S = 60.0, 300.0
_SOURCE = Path(mooactor.__file__).parents[1]


def run(options: argparse.Namespace) -> int:
    """Run the program; the exit code is its own, 2 if it never ran.

    Raises:
      Failure: it cannot even begin.
      AuthError: the user's key is unusable.
    """
    try:
        alone = options.hosts is not None or options.hostfile is not None
        rank = None if alone or options.local_only else rank_of(os.environ)
        named = secret.find(options.key_file)  # a run without one makes its own
        made = _plan(options, rank, named.secret if named else secrets.token_bytes(32))
        if named is not None and named.local:
            secret.stay_here(t.name for t in made.targets if rank or not t.is_here)
        if rank is None:
            return Launch(made).run()
        folder = options.rendezvous or job.directory()
        return job.run(made, rank, folder, key_is_named=named is not None)
    except LaunchError as error:
        raise Failure(str(error)) from None


def _plan(options: argparse.Namespace, rank: Rank | None, key: bytes) -> Plan:
    """Raises LaunchError: something is missing, as can be known before anything
    starts."""
    python = options.python
    if python and "/" in python:  # it is at that path on every host
        python = os.path.join(os.getcwd(), python)
    script = ["-m", options.script] if options.module else [options.script]
    variables = {
        **plan.settings(os.environ),
        **plan.named(options.env, os.environ),
    }
    source, more = str(_SOURCE), variables.get("PYTHONPATH", "")
    if path := plan.python_path(source, python, more):
        variables["PYTHONPATH"] = path
    found = Plan(
        program=[*script, *options.arguments],
        targets=_targets(options, rank),
        key=key.hex(),
        cwd=options.cwd or os.getcwd(),
        python=python or sys.executable,
        own_path=plan.python_path(source, None, more),
        variables=variables,
        offers=_offers(options),
        ports=options.ports,
        address=options.address,
        sync=options.sync,
        min_hosts=options.min_hosts,
        patience_s=options.patience or (_PATIENCE_IN_JOB_S if rank else _PATIENCE_S),
        grace_s=options.grace or GRACE_S,
    )
    # A rank may know of too few hosts, unless it is alone.
    there = len(found.targets) if rank is None or rank.hosts == 1 else None
    if there and found.min_hosts and found.min_hosts > there:
        hosts = "one host" if there == 1 else f"{there} hosts"
        raise LaunchError(
            f"--min-hosts {found.min_hosts} is more than the {hosts}: name more hosts, "
            "or ask for fewer"
        )
    if found.targets[0].is_here:  # its starter looks on another host
        if not os.path.isdir(found.cwd):
            raise LaunchError(f"there is no directory {found.cwd} here: check --cwd")
        if found.script:
            plan.check_script(found.script, found.cwd)
    return found


def _targets(options: argparse.Namespace, rank: Rank | None) -> list[Target]:
    if options.hosts is not None:
        return plan.of_list(options.hosts)
    if options.hostfile is not None:
        return plan.of_file(options.hostfile)
    return [Target(rank.host, "localhost")] if rank else [plan.HERE]


def _offers(options: argparse.Namespace) -> list[str]:
    given = {
        "--num-cpus": options.num_cpus,
        "--num-gpus": options.num_gpus,
        "--memory": options.memory,
    }
    said = {name: str(value) for name, value in given.items() if value is not None}
    return [word for pair in said.items() for word in pair]


def slurm(options: argparse.Namespace) -> int:
    """Print the script of a batch job, or submit it and print the answer of sbatch.

    Raises:
      Failure: sbatch refuses, or is not here.
    """
    try:
        # The nodes share the working directory; that of --cwd may be theirs alone.
        cwd = options.cwd or os.getcwd()
        if not options.module and (options.cwd is None or os.path.isdir(cwd)):
            plan.check_script(options.script, cwd)
        plan.named(options.env, os.environ)  # refused here, not in the job
        asked = {
            "job-name": options.job_name or _job_name(options.script),
            "nodes": options.nodes,
            "ntasks-per-node": 1,
            "cpus-per-task": options.cpus,
            "gpus-per-node": options.gpus,
            "mem": options.mem,
            "partition": options.partition,
            "account": options.account,
            "time": options.time,
        }
        script = batch.batch_script(
            asked,
            options.sbatch,
            options.python or sys.executable,
            [*(w for one in options.env for w in ("--env", one)), *_run_words(options)],
            plan.python_path(str(_SOURCE), options.python),
        )
        print(script.rstrip() if options.dry_run else batch.submit(script))
    except LaunchError as error:
        raise Failure(str(error)) from None
    return 0


def kubernetes(options: argparse.Namespace) -> int:
    """Print the manifest of a job.

    Raises:
      Failure: there can be none.
    """
    try:
        limits = {
            "cpu": options.cpus,
            "memory": options.memory,
            "nvidia.com/gpu": options.gpus,
        }
        objects = batch.manifest(
            name=options.name or _job_name(options.script),
            hosts=options.hosts,
            image=options.image,
            words=_run_words(options),
            variables=plan.named(options.env, os.environ),
            python=options.python or "python3",
            namespace=options.namespace,
            limits=limits,
            secret=options.secret,
            grace_s=options.grace or GRACE_S,
        )
    except LaunchError as error:
        raise Failure(str(error)) from None
    print(batch.text(objects))
    return 0


def _run_words(options: argparse.Namespace) -> list[str]:
    """The words of ``mooactor run`` for the same program, without ``--env``."""
    words = ["--cwd", options.cwd] if options.cwd else []
    if getattr(options, "ports", None):
        words += ["--ports", ports_text(options.ports)]
    if options.grace is not None:
        words += ["--grace", f"{options.grace:g}"]
    module = ["-m"] if options.module else []
    return [*words, *module, options.script, *options.arguments]


def _job_name(script: str) -> str:
    """A name that Slurm and Kubernetes take, from that of the script."""
    name = re.sub(r"[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")
    return name[:40].rstrip("-") or "mooactor"
