# SPDX-License-Identifier: MIT
"""Installed software: Python, the extension, torch, CUDA, the Atari ROMs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from mooactor import __version__
from mooactor.cli.doctor import rebuild
from mooactor.cli.doctor.finding import Finding, broken, note, ok, slow

EXTENSION = "mooactor.tensors._cext"


def python() -> Finding:
    """CPython 3.11 or newer."""
    detail = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info >= (3, 11) and sys.implementation.name == "cpython":
        return ok("python", f"{detail}; mooactor {__version__}")
    return broken("python", detail, "use CPython 3.11 or newer")


def dependencies() -> Finding:
    """The four packages that mooactor requires."""
    names = ("pyzmq", "cffi", "cloudpickle", "msgspec", "numpy")
    try:
        found = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)
    except importlib.metadata.PackageNotFoundError as error:
        return broken("packages", f"{error.name} is missing", "pip install mooactor")
    return ok("packages", found)


def extension() -> Finding:
    """The compiled data plane."""
    spec = importlib.util.find_spec(EXTENSION)
    if spec is None or spec.origin is None:
        remedy = f"install gcc and python3-dev, then: {rebuild.command()}"
        return broken("C data plane", "the extension was not built", remedy)
    try:
        importlib.import_module(EXTENSION)
    except ImportError as error:
        return broken("C data plane", str(error), rebuild.command())
    return ok("C data plane", Path(spec.origin).name)


def compiler() -> Finding:
    """Only needed to build mooactor."""
    path = shutil.which("gcc") or shutil.which("cc")
    if path is None:
        return note("compiler", "none, and none is needed to run")
    version = _output(path, "-dumpfullversion")
    return ok("compiler", f"{Path(path).name} {version}".strip())


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


def atari() -> Finding:
    """The emulator and its game images."""
    if importlib.util.find_spec("ale_py") is None:
        remedy = "pip install 'mooactor[atari]' -c constraints.txt"
        return note("Atari", "ale-py is not installed", remedy)
    spec = importlib.util.find_spec("ale_py.roms")
    folders = list(spec.submodule_search_locations or []) if spec else []
    games = [rom for folder in folders for rom in Path(folder).glob("*.bin")]
    version = importlib.metadata.version("ale-py")
    if games:
        return ok("Atari", f"ale-py {version} with {len(games)} games")
    remedy = "pip install --force-reinstall ale-py (0.9 and newer bring the ROMs)"
    return slow("Atari", f"ale-py {version} without ROMs", remedy)


def _output(*command: str) -> str:
    """The output of a program; empty if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


CHECKS = (python, dependencies, extension, compiler, torch, cuda, atari)
