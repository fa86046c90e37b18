# SPDX-License-Identifier: MIT
"""``mooactor run --hosts``: over real ssh servers of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests import networks
from tests.cluster import launching
from tests.cluster.conftest import Launch
from tests.cluster.launched import (
    LEAVES,
    PATIENT,
    REPORT,
    ROOT,
    Launched,
    Terminal,
    command,
    failure,
)
from tests.cluster.sshd import Servers, servers
from tests.conftest import at_best, eventually
from tests.processes import Process, stop

pytestmark = pytest.mark.slow


def test_the_program_runs_on_the_first_host_and_finds_the_broker(
    launch: Launch, tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_text("# two hosts\nb slots=3\n\nc num_cpus=5 # the larger one\n")
    given = ("--env", "x y", "{PYTHON}{ADDRESS}")
    for words, first in (("--hosts", "localhost,b"), ("--hostfile", str(file))):
        script = REPORT + "report()\nraise SystemExit(3)"
        run = launch(words, first, script=script, arguments=given)
        assert run.end() == 3, run.err
        found = json.loads(run.out)
        assert found["host"] == ("b" if "file" in words else "localhost")
        assert found["ssh"] == (found["host"] == "b")
        assert found["argv"] == ["script.py", *given]
        assert found["cwd"] == str(tmp_path)
        assert found["address"].startswith("tcp://127.0.0.1:")
        assert len(bytes.fromhex(found["key"])) == 32
        assert found["mode"] == 0o600 and found["owned"] and found["shown"] == []
    lines = run.err.splitlines()  # what hosts print has their name in front
    assert any(line.startswith("[b] offers 3 cores") for line in lines)
    assert any(line.startswith("[c] offers 5 cores") for line in lines)


def test_a_signal_that_ends_the_program_is_in_the_exit_code(launch: Launch) -> None:
    assert (
        launch("--hosts", "b", script="import os; os.kill(os.getpid(), 9)").end() == 137
    )


# -- what is missing ---------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--python", "/no/python"], "host b did not start: it has no /no/python"),
        (["--cwd", "/no/place"], "host b did not start: the directory /no/place"),
        (
            ["--cwd", "/usr"],
            "host b did not start: there is no script script.py in /usr",
        ),
        (
            ["--hosts", "b,nowhere.invalid"],
            "host nowhere.invalid did not start: ssh fa",
        ),
    ],
)
def test_what_a_host_lacks_is_named(
    launch: Launch, words: list[str], said: str
) -> None:
    run = launch("--hosts", "b", *words)
    assert failure(run).startswith(said), run.err


def shell_python(folder: Path, before: str) -> str:
    """An interpreter that the shell starts, after `before`; its path from there."""
    program = folder / "py"
    program.write_text(f'#!/bin/sh\n{before}\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return f"./{program.name}"


def test_an_interpreter_is_found_from_here_and_its_shell_may_greet(
    launch: Launch, tmp_path: Path
) -> None:
    python = shell_python(tmp_path, before="printf 'Welcome, '")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "script.py").write_text("print('it runs')")
    words = ("--python", python, "--cwd", str(elsewhere))
    run = launch("--hosts", "b", *words, script="print('another')")
    assert run.end() == 0, run.err
    assert run.out.endswith("it runs\n") and "another" not in run.out
    assert "[b] Welcome, \n" in run.err


def test_a_host_that_fails_fails_the_run_with_its_last_words(
    launch: Launch, hosts: Servers
) -> None:
    with (hosts.folder / "config").open("a") as file:
        text = (hosts.folder / "config").read_text()
        file.write(text[: text.index("Host c")].replace("Host b", "Host broken"))
    assert failure(launch("--hosts", "b,broken", script="print(1)")) == (
        "host broken did not start: exit code 1: this host is broken; mend that, and "
        "try again"
    )
    script = REPORT + "report()"
    run = launch("--hosts", "broken,b", "--min-hosts", "1", script=script)
    assert run.end() == 0, run.err
    assert json.loads(run.out)["host"] == "b"
    assert "host broken did not start" in run.err


# -- the end -----------------------------------------------------------------

STUBBORN = """
import os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("up", os.getpid(), flush=True)
while True:
    signal.pause()
