/* SPDX-License-Identifier: MIT */
/*
 * route.c: an owner chooses the transport to a peer.
 *
 * In this order, among what both sides allow: shared memory, proven by a
 * descriptor that the peer's socket took; a fabric that both can open; TCP.
 * The choice stands as long as the connection. When that is lost, the peer is
 * called once more. Its leases stay meanwhile, and its importer waits for that
 * call: a cable that is back after two seconds costs time only. If the call
 * fails the leases end, and the next export chooses anew.
 *
 * If nobody answers, an attempt takes seconds, and many exports may want the
 * same peer, one after the other. So all exports during an attempt share it.
 * After it has failed there is a pause: until its end all exports get that error
 * at once, while the next attempt runs in the background. If that succeeds, the
 * pause is over. Peers at the addresses of a silent machine count as silent for
 * as long, except for calls that may wait.
 *
 * A missing endpoint may still come. If shared memory is allowed, a peer
 * without one is taken to be on this host, until the control plane introduces
 * it as one of another: then it is called, and its leases stand. Its importer
 * finds nothing of ours on its own host, and waits for that call. If shared
 * memory is not allowed, the plane's thread waits for the endpoint.
 */
#include "plane/route.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/times.h"
#include "plane/endpoint_file.h"
#include "plane/thread.h"

/* The least time between attempts in a pause. */
#define AGAIN_NS ((uint64_t)250 * 1000000u)
/* A process with a socket has also announced its endpoint, if it will ever
 * have one; the endpoint itself may come at any later time. */
#define ENDPOINT_NS ((uint64_t)2000 * 1000000u)

/* ---- shared memory ---- */

static int may_share(const struct mooi_net *net, const struct mooi_reach *reach)
{
    if (!(net->transports & MOO_TRANSPORT_SHM))
        return 0;
    return !reach->has_endpoint ||
           ((reach->endpoint.transports & MOO_TRANSPORT_SHM) &&
            !memcmp(reach->endpoint.host, net->endpoint.host, MOOI_HOST_BYTES));
}

/* MOO_OK: it is reached, or will be, by shared memory. MOO_EUNREACHABLE: not
 * by shared memory. */
static moo_err try_sharing(moo_plane *plane, struct mooi_peer *peer)
{
    moo_err err = mooi_peer_try(plane, peer);

    if (err == MOO_ETIMEOUT && peer->shm.fd < 0 && errno == ENOENT &&
        peer->reach->has_endpoint)
        return MOO_EUNREACHABLE; /* it listens, but not in our directory */
    if (err == MOO_ESYS && (errno == EACCES || errno == EPERM))
        return MOO_EUNREACHABLE;
    if (err == MOO_OK || (err == MOO_ETIMEOUT && peer->shm.fd >= 0)) {
        peer->transport = MOO_TRANSPORT_SHM;
        peer->network = NULL;
        peer->held.remote = 0;
        mooi_route_say(peer->reach,
                       "shm: it is on this host and took our memory");
    }
    return mooi_peer_tried(plane, peer, err);
}

/* ---- no endpoint yet ---- */

int mooi_route_has_socket(moo_plane *plane, uint64_t id)
{
    char name[MOOI_NAME_BYTES];

    mooi_socket_name(plane->key, id, name);
    return faccessat(plane->local.directory, name, F_OK,
                     AT_SYMLINK_NOFOLLOW) == 0;
}

/* Shared memory is not allowed, and the peer has no endpoint. */
static moo_err wait_for_endpoint(moo_plane *plane, struct mooi_peer *peer)
{
    uint64_t now = mooi_now_ns();
    moo_err err = mooi_thread_start(plane); /* the thread waits for it */

    if (err != MOO_OK)
        return err;
    peer->held.remote = 1;
    if (!mooi_route_has_socket(plane, peer->id) ||
        mooi_endpoint_is_coming(plane, peer->id))
        peer->reach->sought_ns = 0;
    else if (!peer->reach->sought_ns)
        peer->reach->sought_ns = now;
    else if (now - peer->reach->sought_ns > ENDPOINT_NS) {
        mooi_route_say(peer->reach, "it allows only shared memory, and this "
                                    "process does not allow that");
        return mooi_route_fail(plane, peer, MOO_EUNREACHABLE);
    }
    return mooi_peer_tried(plane, peer, MOO_ETIMEOUT);
}

/* ---- the choice ---- */

/* An endpoint in the directory may be new or changed since the last look. If
 * it was removed, its addresses are kept: a call there shows whether the
 * process is gone. */
static void look_for_endpoint(moo_plane *plane, struct mooi_peer *peer)
{
    struct mooi_reach *reach = peer->reach;
    struct mooi_endpoint found;

    if (reach->introduced ||
        mooi_endpoint_find(plane, peer->id, &found) != MOO_OK)
        return;
    reach->endpoint = found;
    reach->has_endpoint = 1;
}

static moo_err choose(moo_plane *plane, struct mooi_peer *peer)
{
    moo_err err = MOO_EUNREACHABLE;

    peer->reach->tried_ns = mooi_now_ns();
    look_for_endpoint(plane, peer);
    if (may_share(plane->net, peer->reach))
        err = try_sharing(plane, peer);
    if (err != MOO_EUNREACHABLE)
        return err;
    return peer->reach->has_endpoint ? mooi_route_call(plane, peer)
                                 : wait_for_endpoint(plane, peer);
}

/* In a pause: try again in the background. MOO_OK: it is reached by shared
 * memory. */
