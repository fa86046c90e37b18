# SPDX-License-Identifier: MIT
"""The times on which several modules rely together, by the promise that they serve.

Units are in the names. A time that only one module cares about, as a pause before a
retry, stands there. Those of the C code are in ``cext/core/times.h``.
"""

# -- A host that vanishes is known within three seconds; one that is only late is not
# taken for that.

#: Between two heartbeats of a channel; longer between a member and a broker, for the
#: sake of the broker: half of the patience is left to connect again.
CHANNEL_BEAT_S = 0.3
BROKER_BEAT_S = 0.5
#: A channel whose other side was not heard of for so long is closed. Where only one
#: direction is dead, that is noticed up to 0.25 s later.
CHANNEL_SILENCE_S = 2.7
#: A member tells brokers of itself so often, and may be late three times.
MEMBER_BEAT_S = 1.0
MEMBER_SILENCE_S = 4.0
#: By then a broker has let go of a member that was silent.
LISTED_S = MEMBER_SILENCE_S + 1.0
#: A host that was killed and started again waits so long for its name, until the broker
#: has noticed the death.
NAME_PATIENCE_S = 5.0
#: A broker that was killed is started again within this time, or does not come back.
BROKER_LOST_S = 8.0

# -- A channel connects through lost packets, within its patience.

#: Connecting, at first: the kernel repeats a lost SYN after a second. Where the whole
#: handshake took less, as long as that, but not below the shortest: so a lost packet
#: costs no pair its patience after a stop or a cut that has taken most of it.
CONNECT_MS = 500
SHORTEST_CONNECT_MS = 150
#: A handshake: of the side that connects, which then tries again, and of the listener.
HANDSHAKE_MS = 1000
HALF_OPEN_MS = 3000
#: Then another attempt begins; libzmq's own limits are shorter.
ATTEMPT_S = 2.0

# -- No record between two processes is lost silently, and a process that holds the GIL
# for a minute is not declared dead.

#: TCP gives a connection up when nothing of it was acknowledged for so long.
DEAD_PATH_MS = 10_000
WAY_CONNECT_MS = 3_000
#: A handshake: of the connector, and of the listener, with whom strangers may leave
#: many half done. One that failed because the listener was busy is repeated.
WAY_HANDSHAKE_MS = 10_000
ADMISSION_MS = 5_000
#: Records wait so long for a connection. Where somebody takes the connection and is too
#: busy for the handshake, longer: it may hold the GIL for a minute and more. A dead
#: process ends the wait earlier, with the notice of its death.
WAY_PATIENCE_S = 10.0
BUSY_PATIENCE_S = 120.0

# -- Nothing is left behind.

#: An actor, or a session, that ends has so long for what is under way, if nobody says
#: otherwise; then it is killed.
GRACE_S = 3.0
#: Killed processes are gone within this time.
KILLED_S = 5.0
