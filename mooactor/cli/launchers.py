# SPDX-License-Identifier: MIT
"""The arguments of the commands that start programs on many hosts."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from mooactor.cli import clustering
from mooactor.control.messages import LONGEST_S

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_launchers(commands: Commands) -> None:
    """Add ``run``, ``slurm`` and ``kubernetes``."""
    _add_run(commands)
    _add_slurm(commands)
    _add_kubernetes(commands)


def _add_run(commands: Commands) -> None:
    run = commands.add_parser(
        "run",
        help="run a program with actors on many hosts",
        usage="mooactor run [--hosts A,B,… | --hostfile FILE] [OPTION …] SCRIPT ARGS…",
        description="Start a broker here and a host on each machine over ssh, run "
        "SCRIPT on the first, and end everything with it. Inside srun, mpirun, "
        "torchrun or a Kubernetes indexed Job, the hosts are those that it started "
        "this command on.",
    )
    where = run.add_mutually_exclusive_group()
    where.add_argument("--hosts", metavar="A,B,…", help="NAME, USER@NAME or NAME:PORT")
    where.add_argument(
        "--hostfile", metavar="FILE", help="a host a line, perhaps with slots=N"
    )
    where.add_argument(
        "--local-only", action="store_true", help="this machine alone, even in a job"
    )
    _add_program(run)
    run.add_argument(
        "--sync", action="store_true", help="copy the working directory with rsync"
    )
    run.add_argument(
        "--key-file",
        metavar="FILE",
        type=clustering.some,
        help="default: your key, or a new one if you have made none",
    )
    clustering.add_ports_option(run)
    run.add_argument(
        "--address",
        metavar="ADDR",
        type=_address,
        help="of this machine, as the hosts see it",
    )
    run.add_argument(
        "--min-hosts", metavar="N", type=_count, help="begin with N (default: all)"
    )
    run.add_argument(
        "--patience",
        metavar="S",
        type=_seconds,
        help="seconds for the hosts to start (default 60, in a job 300)",
    )
    run.add_argument(
        "--rendezvous",
        metavar="DIR",
        type=clustering.some,
        help="in a job: a directory of all its hosts",
    )
    clustering.add_offers(run, " on each host")
    run.set_defaults(run=clustering.run_by("run"))


def _address(text: str) -> str:
    """The type of an option that is a host's name or address."""
    from mooactor.control.addresses import is_host

    if not is_host(text.removeprefix("[").removesuffix("]")):
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is no address: write a name or a number such as 10.0.0.5, "
            "without a port"
        )
    return text


def _add_machines(
    parser: argparse.ArgumentParser, what: str, number: str, memory: str, such: str
) -> None:
    """How many machines are wanted, and what each must have. `such`: an amount of
    memory, as it is written there."""
    parser.add_argument(
        number, metavar="N", type=_count, required=True, help=f"number of {what}s"
    )
    for option, kind in (("--cpus", "cores"), ("--gpus", "GPUs")):
        meaning = f"{kind} of each {what}"
        parser.add_argument(option, metavar="N", type=_count, help=meaning)
    parser.add_argument(
        memory, metavar="M", help=f"memory of each {what}, such as {such}"
    )


def _add_program(
    parser: argparse.ArgumentParser,
    where: str = "on the hosts",
    python: str = "this one",
    cwd: str = "this one",
) -> None:
    """SCRIPT ARGS, and what they run with: `python` and `cwd` by default."""
    parser.add_argument(
        "--python",
        metavar="P",
        type=clustering.some,
        help=f"interpreter {where} (default: {python})",
    )
    parser.add_argument(
        "--cwd",
        metavar="D",
        type=clustering.some,
        help=f"directory {where} (default: {cwd})",
    )
    parser.add_argument(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="a variable for the hosts and for SCRIPT (again for more)",
    )
    parser.add_argument(
        "--grace",
        metavar="S",
        type=_seconds,
        help="seconds that SCRIPT has to end after Ctrl-C or SIGTERM (default 1.2)",
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is a module's name"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python program")
    parser.add_argument(
        "arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments"
    )


def _add_slurm(commands: Commands) -> None:
    slurm = commands.add_parser(
        "slurm",
        help="write and submit a Slurm batch job",
        usage="mooactor slurm --nodes N [OPTION …] SCRIPT ARGS…",
        description="Write a batch script that runs SCRIPT with a host on each node, "
        "and submit it with sbatch.",
    )
    _add_machines(slurm, "node", "--nodes", "--mem", "64G")
    slurm.add_argument("--partition", metavar="NAME")
    slurm.add_argument("--account", metavar="NAME")
    slurm.add_argument("--time", metavar="T", help="limit, such as 2:00:00")
    slurm.add_argument(
        "--job-name",
        metavar="NAME",
        type=clustering.some,
        help="default: SCRIPT's name",
    )
    slurm.add_argument(
        "--sbatch",
        metavar="OPTION",
        action="append",
        default=[],
        help="any other line after #SBATCH, such as --qos=high (again for more)",
    )
    clustering.add_ports_option(slurm)
    slurm.add_argument(
        "--dry-run", action="store_true", help="print the script, submit nothing"
    )
    _add_program(slurm)
    slurm.set_defaults(run=clustering.run_by("run", "slurm"))


def _add_kubernetes(commands: Commands) -> None:
    kubernetes = commands.add_parser(
        "kubernetes",
        help="write the manifest of a Kubernetes job",
        usage="mooactor kubernetes --hosts N --image IMAGE [OPTION …] SCRIPT ARGS…",
        description="Print a manifest for kubectl apply -f -: an indexed Job with a "
        "pod for each host, a headless Service for their names, and a Secret with a "
        "new key.",
    )
    _add_machines(kubernetes, "pod", "--hosts", "--memory", "64GB")
    kubernetes.add_argument(
        "--image", metavar="IMAGE", required=True, help="has Python and mooactor"
    )
    kubernetes.add_argument(
        "--name", metavar="NAME", type=clustering.some, help="default: SCRIPT's name"
    )
    kubernetes.add_argument("--namespace", metavar="NAME")
    kubernetes.add_argument(
        "--secret", metavar="NAME", help="one that exists, with the key in `key`"
    )
    _add_program(kubernetes, "in the image", "python3", "the image's own")
    kubernetes.set_defaults(run=clustering.run_by("run", "kubernetes"))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is no number of seconds above 0, and at most {LONGEST_S:g}"
        )
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)
