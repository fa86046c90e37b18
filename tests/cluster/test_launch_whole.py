# SPDX-License-Identifier: MIT
"""``mooactor run`` with real hosts, and a program that has actors on them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from mooactor.control import secret
from tests.cluster.conftest import Launch
from tests.cluster.launched import MOOACTOR
from tests.conftest import eventually

pytestmark = pytest.mark.slow

EVERYWHERE = """
import moo_part
import mooactor as moo

@moo.actor
class Member:
    def __init__(self, name):
        self.name = name
    def hear(self, word):
        return f"{self.name} heard {word} {moo_part.VALUE}"
    def tell(self, other, word):
        return other.hear(f"{word} from {self.name}")

with moo.init():
    names = sorted(host["name"] for host in moo.hosts())
    members = [moo.on(Member, host=name).spawn(name) for name in names]
    for member, other in zip(members, members[1:] + members[:1]):
        print(member.tell(other, "hello"))
"""


def test_a_program_has_actors_on_every_host_and_they_call_each_other(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "moo_part.py").write_text("VALUE = 7")
    run = launch("--hosts", "localhost,b,c", script=EVERYWHERE)
    assert run.end() == 0, run.err
    told = (("b", "c"), ("c", "localhost"), ("localhost", "b"))
    expected = [f"{other} heard hello from {name} 7" for name, other in told]
    assert run.out.splitlines() == expected


VARIABLES = """
import os
import mooactor as moo

NAMES = ("GIVEN", "MINE", "MOOACTOR_CHECKSUM", "MOOACTOR_BIND", "OTHER")

class Place:
    def variables(self):
        return [os.environ.get(name) for name in NAMES]

with moo.init():
    for host in ("b", "localhost"):
        print(moo.on(Place, host=host).spawn().variables())
print([os.environ.get(name) for name in NAMES])
"""


@pytest.mark.parametrize("names", ["b,localhost", "localhost,b"])
def test_variables_that_are_named_and_settings_reach_program_and_actors(
    launch: Launch, names: str
) -> None:
    own = {"MINE": "a b", "MOOACTOR_CHECKSUM": "1", "OTHER": "kept here"}
    words = ["--hosts", names, "--env", "GIVEN={PYTHON}='x=1'", "--env", "MINE"]
    run = launch(*words, script=VARIABLES, variables=own)
    assert run.end() == 0, run.err
    sent = ["{PYTHON}='x=1'", "a b", "1", None]
    *actors, program = [eval(line) for line in run.out.splitlines()]
    assert [*actors, program][0] == [*sent, None]  # on b, which ssh leads to
    assert actors[1][:4] == program[:4] == sent


# Everywhere, with an actor that leaves a process.
LEAVES = """
import os, signal, subprocess
import mooactor as moo

@moo.actor
class Member:
    def up(self):
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

moo.init()
members = [moo.on(Member, host=host["name"]).spawn() for host in moo.hosts()]
for member in members:
    member.up()
print("up", flush=True)
"""
GOES = """
subprocess.Popen(["sleep", "600"], start_new_session=True)
os._exit(3)
"""


@pytest.mark.parametrize("names", ["b,localhost", "localhost,b"])
def test_a_program_that_goes_at_once_leaves_no_process_and_no_file(
    launch: Launch, names: str
) -> None:
    run = launch("--hosts", names, script=LEAVES + GOES)
    assert run.end() == 3, run.err
    # The leak check sees to the processes and the files.


def test_no_actor_outlives_the_launcher(launch: Launch) -> None:
    script = f"{LEAVES}signal.pause()"
    run = launch("--hosts", "localhost,b", script=script)
    assert run.says("up"), run.err
    run.signal(signal.SIGKILL)
    run.end()
    # The leak check sees to the actors, the hosts and their files.


TELLS = """
import os, signal
print(os.environ["MOOACTOR_ADDRESS"], flush=True)
signal.pause()
"""


def test_other_commands_reach_the_run_by_the_users_key_and_may_stop_it(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    secret.make(secret.default_path())

    def ask(*words: str) -> str:
        words = (*MOOACTOR, *words, "--connect", run.out.strip())
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run = launch("--hosts", "b,c", script=TELLS)
    assert run.says("\n"), run.err
    found = json.loads(ask("status", "--json"))["hosts"]
    assert {host["name"] for host in found} == {"b", "c"}
    assert "2 hosts and the broker" in ask("stop")
    said = "the broker has ended (it was told to end): no host joins any more\n"
    assert eventually(lambda: said in run.err or "another" in run.err), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert said in run.err and "another" not in run.err