static moo_err choose_beneath(moo_plane *plane, struct mooi_peer *peer)
{
    struct mooi_reach *reach = peer->reach;
    moo_err before = reach->err, err;

    if (peer->state != MOOI_PEER_PARTED ||
        mooi_now_ns() - reach->tried_ns < AGAIN_NS)
        return before;
    err = choose(plane, peer);
    return peer->state == MOOI_PEER_CALLING ? before : err;
}

static int is_paused(const struct mooi_reach *reach)
{
    return reach->paused_ns && mooi_now_ns() < reach->paused_ns;
}

/* Of slabs that are new. If the link is down, `down` follows, and the next one
 * is told of all. */
static moo_err tell(moo_plane *plane, struct mooi_peer *peer)
{
    struct mooi_outgoing *out = &peer->reach->out;
    moo_err err = MOO_OK;

    if (out->slabs_told < plane->arena.slabs)
        err = peer->network->tell(&plane->net->networks, out);
    if (err == MOO_OK)
        out->slabs_told = plane->arena.slabs;
    return err == MOO_EPEER ? MOO_OK : err;
}

moo_err mooi_route_offer(moo_plane *plane, struct mooi_peer *peer)
{
    if (plane->closed) /* while this call had let go of the lock */
        return MOO_ECLOSED;
    if (peer->state == MOOI_PEER_SELF)
        return MOO_OK;
    if (peer->state == MOOI_PEER_DEAD)
        return MOO_EPEER;
    if (peer->transport == MOO_TRANSPORT_SHM)
        return mooi_peer_reach(plane, peer);
    if (!mooi_reach_get(peer))
        return MOO_ENOMEM;
    if (peer->state == MOOI_PEER_LINKED)
        return tell(plane, peer);
    if (is_paused(peer->reach))
        return choose_beneath(plane, peer);
    return peer->state == MOOI_PEER_CALLING ? MOO_OK : choose(plane, peer);
}

moo_err mooi_peer_offer(moo_plane *plane, struct mooi_peer *peer)
{
    return plane->net ? mooi_route_offer(plane, peer)
                      : mooi_peer_reach(plane, peer);
}

moo_err mooi_peer_grant(moo_plane *plane, const struct mooi_grant *grant,
                        int early, struct mooi_descriptor *out)
{
    struct mooi_peer *asker = mooi_peer_get(plane, grant->holder);
    struct mooi_peer *to = mooi_peer_get(plane, grant->to);
    struct mooi_block *block;
    moo_err err;

    if (!asker || !to)
        return MOO_ENOMEM;
    /* First: the asker may have given its lease back since it asked. */
    mooi_lease_drain(&plane->leases);
    block = mooi_lease_covers(&plane->leases, &asker->held, grant->lease,
                              grant->generation, grant->slab, grant->offset,
                              grant->length);
    if (!block)
        return MOO_ESTALE;
    if (grant->moved && block->holds > 1)
        return MOO_ESTALE; /* others would see the new owner's writes */
    err = mooi_peer_offer(plane, to);
    if (err == MOO_OK && to->state == MOOI_PEER_CALLING && !early)
        err = MOO_EUNREACHABLE;
    if (err != MOO_OK)
        return err;
    return mooi_lease_grant(&plane->leases, block, &to->held, grant->offset,
                            grant->length, grant->moved, out);
}

/* When the awaited call has failed, another may be under way. 1: its link came,
 * though it may be lost by now. */
static int wait_until_decided(moo_plane *plane, const struct mooi_peer *peer,
                              const struct timespec *until)
{
    uint32_t ended = peer->reach->ended, links = peer->reach->links;
    int timeout = 0;

    while (peer->reach->ended == ended && !plane->closed && !timeout)
        timeout = pthread_cond_timedwait(&plane->net->decided, &plane->lock,
                                         until) == ETIMEDOUT;
    return peer->reach->links != links;
}

moo_err mooi_route_await(moo_plane *plane, struct mooi_peer *peer)
{
    struct timespec until =
        mooi_timespec(mooi_now_ns() + MOOI_AWAIT_MS * MOOI_MS);
    moo_err err;

    do {
        err = mooi_route_offer(plane, peer);
        if (peer->state != MOOI_PEER_CALLING)
            return err;
        assert(peer->reach); /* without one nobody calls */
        if (err != MOO_OK && !peer->reach->guessed)
            return err;
    } while (wait_until_decided(plane, peer, &until) && !plane->closed);
    if (plane->closed)
        return MOO_ECLOSED;
    if (peer->state == MOOI_PEER_DEAD)
        return MOO_EPEER;
    return peer->reach->err != MOO_OK ? peer->reach->err : MOO_EUNREACHABLE;
}

moo_err moo_plane_route(moo_plane *plane, uint64_t id, uint32_t *transport,
                        char *why, size_t room)
{
    const struct mooi_peer *peer;
    moo_err err = mooi_plane_enter(plane);

    if (err != MOO_OK)
        return err;
    peer = mooi_peer_find(plane, id);
    *transport = 0;
    if (id == plane->id)
        snprintf(why, room, "%s", plane->serve_why);
    else if (!peer || (!peer->reach && !peer->held.leases && peer->shm.fd < 0))
        snprintf(why, room, "nothing was sent to it yet");
    else if (!plane->net)
        snprintf(why, room, "shm: nothing else is allowed here");
    else
        snprintf(why, room, "%s", peer->reach ? peer->reach->why : "");
    if (peer && peer->state == MOOI_PEER_LINKED && peer->transport)
        *transport = peer->transport;
    else if (peer && !plane->net && peer->shm.fd >= 0)
        *transport = MOO_TRANSPORT_SHM;
    pthread_mutex_unlock(&plane->lock);
    return MOO_OK;
}
