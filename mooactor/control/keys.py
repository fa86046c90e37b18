# SPDX-License-Identifier: MIT
"""The session key: its holders belong to the session."""

from __future__ import annotations

import secrets
from hashlib import blake2b

from mooactor.control.envelope import KEY_BYTES


def new_session_key() -> bytes:
    """A fresh random key; it travels to processes by inheritance only."""
    return secrets.token_bytes(KEY_BYTES)


def namespace_key(secret: bytes, namespace: str) -> bytes:
    """The key of all sessions of a namespace, from the cluster's key: whoever has it
    does not have that one, nor the key of another namespace."""
    text = namespace.encode()
    return blake2b(
        text, digest_size=KEY_BYTES, key=secret, person=b"namespace"
    ).digest()


def session_mark(key: bytes) -> bytes:
    """A name of a session that does not reveal its key."""
    return blake2b(key, digest_size=8, person=b"session").digest()


def new_process_id() -> int:
    """A random 64-bit id whose low 16 bits, the incarnation, are zero.

    An actor keeps its id through restarts; the process of its n-th incarnation has
    the actor's id plus n.
    """
    return secrets.randbits(48) << 16


def died_with(process_id: int, dead: int) -> bool:
    """Whether a process is dead if `dead` is: an actor's incarnations die in order."""
    return actor_of(process_id) == actor_of(dead) and process_id <= dead


def every_incarnation(actor_id: int) -> int:
    """The number that stands for an actor in all its incarnations together."""
    return actor_of(actor_id) | 0xFFFF


def actor_of(process_id: int) -> int:
    """The actor id that a process id belongs to."""
    return process_id & ~0xFFFF
