# SPDX-License-Identifier: MIT
"""Sessions and event loops: who may block where, and a loop that outlives sessions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mooactor as moo
from tests.actors.counter import Counter


async def use(refs: int = 1) -> None:
    counter = moo.spawn(Counter)
    calls = (asyncio.wait_for(counter.add.remote(1), 20) for _ in range(refs))
    assert await asyncio.gather(*calls) == list(range(1, refs + 1))


def test_a_loop_outlives_one_session_after_another(no_session: None) -> None:
    async def main() -> None:
        with moo.init():
            await use(20)
        moo.init()
        await use(20)
        await asyncio.to_thread(moo.shutdown)  # in another thread than the loop's
        moo.init()
        await use()
        ending = threading.Thread(target=moo.shutdown)
        ending.start()
        ending.join()  # this loop could not be told
        with moo.init():
            await use()
        # The numbers of the session's descriptors are free again.
        servers = [await asyncio.start_server(echo, "127.0.0.1", 0) for _ in range(8)]
        for server in servers:
            address = server.sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"hello\n")
            assert await asyncio.wait_for(reader.readline(), 20) == b"hello\n"
            writer.close()
            await writer.wait_closed()
            server.close()
            await server.wait_closed()

    asyncio.run(main())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()
    await writer.wait_closed()


#: With an actor, and a call to it that has not ended.
BLOCKING: dict[str, Callable[[Any, Any], object]] = {
    "a call": lambda h, ref: h.note("call"),
    "get": lambda h, ref: ref.get(),
    "result": lambda h, ref: ref.result(),
    "exception": lambda h, ref: ref.exception(),
    "moo.get": lambda h, ref: moo.get([ref]),
    "moo.wait": lambda h, ref: moo.wait([ref]),
    "as_completed": lambda h, ref: next(moo.as_completed([ref])),
    "a stream": lambda h, ref: next(h.up_to_error(3)),
    "a group's call": lambda h, ref: moo.Group([h]).call(Counter.add).get(),
    "stop": lambda h, ref: moo.stop(h),
    "lookup": lambda h, ref: moo.lookup("nobody", timeout=5),
    "LearnerGroup": lambda h, ref: moo.LearnerGroup("loops", min_size=2, timeout=5),
}


def test_blocking_on_a_running_loop_is_refused_and_nothing_is_sent(
    spawn: Any, tmp_path: Path
) -> None:
    counter, gate = spawn(Counter), tmp_path / "gate"
    pending = counter.until.remote(gate)

    async def main() -> list[Any]:
        for form, block in BLOCKING.items():
            with pytest.raises(RuntimeError, match="would block the running event lo"):
                block(counter, pending)
                pytest.fail(form)
        gate.touch()
        return list(await counter.notes.remote())

    assert asyncio.run(main()) == []  # it lives, and heard of nothing


def test_operations_of_a_learner_group_are_awaited_on_a_loop(session: Any) -> None:
    async def main() -> None:
        array = np.ones(3)
        work = group.allreduce(array, op="sum")
        with pytest.raises(RuntimeError, match="await"):
            work.wait()
        with pytest.raises(RuntimeError, match="to_thread"):
            group.barrier()
        await work
        await asyncio.to_thread(group.barrier)

    with moo.LearnerGroup("awaited", min_size=1) as group:
        asyncio.run(main())


def test_what_does_not_wait_for_an_actor_works_on_a_loop(spawn: Any) -> None:
    async def main() -> None:
        counter = moo.on(Counter, name="looped").spawn()
        assert moo.lookup("looped") == counter
        events = moo.monitor(counter)
        assert isinstance(await anext(events), moo.Started)
        counter.note.tell("told")
        assert await moo.put(3) == 3
        await counter.notes.remote()
        moo.kill(counter)
        assert isinstance(await anext(events), moo.Stopped)

    asyncio.run(main())


def test_a_program_without_a_loop_never_imports_asyncio() -> None:
    program = (
        "import sys, mooactor.process.loops as loops\n"
        "assert not loops.blocks_a_loop() and 'asyncio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
