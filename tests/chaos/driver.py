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
from collections.abc import Callable
from typing import Any

import mooactor as moo
from mooactor.process.current import current_runtime
from tests.chaos import workload
from tests.chaos.client import Client, id_of
from tests.chaos.history import digest
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
        self._threads: list[threading.Thread] = []
        self.workers: dict[str, Any] = {}
        self.group: Any = None
        self.watcher: Any = None

    # -- beginning and end -------------------------------------------------

    def spawn(self) -> None:
        """All actors that last."""
        kinds = {"w": Worker, "v": Loop, "calm": Worker, "breeze": Loop}
        for name in ("w0", "w1", "w2", "v0", "v1", "calm", "breeze"):
            kind = kinds.get(name) or kinds[name[0]]
            self.workers[name] = self._spawn(kind, name)
        place = self.place()
        on = moo.on(Worker, name="g", restart=_FOREVER, **place)
        self.group = on.group(3, self.setting)
        for rank, member in enumerate(self.group):
            self.workers[f"g.{rank}"] = member
            self.note_spawned(member, f"g/{rank}", place)
        place = self.place()
        on_watcher = moo.on(Watcher, name="watcher", **place)
        self.watcher = on_watcher.spawn(self.setting)
        self.note_spawned(self.watcher, "watcher", place)

    def place(self) -> dict[str, str]:
        """Where the next actor goes: each host in turn."""
        if not self._places:
            return {}
        self._places.append(self._places.pop(0))
        return {"host": self._places[-1]}

    def _spawn(self, kind: type, name: str) -> Any:
        place = self.place()
        on = moo.on(kind, name=name, restart=_FOREVER, **place)
        handle = on.spawn(self.setting)
        self.note_spawned(handle, name, place)
        return handle

    def note_spawned(self, handle: Any, name: str, place: dict[str, str]) -> None:
        facts = {"name": name, "owned": True, **place}
        self.notes.note("spawned", actor=id_of(handle), **facts)

    def run(self) -> None:
        """Load them until stdin ends; then end all in good order."""
        self.spawn()
        for name, handle in self.workers.items():
            self._start(self._watch, name, handle)
        self.watcher.watch.remote(list(self.workers.values()))
        for number in range(3):
            self._start(Load(self, number).run)
        for number in range(2):
            self._start(Claims(self, number).run)
        print("ready", flush=True)
        sys.stdin.read()
        self.over.set()
        self._join("Load")
        try:
            if not self.lost:
                self._end_actors()
        except moo.ActorUnavailable as error:
            if not is_of_the_end(error):
                raise
        self._join("")

    @property
    def lost(self) -> bool:
        """Whether the session has ended by itself."""
        try:
            return bool(current_runtime().closed)
        except moo.ActorUnavailable:
            return True

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        name = target.__qualname__
        thread = threading.Thread(target=target, args=args, name=name)
        self._threads.append(thread)
        thread.start()

    def _join(self, kind: str) -> None:
        for thread in self._threads:
            if thread.name.startswith((kind, "Claims") if kind else ""):
                thread.join()

    def _watch(self, name: str, handle: Any) -> None:
        watch = workload.begin_watch(self.notes, f"driver/watch-{name}", handle)
        try:
            for event in moo.monitor(handle):
                workload.note_seen(self.notes, watch, handle, event)
        except moo.ActorUnavailable:
            return  # the session is lost
        if not self.lost:
            self.notes.note("unwatched", watch=watch, actor=id_of(handle))

    def _end_actors(self) -> None:
        client = Client(self.notes, "end")
        for number, handle in enumerate(self.workers.values()):
            client.remove(handle, ("stop", "kill")[number % 2])
        with contextlib.suppress(moo.ActorDied):  # with its host
            self.watcher.all_seen.remote().get()
        client.remove(self.watcher, "stop")


def is_of_the_end(error: moo.ActorUnavailable) -> bool:
    """Whether it says that the session is over, perhaps sooner than `Driver.lost`."""
    return any(
        text in str(error) for text in ("the session has ended", "no session runs")
    )


