# SPDX-License-Identifier: MIT
"""The subcommands and their options. The modules of a subcommand are imported only when
it runs."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from mooactor.control.messages import LONGEST_S
from mooactor.process.needs import MOST_BYTES, MOST_THINGS

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_Parser: TypeAlias = argparse.ArgumentParser


def add_commands(parser: _Parser) -> Commands:
    """Add them all."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_bench(commands)
    doctor = _add(commands, "doctor", "what works here, and the remedies")
    doctor.add_argument("--json", action="store_true", help="a JSON list, no table")
    attach = _add(
        commands, "attach", "debug an actor that has stopped at a breakpoint()"
    )
    attach.add_argument(
        "process", nargs="?", help="its process id, or the path of its socket"
    )
    _add_keygen(commands)
    _add_broker(commands)
    _add_host(commands)
    status = _add(commands, "status", "hosts, sessions and their actors")
    _add_asking(status, "one JSON object, no tables")
    top = _add(commands, "top", "the same, live, until Ctrl-C", module="status")
    _add_number(top, "--interval", _interval, "seconds between two looks (default 1)")
    top.set_defaults(interval=1.0)
    _add_asking(top, "one JSON object a line")
    logs = _add(commands, "logs", "what an actor has printed")
    logs.add_argument("name", metavar="NAME", help="of the actor")
    follow = "go on until the actor ends"
    logs.add_argument("-f", "--follow", action="store_true", help=follow)
    _add_asking(logs, "one JSON object a line")
    stop = _add(commands, "stop", "end the sessions, hosts and the broker")
    _add_asking(stop, "one JSON object")
    _add_run(commands)
    _add_slurm(commands)
    _add_kubernetes(commands)
    return commands


def _add(
    commands: Commands, name: str, what: str, *, module: str = "", **more: Any
) -> _Parser:
    """One that runs ``mooactor.cli.MODULE.NAME``; without a module, ``NAME.run``."""
    parser = commands.add_parser(name, help=what, **more)
    parser.set_defaults(run=_by(module or name, name if module else "run"))
    return parser


def _by(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        found = importlib.import_module(f"mooactor.cli.{module}")
        return int(getattr(found, function)(options))

    return run


def _add_bench(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="measure this machine beside its peers")
    bench.add_argument("--json", action="store_true", help="one JSON object, no table")
    bench.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="measure the rows whose name begins so (again for more); 'list' lists",
    )
    bench.add_argument(
        "--quick", action="store_true", help="fewer rounds: half a minute, noisier"
    )
    bench.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    from mooactor.cli.bench import report

    return report.run(options.only, options.quick, options.json)


# -- clusters ----------------------------------------------------------------------


def _add_keygen(commands: Commands) -> None:
    keygen = _add(commands, "keygen", "make the key of a cluster")
    _add_text(keygen, "file", "FILE", "default: ~/.config/mooactor/key", nargs="?")
    keygen.add_argument("--force", action="store_true", help="replace a key there")
    keygen.add_argument(
        "--show",
        action="store_true",
        help="the fingerprint of the key that commands use here, or of FILE; make none",
    )


def _add_broker(commands: Commands) -> None:
    broker = _add(commands, "broker", "introduce hosts and drivers")
    _add_text(
        broker,
        "--listen",
        "ADDR:PORT",
        "ADDR may be an interface's name; default: port 4431, of all addresses if "
        "there is a key, else of loopback",
    )
    _add_text(broker, "--standby-of", "ADDR", "be the second broker beside that one")
    _add_ports(broker, "listen on one of these ports")
    _add_key(broker)


def _add_host(commands: Commands) -> None:
    host = _add(commands, "host", "offer this machine to sessions")
    host.add_argument(
        "--join", required=True, metavar="ADDR[,ADDR]", help="the broker, or several"
    )
    meaning = "of this host (default: MOOACTOR_HOST_NAME, or the kernel's name)"
    host.add_argument("--name", type=_some, help=meaning)
    _add_offers(host)
    host.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for moo.on(…, labels=…); again for more",
    )
    _add_text(
        host,
        "--bind",
        "ADDR",
        "listen there: a numeric address, the name of an interface, or * for all; "
        "default: on the way to the broker",
    )
    _add_ports(host)
    _add_key(host)
    host.add_argument(
        "--wait",
        action="store_true",
        help="go on trying if the broker has another key, in place of ending",
    )
    # Of hosts that a rank of a job starts.
    host.add_argument("--with-broker", action="store_true", help=argparse.SUPPRESS)


