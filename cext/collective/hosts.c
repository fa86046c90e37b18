/* SPDX-License-Identifier: MIT */
/*
 * hosts.c: the members of each host of a group.
 */
#include <string.h>

#include "collective/hosts.h"

void mooi_host_name(const char *name, uint8_t out[MOOI_HOST_BYTES])
{
    static const uint8_t label[MOOI_KEY_BYTES] = "moo host name";
    mooi_mac(label, name, strlen(name), out);
}

static bool same_name(const struct mooi_member *a, const struct mooi_member *b)
{
    return !memcmp(a->place, b->place, sizeof a->place);
}

static bool share(const struct mooi_member *a, const struct mooi_member *b)
{
    return a->transports & b->transports & MOO_TRANSPORT_SHM &&
           same_name(a, b);
}

/* The host of `rank`, which may be a new one. */
static uint32_t host_of(struct mooi_hosts *hosts,
                        const struct mooi_member *members, uint32_t rank)
{
    for (uint32_t other = 0; other < rank; other++)
        if (share(&members[other], &members[rank]))
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
        hosts->apart |= !same_name(members, member);
    }
    for (uint32_t host = 0; host < hosts->count; host++) {
        hosts->start[host] = (uint8_t)placed;
        for (uint32_t r = 0; r < size; r++)
            if (hosts->of[r] == host)
                hosts->order[placed++] = (uint8_t)r;
    }
    hosts->start[hosts->count] = (uint8_t)placed;
    hosts->mine = hosts->of[rank];
}
