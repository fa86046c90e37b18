# SPDX-License-Identifier: MIT
"""``mooactor doctor``: checks of this machine, each with its remedy.

A check is a function that returns a `Finding`; `CHECKS` has them in the order of the
report. They try what they judge: a transport by bytes that cross it, the whole by an
actor that answers.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

import mooactor as moo
from mooactor.errors import MooError
from mooactor.process import files
from mooactor.process.system import MOUNT_PROC, why_no_proc
from mooactor.tensors import network
from mooactor.tensors.limits import memory_in_reach, memory_of_machine, processors
from mooactor.tensors.network import VARIABLE, Network, choose
from mooactor.tensors.plane import DataPlane

State = Literal["ok", "note", "slow", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    ``state`` is ``"ok"``, ``"note"`` (something optional is absent), ``"slow"`` (all
    works, and could be faster or larger) or ``"broken"`` (mooactor cannot run so).
    ``remedy`` is one line that a user can act on, empty if there is nothing to do.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""


def ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def note(name: str, detail: str, remedy: str = "") -> Finding:
    return Finding(name, "note", detail, remedy)


def slow(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, "slow", detail, remedy)


def broken(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, "broken", detail, remedy)


# -- the kernel and the container ---------------------------------------------------

THP = Path("/sys/kernel/mm/transparent_hugepage")
UNIX_PATH_MAX = 107  # bytes of a unix socket's path, without the final zero
OUR_NAMES = 60  # bytes that a session's directory and socket names may need


def system() -> Finding:
    """mooactor runs on Linux; elsewhere it can only be imported."""
    release = os.uname()
    detail = f"{release.sysname} {release.release}, {release.machine}; "
    detail += f"{processors()} cores for this process"
    if sys.platform.startswith("linux"):
        return ok("system", detail)
    return broken("system", detail, "run it on Linux (a virtual machine will do)")


def pidfd() -> Finding:
    """It shows the death of a process at once."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        remedy = "use Linux 5.3 or newer; a container's seccomp profile may forbid it"
        return broken("pidfd", str(error), remedy)
    return ok("pidfd", "deaths of processes are noticed at once")


def processes_seen() -> Finding:
    """/proc, in which a host finds what its actors have left behind."""
    if (why := why_no_proc()) is not None:
        return broken("/proc", why, MOUNT_PROC)
    return ok("/proc", "it shows this process's own pid namespace")


def directory() -> Finding:
    """The directory of a session's sockets."""
    path = tempfile.gettempdir()
    if not os.access(path, os.W_OK | os.X_OK):
        return broken("directory", f"{path} is read-only", "set TMPDIR elsewhere")
    if len(os.fsencode(path)) + OUR_NAMES > UNIX_PATH_MAX:
        remedy = "set TMPDIR=/tmp: the path of a unix socket has at most 107 bytes"
        return broken("directory", f"{path} is too long a path", remedy)
    return ok("directory", f"sockets lie under {path}")


def shared_huge_pages() -> Finding:
    """Transparent huge pages for memfd: fewer page faults, faster first touch."""
    name = "huge pages"
    try:
        chosen = _chosen(THP / "shmem_enabled")
    except OSError:
        return note(name, "this kernel has no transparent huge pages for memfd")
    if chosen in ("always", "within_size", "advise", "force"):
        return ok(name, f"transparent for shared memory ({chosen})")
    remedy = f"as root: echo advise > {THP / 'shmem_enabled'}"
    return slow(name, f"off for shared memory ({chosen}): first touch is slow", remedy)


def _chosen(path: Path) -> str:
    """The word in brackets, as in ``always [never] advise``."""
    return path.read_text().partition("[")[2].partition("]")[0]


def open_files() -> Finding:
    """Each actor needs descriptors in every process connected with it."""
    limit = files.reachable_limit()
    actors = files.capacity(limit)
    detail = f"{limit} for each process after moo.init(): room for {actors} actors"
    if limit >= 4096:
        return ok("open files", detail)
    return slow("open files", detail, files.REMEDY)


def memory() -> Finding:
    """Tensors in shared memory may take half of the memory."""
    limit, total = memory_in_reach(), memory_of_machine()
    origin = "of the control group" if limit < total else "of this machine"
    detail = f"{limit / 2**30:.1f} GiB {origin}; shared arrays may take half of it"
    if limit >= 2 << 30:
        return ok("memory", detail)
    return slow("memory", detail, "give the container more memory for larger tensors")


# -- installed software -------------------------------------------------------------

EXTENSION = "mooactor.tensors._cext"


