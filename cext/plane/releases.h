/* SPDX-License-Identifier: MIT */
/*
 * releases.h: leases that an importer has given back, until the owner confirms
 * that it knows.
 *
 * A connection that is lost may take messages with it, but the owner's leases
 * outlive it (see route_call.c). So what was not confirmed is sent again over
 * the next one. That is harmless, because no name is used twice. The owner
 * confirms MOOI_RELEASES_CONFIRMED at a time; fewer stay here, and cost
 * nothing.
 */
#ifndef MOOI_RELEASES_H
#define MOOI_RELEASES_H

#include "transport/network.h"

#define MOOI_RELEASES_CONFIRMED 64

/* A ring, oldest first. All zero: empty. */
struct mooi_releases {
    struct mooi_lease_name *ring;
    uint32_t room, first, count; /* `room`: 0 or a power of two */
};

/* MOO_ENOMEM: it was not added. */
moo_err mooi_releases_add(struct mooi_releases *releases,
                          const struct mooi_lease_name *name);

int mooi_releases_have(const struct mooi_releases *releases,
                       const struct mooi_lease_name *name);

/* Drop the MOOI_RELEASES_CONFIRMED oldest. MOO_EPROTO: there are fewer. */
moo_err mooi_releases_confirmed(struct mooi_releases *releases);

/* Send all, oldest first. MOO_EPEER: the link is not up. */
moo_err mooi_releases_send(const struct mooi_releases *releases,
                           struct mooi_tcp_link *link);

/* Drop all, and free the memory. */
void mooi_releases_fini(struct mooi_releases *releases);

#endif
