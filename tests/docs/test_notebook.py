# SPDX-License-Identifier: MIT
"""Notebooks: cells of a real kernel block and await."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbformat", reason="needs ipykernel and nbclient")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

import nbclient
import nbformat

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
# A kernel starts in a second or two; its libraries warn of what is not ours.
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("kernels"),
]

COUNTER = """
import asyncio
import mooactor as moo

@moo.actor
class Counter:
    def __init__(self): self.total = 0
    def add(self, n=1):
        self.total += n
        return self.total
    def up_to(self, n): yield from range(n)
    async def twice(self, n): return 2 * n
"""
BEGIN = "moo.init(); counter = moo.spawn(Counter)"
BLOCKING = """
assert counter.add() == 1
assert counter.add.remote().get() == 2
assert moo.get([counter.add.remote(), counter.add.remote()]) == [3, 4]
done, rest = moo.wait([counter.add.remote()])
assert not rest
assert [ref.get() for ref in moo.as_completed([counter.add.remote()])] == [6]
assert list(counter.up_to(40)) == list(range(40))
assert moo.on(Counter).group(2).call(Counter.add).get() == [1, 1]
assert isinstance(next(moo.monitor(counter)), moo.Started)
moo.stop(moo.spawn(Counter))
"""
AWAITING = """
before = await counter.add.remote(0)
assert await counter.twice(4) == 8
refs = [counter.add.remote() for _ in range(20)]
assert await asyncio.gather(*refs) == [before + i for i in range(1, 21)]
assert [i async for i in counter.up_to(40)] == list(range(40))
"""
# A cell that awaits runs as a task, and the loop has readers of the inbox by now.
MIXED = """
await asyncio.sleep(0)
before = counter.add(0)
assert counter.add() == before + 1
assert moo.get([counter.add.remote(), counter.add.remote()]) == [before + 2, before + 3]
assert list(counter.up_to(40)) == list(range(40))
assert next(moo.as_completed([counter.add.remote()])).get() == before + 4
assert await counter.twice(4) == 8
ticks = []
async def tick():
    while True:
        ticks.append(await counter.twice(1))
        await asyncio.sleep(0)
background = asyncio.create_task(tick())
await asyncio.sleep(0.05)
assert counter.add() > 0  # while another task of the loop waits for a reply
seen = len(ticks)
while len(ticks) < seen + 5:
    await asyncio.sleep(0.01)
background.cancel()
"""
REFUSED = """
async def program():
    counter.add(1000)

before = counter.add(0)
try:
    await asyncio.create_task(program())
except RuntimeError as error:
    assert "would block the running event loop" in str(error)
else:
    raise AssertionError("a task of the user's own blocked the kernel")
assert counter.add(0) == before  # nothing was sent
"""
END = "moo.shutdown()"


def run(notebook: Any, directory: Path) -> Any:
    """Its cells in a kernel that works in `directory`; an error in one is raised."""
    resources = {"metadata": {"path": str(directory)}}
    client = nbclient.NotebookClient(notebook, timeout=60, resources=resources)
    return asyncio.run(client.async_execute())


def test_cells_block_and_await_like_a_script(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    for cell in (COUNTER, BEGIN, BLOCKING, AWAITING, MIXED, REFUSED, END):
        notebook.cells.append(nbformat.v4.new_code_cell(cell))
    run(notebook, tmp_path)


@pytest.mark.slow
def test_the_notebook_of_the_examples_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    done = run(notebook, tmp_path)
    values = [o["data"]["text/plain"] for c in done.cells for o in c.get("outputs", [])]
    assert values == [
        "[0, 1, 4, 9, 16]",
        "[0, 1, 4, 9, 16]",
        "[0, 1, 4, 9, 16, 25, 36, 49, 64, 81]",
        "(25.0, 36.0)",
    ]


def test_the_notebook_of_the_examples_has_no_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not c.outputs and c.execution_count is None for c in code)
