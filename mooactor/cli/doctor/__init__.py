# SPDX-License-Identifier: MIT
"""``mooactor doctor``: what works on this machine, what does not, and the remedy."""
