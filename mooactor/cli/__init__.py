# SPDX-License-Identifier: MIT
"""The ``mooactor`` command."""

from mooactor.cli.command import main as main
