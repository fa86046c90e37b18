# SPDX-License-Identifier: MIT
"""A pytest plugin: libfabric keeps devices open that it has once looked at.

It looks before the first test, so that this is not taken for a leak of that test.
"""

from __future__ import annotations

from mooactor.tensors import network


def pytest_configure() -> None:
    """Have libfabric look at all devices, and show what it finds."""
    print("\n".join(network.probe_fabric()[1]))
