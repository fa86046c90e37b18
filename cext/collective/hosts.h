/* SPDX-License-Identifier: MIT */
/* hosts.h: the members of each host. */
#ifndef MOOI_HOSTS_H
#define MOOI_HOSTS_H

#include "collective/agreement.h"

/* Which members share a host: a function of the view, so the same everywhere.
 * Hosts are numbered by their lowest rank, which is their *leader*; the
 * members of a host are a *team*. */
struct mooi_hosts {
    uint32_t count, mine;
    uint32_t transports;              /* that all members allow */
    bool checks; /* some members want checksums, so all make them */
    uint32_t stripes; /* of the ring: the most that any wants */
    uint8_t of[MOO_GROUP_MAX];     /* by rank */
    uint16_t order[MOO_GROUP_MAX]; /* ranks, by host, then rank */
    uint16_t start[MOO_GROUP_HOSTS_MAX + 1]; /* by host: its first in order */
};

/* `members` by rank; `rank` is this member's. */
void mooi_hosts_find(struct mooi_hosts *hosts,
                     const struct mooi_member *members, uint32_t size,
                     uint32_t rank);
static inline uint32_t mooi_leader(const struct mooi_hosts *hosts,
                                   uint32_t host)
{
    return hosts->order[hosts->start[host]];
}
static inline uint32_t mooi_team(const struct mooi_hosts *hosts, uint32_t host)
{
    return (uint32_t)(hosts->start[host + 1] - hosts->start[host]);
}

#endif
