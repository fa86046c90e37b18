# SPDX-License-Identifier: MIT
"""The ZeroMQ plane: how control messages are framed, encoded and carried.

Only this package imports zmq.
"""
