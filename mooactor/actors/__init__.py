# SPDX-License-Identifier: MIT
"""The objects that a user holds: the decorator, handles, Refs, streams and groups."""
