# SPDX-License-Identifier: MIT
"""Values: those that are still to come, and those that outlive a call."""
