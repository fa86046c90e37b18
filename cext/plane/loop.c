/* SPDX-License-Identifier: MIT */
/*
 * loop.c: what the one thread of a plane does. It runs no Python and takes no
 * signal; it starts (thread.c) with the first lease for another process. It
 * sees hang-ups, grants leases to third processes on request, finishes contacts
 * that had to wait, hands idle memory back, and sees forked children end.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "plane/forks.h"
#include "plane/loop.h"
#include "plane/peer.h"
#include "plane/route.h"
#include "plane/source.h"
#include "plane/thread.h"

/* Peers that do not listen yet are tried again after 1, 2, 4, … ms. */
#define RETRY_MAX_MS 64
/* Slabs that were wholly free for so long are handed back. */
#define IDLE_NS ((uint64_t)10 * 1000000000u)

static void answer(moo_plane *plane, struct mooi_peer *asker,
                   const struct mooi_message *request)
{
    struct mooi_descriptor granted = {0};
    struct mooi_message reply = {.kind = MOOI_MSG_GRANTED};
    struct mooi_grant grant = {.holder = asker->id,
                               .lease = request->u.grant.lease,
                               .generation = request->u.grant.generation,
                               .slab = request->u.grant.slab,
                               .offset = request->u.grant.offset,
                               .length = request->u.grant.length,
                               .to = request->u.grant.to,
                               .moved = request->u.grant.flags & MOO_MOVED};
    /* If its peer is still being called, the asker sends a copy instead. */
    moo_err err = mooi_peer_grant(plane, &grant, 0, &granted);

    reply.u.granted.sequence = request->u.grant.sequence;
    reply.u.granted.error = err;
    reply.u.granted.lease = granted.lease;
    reply.u.granted.generation = granted.generation;
    reply.u.granted.flags = granted.flags;
    if (mooi_link_send(asker->shm.fd, &reply, -1) != MOO_OK && err == MOO_OK)
        mooi_lease_revoke(&plane->leases, granted.lease, granted.generation);
}

/* Nothing more is read from a peer that sent an invalid message. But it lives,
 * so its leases stand until it hangs up. */
static void stop_listening_to(moo_plane *plane, struct mooi_peer *peer)
{
    struct epoll_event event = {.events = 0, .data.u64 = peer->id};

    epoll_ctl(plane->epoll, EPOLL_CTL_MOD, peer->shm.fd, &event);
}

static void serve(moo_plane *plane, uint64_t id)
{
    struct mooi_peer *peer = mooi_peer_get(plane, id);
    struct mooi_message message;
    moo_err err;
    int fd;

    if (!peer || peer->shm.fd < 0)
        return;
    err = mooi_link_receive(peer->shm.fd, &message, &fd, 0);
    if (fd >= 0)
        close(fd);
    if (err == MOO_EPEER)
        mooi_peer_mark_dead(plane, peer);
    else if (err == MOO_OK && message.kind == MOOI_MSG_GRANT)
        answer(plane, peer, &message);
    else if (err != MOO_ETIMEOUT)
        stop_listening_to(plane, peer);
}

static void retry_waiting(moo_plane *plane)
{
    for (int i = 0; i < MOOI_PEER_BUCKETS && plane->peers_waiting; i++)
        for (struct mooi_peer *p = plane->peer[i]; p; p = p->next)
            if (p->state == MOOI_PEER_WAITING)
                mooi_peer_offer(plane, p);
}

/* Milliseconds until the next periodic task, or -1. */
static int housekeeping(moo_plane *plane)
{
    uint64_t due, reap;

    mooi_lease_drain(&plane->leases);
    due = mooi_arena_trim(&plane->arena, IDLE_NS);
    reap = mooi_owners_reap(&plane->local);
    if (reap < due)
        due = reap;
    if (plane->net) {
        uint64_t expire = mooi_source_expire(plane);
        if (expire < due)
            due = expire;
    }
    retry_waiting(plane);
    if (plane->peers_waiting) {
        int wait = plane->retry_ms;
        plane->retry_ms = wait < RETRY_MAX_MS ? 2 * wait : wait;
        return wait;
    }
    return due == UINT64_MAX ? -1 : (int)(due / 1000000u) + 1;
}

static void handle(moo_plane *plane, const struct epoll_event *event)
{
    uint64_t count;

    if (event->data.u64 == MOOI_WOKEN) {
        if (read(plane->wake, &count, sizeof count) < 0)
            return; /* another event took it */
    } else if (event->data.u64 == MOOI_FORK_ENDED) {
        mooi_forks_reap(plane);
    } else if (event->events & EPOLLIN) {
        serve(plane, event->data.u64);
    } else {
        mooi_peer_mark_dead(plane, mooi_peer_get(plane, event->data.u64));
    }
}

void *mooi_loop_run(void *argument)
{
    moo_plane *plane = argument;
    struct epoll_event events[64];
    int timeout_ms = -1;

    for (;;) {
        int count = epoll_wait(plane->epoll, events, 64, timeout_ms);
        pthread_mutex_lock(&plane->lock);
        if (plane->closed)
            break;
        for (int i = 0; i < count; i++)
            handle(plane, &events[i]);
        timeout_ms = housekeeping(plane);
        pthread_mutex_unlock(&plane->lock);
    }
    pthread_mutex_unlock(&plane->lock);
    return NULL;
}
