/* SPDX-License-Identifier: MIT */
/*
 * hosts.c: the members of each host of a group.
 */
#include <string.h>

#include "collective/hosts.h"

/* The host of `rank`, which may be a new one. */
static uint32_t host_of(struct mooi_hosts *hosts,
                        const struct mooi_member *members, uint32_t rank)
{
    for (uint32_t other = 0; other < rank; other++)
        if (members[other].host == members[rank].host)
            return hosts->of[other];
    return hosts->count++;
}

void mooi_hosts_find(struct mooi_hosts *hosts,
                     const struct mooi_member *members, uint32_t size,
                     uint32_t rank)
{
    uint32_t placed = 0;
    memset(hosts, 0, sizeof *hosts);
    hosts->transports = UINT32_MAX;
    for (uint32_t r = 0; r < size; r++) {
        const struct mooi_member *member = &members[r];
        hosts->of[r] = (uint8_t)host_of(hosts, members, r);
        hosts->transports &= member->transports;
        hosts->checks |= member->checks;
        if (hosts->stripes < member->stripes)
            hosts->stripes = member->stripes;
    }
    for (uint32_t host = 0; host < hosts->count; host++) {
        hosts->start[host] = (uint16_t)placed;
        for (uint32_t r = 0; r < size; r++)
            if (hosts->of[r] == host)
                hosts->order[placed++] = (uint16_t)r;
    }
    hosts->start[hosts->count] = (uint16_t)placed;
    hosts->mine = hosts->of[rank];
}
