# SPDX-License-Identifier: MIT
"""What a user holds: the decorator, handles, Refs, streams and groups."""
