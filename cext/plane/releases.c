/* SPDX-License-Identifier: MIT */
#include "plane/releases.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM (2 * MOOI_RELEASES_CONFIRMED)

static const struct mooi_lease_name *at(const struct mooi_releases *releases,
                                        uint32_t i)
{
    return &releases->ring[(releases->first + i) & (releases->room - 1)];
}

static moo_err grow(struct mooi_releases *releases)
{
    uint32_t room = releases->room ? 2 * releases->room : FIRST_ROOM;
    struct mooi_lease_name *ring = calloc(room, sizeof *ring);

    if (!ring)
        return MOO_ENOMEM;
    for (uint32_t i = 0; i < releases->count; i++)
        ring[i] = *at(releases, i);
    free(releases->ring);
    releases->ring = ring;
    releases->room = room;
    releases->first = 0;
    return MOO_OK;
}

moo_err mooi_releases_add(struct mooi_releases *releases,
                          const struct mooi_lease_name *name)
{
    moo_err err =
        releases->count == releases->room ? grow(releases) : MOO_OK;

    if (err != MOO_OK)
        return err;
    releases->ring[(releases->first + releases->count) &
                   (releases->room - 1)] = *name;
    releases->count++;
    return MOO_OK;
}

int mooi_releases_have(const struct mooi_releases *releases,
                       const struct mooi_lease_name *name)
{
    for (uint32_t i = 0; i < releases->count; i++)
        if (at(releases, i)->lease == name->lease &&
            at(releases, i)->generation == name->generation)
            return 1;
    return 0;
}

moo_err mooi_releases_confirmed(struct mooi_releases *releases)
{
    if (releases->count < MOOI_RELEASES_CONFIRMED)
        return MOO_EPROTO;
    releases->first = (releases->first + MOOI_RELEASES_CONFIRMED) &
                      (releases->room - 1);
    releases->count -= MOOI_RELEASES_CONFIRMED;
    return MOO_OK;
}

moo_err mooi_releases_send(const struct mooi_releases *releases,
                           struct mooi_tcp_link *link)
{
    moo_err err = MOO_OK;

    for (uint32_t i = 0; i < releases->count && err == MOO_OK; i++)
        err = mooi_tcp_release(link, at(releases, i));
    return err;
}

void mooi_releases_fini(struct mooi_releases *releases)
{
    free(releases->ring);
    memset(releases, 0, sizeof *releases);
}