def _add_asking(parser: _Parser, as_json: str) -> None:
    """The options of a command that asks a cluster something."""
    parser.add_argument("--json", action="store_true", help=as_json)
    _add_text(
        parser,
        "--connect",
        "ADDR",
        "the broker, or several with commas (default: MOOACTOR_ADDRESS, else "
        "127.0.0.1)",
    )
    _add_key(parser)


# -- launches ----------------------------------------------------------------------


def _add_run(commands: Commands) -> None:
    run = _add(
        commands,
        "run",
        "run a program with actors on many hosts",
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
    _add_key(run, "default: your key, or a new one if you have made none")
    _add_ports(run)
    run.add_argument(
        "--address",
        metavar="ADDR",
        type=_address,
        help="of this machine, as the hosts see it",
    )
    _add_number(run, "--min-hosts", _count, "begin with N (default: all)")
    patience = "seconds for the hosts to start (default 60, in a job 300)"
    _add_number(run, "--patience", _seconds, patience)
    _add_text(run, "--rendezvous", "DIR", "in a job: a directory of all its hosts")
    _add_offers(run, " on each host")


def _add_slurm(commands: Commands) -> None:
    slurm = _add(
        commands,
        "slurm",
        "write and submit a Slurm batch job",
        module="run",
        usage="mooactor slurm --nodes N [OPTION …] SCRIPT ARGS…",
        description="Write a batch script that runs SCRIPT with a host on each node, "
        "and submit it with sbatch.",
    )
    _add_machines(slurm, "node", "--nodes")
    slurm.add_argument("--mem", metavar="M", help="memory of each node, such as 64G")
    slurm.add_argument("--partition", metavar="NAME")
    slurm.add_argument("--account", metavar="NAME")
    slurm.add_argument("--time", metavar="T", help="limit, such as 2:00:00")
    _add_text(slurm, "--job-name", "NAME", "default: SCRIPT's name")
    slurm.add_argument(
        "--sbatch",
        metavar="OPTION",
        action="append",
        default=[],
        help="any other line after #SBATCH, such as --qos=high (again for more)",
    )
    _add_ports(slurm)
    slurm.add_argument(
        "--dry-run", action="store_true", help="print the script, submit nothing"
    )
    _add_program(slurm)


def _add_kubernetes(commands: Commands) -> None:
    kubernetes = _add(
        commands,
        "kubernetes",
        "write the manifest of a Kubernetes job",
        module="run",
        usage="mooactor kubernetes --hosts N --image IMAGE [OPTION …] SCRIPT ARGS…",
        description="Print a manifest for kubectl apply -f -: an indexed Job with a "
        "pod for each host, a headless Service for their names, and a Secret with a "
        "new key.",
    )
    _add_machines(kubernetes, "pod", "--hosts")
    _add_number(
        kubernetes, "--memory", _memory, "memory of each pod, such as 64GB", "M"
    )
    kubernetes.add_argument(
        "--image", metavar="IMAGE", required=True, help="has Python and mooactor"
    )
    _add_text(kubernetes, "--name", "NAME", "default: SCRIPT's name")
    kubernetes.add_argument("--namespace", metavar="NAME")
    kubernetes.add_argument(
        "--secret", metavar="NAME", help="one that exists, with the key in `key`"
    )
    _add_program(kubernetes, "in the image", "python3", "the image's own")


def _add_machines(parser: _Parser, what: str, number: str) -> None:
    """How many machines are wanted, and what each must have."""
    parser.add_argument(
        number, metavar="N", type=_count, required=True, help=f"number of {what}s"
    )
    _add_number(parser, "--cpus", _count, f"cores of each {what}")
    _add_number(parser, "--gpus", _count, f"GPUs of each {what}")


def _add_program(
    parser: _Parser,
    where: str = "on the hosts",
    python: str = "this one",
    cwd: str = "this one",
) -> None:
    """SCRIPT ARGS, and what they run with: `python` and `cwd` by default."""
    _add_text(parser, "--python", "P", f"interpreter {where} (default: {python})")
    _add_text(parser, "--cwd", "D", f"directory {where} (default: {cwd})")
    parser.add_argument(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="a variable for the hosts and for SCRIPT (again for more)",
    )
    grace = "seconds that SCRIPT has to end after Ctrl-C or SIGTERM (default 1.2)"
    _add_number(parser, "--grace", _seconds, grace, "S")
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is a module's name"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python program")
    parser.add_argument(
        "arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments"
    )


# -- options that several have -----------------------------------------------------


def _add_text(
    parser: _Parser, name: str, metavar: str, meaning: str, **more: Any
) -> None:
    """One whose value is no empty string: without it there is a default, which is not
    meant."""
    parser.add_argument(name, metavar=metavar, type=_some, help=meaning, **more)


def _add_number(
    parser: _Parser,
    name: str,
    kind: Callable[[str], float],
    meaning: str,
    metavar: str = "",
) -> None:
    seconds = kind in (_seconds, _interval)
    metavar = metavar or ("S" if seconds else "N")
    parser.add_argument(name, metavar=metavar, type=kind, help=meaning)


def _add_key(
    parser: _Parser,
    meaning: str = "the cluster's key (default: MOOACTOR_KEY_FILE, MOOACTOR_KEY, else "
    "~/.config/mooactor/key)",
) -> None:
    _add_text(parser, "--key-file", "FILE", meaning)


def _add_ports(parser: _Parser, what: str = "listen on these ports only") -> None:
    """``--ports``, for firewalls: a range."""
    parser.add_argument("--ports", metavar="A-B", type=_ports, help=what)


def _add_offers(parser: _Parser, of_each: str = "") -> None:
    """The offer of a host, or of each of several."""
    rest = f"to offer{of_each} (default: all)"
    _add_number(parser, "--num-cpus", _whole, f"cores {rest}")
    _add_number(parser, "--num-gpus", _whole, f"GPUs {rest}")
    meaning = f"memory to offer{of_each}, such as 64GB (default: all)"
    _add_number(parser, "--memory", _memory, meaning, "M")


# -- their types -------------------------------------------------------------------


def _some(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "its value is empty: write one, or leave the option out"
        )
    return text


def _address(text: str) -> str:
    """A host's name or address."""
    from mooactor.control.addresses import is_host

    text = text.removeprefix("[").removesuffix("]")
    if not is_host(text):
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is no address: write a name or a number such as 10.0.0.5, "
            "without a port"
        )
    return text


