# SPDX-License-Identifier: MIT
"""Notebooks with actors on another host: a real kernel, a broker and a host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nbformat", reason="needs ipykernel and nbclient")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from mooactor.control import secret
from mooactor.process import environment
from tests.cluster.clusters import Command
from tests.conftest import eventually
from tests.docs.kernels import Kernel, begin, story

# Kernels start in seconds; their libraries warn of what is not ours.
pytestmark = [pytest.mark.timeout(150), pytest.mark.filterwarnings("default")]

# It runs until the test has seen the line of output.
SPEAK = """
{await_}far.say.remote("{text}")
while not os.path.exists("{text}"):
    time.sleep(0.01)
"""
# Cells that wait for an actor which sleeps; the actors near and far are idle.
# The kernel cancels a cell that awaits, as soon as its event loop has something to do.
WAITS = {
    "moo.on(Counter, host='b').spawn().sleep(60)": "KeyboardInterrupt",
    "moo.get(moo.spawn(Counter).sleep.remote(60))": "KeyboardInterrupt",
    """
async def tick():
    while True:
        await asyncio.sleep(0.05)

ticking = asyncio.create_task(tick())
await moo.on(Counter, host='b').spawn().sleep.remote(60)
""": "CancelledError",
}
STILL = "assert (near.add(), far.add()) == ({n}, {n})"


@pytest.fixture
def address(
    tmp_path: Path, kernels: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Of a broker that a host b has joined; kernels are on a host named laptop."""
    key = secret.make(str(tmp_path / "key")).source
    monkeypatch.setenv(secret.FILE_VARIABLE, key)
    for variable in (environment.HOST_VARIABLE, "MOOACTOR_HOST_ID"):
        monkeypatch.setenv(variable, "laptop")
    broker = Command("broker", "--listen", "127.0.0.1:0", "--key-file", key)
    host = None
    try:
        found = ready(broker, "mooactor broker at ")
        words = ("host", "--join", found, "--name", "b", "--key-file", key)
        host = Command(*words, MOOACTOR_HOST_ID="b")
        ready(host, "mooactor host b joined ")
        yield found
    finally:
        for command in (host, broker):
            if command is not None:
                command.close()


def ready(command: Command, begins: str) -> str:
    """The last word of the line that says that it is ready."""
    assert eventually(lambda: command.out or command.ended, 60)
    assert command.out and command.out[0].startswith(begins), command.text()
    return command.out[0].split()[-1]


async def prints_appear(kernel: Kernel, directory: Path, text: str, how: str) -> None:
    """The far actor's output stands below the cell that runs meanwhile."""
    cell = kernel.start(SPEAK.format(text=text, await_=how))
    await cell.shows(f") {text}")
    (directory / text).touch()
    await cell.end()


@pytest.mark.slow
def test_cells_use_actors_of_another_host_and_show_what_these_print(
    address: str, tmp_path: Path
) -> None:
    async def told(kernel: Kernel) -> None:
        await begin(kernel, address)
        await prints_appear(kernel, tmp_path, "blocking", "")
        await kernel.run("assert await far.twice(4) == await near.twice(4) == 8")
        await prints_appear(kernel, tmp_path, "awaiting", "await ")
        again = await kernel.start(f"moo.init({address!r})").error()
        assert again == "MooError: a session runs already; moo.shutdown() ends it"
        await kernel.run("moo.shutdown()")
        await begin(kernel, address)
        await prints_appear(kernel, tmp_path, "second", "")
        await kernel.restart()
        await begin(kernel, address)
        await kernel.run("moo.shutdown()")

    story(tmp_path, told)


@pytest.mark.slow
def test_an_interrupted_cell_leaves_the_session_of_several_hosts_usable(
    address: str, tmp_path: Path
) -> None:
    async def told(kernel: Kernel) -> None:
        await begin(kernel, address)
        for number, (waits, error) in enumerate(WAITS.items()):
            cell = kernel.start(waits)
            await cell.shows(") asleep")
            await kernel.interrupt()
            assert (await cell.error()).startswith(f"{error}:")
            await kernel.run(STILL.format(n=number + 2))
        await kernel.run("moo.shutdown()")

    story(tmp_path, told)
