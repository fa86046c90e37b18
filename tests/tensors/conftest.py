# SPDX-License-Identifier: MIT
from __future__ import annotations

import functools
import gc
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mooactor import ActorUnavailable
from mooactor.tensors import DataPlane
from mooactor.tensors.network import Network
from tests.tensors.cuda_worker import GpuWorker
from tests.tensors.worker import KEY, Worker

Test = TypeVar("Test", bound=Callable[..., object])

#: A stand-in for hardware, if the environment names none.
FABRIC = os.environ.get("MOOACTOR_FABRIC", "tcp;ofi_rxm")

_ids = itertools.count(1 << 20)


@pytest.fixture(scope="module")
def directory() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="moo-plane-")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def new_id() -> Callable[[], int]:
    return lambda: next(_ids) << 16


def over(*transports: str) -> Callable[[Test], Test]:
    """Decorate a test that has a sense over these transports only."""

    def mark(test: Test) -> Test:
        vars(test)["transports"] = transports
        return test

    return mark


#: For tests of what only memory that is really shared does.
only_shm = over("shm")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test over the TRANSPORTS of its module, shared memory by default."""
    if "transport" in metafunc.fixturenames:
        module = getattr(metafunc.module, "TRANSPORTS", ("shm",))
        names = getattr(metafunc.function, "transports", module)
        metafunc.parametrize("transport", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """Transports of the test's planes and workers, separated by commas."""
    with pytest.MonkeyPatch.context() as patch:
        if "ofi" in request.param:
            if why := why_no_fabric():
                pytest.skip(why)
            patch.setenv("MOOACTOR_FABRIC", FABRIC)
        yield str(request.param)


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> str:
    """The provider of libfabric that this test uses, by name."""
    if why := why_no_fabric():
        pytest.skip(why)
    monkeypatch.setenv("MOOACTOR_FABRIC", FABRIC)
    return FABRIC


@functools.cache
def why_no_fabric() -> str:
    """Empty where libfabric and that provider work."""
    with tempfile.TemporaryDirectory(prefix="moo-plane-") as path:
        try:
            network = Network(("ofi",), provider=FABRIC)
            DataPlane(path, 1 << 60, KEY, network).close()
        except ActorUnavailable as error:
            return str(error)
    return ""


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a libcuda.so.1 that needs no GPU."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("fake-cuda")
    source = Path(__file__).with_name("fake_cuda.c")
    command = f"{compiler} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -shared -fPIC"
    target = [str(source), "-o", str(folder / "libcuda.so.1"), "-pthread"]
    subprocess.run([*command.split(), *target], check=True)
    return str(folder)


@pytest.fixture
def new_plane(
    directory: str, new_id: Callable[[], int], transport: str
) -> Iterator[Callable[..., DataPlane]]:
    planes: list[DataPlane] = []

    def make(
        memory_limit: int | None = None, key: bytes = KEY, **options: Any
    ) -> DataPlane:
        names = options.pop("transports", transport.split(","))
        network = None if names is None else Network(tuple(names), **options)
        planes.append(
            DataPlane(directory, new_id(), key, network, memory_limit=memory_limit)
        )
        return planes[-1]

    yield make
    for plane in planes:
        plane.close()
    planes.clear()
    gc.collect()


@pytest.fixture
def plane(new_plane: Callable[..., DataPlane]) -> DataPlane:
    return new_plane()


@pytest.fixture
def new_worker(
    directory: str, new_id: Callable[[], int], transport: str
) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(transports: str = transport) -> Worker:
        workers.append(Worker(directory, new_id(), TEST_TRANSPORTS=transports))
        workers[-1].call("statistics")  # it is there
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture
def victim(new_worker: Callable[..., Worker]) -> Worker:
    """One for a test that kills it."""
    return new_worker()


@pytest.fixture(scope="module")
def standing(
    directory: str, new_id: Callable[[], int], transport: str
) -> Iterator[Worker]:
    worker = Worker(directory, new_id(), TEST_TRANSPORTS=transport)
    worker.call("statistics")  # it is there
    yield worker
    worker.close()


@pytest.fixture
def worker(standing: Worker) -> Iterator[Worker]:
    """The same for all tests of a module; it keeps nothing from one to the next."""
    yield standing
    os.kill(standing.pid, signal.SIGCONT)  # a test that failed may have stopped it
    standing.call("drop")


@pytest.fixture
def new_gpu_worker(
    directory: str, new_id: Callable[[], int], fake_cuda: str
) -> Iterator[Callable[..., GpuWorker]]:
    workers: list[GpuWorker] = []

    def start(**env: str) -> GpuWorker:
        workers.append(GpuWorker(directory, new_id(), LD_LIBRARY_PATH=fake_cuda, **env))
        workers[-1].call("pid")
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture
def lender(new_process: Callable[..., GpuWorker]) -> GpuWorker:
    """By the module's own `new_process`, as the reader is."""
    return new_process()


@pytest.fixture
def reader(new_process: Callable[..., GpuWorker]) -> GpuWorker:
    return new_process()
