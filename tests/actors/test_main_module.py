# SPDX-License-Identifier: MIT
"""The program's `__main__` is one module in every process: whole scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process import programs

pytestmark = pytest.mark.usefixtures("no_session")


def passes(tmp_path: Path, text: str, *args: str) -> str:
    """Run a script, which asserts; returns what it printed on stderr."""
    script = programs.write(tmp_path / "script.py", text)
    done = programs.run(script, *args)
    assert done.returncode == 0, done.stderr
    return done.stderr


TRAVELS = """
    import concurrent.futures as futures
    import contextvars, dataclasses, enum, functools, multiprocessing, pickle, sys
    import os, threading
    from os import environ
    from typing import NamedTuple
    import mooactor as moo

    LOCK, EVENT = threading.RLock(), threading.Event()
    VAR = contextvars.ContextVar("var", default=5)
    COUNT, TABLE = 0, {"a": 1}
    ALIAS = TABLE
    MISSING = object()
    class Local(threading.local):
        depth = 2
    LOCAL = Local()

    class Point(NamedTuple):
        x: int
        y: int = 2
        def sum(self): return self.x + self.y

    @dataclasses.dataclass(slots=True)
    class Slotted:
        x: int

    @dataclasses.dataclass(frozen=True)
    class Config:
        lr: float
        @functools.cached_property
        def third(self): return self.lr / 3

    class Color(enum.Enum):
        RED, BLUE = 1, 2
        def other(self): return Color.BLUE if self is Color.RED else Color.RED

    class Outer:
        class Inner:
            def who(self): return Outer.__name__ + type(self).__name__
        @functools.lru_cache
        def twice(self, n): return n * 2

    class Base:
        def hello(self): return "base"
    class Derived(Base):
        def hello(self): return super().hello() + "+"

    class Failed(Exception):
        def __init__(self, code, text):
            super().__init__(text)
            self.code = code

    def even(n): return n == 0 or odd(n - 1)
    def odd(n): return n != 0 and even(n - 1)
    def square(x): return x * x

    def locked(f):
        @functools.wraps(f)
        def inner(*args):
            with LOCK:
                return f(*args)
        return inner
    @locked
    def plus(n): return n + 1

    @functools.singledispatch
    def kind(x): return "any"
    @kind.register
    def _(x: int): return "int"

    @functools.cache
    def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)

    def bump():
        global COUNT
        COUNT += 1
        return COUNT

    @moo.actor
    class A:
        def __init__(self, peer=None): self.peer = peer
        def slotted(self, s): return Slotted(s.x + 1), hasattr(s, "__dict__")
        def third(self, c): return c.third, Config(2.0)
        def other(self, c): return c.other()
        def inner(self): return Outer.Inner(), Outer.Inner().who(), Outer().twice(4)
        def derived(self): return Derived().hello(), Derived()
        def fail(self): raise Failed(7, "bad")
        def calls(self):
            same = TABLE is ALIAS
            return even(6), plus(1), kind(1), kind(""), fib(20), VAR.get(), same
        def tuples(self, point):
            return point.sum(), Point(1), LOCAL.depth
        def environment(self): return environ is os.environ
        def is_missing(self, x, y=MISSING): return x is y is MISSING
        def state(self): return EVENT.is_set(), LOCK.acquire()
        def count(self): return bump(), bump()
        def functions(self): return bump, (lambda: COUNT), kind
        def pickled(self): return pickle.dumps([Config(1.0), Slotted(1), fib])
        def squares(self, method):
            context = multiprocessing.get_context(method)
            with futures.ProcessPoolExecutor(2, mp_context=context) as pool:
                return list(pool.map(square, [1, 2]))
        def by_way(self, c): return self.peer.third(c)
        def main(self):
            return sys.argv, sys.modules["__main__"].__file__, A.__module__

    if __name__ == "__main__":
        with moo.init():
            a = moo.spawn(A)
            b = moo.spawn(A, a)
            assert a.slotted(Slotted(3)) == (Slotted(4), False)
            assert a.third(Config(6.0)) == b.by_way(Config(6.0)) == (2.0, Config(2.0))
            assert a.other(Color.RED) is Color.BLUE
            inner, *rest = a.inner()
            assert type(inner) is Outer.Inner and rest == ["OuterInner", 8]
            hello, derived = a.derived()
            assert hello == "base+" and type(derived) is Derived
            try:
                a.fail()
            except Failed as error:
                assert error.code == 7
            assert a.calls() == (True, 2, "int", "any", 6765, 5, True)
            assert a.tuples(Point(3)) == (5, (1, 2), 2)
            assert type(a.tuples(Point(3))[1]) is Point
            assert a.environment() and "PATH" in environ
            assert a.is_missing(MISSING) and not a.is_missing(object())
            assert a.state() == (False, True)
            assert a.count() == (1, 2) and COUNT == 0
            function, reader, dispatch = a.functions()
            assert function is bump and dispatch is kind and reader() == COUNT
            bump()
            assert reader() == 1
            assert pickle.loads(a.pickled()) == [Config(1.0), Slotted(1), fib]
            assert a.squares("fork") == a.squares("spawn") == [1, 4]
            argv, file, module = a.main()
            assert argv == sys.argv and file == __file__ and module == "__main__"
