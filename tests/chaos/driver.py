# SPDX-License-Identifier: MIT
"""The driver of one act: starts the actors, and loads them until its stdin ends.

Run as ``python -m tests.chaos.driver SETTING``, which is JSON: `directory` and `hosts`
as in `workload.Setting`, `seed`, `address` of the broker or null, `place`: the names of
the hosts for actors, in turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.chaos import workload
from tests.chaos.client import Client, digest, id_of
from tests.chaos.learners import LEARNERS, Learner
from tests.chaos.workload import Loop, Setting, Watcher, Worker, array

CLAIMS = ("claim0", "claim1")
_FOREVER = moo.Restart(max=10_000, within=1.0)
_SIZES = (10, 1000, 70_000, 1 << 20, 5 << 20)


class Driver:
    """The actors, and the threads that call them."""

    def __init__(self, config: dict[str, Any]) -> None:
        hosts = {int(inode): name for inode, name in config["hosts"].items()}
        self.setting = Setting(config["directory"], hosts)
        self.seed = config["seed"]
        self.notes = workload.born(self.setting, "driver", "", 0)
        self.over = threading.Event()
        self._places = config["place"]
        self.workers: dict[str, Any] = {}
        self.learners: dict[str, Any] = {}
        self.group: Any = None
        self.watcher: Any = None

    # -- beginning and end -------------------------------------------------

    def spawn(self) -> None:
        """All actors that last."""
        for name in ("w0", "w1", "w2", "v0", "v1", "calm", "breeze"):
            kind = Loop if name[0] in "vb" else Worker
            self.workers[name] = self.spawn_one(kind, name, restart=_FOREVER)
        place = self.place()
        on = moo.on(Worker, name="g", restart=_FOREVER, **place)
        self.group = on.group(3, self.setting)
        for rank, member in enumerate(self.group):
            self.workers[f"g.{rank}"] = member
            self.note_spawned(member, f"g/{rank}", place)
        on_loss = random.Random(self.seed).choice(["raise", "finish"])
        for name in LEARNERS:
            one = self.spawn_one(Learner, name, on_loss, restart=_FOREVER)
            self.learners[name] = one
        self.watcher = self.spawn_one(Watcher, "watcher")

    def place(self) -> dict[str, str]:
        """Where the next actor goes: each host in turn."""
        if not self._places:
            return {}
        self._places.append(self._places.pop(0))
        return {"host": self._places[-1]}

    def spawn_one(self, kind: type, name: str, *args: Any, **options: Any) -> Any:
        place = self.place()
        on = moo.on(kind, name=name, **options, **place)
        handle = on.spawn(self.setting, *args)
        self.note_spawned(handle, name, place)
        return handle

    def note_spawned(self, handle: Any, name: str, place: dict[str, str]) -> None:
        facts = {"name": name, "owned": True, **place}
        self.notes.note("spawned", actor=id_of(handle), **facts)

    def run(self) -> None:
        """Load them until stdin ends; then end all in good order."""
        self.spawn()
        lasting = self.workers | self.learners
        named = lasting.items()
        watching = [self._start(self._watch, name, one) for name, one in named]
        self.watcher.watch.remote(list(lasting.values()))
        calling = [
            *(self._start(Load(self, f"load{n}").run, 0.01) for n in range(3)),
            *(self._start(Claims(self, f"claims{n}").run, 0.1) for n in range(2)),
        ]
        self._proceed("begin")  # the first process of a session takes seconds
        print("ready", flush=True)
        sys.stdin.read()
        self.over.set()
        for thread in calling:
            thread.join()
        with self.unless_lost():
            if not self.lost:
                self._end_actors()
        for thread in watching:
            thread.join()

    @property
    def lost(self) -> bool:
        """Whether the session has ended by itself."""
        try:
            return bool(current_runtime().closed)
        except moo.ActorUnavailable:
            return True

    @contextlib.contextmanager
    def unless_lost(self) -> Iterator[None]:
        """For calls that fail when the session is over, perhaps sooner than `lost`."""
        try:
            yield
        except moo.ActorUnavailable as error:
            ends = ("the session has ended", "no session runs")
            if not any(text in str(error) for text in ends):
                raise

    def _start(self, target: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args)
        thread.start()
        return thread

    def _watch(self, name: str, handle: Any) -> None:
        watch = workload.begin_watch(self.notes, f"driver/watch-{name}", handle)
        try:
            for event in moo.monitor(handle):
                workload.note_seen(self.notes, watch, handle, event)
        except moo.ActorUnavailable:
            return  # the session is lost
        if not self.lost:
            self.notes.note("unwatched", watch=watch, actor=id_of(handle))

    def _proceed(self, name: str) -> None:
        """Wait until all learner groups have gone on."""
        client, learners = Client(self.notes, name), self.learners.values()
        for pending in [client.start(one, "proceed") for one in learners]:
            pending.end()

    def _end_actors(self) -> None:
        client = Client(self.notes, "end")
        self._proceed("rounds")
        everybody = [*self.workers.values(), *self.learners.values()]
        for number, handle in enumerate(everybody):
            client.remove(handle, ("stop", "kill")[number % 2])
        with contextlib.suppress(moo.ActorDied):  # with its host
            self.watcher.all_seen.remote().get()
        client.remove(self.watcher, "stop")


class Caller:
    """A thread that calls actors, at random, until the driver's time is over."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver = driver
        self.chance = random.Random(f"{driver.seed}/{name}")
        self.client = Client(driver.notes, name)

    def run(self, pause_s: float) -> None:
        over = self.driver.over
        while not over.is_set() and not self.driver.lost:
            with self.driver.unless_lost():
                self.step()
            over.wait(self.chance.uniform(0, pause_s))

    def step(self) -> None:
        raise NotImplementedError