class Load:
    """One thread that calls the actors, at random."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.chance = random.Random(f"{driver.seed}/load{number}")
        self.client = Client(driver.notes, f"load{number}")
        self.refs: list[tuple[str, Any, Any]] = []  # name, Ref, its maker
        self.children: list[tuple[Any, Any]] = []  # with their owners

    def run(self) -> None:
        over = self.driver.over
        steps = [value for name, value in vars(Load).items() if name.startswith("do_")]
        while not over.is_set() and not self.driver.lost:
            try:
                self.chance.choice(steps)(self)
            except moo.ActorUnavailable as error:
                if not is_of_the_end(error):
                    raise
            over.wait(self.chance.uniform(0, 0.01))
        if not self.driver.lost:
            self._flush()

    def _flush(self) -> None:
        """A last call to each: its tells before that have run."""
        for handle in self.driver.workers.values():
            self.client.call(handle, "echo", 0, argument=0, expect=0)

    def _anyone(self) -> Any:
        return self.chance.choice(list(self.driver.workers.values()))

    def _sync(self) -> Any:
        names = [name for name in self.driver.workers if name[0] in "wgc"]
        return self.driver.workers[self.chance.choice(names)]

    def _value(self) -> Any:
        return self.chance.randrange(1 << 40)

    def do_echo(self) -> None:
        value = self._value()
        retries = self.chance.choice([0, 0, 3])
        facts = {"argument": value, "expect": value, "retries": retries}
        self.client.call(self._anyone(), "echo", value, **facts)

    def do_burst(self) -> None:
        """Many calls at once, to one or to several."""
        some = [self._anyone() for _ in range(self.chance.choice([1, 2, 4]))]
        pending = []
        for _ in range(self.chance.randrange(30)):
            to, value = self.chance.choice(some), self._value()
            retries = self.chance.choice([0, 0, 0, 2])
            facts = {"argument": value, "expect": value, "retries": retries}
            pending.append(self.client.start(to, "echo", value, **facts))
        for one in self._shuffled(pending):
            one.end()

    def _shuffled(self, values: list[Any]) -> list[Any]:
        return self.chance.sample(values, len(values))

    def do_tells(self) -> None:
        to = self._anyone()
        for _ in range(self.chance.randrange(10)):
            value = self._value()
            self.client.start(to, "echo", value, argument=value, tell=True)
        self.client.call(to, "count", retries=self.chance.choice([0, 2]))

    def do_count(self) -> None:
        to = self._anyone()
        pending = [self.client.start(to, "count") for _ in range(5)]
        for one in pending:
            one.end()

    def do_fail(self) -> None:
        self.client.call(self._anyone(), "fail")

    def do_give_up(self) -> None:
        """Calls that are cancelled, and some with deadlines that are too short."""
        to = self._anyone()
        first = self.client.start(to, "nap", 0.02, timeout=0.01)
        second = self.client.start(to, "nap", 0.02, cancels=True)
        third = self.client.start(to, "nap", 0.0, cancels=True)
        (second if self.chance.random() < 0.5 else third).ref.cancel()
        for one in self._shuffled([first, second, third]):
            one.end()

    def do_stream(self) -> None:
        number = self.chance.choice([0, 1, 10, 200])
        pause = self.chance.choice([0.0, 0.0, 0.001])
        self.client.call(self._anyone(), "items", number, pause, items=number)

    def do_make(self) -> None:
        """A large result."""
        seed, size = self.chance.randrange(1000), self.chance.choice(_SIZES)
        expect = array(seed, size)
        self.client.call(self._anyone(), "make", seed, size, expect=expect)

    def do_total(self) -> None:
        """A large argument."""
        data = array(self.chance.randrange(1000), self.chance.choice(_SIZES))
        facts = {"argument": data, "expect": digest(data)}
        self.client.call(self._anyone(), "total", data, **facts)

    def do_hand_on(self) -> None:
        """One's result is another's argument, straight from one to the other."""
        seed, size = self.chance.randrange(1000), self.chance.choice(_SIZES)
        maker, data = self._anyone(), array(seed, size)
        made = self.client.start(maker, "make", seed, size, expect=data)
        facts = {"argument": data, "expect": digest(data), "via": (maker,)}
        taken = [
            self.client.start(self._anyone(), "total", made.ref, **facts)
            for _ in range(self.chance.randrange(1, 4))
        ]
        for one in self._shuffled([made, *taken]):
            one.end()

    def do_keep(self) -> None:
        """A Ref to what lives in an actor."""
        maker = self._sync()
        kept = self.client.call(maker, "keep", 1, self.chance.choice(_SIZES))
        if kept is not None:
            self.refs = [*self.refs[-5:], (kept[0], kept[1], maker)]

    def do_put(self) -> None:
        """A Ref to what lives here."""
        data, name = array(2, self.chance.choice(_SIZES)), self.client.new("ref")
        ref = moo.put(data)
        self.client.notes.note("made", ref=name, value=digest(data))
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
        owner = self._sync()
        child = self.client.call(owner, "adopt")
        if child is not None:
            self.children = [*self.children[-3:], (child, owner)]

    def do_call_child(self) -> None:
        if self.children:
            child, _ = self.chance.choice(self.children)
            value = self._value()
            self.client.call(child, "echo", value, argument=value, expect=value)

    def do_die(self) -> None:
        """One of many calls ends its process: the others have to end, or to run
        again."""
        if self.chance.random() < 0.5:
            return
        to = self.driver.workers[self.chance.choice(("w0", "w1", "w2", "g.0"))]
        pending = self._queue(to)
        pending.append(self.client.start(to, "die", self.chance.randrange(2)))
        pending += self._queue(to)
        for one in self._shuffled(pending):
            one.end()

    def _queue(self, to: Any) -> list[Any]:
        """Calls of several methods, which take a while."""
        made = []
        for _ in range(self.chance.randrange(15)):
            value, retries = self._value(), self.chance.choice([0, 0, 2])
            methods: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
                ("echo", (value,), {"argument": value, "expect": value}),
                ("nap", (0.002,), {}),
                ("count", (), {}),
                ("make", (3, 100_000), {"expect": array(3, 100_000)}),
            ]
            method, args, facts = self.chance.choice(methods)
            facts["retries"] = retries
            made.append(self.client.start(to, method, *args, **facts))
        if self.chance.random() < 0.3:
            made.append(self.client.start(to, "items", 50, 0.001, items=50))
        return made

    def do_queue(self) -> None:
        """Much to do for one, which a fault may interrupt."""
        for one in self._shuffled(self._queue(self._anyone())):
            one.end()


class Claims:
    """One thread that takes names, finds them, and frees them."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.chance = random.Random(f"{driver.seed}/claims{number}")
        self.client = Client(driver.notes, f"claims{number}")

    def run(self) -> None:
        over = self.driver.over
        while not over.is_set() and not self.driver.lost:
            try:
                self._step(self.chance.choice(CLAIMS))
            except moo.ActorUnavailable as error:
                if not is_of_the_end(error):
                    raise
            over.wait(self.chance.uniform(0, 0.1))

    def _step(self, name: str) -> None:
        handle = self._claim(name) or self.client.look_up(name)
        if handle is None:
            return
        for _ in range(self.chance.randrange(4)):
            value = self.chance.randrange(100)
            self.client.call(handle, "echo", value, argument=value, expect=value)
        if self.chance.random() < 0.3:
            self.client.remove(handle, self.chance.choice(["stop", "kill"]))

    def _claim(self, name: str) -> Any:
        place = self.driver.place()
        try:
            on = moo.on(Worker, name=name, **place)
            handle = on.spawn(self.driver.setting)
        except (ValueError, moo.PlacementError):
            return None  # it is taken, or the host is not there
        self.driver.note_spawned(handle, name, place)
        return handle


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
