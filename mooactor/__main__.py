# SPDX-License-Identifier: MIT
"""``python -m mooactor`` is the ``mooactor`` command."""

from mooactor.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
