# SPDX-License-Identifier: MIT
"""The compiled part of the build; everything else is in pyproject.toml."""

import sys
import sysconfig

from setuptools import setup

# The data plane needs memfd, epoll and SCM_RIGHTS. Elsewhere the package still
# installs and imports, and creating a DataPlane says what is missing.
LINUX = sys.platform.startswith("linux")
# One wheel serves all versions from 3.11 on, but free-threaded Python has no such ABI.
STABLE_ABI = LINUX and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    cffi_modules=["cext/build.py:ffibuilder"] if LINUX else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