def python() -> Finding:
    """CPython 3.11 or newer, and the packages that mooactor requires."""
    names = ("pyzmq", "cffi", "cloudpickle", "msgspec", "numpy")
    packages = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)
    detail = f"{platform.python_implementation()} {platform.python_version()}"
    detail += f"; mooactor {moo.__version__}, {packages}"
    if sys.version_info >= (3, 11) and sys.implementation.name == "cpython":
        return ok("python", detail)
    return broken("python", detail, "use CPython 3.11 or newer")


def extension() -> Finding:
    """The compiled data plane."""
    spec = importlib.util.find_spec(EXTENSION)
    if spec is None or spec.origin is None:
        remedy = f"install gcc and python3-dev, then: {rebuild_command()}"
        return broken("C data plane", "the extension was not built", remedy)
    try:
        importlib.import_module(EXTENSION)
    except ImportError as error:
        return broken("C data plane", str(error), rebuild_command())
    return ok("C data plane", Path(spec.origin).name)


def torch() -> Finding:
    """Tensors need it; actors and arrays do not."""
    if importlib.util.find_spec("torch") is None:
        remedy = "pip install 'mooactor[torch]' -c constraints.txt"
        return note("torch", "not installed; numpy arrays work without it", remedy)
    return ok("torch", importlib.metadata.version("torch"))


def cuda() -> Finding:
    """A GPU is optional, and so is sharing its memory between processes."""
    if importlib.util.find_spec("torch") is None:
        return note("CUDA", "unknown without torch")
    question = "import torch; print(torch.cuda.is_available(), torch.version.cuda)"
    available, _, built_for = _output(sys.executable, "-c", question).partition(" ")
    if available == "True":
        tried = _output(sys.executable, "-m", "mooactor.tensors.cuda.peer_access")
        if tried == "can open it":
            return ok("CUDA", f"{built_for}; tensors cross within the GPU")
        why = tried or "the trial failed"
        return note("CUDA", f"{built_for}; tensors cross through host memory ({why})")
    if shutil.which("nvidia-smi") is None:
        return note("CUDA", "no NVIDIA driver here; tensors stay on the CPU")
    remedy = "pip install --force-reinstall torch==2.13.0 (this build sees no GPU)"
    return slow("CUDA", f"driver found, torch built for CUDA {built_for}", remedy)


