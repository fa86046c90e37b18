# SPDX-License-Identifier: MIT
"""The ZeroMQ plane: framing, encoding and transport of control messages.

Only this package imports zmq.
"""