"""


@pytest.mark.quiet
def test_a_signal_ends_everything_everywhere_within_three_seconds(
    launch: Launch,
) -> None:
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

    def takes_s() -> float:
        run = launch("--hosts", "localhost,b", script=STUBBORN)
        assert run.says("up"), run.err
        before = time.monotonic()
        run.signal(numbers.pop())
        assert run.end() == 137, run.err
        return time.monotonic() - before

    assert at_best(takes_s, 3.0, tries=len(numbers))


# Daemons that end before the program are no zombies that it waits for.
LEFT = """
pids = [daemon("true") for _ in range(50)]
while any(os.path.exists(f"/proc/{pid}") for pid in pids):
    pass
print("left", child.pid, daemon("sleep", "600"), flush=True)
"""


@pytest.mark.parametrize("names", ["b", "localhost"])
def test_the_program_may_act_on_ctrl_c_and_what_it_leaves_ends_with_it(
    launch: Launch, names: str
) -> None:
    run = launch("--hosts", names, script=LEAVES + LEFT + PATIENT)
    assert run.says("up"), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err
    assert "saved" in run.out
    left = run.out.splitlines()[0].split()[1:]
    assert len(left) == 2 and not [p for p in left if os.path.exists(f"/proc/{p}")]


def test_ctrl_c_ends_a_launch_whose_ssh_answers_nothing_any_more(
    launch: Launch,
) -> None:
    """As after a cut of the network."""
    run = launch("--hosts", "b,c", script=PATIENT)
    assert run.says("up"), run.err
    clients = [p for p in run.descendants() if p.name() == "ssh"]
    assert len(clients) == 3  # of two hosts and of the program
    for client in clients:
        os.kill(client.pid, signal.SIGSTOP)
    run.signal(signal.SIGINT)
    assert run.end() == 137, run.err


# Its handler takes longer than a program has without --grace. It is not entered again.
SAVES = """
import os, signal, time
def save(number, _):
    os.write(1, b"saves on %d\\n" % number)  # no print, which may be under way
    time.sleep(1.5)  # there is no event: the grace is a time
    os.write(1, b"saved\\n")
    os._exit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, save)
print("up", flush=True)
while True:
    signal.pause()
"""


def test_one_event_that_comes_as_two_signals_leaves_the_program_its_time(
    launch: Launch,
) -> None:
    run = launch("--hosts", "b", "--grace", "60", script=SAVES)
    assert run.says("up"), run.err
    run.stop()  # so that it takes both at once
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGCONT)
    assert run.end() == 7, run.err
    assert run.out == f"up\nsaves on {signal.SIGHUP:d}\nsaved\n"


SLOW = """
import os, signal, time
def save(*_):
    time.sleep(0.5)  # longer than the signals of one event are apart
    os.write(1, b"saves\\n")
    while True:
        signal.pause()
signal.signal(signal.SIGINT, save)
print("up", flush=True)
signal.pause()
"""


def test_a_second_ctrl_c_does_not_wait(launch: Launch) -> None:
    run = launch("--hosts", "b", "--grace", "600", script=SLOW)
    assert run.says("up"), run.err
    run.signal(signal.SIGINT)
    assert run.says("saves"), run.err
    run.signal(signal.SIGINT)
    assert run.end() in (137, 143), run.err


def test_a_signal_before_the_program_runs_ends_the_launch(launch: Launch) -> None:
    run = launch("--hosts", "b,c", script=STUBBORN)
    assert eventually(lambda: [p for p in run.descendants() if p.name() == "ssh"])
    run.signal(signal.SIGTERM)
    assert run.end() in (143, 137)


def offers(run: Launched) -> list[str]:
    """What host b has said of itself, each time it joined; its pid is at the end."""
    return [line for line in run.err.splitlines() if line.startswith("[b] offers")]


def blocked(pid: int) -> int:
    """The signals that a process has blocked, as a mask."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("SigBlk:"))
    return int(line.split()[1], 16)


