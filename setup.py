# SPDX-License-Identifier: MIT
"""The compiled part of the build; everything else is in pyproject.toml."""

import sys

from setuptools import setup

# The data plane needs memfd, epoll and SCM_RIGHTS. Elsewhere the package still
# installs and imports, and creating a DataPlane says what is missing.
LINUX = sys.platform.startswith("linux")

setup(
    cffi_modules=["cext/build.py:ffibuilder"] if LINUX else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LINUX else {},
)
