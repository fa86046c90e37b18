# SPDX-License-Identifier: MIT
"""``mooactor run``: a program with actors on many hosts."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path

import mooactor
from mooactor.cli.failure import Failure
from mooactor.cluster.launch import ranks, rendezvous, starter, targets, variables
from mooactor.cluster.launch.environment import Rank, rank_of
from mooactor.cluster.launch.launch import Launch
from mooactor.cluster.launch.plan import GRACE_S, Plan, check_script, path_of_driver
from mooactor.cluster.launch.targets import LaunchError, Target
from mooactor.control import secret

_PATIENCE_S, _PATIENCE_IN_JOB_S = 60.0, 300.0


def run(options: argparse.Namespace) -> int:
    """Run it; the exit code is the program's, 2 if it never ran.

    Raises:
      Failure: it cannot even begin.
      AuthError: the user's key is unusable.
    """
    try:
        rank = _rank(options)
        named = secret.find(options.key_file)  # a run without one makes its own
        plan = _plan(options, rank, named.secret if named else secrets.token_bytes(32))
        if named is not None and named.local:
            secret.stay_here(t.name for t in plan.targets if rank or not t.is_here)
        if rank is not None:
            folder = options.rendezvous or rendezvous.directory()
            return ranks.run(plan, rank, folder, key_is_named=named is not None)
    except LaunchError as error:
        raise Failure(str(error)) from None
    return Launch(plan).run()


def _rank(options: argparse.Namespace) -> Rank | None:
    named = options.hosts is not None or options.hostfile is not None
    if named or options.local_only:
        return None
    return rank_of(os.environ)


def _plan(options: argparse.Namespace, rank: Rank | None, key: bytes) -> Plan:
    python = _interpreter(options.python)
    script = ["-m", options.script] if options.module else [options.script]
    source = str(Path(mooactor.__file__).parents[1])
    plan = Plan(
        program=[*script, *options.arguments],
        targets=_targets(options, rank),
        key=key.hex(),
        version=mooactor.__version__,
        wire=starter.wire_of(os.path.dirname(mooactor.__file__)),
        cwd=options.cwd or os.getcwd(),
        python=python,
        path=path_of_driver(source, python),
        own_path=path_of_driver(source, None),
        variables={
            **variables.settings(os.environ),
            **variables.named(options.env, os.environ),
        },
        offers=_offers(options),
        ports=options.ports,
        address=options.address,
        sync=options.sync,
        min_hosts=options.min_hosts,
        patience_s=options.patience or (_PATIENCE_IN_JOB_S if rank else _PATIENCE_S),
        grace_s=options.grace or GRACE_S,
    )
    _check(plan, rank)
    return plan


def _interpreter(said: str | None) -> str | None:
    """One that is named by a path is at that path on every host, wherever the program
    starts; one that is only named is searched for."""
    return os.path.join(os.getcwd(), said) if said and "/" in said else said


def _targets(options: argparse.Namespace, rank: Rank | None) -> list[Target]:
    if options.hosts is not None:
        return targets.of_list(options.hosts)
    if options.hostfile is not None:
        return targets.of_file(options.hostfile)
    return [Target(rank.host, "localhost")] if rank else [targets.HERE]


def _offers(options: argparse.Namespace) -> list[str]:
    given = {
        "--num-cpus": options.num_cpus,
        "--num-gpus": options.num_gpus,
        "--memory": options.memory,
    }
    said = {name: str(value) for name, value in given.items() if value is not None}
    return [word for pair in said.items() for word in pair]


def _check(plan: Plan, rank: Rank | None) -> None:
    """What can be known to be missing before anything starts."""
    # The environment of a rank may understate how many hosts there are, unless it says
    # that this one is alone.
    there = len(plan.targets) if rank is None or rank.hosts == 1 else None
    if there and plan.min_hosts and plan.min_hosts > there:
        hosts = "one host" if there == 1 else f"{there} hosts"
        raise LaunchError(
            f"--min-hosts {plan.min_hosts} is more than the {hosts}: name more hosts, "
            "or ask for fewer"
        )
    if not plan.targets[0].is_here:
        return  # its starter looks
    if not os.path.isdir(plan.cwd):
        raise LaunchError(f"there is no directory {plan.cwd} here: check --cwd")
    if plan.script:
        check_script(plan.script, plan.cwd)