class Load(Caller):
    """Calls of all kinds."""

    def __init__(self, driver: Driver, name: str) -> None:
        super().__init__(driver, name)
        self.refs: list[tuple[str, Any, Any]] = []  # name, Ref, its maker
        self.children: list[Any] = []

    def run(self, pause_s: float) -> None:
        super().run(pause_s)
        if not self.driver.lost:  # a last call to each: its tells before that have run
            for handle in self.driver.workers.values():
                self.client.call(handle, "echo", 0, argument=0, expect=0)

    def step(self) -> None:
        steps = [value for name, value in vars(Load).items() if name.startswith("do_")]
        self.chance.choice(steps)(self)

    def _anyone(self) -> Any:
        return self.chance.choice(list(self.driver.workers.values()))

    def _sync(self) -> Any:
        names = [name for name in self.driver.workers if name[0] in "wgc"]
        return self.driver.workers[self.chance.choice(names)]

    def _value(self) -> Any:
        return self.chance.randrange(1 << 40)

    def _array(self) -> tuple[int, int]:
        """The seed and the size of one."""
        return self.chance.randrange(1000), self.chance.choice(_SIZES)

    def _end(self, pending: list[Any]) -> None:
        """Wait for calls, in any order."""
        for one in self.chance.sample(pending, len(pending)):
            one.end()

    def do_echo(self) -> None:
        value = self._value()
        retries = self.chance.choice([0, 0, 3])
        facts = {"argument": value, "expect": value, "retries": retries}
        self.client.call(self._anyone(), "echo", value, **facts)

    def do_tells(self) -> None:
        to = self._anyone()
        for _ in range(self.chance.randrange(10)):
            value = self._value()
            self.client.start(to, "echo", value, argument=value, tell=True)
        self._end([self.client.start(to, "count") for _ in range(5)])

    def do_give_up(self) -> None:
        """Calls that are cancelled, and some with deadlines that are too short."""
        to = self._anyone()
        first = self.client.start(to, "nap", 0.02, timeout=0.01)
        second = self.client.start(to, "nap", 0.02, cancels=True)
        third = self.client.start(to, "nap", 0.0, cancels=True)
        if (ref := self.chance.choice([second, third]).ref) is not None:
            ref.cancel()
        self._end([first, second, third])

    def do_hand_on(self) -> None:
        """One's large result is another's argument, straight from one to the other."""
        seed, size = self._array()
        maker, data = self._anyone(), array(seed, size)
        made = self.client.start(maker, "make", seed, size, expect=data)
        facts = {"argument": data, "expect": digest(data)}
        calls = [made, self.client.start(self._anyone(), "total", data, **facts)]
        for _ in range(self.chance.randrange(3)):
            to = self._anyone()
            call = self.client.start(to, "total", made.ref, via=(maker,), **facts)
            calls.append(call)
        self._end(calls)

    def do_keep(self) -> None:
        """A Ref to what lives in an actor."""
        maker = self._sync()
        kept = self.client.call(maker, "keep", *self._array())
        if kept is not None:
            self.refs = [*self.refs[-5:], (kept[0], kept[1], maker)]

    def do_put(self) -> None:
        """A Ref to what lives here."""
        name, ref = self.client.put(array(*self._array()))
        self.refs = [*self.refs[-5:], (name, ref, None)]

    def do_look_at(self) -> None:
        """Somebody reads a Ref, or this thread does."""
        if not self.refs:
            return
        name, ref, maker = self.chance.choice(self.refs)
        if self.chance.random() < 0.3:
            self.client.read(name, ref)
        else:
            via = (maker,) if maker is not None else ()
            self.client.call(self._sync(), "look_at", name, [ref], expect=name, via=via)

    def do_relay(self) -> None:
        """Calls of actors to actors; in an order that makes no cycle."""
        everybody = list(self.driver.workers.values())
        chosen = sorted(self.chance.sample(range(len(everybody)), 3))
        path, value = [everybody[n] for n in chosen], self._value()
        self.client.call(path[0], "relay", path[1:], value, argument=value)

    def do_group(self) -> None:
        self.client.call_group(self.driver.group, self._value())

    def do_adopt(self) -> None:
        """An actor of an actor."""
        child = self.client.call(self._sync(), "adopt")
        if child is not None:
            self.children = [*self.children[-3:], child]

    def do_call_child(self) -> None:
        if self.children:
            value = self._value()
            to = self.chance.choice(self.children)
            self.client.call(to, "echo", value, argument=value, expect=value)

    def do_die(self) -> None:
        """One of many calls ends its process: the others have to end, or to run
        again."""
        if self.chance.random() < 0.5:
            return
        to = self.driver.workers[self.chance.choice(("w0", "w1", "w2", "g.0"))]
        pending = self._queue([to])
        pending.append(self.client.start(to, "die", self.chance.randrange(2)))
        self._end(pending + self._queue([to]))

    def do_queue(self) -> None:
        """Much to do for one or for several, which a fault may interrupt."""
        some = [self._anyone() for _ in range(self.chance.choice([1, 2, 4]))]
        self._end(self._queue(some))

    def _queue(self, to: list[Any]) -> list[Any]:
        """Calls of several methods, some of which take a while."""
        made = []
        for _ in range(self.chance.randrange(20)):
            value, retries = self._value(), self.chance.choice([0, 0, 2])
            items, pause = self.chance.choice([(0, 0.0), (10, 0.001), (200, 0.0)])
            methods: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
                ("echo", (value,), {"argument": value, "expect": value}),
                ("nap", (0.002,), {}),
                ("count", (), {}),
                ("fail", (), {}),
                ("make", (3, 100_000), {"expect": array(3, 100_000)}),
                ("items", (items, pause), {"items": items}),
            ]
            method, args, facts = self.chance.choice(methods)
            if method != "items":
                facts["retries"] = retries
            whom = self.chance.choice(to)
            made.append(self.client.start(whom, method, *args, **facts))
        return made


class Claims(Caller):
    """Takes names, finds them, and frees them."""

    def step(self) -> None:
        name = self.chance.choice(CLAIMS)
        handle = self._claim(name) or self.client.look_up(name)
        if handle is None:
            return
        for _ in range(self.chance.randrange(4)):
            value = self.chance.randrange(100)
            self.client.call(handle, "echo", value, argument=value, expect=value)
        if self.chance.random() < 0.3:
            self.client.remove(handle, self.chance.choice(["stop", "kill"]))

    def _claim(self, name: str) -> Any:
        try:
            return self.driver.spawn_one(Worker, name)
        except (ValueError, moo.PlacementError):
            return None  # it is taken, or the host is not there


def main(config: dict[str, Any]) -> None:
    failed: list[Any] = []
    threading.excepthook = lambda what: (failed.append(what), _hook(what))[1]
    driver = Driver(config)
    try:
        with moo.init(config["address"]):
            driver.run()
            driver.notes.note("closing")
    finally:
        driver.over.set()
    driver.notes.note("over")
    if failed:
        sys.exit(f"{len(failed)} threads of the driver have failed")


_hook = threading.excepthook


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    print(f"driver {os.getpid()} has ended", flush=True)
