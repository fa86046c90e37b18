# SPDX-License-Identifier: MIT
"""Sessions and event loops: who may block where, and a loop that outlives sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
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


BLOCKING: dict[str, Callable[[Any], object]] = {
    "a call": lambda h: h.note("call"),
    "get": lambda h: h.add.remote(0).get(),
    "result": lambda h: h.add.remote(0).result(),
    "exception": lambda h: h.add.remote(0).exception(),
    "moo.get": lambda h: moo.get([h.add.remote(0)]),
    "moo.wait": lambda h: moo.wait([h.add.remote(0)]),
    "as_completed": lambda h: next(moo.as_completed([h.add.remote(0)])),
    "a stream": lambda h: next(h.up_to_error(3)),
    "a group's call": lambda h: moo.Group([h]).call(Counter.add, 0).get(),
    "stop": moo.stop,
    "lookup": lambda h: moo.lookup("nobody", timeout=5),
    "LearnerGroup": lambda h: moo.LearnerGroup("loops", min_size=2, timeout=5),
}


def test_blocking_on_a_running_loop_is_refused_and_nothing_is_sent(spawn: Any) -> None:
    counter = spawn(Counter)

    async def main() -> list[Any]:
        for form, block in BLOCKING.items():
            with pytest.raises(RuntimeError, match="would block the running event lo"):
                block(counter)
            assert await counter.notes.remote() == [], form  # it heard of nothing
        return list(await counter.notes.remote())

    assert asyncio.run(main()) == []


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
