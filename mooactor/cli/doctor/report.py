# SPDX-License-Identifier: MIT
"""Runs the checks and prints their findings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from mooactor.cli.doctor import kernel, software, transports, trial
from mooactor.cli.doctor.finding import Finding

CHECKS = kernel.CHECKS + software.CHECKS + transports.CHECKS + trial.CHECKS
VERDICTS = {
    "ok": "Everything works here.",
    "note": "Everything works here; the absent parts are optional.",
    "slow": "Everything works here; the remedies above make it faster or larger.",
    "broken": "mooactor cannot run here: repair the broken parts above.",
}


def run(*, as_json: bool = False) -> int:
    """Print one line for each check; 0 unless something essential is broken."""
    findings: list[Finding] = []
    for check in CHECKS:
        findings.append(check())
        if not as_json:
            print(line(findings[-1]), flush=True)
        if check is kernel.system and findings[-1].state == "broken":
            break  # the other checks need Linux
    states = {finding.state for finding in findings}
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print(verdict(states))
    return int("broken" in states)


def line(finding: Finding) -> str:
    """The lines in the report: state, name, detail, and the remedy below them."""
    text = f"{finding.state:>6}  {finding.name:<14} {finding.detail}"
    if finding.remedy:
        text += f"\n{'':>24}→ {finding.remedy}"
    return text


def verdict(states: Iterable[str]) -> str:
    """The last sentence: that of the worst state found."""
    worst = max(states, key=list(VERDICTS).index)
    return VERDICTS[worst]
