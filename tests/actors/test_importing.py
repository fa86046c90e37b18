# SPDX-License-Identifier: MIT
"""A program without the guard of `__main__`, imported where its class is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import mooactor as moo

@moo.actor
class Learner:
    def step(self) -> int:
        return 1
"""
ENDINGS = {
    "init": "with moo.init():\n    print(moo.spawn(Learner).step())\n",
    "group": "print(moo.on(Learner).group(2).step.call().get())\n",
}
GUARD = 'if __name__ == "__main__":'


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_import_for_an_actor_starts_no_other_actor(
    tmp_path: Path, ending: str
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM + ENDINGS[ending])
    done = run(tmp_path, "-c", "import train")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "ActorDied" in last and GUARD in last


def test_a_script_needs_no_guard_and_an_import_of_a_guarded_one_is_fine(
    tmp_path: Path,
) -> None:
    (tmp_path / "script.py").write_text(PROGRAM + ENDINGS["init"])
    assert run(tmp_path, "script.py").stdout == "1\n"
    (tmp_path / "train.py").write_text(f"{PROGRAM}\n{GUARD}\n    assert False\n")
    main = "import mooactor as moo\nfrom train import Learner\n" + ENDINGS["init"]
    (tmp_path / "main.py").write_text(main)
    done = run(tmp_path, "main.py")
    assert (done.stdout, done.stderr) == ("1\n", "")