def _ports(text: str) -> range:
    from mooactor.host.addresses import parse_ports

    try:
        return parse_ports(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _within(
    kind: Callable[[str], float], what: str, least: float, most: float
) -> Callable[[str], float]:
    """The type of a number within these bounds."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r:.40} is no {what} from {least:g}, and at most {most:.0f}"
            )
        return value

    return read


def _digits(text: str) -> int:
    if not text.isdecimal():
        raise ValueError
    return int(text)


_seconds = _within(float, "number of seconds", 0.001, LONGEST_S)
_interval = _within(float, "number of seconds", 0.1, 3600)
_count = _within(_digits, "whole number", 1, MOST_THINGS)
_whole = _within(_digits, "whole number", 0, MOST_THINGS)


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
for _exponent, _letter in enumerate("KMGT", 1):
    for _rest in ("", "I", "IB"):
        _UNITS[_letter + _rest] = 1 << 10 * _exponent


def _memory(text: str) -> int:
    """A number of bytes, such as 64GB or 64GiB; K, M, G and T alone are powers of
    1024."""
    number = text.strip().rstrip("BbIiKkMmGgTt")
    unit = text.strip()[len(number) :].strip().upper()
    try:
        found = int(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        found = -1
    if not 0 <= found <= MOST_BYTES:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is no amount: write one such as 64GB or 64GiB"
        )
    return found
