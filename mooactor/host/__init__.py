# SPDX-License-Identifier: MIT
"""What runs on each host: the agent, the zygote, and the driver's side of a session."""
