# SPDX-License-Identifier: MIT
"""The callee: an actor's life, its mailbox, and the workers that run its methods."""
