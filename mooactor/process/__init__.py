# SPDX-License-Identifier: MIT
"""What one process does: the runtime in it, an actor's life, the host's agent."""
