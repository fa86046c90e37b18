# SPDX-License-Identifier: MIT
"""The rules that a history must keep: each a function from a story to violations."""
