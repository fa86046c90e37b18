/* SPDX-License-Identifier: MIT */
/*
 * route.h: how an owner reaches its peers: the choice of a transport (route.c),
 * and calls over a network (route_call.c). The plane's lock is held in all
 * functions.
 */
#ifndef MOOI_ROUTE_H
#define MOOI_ROUTE_H

#include "plane/net.h"
#include "plane/peer.h"

/* Let the peer reach our memory, now or later: by shared memory or, if the
 * plane has a net, as route.c decides. Does not block. MOO_EPEER: it is dead.
 * MOO_EUNREACHABLE: nothing leads there. */
moo_err mooi_peer_offer(moo_plane *plane, struct mooi_peer *peer);

/* Grant a lease that a peer requests for a third process. If that process is
 * still being called it gets none, unless `early`: MOO_EUNREACHABLE. Other
 * errors: as of mooi_local. */
moo_err mooi_peer_grant(moo_plane *plane, const struct mooi_grant *grant,
                        int early, struct mooi_descriptor *out);

/* Make sure that `peer` is being reached, choosing the transport if none is
 * chosen. Does not block. MOO_OK also while it is being called, and while
 * nothing is known of it yet. Planes without a net only: see mooi_shm. */
moo_err mooi_route_offer(moo_plane *plane, struct mooi_peer *peer);

/* The same, and wait for the answer to a call under way; the lock is let go
 * meanwhile. */
moo_err mooi_route_await(moo_plane *plane, struct mooi_peer *peer);

/* Whether process `id` has, or had, a socket in our directory: it is of this
 * host. */
int mooi_route_has_socket(moo_plane *plane, uint64_t id);

/* ---- route_call.c ---- */

/* Connect to a peer of known endpoint, by a common transport. */
moo_err mooi_route_call(moo_plane *plane, struct mooi_peer *peer);

/* Note the reason of the present state, for the user. */
__attribute__((format(printf, 2, 3)))
void mooi_route_say(struct mooi_reach *reach, const char *format, ...);

/* The peer is not reached: its leases end, and for a while all calls get this
 * reason. Returns `err`. */
moo_err mooi_route_fail(moo_plane *plane, struct mooi_peer *peer, moo_err err);

/* The peer's link is up, has a message, or is down. */
void mooi_route_up(moo_plane *plane, struct mooi_peer *peer);
void mooi_route_control(moo_plane *plane, struct mooi_peer *peer,
                        const uint8_t *control, size_t length);
void mooi_route_down(moo_plane *plane, struct mooi_peer *peer, moo_err why);

#endif
