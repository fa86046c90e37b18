# SPDX-License-Identifier: MIT
"""The README's two commands on a machine that has nothing: see .ci/fresh."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = 77


@pytest.mark.soak
@pytest.mark.timeout(1200)  # it installs a Debian, PyTorch and all else
def test_a_bare_debian_needs_no_more_than_make(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        code = subprocess.call([ROOT / ".ci" / "fresh"], stdout=out, stderr=out)
    if code == SKIPPED:
        pytest.skip(log.read_text().strip().splitlines()[-1])
    assert code == 0, log.read_text()[-3000:]