"""


def test_what_a_script_defines_is_there_by_its_name(tmp_path: Path) -> None:
    passes(tmp_path, TRAVELS, "--flag", "x")


def test_a_definition_that_is_made_again_takes_the_place_of_the_first(
    tmp_path: Path,
) -> None:
    passes(
        tmp_path,
        """
        import mooactor as moo
        CELL = '''
        class Config:
            def __init__(self, x): self.x = x
            def value(self): return self.x * {factor}
        '''.replace("\\n        ", "\\n")
        @moo.actor
        class Keeper:
            kept = None
            def keep(self, config): self.kept, old = config, self.kept; return old
            def values(self, *configs): return [c.value() for c in configs]
            def made(self): return Config(1)
        if __name__ == "__main__":
            exec(CELL.format(factor=2), globals())
            with moo.init():
                first = Config(1)
                keeper = moo.spawn(Keeper)
                keeper.keep(first)
                exec(CELL.format(factor=3), globals())
                second = Config(1)
                assert type(second) is not type(first)
                assert keeper.values(first, second) == [2, 3]
                old = keeper.keep(second)
                assert type(old) is type(first) and old.value() == 2
                assert type(keeper.made()) is Config
        """,
    )


def test_what_is_compared_by_identity_is_one_object_in_each_process(
    tmp_path: Path,
) -> None:
    passes(
        tmp_path,
        """
        import dataclasses
        import mooactor as moo
        CELL = '''
        class NotSet: pass
        NOTSET = NotSet()
        def is_set(x=NOTSET): return x is not NOTSET
        '''.replace("\\n        ", "\\n")
        exec(CELL)
        class Empty:
            __slots__ = ()
        class Mark:
            def __init__(self, name): self.name, self.me = name, self
        class Slotted:
            __slots__ = "name", "other"
            def __init__(self, name): self.name = name
        class ByName:
            def __init__(self): self.x = 1
            def __reduce__(self): return "BY_NAME"
        EMPTY, MARK, OTHER = Empty(), Mark("mark"), Mark("other")
        SLOTTED, BY_NAME = Slotted("slotted"), ByName()
        @dataclasses.dataclass
        class Options:
            lr: object = NOTSET
        def defaults(a=NOTSET, b=EMPTY, *, c=MARK, d=SLOTTED, e=BY_NAME):
            found = a is NOTSET, b is EMPTY, c is MARK, d is SLOTTED, e is BY_NAME
            return all(found) and c is c.me, c.name, d.name, e.x, c is OTHER
        @moo.actor
        class A:
            default = MARK
            def defaults(self): return defaults(), self.default is MARK
            def are(self, a, b, options, e):
                same = a is NOTSET, b is EMPTY, Options().lr is options.lr is NOTSET
                return same, e is BY_NAME
            def back(self): return NOTSET, EMPTY, Options().lr, BY_NAME
            def set(self, mark): mark.name = MARK.name = NOTSET.x = "set here"
            def seen(self, a, mark): return vars(a), mark.name, MARK.name, NOTSET.x
            def is_set(self, function): return function(), function(3)
        if __name__ == "__main__":
            with moo.init():
                a = moo.spawn(A)
                assert a.defaults() == ((True, "mark", "slotted", 1, False), True)
                assert a.are(NOTSET, EMPTY, Options(), BY_NAME) == ((True,) * 3, True)
                first, second, third, fourth = a.back()
                assert first is third is NOTSET and second is EMPTY
                assert fourth is BY_NAME
                a.set(MARK)  # with a state it is a value, as it was when it was sent
                assert a.seen(NOTSET, MARK) == ({}, "mark", *["set here"] * 2)
                assert a.defaults()[0][:2] == (True, "set here")
                assert MARK.name == "mark" and moo.spawn(A).defaults()[1]
                exec(CELL)
                assert a.is_set(is_set) == (False, True)
        """,
    )


ONCE = """
    import dataclasses, os, signal
    import mooactor as moo
    from mooactor.control import script
    OFFSET = 4
    @dataclasses.dataclass
    class Config:
        lr: float
        def value(self): return self.lr + OFFSET
    @moo.actor
    class Reader:
        def value(self, config): return config.value()
        def none(self, config): pass
        def die(self): os.kill(os.getpid(), signal.SIGKILL)
    class Middle:
        def __init__(self, *readers):
            self.reader, self.tables, pack = readers[0], 0, script.Table.pack
            self.group = moo.Group(readers)
            def counted(table, *args):
                self.tables += 1
                return pack(table, *args)
            script.Table.pack = counted
        def run(self, method, times):
            before = self.tables
            for _ in range(times):
                found = getattr(self.reader, method)(Config(1.0))
            return found, self.tables - before
        def run_group(self, times):
            before = self.tables
            for _ in range(times):
                found = self.group.call(Reader.value, Config(1.0)).get()
            return found, self.tables - before
    if __name__ == "__main__":
        with moo.init():
            reader = moo.on(Reader, restart=moo.Restart(max=3)).spawn()
            middle = moo.spawn(Middle, reader, moo.spawn(Reader))
            for method, result in (("value", 5.0), ("none", None)):
                found, tables = middle.run(method, 20)
                assert found == result and tables <= 2 * (method == "value"), tables
            found, tables = middle.run_group(20)
            assert found == [5.0, 5.0] and tables <= 2, tables
            try:
                reader.die()
            except moo.ActorDied:
                pass
            while True:
                try:
                    found, tables = middle.run_group(20)
                    break
                except moo.ActorDied:
                    pass
            assert found == [5.0, 5.0] and tables <= 2, tables
            found, tables = middle.run("value", 20)
            assert found == 5.0 and not tables, tables
