# SPDX-License-Identifier: MIT
"""``mooactor run --hosts``: over real ssh servers of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mooactor
from tests import networks
from tests.cluster import launching, members
from tests.cluster.launched import ROOT, Launched, Terminal, command
from tests.cluster.sshd import Servers, servers
from tests.conftest import eventually
from tests.marks import slow
from tests.processes import Process, stop

pytestmark = pytest.mark.slow

KEY = "5a" * 32


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers b and c, each as good as another machine."""
    with servers(tmp_path_factory.mktemp("ssh")) as running:
        running.add("b")
        running.add("c")
        yield running


@pytest.fixture
def launch(hosts: Servers, tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Start ``mooactor run WORDS script.py`` with this text as the script."""
    started: list[Launched] = []

    def launch(
        *words: str, script: str = "", arguments: tuple[str, ...] = ()
    ) -> Launched:
        (tmp_path / "script.py").write_text(script)
        all_words = [*words, "script.py", *arguments]
        started.append(Launched(all_words, tmp_path, hosts.environment()))
        return started[-1]

    yield launch
    for each in started:
        if each.process.poll() is None:
            each.signal(signal.SIGKILL)
            each.process.wait()


REPORT = """
import json, os, stat, sys
file = os.environ["MOOACTOR_KEY_FILE"]
found = os.stat(file)
print(json.dumps({
    "address": os.environ["MOOACTOR_ADDRESS"],
    "host": os.environ["MOOACTOR_HOST_NAME"],
    "key": open(file).read(),
    "mode": stat.S_IMODE(found.st_mode),
    "owned": found.st_uid == os.getuid(),
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "ssh": "SSH_CONNECTION" in os.environ,
}))
"""


@pytest.mark.parametrize("names", ["b,c", "localhost,b"])
def test_the_program_runs_on_the_first_host_and_finds_the_broker(
    launch: Callable[..., Launched], names: str, tmp_path: Path
) -> None:
    given = ("--env", "x y", "{PYTHON}{ADDRESS}")
    run = launch("--hosts", names, script=REPORT, arguments=given)
    assert run.end() == 0, run.err
    found = json.loads(run.out)
    assert found["host"] == names.split(",")[0]
    assert found["ssh"] == (found["host"] != "localhost")
    assert found["argv"] == ["script.py", *given]
    assert found["cwd"] == str(tmp_path)
    assert found["address"].startswith("tcp://127.0.0.1:")
    assert len(bytes.fromhex(found["key"])) == 32
    assert found["mode"] == 0o600 and found["owned"]


@pytest.mark.parametrize("module", ["json", "ctypes", "subprocess"])
def test_modules_beside_the_program_are_the_programs_alone(
    launch: Callable[..., Launched], tmp_path: Path, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text("VALUE = 7\nprint('mine')")
    run = launch("--local-only", script=f"import {module}\nprint({module}.VALUE)")
    assert run.end() == 0, run.err
    assert run.out == "mine\n7\n"


def test_without_one_every_run_has_a_key_of_its_own(
    launch: Callable[..., Launched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # none is there
    keys = set()
    for _ in range(2):
        run = launch("--local-only", script=REPORT)
        assert run.end() == 0, run.err
        keys.add(json.loads(run.out)["key"])
    assert len(keys) == 2


def test_a_key_that_the_user_names_is_used(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    run = launch("--hosts", "b", "--key-file", str(file), script=REPORT)
    assert run.end() == 0, run.err
    assert json.loads(run.out)["key"].strip() == KEY


SEEK = """
import glob, os
key = open(os.environ["MOOACTOR_KEY_FILE"]).read().strip().encode()
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        if key in open(path, "rb").read():
            print(path)
    except OSError:
        pass
print("sought")
"""


def test_the_key_is_on_no_command_line_and_in_no_environment(
    launch: Callable[..., Launched],
) -> None:
    run = launch("--hosts", "b,localhost", script=SEEK)
    assert run.end() == 0, run.err
    assert run.out == "sought\n"


@pytest.mark.parametrize("names", ["b", slow("localhost")])
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("1 / 0", 1),
    ],
)
def test_the_exit_code_is_the_programs(
    launch: Callable[..., Launched], names: str, script: str, code: int
) -> None:
    assert launch("--hosts", names, script=script).end() == code


def test_what_hosts_print_has_their_name_in_front(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_text("# two hosts\nb slots=3\n\nc num_cpus=5 # the larger one\n")
    run = launch("--hostfile", str(file), script="print('hello')")
    assert run.end() == 0, run.err
    assert run.out == "hello\n"
    lines = run.err.splitlines()
    assert any(line.startswith("[b] offers 3 cores") for line in lines)
    assert any(line.startswith("[c] offers 5 cores") for line in lines)


def test_a_module_can_be_the_program(hosts: Servers, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("print('as', __name__)")
    run = Launched(["--hosts", "b", "-m", "other"], tmp_path, hosts.environment())
    assert run.end() == 0, run.err
    assert run.out == "as __main__\n"


# -- what is missing ---------------------------------------------------------


def failure(run: Launched) -> str:
    """The one sentence of a launch that never ran its program."""
    assert run.end() == 2, run.err
    assert run.out == ""
    (line,) = (t for t in run.err.splitlines() if t.startswith("mooactor run: "))
    return line.removeprefix("mooactor run: ")


def test_an_interpreter_that_a_host_lacks_is_named(
    launch: Callable[..., Launched],
) -> None:
    said = failure(launch("--hosts", "b", "--python", "/no/python"))
    assert said.startswith("host b did not start: it has no /no/python")
    assert "--python" in said


def test_a_directory_that_a_host_lacks_is_named(
    launch: Callable[..., Launched],
) -> None:
    said = failure(launch("--hosts", "b", "--cwd", "/no/place"))
    assert "host b did not start: the directory /no/place" in said
    assert "--cwd" in said and "--sync" in said


def test_a_script_that_the_first_host_lacks_is_named(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    said = failure(launch("--hosts", "b", "--cwd", str(there)))
    assert said == (
        f"host b did not start: there is no script script.py in {there}: copy it "
        "there, or use --sync"
    )


def test_a_script_that_this_machine_lacks_is_named(
    hosts: Servers, tmp_path: Path
) -> None:
    run = Launched(["--local-only", "no.py"], tmp_path, hosts.environment())
    said = failure(run)
    assert said.startswith(f"there is no script no.py in {tmp_path}: ")
    assert "--cwd" in said


def shell_python(folder: Path, before: str = "") -> str:
    """An interpreter that the shell starts, after `before`; its path from there."""
    program = folder / "py"
    program.write_text(f'#!/bin/sh\n{before}\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return f"./{program.name}"


@pytest.mark.parametrize("names", ["localhost", "b"])
def test_the_path_of_an_interpreter_is_that_of_here_wherever_the_program_starts(
    launch: Callable[..., Launched], names: str, tmp_path: Path
) -> None:
    python = shell_python(tmp_path, before=f'echo "$PWD" >>{tmp_path}/started')
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "script.py").write_text("print('it runs')")
    words = ("--python", python, "--cwd", str(tmp_path / "elsewhere"))
    run = launch("--hosts", names, *words, script="print('another')")
    assert run.end() == 0, run.err
    assert run.out == "it runs\n"
    assert (tmp_path / "started").exists()


def test_an_interpreter_that_goes_before_the_program_starts_is_named(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    python = shell_python(tmp_path, before='rm "$0"')
    said = failure(launch("--local-only", "--python", python, script="print('no')"))
    assert said.startswith(f"the program cannot be started with {tmp_path}/./py in ")
    assert "--python" in said


def python_without_mooactor(folder: Path, version: str | None) -> str:
    """An interpreter that has none of our packages, or a mooactor of that version."""
    site = folder / "site"
    if version is not None:
        (site / "mooactor").mkdir(parents=True)
        text = f'__version__ = "{version}"\n'
        (site / "mooactor" / "__init__.py").write_text(text)
    program = folder / "python"
    real = os.path.realpath(sys.executable)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {real} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("version", "said"),
    [(None, "has no mooactor"), ("0.0.1", "has mooactor 0.0.1, and the launching")],
)
def test_a_host_without_this_mooactor_is_named(
    hosts: Servers, tmp_path: Path, version: str | None, said: str
) -> None:
    python = python_without_mooactor(tmp_path, version)
    (tmp_path / "script.py").touch()
    # Without PYTHONPATH, which would lead there to the sources here.
    run = Launched(
        ["--hosts", "b", "--python", python, "script.py"],
        tmp_path,
        hosts.environment(),
        sources=False,
    )
    sentence = failure(run)
    assert sentence.startswith("host b did not start: ") and said in sentence
    assert "--python" in sentence
    if version:
        assert mooactor.__version__ in sentence


@pytest.mark.parametrize("names", ["b", slow("localhost,b")])
def test_an_interpreter_without_what_mooactor_needs_is_named(
    launch: Callable[..., Launched], tmp_path: Path, names: str
) -> None:
    python = python_without_mooactor(tmp_path, None)  # PYTHONPATH leads to one
    run = launch("--hosts", names, "--python", python)
    sentence = failure(run)
    assert sentence.startswith(f"host {names.split(',')[0]} did not start: ")
    assert f"{os.path.realpath(sys.executable)} has mooactor, but not " in sentence
    assert "pyzmq" in sentence and "--python" in sentence
    assert "Traceback" not in run.err


def test_an_interpreter_in_which_an_import_fails_is_named(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """Such as one of another Python, or without the libraries of the system."""
    venv.create(tmp_path / "other")
    python = str(tmp_path / "other" / "bin" / "python")
    (site,) = (tmp_path / "other" / "lib").glob("python*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib"))
    (site / "zmq").mkdir()
    (site / "zmq" / "__init__.py").write_text("raise ImportError('no libzmq.so')")
    said = failure(launch("--hosts", "b", "--python", python))
    assert said == (
        "host b did not start: exit code 1: ImportError: no libzmq.so; install "
        f"mooactor and what it needs for {python} there, or name another interpreter "
        "with --python"
    )


def test_a_host_that_ssh_cannot_reach_is_named(launch: Callable[..., Launched]) -> None:
    said = failure(launch("--hosts", "b,nowhere.invalid"))
    assert said.startswith("host nowhere.invalid did not start: ssh failed (")
    assert "check the name" in said


def test_a_host_that_fails_fails_the_run_with_its_last_words(
    launch: Callable[..., Launched], hosts: Servers
) -> None:
    with (hosts.folder / "config").open("a") as file:
        text = (hosts.folder / "config").read_text()
        file.write(text[: text.index("Host c")].replace("Host b", "Host broken"))
    said = failure(launch("--hosts", "b,broken", script="print(1)"))
    assert said == (
        "host broken did not start: exit code 1: this host is broken; mend that, and "
        "try again"
    )
    run = launch("--hosts", "broken,b", "--min-hosts", "1", script=REPORT)
    assert run.end() == 0, run.err
    assert json.loads(run.out)["host"] == "b"
    assert "host broken did not start" in run.err


# -- the end -----------------------------------------------------------------


def is_up(run: Launched) -> bool:
    """Whether its program comes to the point at which it says so."""
    return eventually(lambda: "up" in run.out or run.process.poll() is not None, 90)


STUBBORN = """
import os, signal, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("up", os.getpid(), flush=True)
time.sleep(1000)
"""
PATIENT = """
import os, time
try:
    print("up", os.getpid(), flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print("saved", flush=True)
    raise SystemExit(5)
"""


@pytest.mark.parametrize("names", ["b,c", "localhost,b"])
@pytest.mark.parametrize(
    "number", [signal.SIGINT, slow(signal.SIGTERM), slow(signal.SIGHUP)]
)
def test_a_signal_ends_everything_everywhere(
    launch: Callable[..., Launched], names: str, number: int
) -> None:
    run = launch("--hosts", names, script=STUBBORN)
    assert is_up(run), run.err
    before = time.monotonic()
    run.signal(number)
    assert run.end() == 137, run.err
    # Three seconds are promised, to a machine that does nothing else.
    assert time.monotonic() - before < 10


@pytest.mark.parametrize("names", ["b", slow("localhost,b")])
def test_the_program_may_act_on_ctrl_c(
    launch: Callable[..., Launched], names: str
) -> None:
    run = launch("--hosts", names, script=PATIENT)
    assert is_up(run), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err
    assert "saved" in run.out


# A child in a session of its own, and a daemon. Both have the program's outputs.
LEAVES = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
def daemon(*words):
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, b"%d" % os.getpid())
            os.execvp(words[0], words)
        os._exit(0)
    os.wait()
    return int(os.read(read, 9))
print("up", child.pid, daemon("sleep", "600"), flush=True)
"""


@pytest.mark.parametrize("names", ["b", "localhost"])
@pytest.mark.parametrize("typed", [False, True])
def test_what_the_program_leaves_ends_with_it(
    launch: Callable[..., Launched], names: str, typed: bool
) -> None:
    ending = PATIENT if typed else "raise SystemExit(5)"
    run = launch("--hosts", names, script=LEAVES + ending)
    assert is_up(run), run.err
    if typed:
        assert eventually(lambda: run.out.count("up") == 2)
        run.signal(signal.SIGINT)
    assert run.end(30) == 5, run.err
    left = run.out.splitlines()[0].split()[1:]
    assert not [pid for pid in left if os.path.exists(f"/proc/{pid}")]


SHELL = """
sleep 600 </dev/null >/dev/null 2>&1 &
echo $! >>{folder}/strangers
"""


@pytest.mark.parametrize("names", ["b", "localhost"])
def test_children_of_the_shell_that_becomes_the_command_are_no_concern_of_it(
    hosts: Servers, tmp_path: Path, names: str
) -> None:
    """Such as the reader of its output in ``mooactor run > >(tee log)``."""
    before = SHELL.format(folder=tmp_path)
    (tmp_path / "script.py").write_text(LEAVES)
    words, on = ["--hosts", names], ["sh", "-c", before + 'exec "$@"', "sh"]
    if names == "b":  # the shell there
        words, on = [*words, "--python", shell_python(tmp_path, before)], []
    run = Launched([*words, "script.py"], tmp_path, hosts.environment(), on=on)
    try:
        assert run.end() == 0, run.err
    finally:
        for pid in (tmp_path / "strangers").read_text().split():
            os.kill(int(pid), signal.SIGKILL)  # it is there
    left = run.out.split()[1:]
    assert not [pid for pid in left if os.path.exists(f"/proc/{pid}")]


SHORT = """
pids = [daemon("true") for _ in range(50)]
while any(os.path.exists(f"/proc/{pid}") for pid in pids):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("names", ["b", "localhost"])
def test_daemons_that_end_before_the_program_are_no_zombies(
    launch: Callable[..., Launched], names: str
) -> None:
    run = launch("--hosts", names, script=LEAVES + SHORT)
    assert run.end() == 0, run.err


@pytest.mark.parametrize("presses", [1, slow(2)])
def test_ctrl_c_ends_a_launch_whose_ssh_answers_nothing_any_more(
    launch: Callable[..., Launched], presses: int
) -> None:
    """As after a cut of the network."""
    run = launch("--hosts", "b,c", script=PATIENT)
    assert is_up(run), run.err
    assert len(clients(run)) == 3  # of two hosts and of the program
    for client in clients(run):
        os.kill(client.pid, signal.SIGSTOP)
    before = time.monotonic()
    for _ in range(presses):
        run.signal(signal.SIGINT)
        time.sleep(0.5)  # more than what belongs to one event
    assert run.end() == 137, run.err
    # Three seconds are promised, to a machine that does nothing else.
    assert time.monotonic() - before < 10


def test_a_ctrl_c_that_comes_with_the_last_host_ends_the_launch(
    launch: Callable[..., Launched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher, stopped meanwhile, finds both in one round of its loop."""
    monkeypatch.setenv(members.HELD, str(tmp_path))
    run = launch("--local-only", script="print('runs')")
    assert eventually((tmp_path / "held").exists, 60), run.err
    run.stop()
    (tmp_path / "go").touch()
    assert eventually((tmp_path / "joined").exists, 60)
    run.signal(signal.SIGINT)
    run.signal(signal.SIGCONT)
    assert run.end() == 130, run.err
    assert run.out == ""


# Its handler takes a while, as one that saves does. It is not entered again.
SAVES = """
import os, signal, time
def save(number, _):
    os.write(1, b"saves on %d\\n" % number)  # no print, which may be under way
    time.sleep(1.5)  # longer than without --grace
    os.write(1, b"saved\\n")
    os._exit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, save)
print("up", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("names", ["b", slow("localhost,b")])
def test_one_event_that_comes_as_two_signals_leaves_the_program_its_time(
    launch: Callable[..., Launched], names: str
) -> None:
    run = launch("--hosts", names, "--grace", "60", script=SAVES)
    assert is_up(run), run.err
    run.stop()  # so that it takes both at once
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGCONT)
    assert run.end() == 7, run.err
    assert run.out == f"up\nsaves on {signal.SIGHUP:d}\nsaved\n"


SLOW = """
import os, signal, time
def save(*_):
    time.sleep(0.5)  # longer than signals of one event are apart
    os.write(1, b"saves\\n")
    time.sleep(1000)
signal.signal(signal.SIGINT, save)
print("up", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("names", ["b", slow("localhost,b")])
def test_a_second_ctrl_c_does_not_wait(
    launch: Callable[..., Launched], names: str
) -> None:
    run = launch("--hosts", names, "--grace", "600", script=SLOW)
    assert is_up(run), run.err
    run.signal(signal.SIGINT)
    assert eventually(lambda: "saves" in run.out, 60), run.err
    run.signal(signal.SIGINT)
    assert run.end() in (137, 143), run.err


NOTICED = """
import os, signal, time
for number in (signal.SIGUSR1, signal.SIGUSR2):
    # No print, which may be under way.
    signal.signal(number, lambda number, _: os.write(1, b"noticed %d\\n" % number))
try:
    print("up", flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print("saved", flush=True)
    raise SystemExit(5)
"""


@pytest.mark.parametrize("names", ["b,c", "localhost,b"])
def test_the_notice_of_a_batch_system_goes_to_the_program_and_ends_nothing(
    launch: Callable[..., Launched], names: str
) -> None:
    run = launch("--hosts", names, script=NOTICED)
    assert is_up(run), run.err
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
        before = run.out
        run.signal(number)
        said = f"{before}noticed {number:d}\n"
        assert eventually(lambda: run.out == said or run.process.poll()), run.err
    run.signal(signal.SIGINT)  # the first that counts
    assert run.end() == 5, run.err
    assert run.out == f"{said}saved\n"


def test_a_notice_before_the_program_runs_is_dropped(
    launch: Callable[..., Launched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(members.HELD, str(tmp_path))
    run = launch("--local-only", script=NOTICED)
    assert eventually((tmp_path / "held").exists, 60), run.err
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        run.signal(number)
    (tmp_path / "go").touch()
    assert is_up(run), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err
    assert run.out == "up\nsaved\n"


def test_nothing_of_a_launch_has_signals_blocked(
    launch: Callable[..., Launched],
) -> None:
    run = launch("--hosts", "localhost,b", script=PATIENT)
    assert is_up(run) and eventually(lambda: offers(run)), run.err
    started = run.descendants()
    assert (
        len(started) >= 6
    )  # broker, host and ssh with their starters, and the program
    assert {blocked(process.pid) for process in started} == {0}
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def blocked(pid: int) -> int:
    """The signals that a process has blocked, as a mask."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("SigBlk:"))
    return int(line.split()[1], 16)


def test_a_signal_before_the_program_runs_ends_the_launch(
    launch: Callable[..., Launched], hosts: Servers
) -> None:
    run = launch("--hosts", "b,c", script=STUBBORN)
    assert eventually(lambda: "[broker]" in run.err or run.err or _children(run))
    run.signal(signal.SIGTERM)
    assert run.end() in (143, 137)


def _children(run: Launched) -> bool:
    path = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children")
    return bool(path.read_text())


@pytest.mark.parametrize("names", ["b,c", "localhost,b"])
def test_nothing_is_left_when_the_launcher_is_killed(
    launch: Callable[..., Launched], names: str
) -> None:
    run = launch("--hosts", names, script=PATIENT)
    assert is_up(run), run.err
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    # The leak check sees to the rest.


def test_a_host_that_fails_is_started_again_and_the_run_goes_on(
    launch: Callable[..., Launched],
) -> None:
    run = launch("--hosts", "localhost,b", script=PATIENT)
    assert is_up(run) and eventually(lambda: offers(run)), run.err
    os.kill(int(offers(run)[0].split()[-1]), signal.SIGKILL)
    assert eventually(lambda: len(offers(run)) == 2), run.err
    assert "host b has ended: killed by signal 9 (SIGKILL); it is started" in run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def offers(run: Launched) -> list[str]:
    """What host b has said of itself, each time it joined; its pid is at the end."""
    return [line for line in run.err.splitlines() if line.startswith("[b] offers")]


def test_a_launcher_that_was_stopped_for_long_starts_its_hosts_again(
    launch: Callable[..., Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silence has ended them in order, but nobody had told them to stop."""
    monkeypatch.setenv(launching.SILENCE, "11.0")  # it says something each 10 s
    run = launch("--hosts", "localhost,b", script=PATIENT)
    assert is_up(run) and eventually(lambda: offers(run)), run.err
    host = Process.of(int(offers(run)[0].split()[-1]))
    run.signal(signal.SIGSTOP)
    assert eventually(lambda: not host.is_running(), 30)
    run.signal(signal.SIGCONT)
    assert eventually(lambda: len(offers(run)) == 2, 30), run.err
    assert "host b has ended: it had heard nothing of this command for" in run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def test_a_host_that_was_told_to_stop_stays_away(
    launch: Callable[..., Launched],
) -> None:
    run = launch("--hosts", "localhost,b", script=PATIENT)
    assert is_up(run) and eventually(lambda: offers(run)), run.err
    os.kill(int(offers(run)[0].split()[-1]), signal.SIGTERM)
    assert eventually(lambda: "host b has ended: exit code 0\n" in run.err), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def test_a_broker_that_is_killed_is_started_again_at_its_port(
    launch: Callable[..., Launched],
) -> None:
    run = launch("--hosts", "localhost", script=PATIENT)
    assert is_up(run), run.err
    before = _broker_of(run)
    os.kill(before, signal.SIGKILL)
    assert eventually(lambda: _broker_of(run) not in (None, before)), run.err
    assert "the broker ended (killed by signal 9 (SIGKILL)); another" in run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def test_a_broker_that_is_killed_before_the_program_runs_is_started_again(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    python = shell_python(tmp_path, f"while [ ! -e {gate} ]; do sleep 0.1; done")
    run = launch("--hosts", "b", "--python", python, script="print('ran')")
    assert eventually(lambda: _broker_of(run) and len(clients(run)) == 1), run.err
    before = _broker_of(run)
    os.kill(before, signal.SIGKILL)  # the host has not joined
    assert eventually(lambda: _broker_of(run) not in (None, before)), run.err
    gate.touch()
    assert (run.end(), run.out) == (0, "ran\n"), run.err


def clients(run: Launched) -> list[Process]:
    """Its ssh to each host, and to the program."""
    return [p for p in run.descendants() if p.name() == "ssh"]


@pytest.mark.parametrize("how", ["here", "there"])
def test_a_program_that_is_lost_is_no_program_that_has_ended(
    launch: Callable[..., Launched], how: str
) -> None:
    """Its starter, or the ssh to that, is killed."""
    run = launch("--hosts", "b", script=PATIENT)
    assert is_up(run), run.err
    program = Process.of(int(run.out.split()[1]))
    if how == "there":
        os.kill(program.parent(), signal.SIGKILL)
        code, why = 255, "ssh has lost the connection, or it ended with exit code 255"
    else:
        os.kill(max(client.pid for client in clients(run)), signal.SIGKILL)
        code, why = 137, "the ssh to it was killed by signal 9 (SIGKILL)\n"
    assert run.end() == code, run.err
    assert f"what became of the program on host b is not known: {why}" in run.err
    assert eventually(lambda: not program.is_running())


def test_a_run_ends_if_the_host_of_the_program_answers_nothing_any_more(
    launch: Callable[..., Launched],
    hosts: Servers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a cut of the network, of which TCP tells nobody for many minutes."""
    monkeypatch.setenv(launching.LOOK, "2")
    run = launch("--hosts", "b,c", script=PATIENT)
    assert is_up(run), run.err
    program = Process.of(int(run.out.split()[1]))
    sessions = hosts.sessions("b")
    assert len(sessions) >= 2  # of the host and of the program
    for session in sessions:
        stop(session.pid)
    try:
        assert run.end() == 255, run.err
    finally:
        for session in sessions:
            os.kill(session.pid, signal.SIGCONT)
    assert "what became of the program on host b is not known: ssh has lost" in run.err
    assert eventually(lambda: not program.is_running(), 30)


@pytest.mark.parametrize("joins", [True, False])
def test_a_shell_may_greet_without_an_end_of_line(
    launch: Callable[..., Launched], tmp_path: Path, joins: bool
) -> None:
    python = shell_python(tmp_path, "printf 'Welcome, '")
    words = ["--hosts", "b", "--python", python]
    if not joins:
        words += ["--cwd", "/nowhere"]
    run = launch(*words, script="print('ran')")
    assert run.end() == (0 if joins else 2), run.err
    assert "[b] Welcome, \n" in run.err
    assert joins or "host b did not start: the directory /nowhere" in run.err, run.err


def _broker_of(run: Launched) -> int | None:
    """The pid of its broker."""
    found = (p for p in run.descendants() if "members broker" in p.command())
    return next((process.pid for process in found), None)


# -- --sync, --ports, and other machines --------------------------------------


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_sync_copies_the_working_directory(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    there = tmp_path / "far" / "there"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "part.py").write_text("VALUE = 7")
    for name in (".git", ".venv", "runs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "large").touch()
    script = "import os; from package.part import VALUE; print(VALUE, os.getcwd())"
    run = launch("--hosts", "b", "--sync", "--cwd", str(there), script=script)
    assert run.end() == 0, run.err
    assert run.out == f"7 {there}\n"
    assert not {".git", ".venv", "runs"} & set(os.listdir(there))


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_a_copy_that_fails_is_told_with_the_next_step(
    launch: Callable[..., Launched],
) -> None:
    said = failure(launch("--hosts", "b", "--sync", "--cwd", "/proc/no/place"))
    assert said.startswith("host b: rsync ended with exit code ")
    assert "/proc/no" in said and said.endswith("and leave --sync away")


def test_sync_without_rsync_says_what_to_install(
    hosts: Servers, tmp_path: Path
) -> None:
    (tmp_path / "script.py").touch()
    environment = {**hosts.environment(), "PATH": str(hosts.path)}
    run = Launched(["--hosts", "b", "--sync", "script.py"], tmp_path, environment)
    assert "--sync needs rsync" in failure(run)


@pytest.mark.skipif(networks.why_not() is not None, reason=str(networks.why_not()))
@pytest.mark.parametrize(
    ("family", "here", "far"),
    [(4, "10.99.1.1", "10.99.1.2"), (6, "[fd99:1::1]", "fd99:1::2")],
)
def test_hosts_join_across_a_network(
    tmp_path: Path, family: int, here: str, far: str
) -> None:
    cable = networks.Cable((family,))
    try:
        folder = tmp_path / "ssh"
        folder.mkdir()
        with servers(folder) as running:
            running.add("far", far, cable.on("b"))
            (tmp_path / "script.py").write_text(REPORT)
            for names in ("far,localhost", "localhost,far"):
                run = Launched(
                    ["--hosts", names, "script.py"],
                    tmp_path,
                    running.environment(),
                    on=cable.on("a"),
                )
                assert run.end() == 0, run.err
                assert json.loads(run.out)["address"].startswith(f"tcp://{here}:")
    finally:
        cable.close()


# -- the terminal --------------------------------------------------------------

CONVERSATION = """
import os, signal, sys, time
interrupts = []
signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
print("name?", sys.stdin.isatty(), sys.stdout.isatty(), flush=True)
print("hello", input(), flush=True)
while not interrupts:
    time.sleep(0.01)
time.sleep(0.2)  # for another one
print("interrupts:", len(interrupts), flush=True)
"""


@pytest.mark.parametrize("typed", [True, False])
def test_a_program_on_this_machine_has_the_terminal(
    hosts: Servers, tmp_path: Path, typed: bool
) -> None:
    """One Ctrl-C is one to the program: the terminal's own, or ``kill -INT`` of the
    launcher that this passes on."""
    (tmp_path / "script.py").write_text(CONVERSATION)
    terminal = Terminal(
        [*command(), "--hosts", "localhost,b", "script.py"],
        tmp_path,
        {**hosts.environment(), "PYTHONPATH": str(ROOT)},
    )
    try:
        terminal.wait_for("name? True True")
        terminal.type("Ann\n")
        terminal.wait_for("hello Ann")
        if typed:
            terminal.type("\x03")
        else:
            terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("interrupts: 1")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
