# SPDX-License-Identifier: MIT
"""What one process does in a session: its runtime, its polling, its calls out."""
