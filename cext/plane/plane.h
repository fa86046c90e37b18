/* SPDX-License-Identifier: MIT */
/*
 * plane.h: one process's part of the data plane, as its files see it: its
 * state. The functions of each file are in a header of its own.
 *
 * Two roles meet here. As *owner* a process has an arena, a ledger, a table of
 * leases and one `peer` for each process that holds some (peer.c). As
 * *importer* it maps memory of its own host (transport/shm) and fetches from
 * others (source.c). plane.c joins the two behind the public functions;
 * loop.c serves peers of this host, net.c those of others.
 *
 * The layers below call up only by the functions they were given: see the
 * events of mooi_local, mooi_networks and mooi_tcp.
 *
 * Locks: see transport/shm/shm.h; `lock` is the plane's, and is taken before an
 * engine's own.
 */
#ifndef MOOI_PLANE_H
#define MOOI_PLANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/clock.h"
#include "core/lease.h"
#include "core/mac.h"
#include "core/region.h"
#include "core/wire.h"
#include "mooactor.h"
#include "transport/shm/shm.h"

struct mooi_net;
struct mooi_peer;

#define MOOI_PEER_BUCKETS 256

struct moo_plane {
    pthread_mutex_t closing; /* held while it is closed; taken before `lock` */
    pthread_mutex_t lock;
    uint64_t id;
    uint8_t key[MOOI_KEY_BYTES];
    _Atomic int forked;
    _Atomic uint64_t uses; /* the user's, and one for each thing handed out */
    int closed;
    struct moo_plane *next; /* in the list for atfork */

    struct mooi_regions regions;
    uint32_t slabs_known; /* of our own, whose regions are noted */
    struct mooi_local local;
    struct mooi_net *net; /* NULL: shared memory only */
    char serve_why[280]; /* why an allowed transport is missing; "" */

    /* as owner */
    struct mooi_arena arena;
    struct mooi_leases leases;
    struct mooi_peer *peer[MOOI_PEER_BUCKETS];
    uint32_t peers_waiting;
    int retry_ms; /* when they are tried again */
    pthread_t thread;
    void *(*run)(void *plane); /* what it does: loop.c */
    int running, epoll, wake;

    /* as importer */
    uint64_t imports, imported;
    struct mooi_import *kept; /* dropped, and seen by forks */
    uint64_t kept_bytes;
    struct moo_fetch *finished, *finished_last; /* with tags not taken */
    int finished_fd; /* -1: nobody asked for it */
    uint64_t fetches;

    uint64_t exports, exports_copied, bytes_copied;
};

/* Take the lock of a plane that can be used. On error it is not held. */
static inline moo_err mooi_plane_enter(moo_plane *plane)
{
    if (atomic_load(&plane->forked))
        return MOO_EFORK;
    pthread_mutex_lock(&plane->lock);
    if (!plane->closed)
        return MOO_OK;
    pthread_mutex_unlock(&plane->lock);
    return MOO_ECLOSED;
}

/* Memory of the plane was handed out: the plane lives until that is
 * dropped. */
static inline void mooi_plane_hold(moo_plane *plane)
{
    atomic_fetch_add_explicit(&plane->uses, 1, memory_order_relaxed);
}

/* The reverse; the last one frees the plane. No lock held. */
void mooi_plane_rele(moo_plane *plane);

#endif
