# SPDX-License-Identifier: MIT
"""`link` and `unlink`: actors that die together."""

from __future__ import annotations

from typing import Any

from mooactor import errors
from mooactor.actors.handle import handle_of
from mooactor.process.protocol import Link, Unlink


def link(a: Any, b: Any) -> None:
    """Let two actors die together: if one dies, the other is killed at once.

    A death is every end but a `stop` or an exit with code 0; `kill` is one. The cause
    of the second death has the kind ``"link"``, names the first actor, and has its
    cause as `origin`. Links are in both directions and go on through other actors: if
    a is linked with b and b with c, all three die together. Restart policies and
    supervisors hold for each of them as after any other death, and the link holds on
    after a restart. It ends when one of the two is over for good. To hear of a death
    and live on, use `monitor` instead.

    Raises:
      ActorUnavailable: one of the two has ended for good, or is of another session.
    """
    reply = _ask(Link, a, b)
    if reply is not None:
        over = (a, b)[reply]
        raise errors.ActorUnavailable(
            f"{handle_of(over)._label} has ended and cannot be linked; spawn it again"
        )


def unlink(a: Any, b: Any) -> None:
    """End the link between two actors; does nothing if there is none."""
    _ask(Unlink, a, b)


def _ask(kind: type[Link | Unlink], a: Any, b: Any) -> Any:
    runtime, one = handle_of(a, "a")._where()
    _, other = handle_of(b, "b")._where()
    return runtime.agent.ask(kind(one.actor_id, other.actor_id)).value
