# SPDX-License-Identifier: MIT
"""A Slurm batch script that runs a program with a host on each node."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence

from mooactor.cluster.launch.targets import LaunchError

_SCRIPT = """\
#!/bin/bash
{directives}
{environment}
# The key of this job: in a file of this user's alone, in the home directory, which the
# nodes share. It goes when the job ends.
folder="${{XDG_CONFIG_HOME:-$HOME/.config}}/mooactor/runs"
mkdir -p "$folder"
export MOOACTOR_KEY_FILE="$folder/key-$SLURM_JOB_ID"
trap 'rm -f "$MOOACTOR_KEY_FILE"' EXIT
trap 'kill -TERM "$step"; wait "$step"' TERM INT
export MOOACTOR_FIRST=$(hostname)
{python} -P -m mooactor keygen --force "$MOOACTOR_KEY_FILE" > /dev/null || exit

# One task on each node; the first one runs the program.
srun --ntasks-per-node=1 --kill-on-bad-exit=1 \\
    {command} &
step=$!
wait "$step"
"""


def directives(
    *,
    nodes: int,
    job_name: str,
    cpus: int | None = None,
    gpus: int | None = None,
    mem: str | None = None,
    partition: str | None = None,
    account: str | None = None,
    time: str | None = None,
    more: Sequence[str] = (),
) -> list[str]:
    """The options of sbatch(1), one a line.

    Raises:
      LaunchError: one would not stay on its line.
    """
    named = {
        "job-name": job_name,
        "nodes": nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": cpus,
        "gpus-per-node": gpus,
        "mem": mem,
        "partition": partition,
        "account": account,
        "time": time,
    }
    lines = [f"--{name}={value}" for name, value in named.items() if value is not None]
    lines += more
    for line in lines:
        if any(c.isspace() for c in line) or not line.startswith("-"):
            raise LaunchError(f"{line!r} is no option of sbatch: write --name=value")
    return lines


def batch_script(
    options: Sequence[str], python: str, words: Sequence[str], path: Sequence[str] = ()
) -> str:
    """The text of the script; `words` are those of ``mooactor run``, and `path` goes
    before the import path."""
    command = [python, "-P", "-m", "mooactor", "run", *words]
    joined = shlex.quote(":".join(path))
    return _SCRIPT.format(
        environment=f"export PYTHONPATH={joined}" if path else "",
        directives="\n".join(f"#SBATCH {option}" for option in options),
        python=shlex.quote(python),
        command=shlex.join(command),
    )


def submit(script: str) -> str:
    """Hand it to sbatch; what that answers.

    Raises:
      LaunchError: there is no sbatch, or it refuses.
    """
    if shutil.which("sbatch") is None:
        raise LaunchError(
            "there is no sbatch here: run this on a login node of the cluster, or "
            "write the script with --dry-run"
        )
    done = subprocess.run(["sbatch"], input=script, capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip() or f"exit code {done.returncode}, without a word"
        raise LaunchError(
            f"sbatch refuses the job ({why}): change the options, or look at the "
            "script with --dry-run"
        )
    return done.stdout.strip()
