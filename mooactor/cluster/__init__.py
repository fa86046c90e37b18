# SPDX-License-Identifier: MIT
"""Many hosts: the broker that introduces them, and what starts them."""