def _output(*command: str) -> str:
    """The output of a program; empty if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


# The end of the data plane's sentence if it was built without libfabric's headers.
ADVICE = (
    "; install libfabric-dev and build mooactor again "
    "(`mooactor doctor` has the command)"
)


def rebuild_command() -> str:
    """A shell command that compiles the extension that this Python imports."""
    here, source = Path(moo.__file__).parents[1], "mooactor"
    if (here / "cext" / "build.py").exists():  # a clone, or installed from one by -e
        source = f"-e {shlex.quote(str(here))}"
    options = "--force-reinstall --no-deps --no-cache-dir --no-binary mooactor"
    return f"{shlex.quote(sys.executable)} -m pip install {options} {source}"


# -- transports ---------------------------------------------------------------------

INFINIBAND = Path("/sys/class/infiniband")
_BYTES = 4 << 20
_SANDBOX = "allow memfd_create, and SCM_RIGHTS on unix sockets, in the sandbox"
_INSTALL_HEADERS = "apt-get install libfabric-dev, or your system's equivalent"
_INSTALL = (
    "apt-get install libfabric1 libfabric-bin rdma-core, or your system's equivalent"
)


def shared_memory() -> Finding:
    """The way on one host, by a descriptor that is really passed."""
    name = "shm"
    try:
        spent = _cross("shm")
    except (MooError, OSError, RuntimeError) as error:
        return broken(name, str(error), _SANDBOX)
    return ok(name, f"4 MiB crossed without the network in {1e3 * spent:.1f} ms")


def tcp() -> Finding:
    """The way between hosts that is always available."""
    name = "tcp"
    try:
        spent = _cross("tcp")
    except (MooError, OSError, RuntimeError) as error:
        remedy = "bring the loopback interface up: ip link set lo up"
        return note(name, f"not on this machine: {error}", remedy)
    return ok(name, f"4 MiB there over the loopback in {1e3 * spent:.1f} ms")


def rdma() -> Finding:
    """InfiniBand, RoCE, EFA and the like, by way of libfabric."""
    name = "ofi"
    devices = sorted(path.name for path in INFINIBAND.glob("*"))
    found, lines = network.probe_fabric()
    if not found:
        detail = "; ".join(lines).removesuffix(ADVICE)
        return note(name, detail, _remedy(devices, detail != "; ".join(lines)))
    fabric = ", ".join(lines[:2])
    try:
        spent = _cross("ofi")
    except (MooError, OSError, RuntimeError) as error:
        return note(name, f"{fabric}: {error}", _remedy(devices))
    return ok(name, f"{fabric}: 4 MiB crossed in {1e3 * spent:.1f} ms")


def _remedy(devices: list[str], to_rebuild: bool = False) -> str:
    if not devices and not to_rebuild:
        return ""  # no installation would add a device
    who = f"{', '.join(devices)} could be used" if devices else "if there is RDMA"
    if to_rebuild:
        return f"{who}: {_INSTALL_HEADERS}, then: {rebuild_command()}"
    return f"{who}: {_INSTALL}; raise ulimit -l"


def chosen() -> Finding:
    """The transport that a session started now would use."""
    name = "transport"
    try:
        choice = choose(None)
    except ValueError as error:
        return broken(name, str(error), f"unset {VARIABLE}, or correct it")
    if choice.transports is None:
        return ok(name, "auto: shared memory, as a session is on one host")
    try:
        used = _route(choice.transports)
    except (MooError, OSError, RuntimeError) as error:
        return broken(name, f"{VARIABLE}={choice}: {error}", f"unset {VARIABLE}")
    return ok(name, f"{VARIABLE}={choice}: on one host {used}")


def _cross(*transports: str) -> float:
    """Seconds for some data from one plane to another, with nothing set up before."""
    began = time.perf_counter()
    _route(transports)
    return time.perf_counter() - began


def _route(transports: tuple[str, ...]) -> str | None:
    """Send some data by the best of `transports`; return its name.

    Raises:
      MooError, OSError, RuntimeError: it did not get there.
    """
    with tempfile.TemporaryDirectory(prefix="moo-doctor-") as directory:
        key = os.urandom(16)
        planes = [
            DataPlane(directory, number << 16, key, Network(transports))
            for number in (1, 2)
        ]
        here, there = planes
        try:
            sent = os.urandom(_BYTES)
            received = there.import_(here.export(sent, there.process_id))
            if received != sent:
                raise RuntimeError("the received bytes differ from the sent bytes")
            return here.route(there.process_id)[0]
        finally:
            for plane in planes:
                plane.close()


# -- the whole ----------------------------------------------------------------------

ELEMENTS = 1 << 18  # 2 MiB of float64: far above what travels inside a message


@moo.actor
class Trial:
    """Adds up an array, and returns it."""

    def total(self, values: NDArray[np.float64]) -> float:
        return float(values.sum())

    def echo(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values


def an_actor() -> Finding:
    """Start a session, an actor, send it an array and get it back."""
    began = time.perf_counter()
    try:
        agreed = _round_trip()
    except Exception as error:  # every error is the finding
        detail = f"{type(error).__name__}: {error}"
        return broken(
            "an actor",
            detail,
            "repair the broken parts above; if this still fails, report it",
        )
    if not agreed:
        remedy = "please report it with this report's --json"
        return broken("an actor", "an array came back with other values", remedy)
    spent = time.perf_counter() - began
    return ok("an actor", f"started, called, sent 2 MiB both ways in {spent:.2f} s")


def _round_trip() -> bool:
    values = np.arange(ELEMENTS, dtype=np.float64)
    with moo.init():
        trial = moo.spawn(Trial)
        right = trial.total(values) == values.sum()
        return cast(bool, right and np.array_equal(trial.echo(values), values))


CHECKS = (
    system,
    memory,
    pidfd,
    processes_seen,
    directory,
    shared_huge_pages,
    open_files,
    python,
    extension,
    torch,
    cuda,
    shared_memory,
    tcp,
    rdma,
    chosen,
    an_actor,
)

VERDICTS = {
    "ok": "Everything works here.",
    "note": "Everything works here; the absent parts are optional.",
    "slow": "Everything works here; the remedies above make it faster or larger.",
    "broken": "mooactor cannot run here: repair the broken parts above.",
}


def run(options: argparse.Namespace) -> int:
    """Print one line for each check; 0 unless something essential is broken."""
    findings: list[Finding] = []
    for check in CHECKS:
        findings.append(check())
        if not options.json:
            print(line(findings[-1]), flush=True)
        if check is system and findings[-1].state == "broken":
            break  # the other checks need Linux
    states = {finding.state for finding in findings}
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print(verdict(states))
    return int("broken" in states)


def line(finding: Finding) -> str:
    """The lines in the report: state, name, detail, and the remedy below them."""
    text = f"{finding.state:>6}  {finding.name:<14} {finding.detail}"
    if finding.remedy:
        text += f"\n{'':>24}→ {finding.remedy}"
    return text


def verdict(states: Iterable[str]) -> str:
    """The last sentence: that of the worst state found."""
    worst = max(states, key=list(VERDICTS).index)
    return VERDICTS[worst]
