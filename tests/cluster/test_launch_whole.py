# SPDX-License-Identifier: MIT
"""``mooactor run`` with real hosts, and a program that has actors on them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooactor.control import secret
from tests.cluster.launched import ROOT, WHOLE, Launched
from tests.cluster.sshd import Servers, servers
from tests.conftest import eventually
from tests.marks import slow

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("ssh")) as running:
        running.add("b")
        running.add("c")
        yield running


def launch(hosts: Servers, folder: Path, names: str, script: str) -> Launched:
    (folder / "script.py").write_text(script)
    words = ["--hosts", names, "script.py"]
    return Launched(words, folder, hosts.environment(), whole=True)


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


@pytest.mark.parametrize("names", [slow("b,c"), "localhost,b,c"])
def test_a_program_has_actors_on_every_host_and_they_call_each_other(
    hosts: Servers, tmp_path: Path, names: str
) -> None:
    (tmp_path / "moo_part.py").write_text("VALUE = 7")
    run = launch(hosts, tmp_path, names, EVERYWHERE)
    assert run.end() == 0, run.err
    all_names = sorted(names.split(","))
    told = zip(all_names, all_names[1:] + all_names[:1])
    expected = [f"{other} heard hello from {name} 7" for name, other in told]
    assert run.out.splitlines() == expected


def test_the_users_key_is_taken_so_that_other_commands_reach_the_run(
    hosts: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    secret.make(secret.default_path())
    told = "import os, time\nprint(os.environ['MOOACTOR_ADDRESS'], flush=True)\n"
    run = launch(hosts, tmp_path, "b,c", told + "time.sleep(600)")
    assert eventually(lambda: run.out.endswith("\n"))
    words = [*WHOLE[:-1], "status", "--connect", run.out.strip(), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {host["name"] for host in json.loads(done.stdout)["hosts"]} == {"b", "c"}
    run.signal(signal.SIGINT)
    assert run.end() == 130


@pytest.mark.timeout(300)
def test_the_flagship_plays_breakout_on_all_hosts(
    hosts: Servers, tmp_path: Path
) -> None:
    for package in ("torch", "gymnasium", "ale_py", "tyro"):
        pytest.importorskip(package)
    flags = "--env ALE/Breakout-v5 --total-steps 4000 --actors 3 --envs-per-actor 4"
    words = ["--hosts", "localhost,b,c", str(ROOT / "examples" / "impala_atari.py")]
    words += [*flags.split(), "--run-dir", str(tmp_path / "run")]
    run = Launched(words, tmp_path, hosts.environment(), whole=True)
    assert run.end(240) == 0, run.err
    assert re.search(r"on \d+ cores on 3 hosts: 3 actors of 4 envi", run.out), run.out


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
    hosts: Servers, tmp_path: Path, names: str
) -> None:
    (tmp_path / "script.py").write_text(VARIABLES)
    own = {"MINE": "a b", "MOOACTOR_CHECKSUM": "1", "OTHER": "kept here"}
    words = ["--hosts", names, "--env", "GIVEN={PYTHON}='x=1'", "--env", "MINE"]
    environment = {**hosts.environment(), **own}
    run = Launched([*words, "script.py"], tmp_path, environment, whole=True)
    assert run.end() == 0, run.err
    sent = ["{PYTHON}='x=1'", "a b", "1", None]
    *actors, program = [eval(line) for line in run.out.splitlines()]
    assert [*actors, program][0] == [*sent, None]  # on b, which ssh leads to
    assert actors[1][:4] == program[:4] == sent


COMES_BACK = """
import os, time
import mooactor as moo

@moo.actor
class Member:
    def agent(self):
        return os.getppid()

def there():
    return [host["name"] for host in moo.hosts()]

with moo.init():
    first = moo.on(Member, host="c").spawn()
    print("agent", first.agent(), flush=True)
    try:
        while True:
            first.agent()
            time.sleep(0.01)
    except moo.ActorDied as error:
        print("died", flush=True)
    while "c" in there():
        time.sleep(0.01)
    print("gone", flush=True)
    while "c" not in there():
        time.sleep(0.01)
    print("again", moo.on(Member, host="c").spawn().agent(), flush=True)
"""


def test_a_host_that_was_killed_comes_back_in_the_same_run(
    hosts: Servers, tmp_path: Path
) -> None:
    run = launch(hosts, tmp_path, "b,c", COMES_BACK)
    assert eventually(lambda: "agent" in run.out, 90), run.err
    os.kill(int(run.out.split()[1]), signal.SIGKILL)
    assert run.end() == 0, run.err
    assert "died" in run.out and "again" in run.out
    assert "host c has ended: killed by signal 9 (SIGKILL); it is started" in run.err


WAITING = """
import time
import mooactor as moo

@moo.actor
class Member:
    def up(self): ...

moo.init()
members = [moo.on(Member, host=host["name"]).spawn() for host in moo.hosts()]
for member in members:
    member.up()
print("up", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("number", [slow(signal.SIGINT), signal.SIGKILL])
def test_no_actor_outlives_the_launcher(
    hosts: Servers, tmp_path: Path, number: int
) -> None:
    run = launch(hosts, tmp_path, "b,c", WAITING)
    assert eventually(lambda: "up" in run.out, 90), run.err
    run.signal(number)
    run.end()
    # The leak check sees to the actors, the hosts and their files.


GOES = """
import os, subprocess
import mooactor as moo

@moo.actor
class Member:
    def up(self):
        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

moo.init()
members = [moo.on(Member, host=host["name"]).spawn() for host in moo.hosts()]
for member in members:
    member.up()
subprocess.Popen(["sleep", "600"], start_new_session=True)
os._exit(3)
"""


@pytest.mark.parametrize("names", ["b,localhost", "localhost,b"])
def test_a_session_of_a_program_that_leaves_processes_leaves_no_files(
    hosts: Servers, tmp_path: Path, names: str
) -> None:
    run = launch(hosts, tmp_path, names, GOES)
    assert run.end() == 3, run.err
    # The leak check sees to the processes and the files.


# Whoever has its output can talk to the cluster.
OPEN = """
import os, time
key = open(os.environ["MOOACTOR_KEY_FILE"]).read().strip()
print("up", os.environ["MOOACTOR_ADDRESS"], key, flush=True)
time.sleep(1000)
"""


def test_no_broker_starts_after_one_that_was_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(OPEN)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    words = ["--hosts", "localhost", "script.py"]
    run = Launched(words, tmp_path, environment, whole=True)
    try:
        assert eventually(lambda: run.out.endswith("\n"), 60), run.err
        _, address, key = run.out.split()
        stop = [sys.executable, "-m", "mooactor", "stop", "--connect", address]
        done = subprocess.run(
            stop,
            env={**environment, "MOOACTOR_KEY": key, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert "and the broker" in done.stdout, done.stderr
        said = "the broker was told to end: no host joins any more\n"
        assert eventually(lambda: said in run.err or "another" in run.err), run.err
        run.signal(signal.SIGTERM)
        run.end()
        assert said in run.err and "another" not in run.err
    finally:
        if run.process.poll() is None:
            run.signal(signal.SIGKILL)
            run.end()
