/* SPDX-License-Identifier: MIT */
/* serve.c: which transports a plane may use, and who is reached by which. */
#include <stdio.h>
#include <string.h>

#include "core/plane.h"

#define KNOWN (MOO_TRANSPORT_SHM | MOO_TRANSPORT_OFI | MOO_TRANSPORT_TCP)

moo_err moo_plane_serve(moo_plane *plane, const moo_serve_options *options)
{
    moo_err err;

    if (!options->transports || options->transports & ~(uint32_t)KNOWN)
        return MOO_EINVAL;
    err = mooi_plane_enter(plane);
    if (err != MOO_OK)
        return err;
    if (!(options->transports & MOO_TRANSPORT_SHM))
        err = MOO_EUNREACHABLE;
    pthread_mutex_unlock(&plane->lock);
    return err;
}

moo_err moo_plane_card(moo_plane *plane, uint8_t *out, size_t room,
                       size_t *bytes)
{
    (void)plane;
    (void)out;
    (void)room;
    (void)bytes;
    return MOO_EINVAL;
}

moo_err moo_plane_introduce(moo_plane *plane, uint64_t peer,
                            const uint8_t *card, size_t bytes)
{
    (void)plane;
    (void)peer;
    (void)card;
    (void)bytes;
    return MOO_EPROTO;
}

moo_err moo_plane_host(moo_plane *plane, uint64_t peer, uint8_t *out)
{
    (void)plane;
    (void)peer;
    (void)out;
    return MOO_ESTALE;
}

moo_err moo_plane_route(moo_plane *plane, uint64_t peer, uint32_t *transport,
                        char *why, size_t room)
{
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    *transport = peer == plane->id ? 0 : MOO_TRANSPORT_SHM;
    snprintf(why, room, "only shared memory is allowed");
    pthread_mutex_unlock(&plane->lock);
    return MOO_OK;
}
