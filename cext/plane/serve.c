/* SPDX-License-Identifier: MIT */
/* serve.c: the allowed transports of a plane, and the endpoints of
 * processes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plane/endpoint_file.h"
#include "plane/route.h"

#define KNOWN (MOO_TRANSPORT_SHM | MOO_TRANSPORT_OFI | MOO_TRANSPORT_TCP)

/* Once, and first of all. */
static moo_err check_unused(moo_plane *plane)
{
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    if (plane->net || plane->exports || plane->leases.made)
        err = MOO_EINVAL;
    pthread_mutex_unlock(&plane->lock);
    return err;
}

moo_err moo_plane_serve(moo_plane *plane, const moo_serve_options *options)
{
    moo_err err;
    int reason;

    if (!options->transports || options->transports & ~(uint32_t)KNOWN)
        return MOO_EINVAL;
    err = check_unused(plane);
    if (err != MOO_OK || options->transports == MOO_TRANSPORT_SHM)
        return err;
    err = mooi_net_open(plane, options);
    if (err == MOO_OK || !plane->net)
        return err;
    reason = errno;
    moo_plane_close(plane); /* others cannot find it */
    errno = reason;
    return err;
}

moo_err moo_plane_endpoint(moo_plane *plane, uint8_t *out, size_t room,
                           size_t *bytes)
{
    uint8_t endpoint[MOO_ENDPOINT_BYTES];
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    *bytes = plane->net ? mooi_endpoint_pack(&plane->net->endpoint, endpoint)
                        : 0;
    pthread_mutex_unlock(&plane->lock);
    if (!*bytes || *bytes > room)
        return MOO_EINVAL;
    memcpy(out, endpoint, *bytes);
    return MOO_OK;
}

static moo_err introduce(moo_plane *plane, const struct mooi_endpoint *endpoint)
{
    struct mooi_peer *peer;
    struct mooi_reach *reach;

    if (!plane->net)
        return MOO_OK; /* shared memory needs no endpoint */
    peer = mooi_peer_get(plane, endpoint->process);
    reach = peer ? mooi_reach_get(peer) : NULL;
    if (!reach)
        return MOO_ENOMEM;
    reach->endpoint = *endpoint;
    reach->has_endpoint = reach->introduced = 1;
    if (peer->state == MOOI_PEER_WAITING)
        (void)mooi_route_offer(plane, peer); /* something was exported to it */
    return MOO_OK;
}

moo_err moo_plane_introduce(moo_plane *plane, uint64_t peer,
                            const uint8_t *endpoint, size_t bytes)
{
    struct mooi_endpoint parsed;
    moo_err err = mooi_endpoint_parse(endpoint, bytes, &parsed);

    if (err == MOO_OK && parsed.process != peer)
        err = MOO_EPROTO;
    if (err == MOO_OK)
        err = mooi_plane_enter(plane);
    if (err != MOO_OK)
        return err;
    err = introduce(plane, &parsed);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

/* The endpoint that we have, or find. MOO_ESTALE: there is none. */
static moo_err endpoint_of(moo_plane *plane, uint64_t id,
                           struct mooi_endpoint *out)
{
    const struct mooi_peer *peer = mooi_peer_find(plane, id);

    if (id == plane->id && plane->net)
        *out = plane->net->endpoint;
    else if (peer && peer->reach && peer->reach->has_endpoint)
        *out = peer->reach->endpoint;
    else if (mooi_endpoint_find(plane, id, out) != MOO_OK)
        return MOO_ESTALE;
    return MOO_OK;
}

static moo_err host_of(moo_plane *plane, uint64_t id, uint8_t *out)
{
    struct mooi_endpoint endpoint;
    moo_err err;

    if (id == plane->id)
        return mooi_host_identity(plane, out);
    err = endpoint_of(plane, id, &endpoint);
    if (err == MOO_OK)
        memcpy(out, endpoint.host, MOOI_HOST_BYTES);
    return err;
}

moo_err moo_plane_host(moo_plane *plane, uint64_t peer, uint8_t *out)
{
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    err = host_of(plane, peer, out);
    pthread_mutex_unlock(&plane->lock);
    return err;
}

moo_err moo_plane_addresses(moo_plane *plane, uint64_t peer, char *text,
                            size_t room)
{
    struct mooi_endpoint endpoint = {0};
    size_t used = 0;
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    if (endpoint_of(plane, peer, &endpoint) != MOO_OK)
        endpoint.addresses = 0;
    pthread_mutex_unlock(&plane->lock);
    snprintf(text, room, "%s", "");
    for (uint32_t i = 0; i < endpoint.addresses && used < room; i++) {
        char address[MOOI_ADDRESS_TEXT];
        mooi_address_print(&endpoint.address[i], address);
        used += (size_t)snprintf(text + used, room - used, "%s%s",
                                 i ? ", " : "", address);
    }
    return MOO_OK;
}