def test_a_host_that_fails_is_started_again_and_one_that_was_told_to_stop_is_not(
    launch: Launch,
) -> None:
    run = launch("--hosts", "localhost,b", script=PATIENT)
    assert run.says("up") and eventually(lambda: offers(run)), run.err
    started = run.descendants()
    assert len(started) >= 6  # broker, hosts and ssh with starters, and the program
    assert {blocked(process.pid) for process in started} == {0}
    os.kill(int(offers(run)[0].split()[-1]), signal.SIGKILL)
    assert eventually(lambda: len(offers(run)) == 2), run.err
    assert "host b has ended: killed by signal 9 (SIGKILL); it is started" in run.err
    os.kill(int(offers(run)[1].split()[-1]), signal.SIGTERM)
    assert eventually(lambda: "host b has ended: exit code 0\n" in run.err), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def test_a_launcher_that_was_stopped_for_long_starts_its_hosts_again(
    launch: Launch,
) -> None:
    """Its silence has ended them in order, but nobody had told them to stop."""
    short = {launching.SILENCE: "11.0"}  # it says something each 10 s
    run = launch("--hosts", "localhost,b", script=PATIENT, variables=short)
    assert run.says("up") and eventually(lambda: offers(run)), run.err
    host = Process.of(int(offers(run)[0].split()[-1]))
    run.stop()
    assert eventually(lambda: not host.is_running())
    run.signal(signal.SIGCONT)
    assert eventually(lambda: len(offers(run)) == 2), run.err
    assert "host b has ended: it had heard nothing of this command for" in run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def test_a_program_whose_starter_is_killed_is_no_program_that_has_ended(
    launch: Launch,
) -> None:
    run = launch("--hosts", "b", script=PATIENT)
    assert run.says("up"), run.err
    program = Process.of(int(run.out.split()[1]))
    parent = program.parent()
    assert parent is not None
    os.kill(parent, signal.SIGKILL)
    assert run.end() == 255, run.err
    known = "what became of the program on host b is not known: ssh has lost the"
    assert known in run.err
    assert eventually(lambda: not program.is_running())


def test_a_run_ends_if_the_host_of_the_program_answers_nothing_any_more(
    launch: Launch, hosts: Servers
) -> None:
    """As after a cut of the network, of which TCP tells nobody for many minutes."""
    run = launch("--hosts", "b,c", script=PATIENT, variables={launching.LOOK: "2"})
    assert run.says("up"), run.err
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
    assert eventually(lambda: not program.is_running())


# -- --sync, and other machines ------------------------------------------------


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_sync_copies_the_working_directory_and_a_module_can_be_the_program(
    hosts: Servers, tmp_path: Path
) -> None:
    there = tmp_path / "far" / "there"
    package = tmp_path / "package"
    package.mkdir()
    (package / "part.py").write_text("import os; print(__name__, os.getcwd())")
    for name in (".git", ".venv", "runs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "large").touch()
    words = ["--hosts", "b", "--sync", "--cwd", str(there), "-m", "package.part"]
    run = Launched(words, tmp_path, hosts.environment())
    assert run.end() == 0, run.err
    assert run.out == f"__main__ {there}\n"
    assert not {".git", ".venv", "runs"} & set(os.listdir(there))


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_a_copy_that_fails_is_told_with_the_next_step(
    launch: Launch, hosts: Servers
) -> None:
    said = failure(launch("--hosts", "b", "--sync", "--cwd", "/proc/no/place"))
    assert said.startswith("host b: rsync ended with exit code ")
    assert "/proc/no" in said and said.endswith("and leave --sync away")
    without = {"PATH": str(hosts.path)}
    said = failure(launch("--hosts", "b", "--sync", variables=without))
    assert "--sync needs rsync" in said


@pytest.mark.skipif(networks.why_not() is not None, reason=str(networks.why_not()))
@pytest.mark.parametrize(
    ("family", "here", "far"),
    [(4, "10.99.1.1", "10.99.1.2"), (6, "[fd99:1::1]", "fd99:1::2")],
)
def test_hosts_join_across_a_network(
    launch_here: Launch, tmp_path: Path, family: int, here: str, far: str
) -> None:
    cable = networks.Cable((family,))
    folder = tmp_path / "ssh"
    folder.mkdir()
    try:
        with servers(folder) as running:
            running.add("far", far, cable.on("b"))
            environment, on = running.environment(), cable.on("a")
            for names in ("far,localhost", "localhost,far"):
                script = REPORT + "report()"
                words = ("--hosts", names)
                run = launch_here(*words, script=script, environment=environment, on=on)
                assert run.end() == 0, run.err
                assert json.loads(run.out)["address"].startswith(f"tcp://{here}:")
    finally:
        cable.close()


# -- the terminal --------------------------------------------------------------

CONVERSATION = """
import os, signal, sys
interrupts = []
def interrupted(*_):
    interrupts.append(1)
    os.write(1, b"noticed\\n")
signal.signal(signal.SIGINT, interrupted)
print("name?", sys.stdin.isatty(), sys.stdout.isatty(), flush=True)
print("hello", input(), flush=True)
print("another?", input(), flush=True)
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
        terminal.wait_for("noticed")
        terminal.type("Bea\n")
        terminal.wait_for("interrupts: 1")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
