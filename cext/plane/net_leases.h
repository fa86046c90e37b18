/* SPDX-License-Identifier: MIT */
/*
 * net_leases.h: the engine's events for owners. Lock not held.
 */
#ifndef MOOI_NET_LEASES_H
#define MOOI_NET_LEASES_H

#include "plane/plane.h"
#include "transport/network.h"

moo_err mooi_net_source(void *plane, uint64_t peer,
                        const struct mooi_lease_name *name, uint64_t offset,
                        uint64_t length, const void **data);
void mooi_net_sourced(void *plane, uint64_t peer,
                      const struct mooi_lease_name *name);
void mooi_net_released(void *plane, uint64_t peer,
                       const struct mooi_lease_name *name);

#endif
