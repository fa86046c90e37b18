# SPDX-License-Identifier: MIT
"""A notebook's kernel for tests: cells run one after another, as a user runs them.

The notebooks of the tests begin alike: with a class of actors, a session and a spawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nbclient
import nbformat

COUNTER = """
import asyncio, os, signal, threading, time
import mooactor as moo

@moo.actor
class Counter:
    def __init__(self): self.total = 0
    def add(self, n=1):
        self.total += n
        return self.total
    def host(self): return os.environ["MOOACTOR_HOST_ID"]
    def say(self, text): print(text)
    def sleep(self, s):
        print("asleep")
        time.sleep(s)  # a method that takes long
    def up_to(self, n): yield from range(n)
    async def twice(self, n): return 2 * n
"""
SPAWN = "counter = moo.spawn(Counter)"
SPAWN_ON_TWO_HOSTS = """
near = moo.on(Counter, host="laptop").spawn()
far = moo.on(Counter, host="b").spawn()
assert (near.host(), far.host()) == ("laptop", "b")
assert (near.add(), far.add()) == (1, 1)
"""


class Cell:
    """A cell that was started in a kernel."""

    def __init__(self, notebook: Any, task: asyncio.Task[Any]) -> None:
        self._notebook = notebook
        self._task = task

    @property
    def printed(self) -> str:
        """The text below it so far: its own output, and that of actors."""
        found = self._notebook.outputs
        return "".join(output.get("text", "") for output in found)

    async def shows(self, text: str, seconds: float = 60.0) -> None:
        """Wait until `text` stands below it; it must be running until then."""
        async with asyncio.timeout(seconds):
            while text not in self.printed:
                assert not self._task.done(), (text, self.printed, self._task)
                await asyncio.sleep(0.01)

    async def end(self) -> str:
        """Wait for its end; what it printed. An error in it is raised here."""
        await self._task
        return self.printed

    async def error(self) -> str:
        """Wait for its end, which must be an error: ``Type: message``."""
        try:
            await self._task
        except nbclient.exceptions.CellExecutionError as error:
            return f"{error.ename}: {error.evalue}"
        raise AssertionError(f"the cell ended without an error: {self.printed}")


class Kernel:
    """Executes cells, and has the two buttons: interrupt and restart."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def start(self, source: str) -> Cell:
        """Start a cell; the one before it has ended."""
        cells = self._client.nb.cells
        cells.append(nbformat.v4.new_code_cell(source))
        executed = self._client.async_execute_cell(cells[-1], len(cells) - 1)
        return Cell(cells[-1], asyncio.create_task(executed))

    async def run(self, source: str) -> str:
        """Run a cell to its end; what it printed."""
        return await self.start(source).end()

    async def interrupt(self) -> None:
        """The stop button: SIGINT for the kernel and all its children."""
        await self._client.km.interrupt_kernel()

    async def restart(self) -> None:
        """The restart button: a new kernel, without any variable."""
        await self._client.km.restart_kernel(now=True)
        await self._client.kc.wait_for_ready(60)


async def begin(kernel: Kernel, address: str | None = None) -> None:
    """Run the first cells. They leave an actor `counter` on this host, or, in a session
    of the broker at `address`, the actors `near` on host laptop and `far` on host b.
    """
    spawn = SPAWN if address is None else SPAWN_ON_TWO_HOSTS
    for cell in (COUNTER, f"moo.init({address!r})", spawn):
        await kernel.run(cell)


def client(notebook: Any, directory: Path) -> Any:
    """An executor of the notebook, in a kernel that works in `directory`."""
    resources = {"metadata": {"path": str(directory)}}
    return nbclient.NotebookClient(notebook, timeout=60, resources=resources)


@asynccontextmanager
async def kernel(directory: Path) -> AsyncIterator[Kernel]:
    """A kernel whose working directory is `directory`."""
    opened = client(nbformat.v4.new_notebook(), directory)
    async with opened.async_setup_kernel():
        yield Kernel(opened)


def story(directory: Path, told: Callable[[Kernel], Coroutine[Any, Any, None]]) -> None:
    """A user with one kernel, which ends with it."""

    async def tell() -> None:
        async with kernel(directory) as opened:
            await told(opened)

    asyncio.run(tell())
