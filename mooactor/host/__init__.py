# SPDX-License-Identifier: MIT
"""The processes of one host: the agent, the zygote, and the driver's session."""
