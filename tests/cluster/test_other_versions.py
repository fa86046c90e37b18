# SPDX-License-Identifier: MIT
"""Drivers, hosts and brokers that speak different versions of the wire."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mooactor.control import envelope, frames
from tests.cluster.clusters import Cluster, clean_environment
from tests.cluster.launched import ROOT
from tests.processes import Process

pytestmark = pytest.mark.slow

OTHER = 99
# There are two wires: of calls, whose version a member announces, and of channels
# between nodes, which say theirs in their first frame.
WIRES = {
    "mooactor.control.envelope.VERSION": envelope.VERSION,
    "mooactor.control.frames.WIRE": frames.WIRE,
}
# It lives until its input ends, so that others can look for what it has left.
DRIVER = """
import sys
import mooactor as moo
try:
    moo.init(sys.argv[1])
except moo.MooError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
sys.stdin.read()
"""


def refusals(said: str, address: str) -> list[str]:
    return re.findall(f"the broker at {address} refuses this .*", said)


@pytest.mark.parametrize("constant", WIRES)
def test_who_speaks_another_version_is_refused_and_others_join(
    cluster: Cluster, constant: str, tmp_path: Path
) -> None:
    module = constant.rpartition(".")[0]
    folder = tmp_path / "patched"
    folder.mkdir()
    text = f"import {module}\n{constant} = {OTHER}\n"
    (folder / "sitecustomize.py").write_text(text)
    otherwise = {"PYTHONPATH": f"{folder}:{ROOT}"}
    key = ("--key-file", cluster.key.source)

    def assert_names_both(refusal: str, host: str) -> None:
        """The versions, the host if the broker has understood its name, and what to
        do."""
        assert repr(host) in refusal or constant.endswith(".WIRE"), refusal
        named = re.findall(r"version (\d+)", refusal)
        assert sorted(map(int, named)) == sorted((OTHER, WIRES[constant])), refusal
        assert "install" in refusal

    first, address = cluster.broker()
    join = ("host", "--join", address, *key, "--name")
    other = cluster.command(*join, "b", **otherwise)
    own = tmp_path / "own"
    own.mkdir()
    program = subprocess.Popen(
        [sys.executable, "-c", DRIVER, address],
        env=clean_environment()
        | {"TMPDIR": str(own), "MOOACTOR_KEY_FILE": cluster.key.source}
        | {"MOOACTOR_HOST_NAME": "driver", **otherwise},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:  # a program is refused, and leaves nothing
        assert program.stdout is not None
        said = program.stdout.readline()
        assert said.startswith("VersionMismatch: "), said
        (refusal,) = refusals(said, address)
        assert_names_both(refusal, "driver")
        assert [*Process.of(program.pid).descendants(), *own.iterdir()] == []
    assert cluster.until(lambda: refusals(other.text(), address)), other.text()
    same = cluster.command(*join, "c")
    assert cluster.until(lambda: same.out), same.text()
    status = cluster.ask("status", "--connect", address, "--json").out[0]
    assert [row["name"] for row in json.loads(status)["hosts"]] == ["c"]
    assert other.signal() == 0 and other.out == []  # it waits for another broker
    (refusal,) = refusals(other.text(), address)
    assert_names_both(refusal, "b")
    assert "lost the broker" not in other.text()

    # The broker is replaced by one of another version, and that by its like.
    listen = address.removeprefix("tcp://")
    first.close()
    second, _ = cluster.broker(listen=listen, **otherwise)
    assert cluster.until(lambda: refusals(same.text(), address)), same.text()
    assert_names_both(refusals(same.text(), address)[0], "c")
    second.close()
    cluster.broker(listen=listen)
    assert cluster.until(lambda: f"joined {address}" in "".join(same.err))