"""


def test_a_definition_travels_once_between_any_two_processes(tmp_path: Path) -> None:
    passes(tmp_path, ONCE)


def test_what_cannot_travel_is_named_with_what_refers_to_it(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
        import socket
        import mooactor as moo
        SOCKET = socket.socket()
        def send(): return SOCKET
        @moo.actor
        class A:
            def send(self): return send()
        if __name__ == "__main__":
            with moo.init():
                try:
                    moo.spawn(A)
                except TypeError as error:
                    text = str(error)
            assert "global 'SOCKET'" in text and "send refers to" in text, text
            assert "is a socket" in text and "in a function" in text, text
        """,
    )


GENERATORS = """
    import random, sys
    import numpy as np
    import held
    import mooactor as moo
    rng, old = np.random.default_rng(1), np.random.RandomState(1)
    plain = random.Random(1)
    class Env:
        rng = np.random.default_rng(2)
    @moo.actor
    class Player:
        def draws(self):
            return (
                int(rng.integers(1 << 60)), int(old.randint(1 << 30)), plain.random(),
                int(Env.rng.integers(1 << 60)), int(held.rng.integers(1 << 60)),
            )
    if __name__ == "__main__":
        def of_a_session():
            with moo.init(preload=["held"], seed=7):
                return [p.draws() for p in moo.on(Player).group(3)]
        drawn = of_a_session()
        for each in zip(*drawn):
            assert len(set(each)) == 3, each
        assert of_a_session() == drawn
        same = np.random.default_rng(1)  # the script's own goes on as it was
        assert int(rng.integers(1 << 60)) == int(same.integers(1 << 60))
"""


def test_generators_of_a_script_and_of_preloaded_modules_are_seeded_anew(
    tmp_path: Path,
) -> None:
    (tmp_path / "held.py").write_text(
        "import numpy as np\nrng = np.random.default_rng(5)\n"
    )
    passes(tmp_path, GENERATORS)


def test_setup_runs_first_in_each_actor(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
        import decimal
        import mooactor as moo
        def precise(): decimal.getcontext().prec = 5
        def broken(): raise RuntimeError("no licence")
        @moo.actor
        class A:
            def third(self): return str(decimal.Decimal(1) / 3)
        if __name__ == "__main__":
            with moo.init(setup=precise):
                assert moo.spawn(A).third() == "0.33333"
            with moo.init(setup="os:getpid"):
                assert moo.spawn(A).third() != "0.33333"
            with moo.init(setup=broken):
                try:
                    moo.spawn(A).third()
                except moo.ActorDied as error:
                    assert "no licence" in str(error)
            try:
                moo.init(setup="nonsense")
            except ValueError as error:
                assert "module:function" in str(error)
        """,
    )


def test_a_data_loader_of_an_actor_has_workers_with_a_dataset_of_the_script(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    passes(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, Dataset, get_worker_info
        import mooactor as moo
        SCALE = 3
        class Squares(Dataset):
            def __len__(self): return 8
            def __getitem__(self, n): return SCALE * n * n, get_worker_info().id
        def collate(pairs): return [list(column) for column in zip(*pairs)]
        @moo.actor
        class Learner:
            def epoch(self):
                loader = DataLoader(
                    Squares(), batch_size=2, num_workers=2, collate_fn=collate,
                    multiprocessing_context="fork",
                )
                return list(loader)
        if __name__ == "__main__":
            with moo.init():
                batches = moo.spawn(Learner).epoch()
            assert [n for values, _ in batches for n in values] == [
                3 * n * n for n in range(8)
            ]
            assert {worker for _, ids in batches for worker in ids} == {0, 1}
        """,
    )
