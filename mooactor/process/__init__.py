# SPDX-License-Identifier: MIT
"""One process's part in a session: its runtime, its polling, its calls out."""
