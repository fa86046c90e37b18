# SPDX-License-Identifier: MIT
"""``mooactor doctor``: checks of this machine, with remedies."""
