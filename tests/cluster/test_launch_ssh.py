# SPDX-License-Identifier: MIT
"""``mooactor run --hosts``: over real ssh servers of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests import networks
from tests.cluster.conftest import Launch
from tests.cluster.launched import (
    LEAVES,
    MOOACTOR,
    PATIENT,
    REPORT,
    ROOT,
    Launched,
    Terminal,
    failure,
)
from tests.cluster.sshd import Servers, servers
from tests.conftest import at_best, eventually
from tests.processes import Process, stop

pytestmark = pytest.mark.slow


HOSTS = """
import mooactor as moo
moo.init(local=False)
report(hosts={host["name"]: host["cpus"] for host in moo.hosts()})
"""


def test_the_program_runs_on_the_first_host_and_finds_the_broker(
    launch: Launch, tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_text("# two hosts\nb slots=3\n\nc num_cpus=5 # the larger one\n")
    given = ("--env", "x y", "{PYTHON}{ADDRESS}")
    for words, first in (("--hosts", "localhost,b"), ("--hostfile", str(file))):
        script = REPORT + HOSTS + "raise SystemExit(3)"
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
        if "file" in words:
            assert found["hosts"] == {"b": 3, "c": 5}


# -- what is missing ---------------------------------------------------------


def test_a_host_that_fails_fails_the_run_with_its_last_words(
    launch: Launch, tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_text("c num_gpus=999999999\nb\n")  # more than a host can have
    said = failure(launch("--hostfile", str(file), script="print(1)"))
    assert said.startswith("host c did not start: exit code 2: mooactor host: ")
    assert "GPUs, not 999999999" in said and "; mend that, or run " in said
    words = ("--hostfile", str(file), "--min-hosts", "1")
    run = launch(*words, script=REPORT + "report()")
    assert run.end() == 0, run.err
    assert json.loads(run.out)["host"] == "b"
    assert "host c did not start" in run.err


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


def test_a_signal_before_the_program_runs_ends_the_launch(launch: Launch) -> None:
    run = launch("--hosts", "b,c", script=STUBBORN)
    assert eventually(lambda: [p for p in run.descendants() if p.name() == "ssh"])
    run.signal(signal.SIGTERM)
    assert run.end() in (143, 137)


def agent_of(hosts: Servers, name: str) -> Process:
    """The host that ssh has started on a server."""
    below = [p for session in hosts.sessions(name) for p in session.descendants()]
    running = [p for p in below if " host --join tcp" in p.command()]
    return min(running, key=lambda p: (p.started, p.pid))  # before what it forks


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_host_that_ends_is_named_and_the_run_goes_on(
    launch: Launch, hosts: Servers, number: signal.Signals
) -> None:
    run = launch("--hosts", "localhost,b", script=PATIENT)
    assert run.says("up"), run.err
    os.kill(agent_of(hosts, "b").pid, number)
    killed = "killed by signal 9 (SIGKILL); "
    why = killed if number == signal.SIGKILL else "it was told to end"
    assert eventually(lambda: f"host b has ended: {why}" in run.err), run.err
    run.signal(signal.SIGINT)
    assert run.end() == 5, run.err


def test_a_run_ends_if_the_host_of_the_program_answers_nothing_any_more(
    launch: Launch, hosts: Servers, tmp_path: Path
) -> None:
    """As after a cut of the network, of which TCP tells nobody for many minutes."""
    quick = tmp_path / "quick"  # of two values ssh takes the first
    quick.mkdir()
    client = (hosts.path / "ssh").read_text()
    option = '-o ServerAliveInterval=2 "$@"'
    (quick / "ssh").write_text(client.replace('"$@"', option))
    (quick / "ssh").chmod(0o755)
    path = {"PATH": f"{quick}:{os.environ['PATH']}"}
    run = launch("--hosts", "b,c", script=PATIENT, variables=path)
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


def test_a_program_on_this_machine_has_the_terminal(
    hosts: Servers, tmp_path: Path
) -> None:
    """One Ctrl-C is one to the program: the terminal's own."""
    (tmp_path / "script.py").write_text(CONVERSATION)
    terminal = Terminal(
        [*MOOACTOR, "run", "--hosts", "localhost,b", "script.py"],
        tmp_path,
        {**hosts.environment(), "PYTHONPATH": str(ROOT)},
    )
    try:
        terminal.wait_for("name? True True")
        terminal.type("Ann\n")
        terminal.wait_for("hello Ann")
        terminal.type("\x03")
        terminal.wait_for("noticed")
        terminal.type("Bea\n")
        terminal.wait_for("interrupts: 1")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
