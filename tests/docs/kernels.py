# SPDX-License-Identifier: MIT
"""A notebook's kernel for tests: cells run one after another, as a user runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nbclient
import nbformat


class Cell:
    """A cell that was started in a kernel."""

    def __init__(self, notebook: Any, task: asyncio.Task[Any]) -> None:
        self._notebook = notebook
        self._task = task

    @property
    def printed(self) -> str:
        """What stands below it so far: its own output, and that of actors."""
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
        """What the stop button does: SIGINT for the kernel and all its children."""
        await self._client.km.interrupt_kernel()

    async def restart(self) -> None:
        """What the restart button does: a new kernel, without any variable."""
        await self._client.km.restart_kernel(now=True)
        await self._client.kc.wait_for_ready(60)


@asynccontextmanager
async def kernel(directory: Path) -> AsyncIterator[Kernel]:
    """A kernel whose working directory is `directory`."""
    client = nbclient.NotebookClient(
        nbformat.v4.new_notebook(),
        timeout=60,
        resources={"metadata": {"path": str(directory)}},
    )
    async with client.async_setup_kernel():
        yield Kernel(client)
