/* SPDX-License-Identifier: MIT */
/* peer.c: see peer.h. */
#include "plane/peer.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "plane/thread.h"

/* Ids are random in all but their low bits. */
static unsigned bucket_of(uint64_t id)
{
    return (id ^ id >> 16 ^ id >> 32) % MOOI_PEER_BUCKETS;
}

struct mooi_peer *mooi_peer_find(const moo_plane *plane, uint64_t id)
{
    struct mooi_peer *peer = plane->peer[bucket_of(id)];

    while (peer && peer->id != id)
        peer = peer->next;
    return peer;
}

int mooi_peer_is_dead(const moo_plane *plane, uint64_t id)
{
    const struct mooi_peer *peer = mooi_peer_find(plane, id);

    return peer && peer->state == MOOI_PEER_DEAD;
}

struct mooi_peer *mooi_peer_get(moo_plane *plane, uint64_t id)
{
    struct mooi_peer **bucket = &plane->peer[bucket_of(id)];
    struct mooi_peer *peer = mooi_peer_find(plane, id);

    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->id = id;
    peer->shm.fd = -1;
    peer->held.first_lease = MOOI_NO_LEASE;
    peer->state = id == plane->id ? MOOI_PEER_SELF : MOOI_PEER_NEW;
    peer->next = *bucket;
    *bucket = peer;
    return peer;
}

struct mooi_reach *mooi_reach_get(struct mooi_peer *peer)
{
    if (!peer->reach)
        peer->reach = calloc(1, sizeof *peer->reach);
    return peer->reach;
}

void mooi_peer_set_state(moo_plane *plane, struct mooi_peer *peer,
                         enum mooi_peer_state state)
{
    plane->peers_waiting -= peer->state == MOOI_PEER_WAITING;
    plane->peers_waiting += state == MOOI_PEER_WAITING;
    peer->state = state;
    if (state != MOOI_PEER_WAITING)
        peer->waiting = 0;
}

void mooi_peer_mark_dead(moo_plane *plane, struct mooi_peer *peer)
{
    if (peer->state == MOOI_PEER_SELF)
        return;
    mooi_peer_set_state(plane, peer, MOOI_PEER_DEAD);
    if (peer->shm.fd >= 0)
        close(peer->shm.fd); /* leaves the epoll set by that */
    peer->shm.fd = -1;
    mooi_lease_revoke_all(&plane->leases, &peer->held);
}

static moo_err connect_to(moo_plane *plane, struct mooi_peer *peer)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP,
                                .data.u64 = peer->id};
    moo_err err = mooi_link_connect(&plane->local, peer->id, &peer->shm.fd);

    if (err != MOO_OK)
        return err;
    if (epoll_ctl(plane->epoll, EPOLL_CTL_ADD, peer->shm.fd, &event) == 0)
        return MOO_OK;
    close(peer->shm.fd);
    peer->shm.fd = -1;
    return MOO_ESYS;
}

static moo_err push_all(moo_plane *plane, struct mooi_peer *peer)
{
    moo_err err = MOO_OK;

    if (peer->shm.fd < 0)
        err = connect_to(plane, peer);
    if (err == MOO_OK)
        err = mooi_shm_push(&plane->local, peer->id, &peer->shm);
    return err;
}

/* Only a change resets the thread's pace of attempts. */
static void wait_for(moo_plane *plane, struct mooi_peer *peer)
{
    if (peer->waiting)
        return;
    mooi_peer_set_state(plane, peer, MOOI_PEER_WAITING);
    peer->waiting = 1;
    plane->retry_ms = 1;
    mooi_thread_wake(plane);
}

moo_err mooi_peer_try(moo_plane *plane, struct mooi_peer *peer)
{
    moo_err err = mooi_thread_start(plane);

    return err == MOO_OK ? push_all(plane, peer) : err;
}

moo_err mooi_peer_tried(moo_plane *plane, struct mooi_peer *peer, moo_err err)
{
    if (err == MOO_OK)
        mooi_peer_set_state(plane, peer, MOOI_PEER_LINKED);
    else if (err == MOO_EPEER)
        mooi_peer_mark_dead(plane, peer);
    else if (err == MOO_ETIMEOUT) {
        wait_for(plane, peer);
        err = MOO_OK;
    }
    return err;
}

moo_err mooi_peer_reach(moo_plane *plane, struct mooi_peer *peer)
{
    if (peer->state == MOOI_PEER_SELF)
        return MOO_OK;
    if (peer->state == MOOI_PEER_DEAD)
        return MOO_EPEER;
    if (peer->state == MOOI_PEER_LINKED &&
        peer->shm.slabs == plane->arena.slabs)
        return MOO_OK;
    return mooi_peer_tried(plane, peer, mooi_peer_try(plane, peer));
}
