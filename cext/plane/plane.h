/* SPDX-License-Identifier: MIT */
/*
 * plane.h: one process's part of the data plane, as its files see it.
 *
 * Two roles meet here. As *owner* a process has an arena, a ledger, a table of
 * leases and one `peer` for each process that holds some (peer.c). As
 * *importer* it maps memory of its own host (transport/shm) and fetches from
 * others (source.c). plane.c joins the two behind the public functions;
 * thread.c serves peers of this host, net.c those of others.
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

/* ---- as owner ---- */

enum mooi_peer_state {
    MOOI_PEER_SELF,
    MOOI_PEER_NEW,     /* nothing was exported to it yet */
    MOOI_PEER_WAITING, /* not listening yet, or its socket is full */
    MOOI_PEER_CALLING, /* on another host, and being connected to */
    MOOI_PEER_LINKED,
    MOOI_PEER_PARTED, /* its host was not reached, or was lost */
    MOOI_PEER_DEAD    /* for ever: ids are not used twice */
};

struct mooi_net;
struct mooi_network_ops;
struct mooi_reach;

struct mooi_peer {
    uint64_t id;
    struct mooi_peer *next; /* in its bucket */
    enum mooi_peer_state state;
    struct mooi_holder held; /* its leases on our memory */
    struct mooi_pushed shm;  /* the descriptors it has, if it is of this
                              * host */
    int waiting;             /* the thread tries again */
    uint64_t fetched;        /* bytes, so far, from it */

    /* in a plane that may use networks: see route.c */
    uint32_t transport; /* MOO_TRANSPORT_…; 0: not chosen */
    const struct mooi_network_ops *network; /* unless that is shm */
    struct mooi_reach *reach;
};

#define MOOI_PEER_BUCKETS 256

/* ---- both ---- */

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

/* peer.c: all with the lock held. */

/* The entry for a process, made if it does not exist. NULL: no memory. */
struct mooi_peer *mooi_peer_get(moo_plane *plane, uint64_t id);

/* The same, but only if there is one. */
struct mooi_peer *mooi_peer_find(const moo_plane *plane, uint64_t id);

/* Let the peer reach our memory, now or later: by shared memory or, if the
 * plane has a net, as route.c decides. Does not block. MOO_EPEER: it is dead.
 * MOO_EUNREACHABLE: nothing leads there. */
moo_err mooi_peer_offer(moo_plane *plane, struct mooi_peer *peer);

/* Grant a lease that a peer requests for a third process. If that process is
 * still being called it gets none, unless `early`: MOO_EUNREACHABLE. Other
 * errors: as of mooi_local. */
moo_err mooi_peer_grant(moo_plane *plane, const struct mooi_grant *grant,
                        int early, struct mooi_descriptor *out);

/* Connect if not connected, and push the missing descriptors. MOO_OK also if
 * that must wait: then the thread goes on trying. MOO_EPEER: it is dead. */
moo_err mooi_peer_reach(moo_plane *plane, struct mooi_peer *peer);

/* The two halves of it: the attempt itself, with errno from the system, and
 * the reaction to its result. */
moo_err mooi_peer_try(moo_plane *plane, struct mooi_peer *peer);
moo_err mooi_peer_tried(moo_plane *plane, struct mooi_peer *peer, moo_err err);
void mooi_peer_set_state(moo_plane *plane, struct mooi_peer *peer,
                         enum mooi_peer_state state);

/* 1 if it is known to be dead. */
int mooi_peer_is_dead(const moo_plane *plane, uint64_t id);

/* It died: revoke all, hang up. */
void mooi_peer_mark_dead(moo_plane *plane, struct mooi_peer *peer);

/* forks.c: all with the lock held. */

/* Ids from here on are not of processes: they name other events of the
 * thread. */
#define MOOI_FORK_ENDED (UINT64_MAX - 1)

/* Before a fork, and after it on both sides. */
void mooi_forks_before(moo_plane *plane);
void mooi_forks_parent(moo_plane *plane);
void mooi_forks_child(moo_plane *plane);

/* 1 if a child that may live can see it. */
int mooi_forks_see_import(const moo_plane *plane,
                          const struct mooi_import *import);

/* Take over an import that is dropped; 0 if no fork sees it. */
int mooi_forks_keep(moo_plane *plane, struct mooi_import *import);

/* Let go of memory kept for children that have ended. */
void mooi_forks_reap(moo_plane *plane);
void mooi_forks_fini(moo_plane *plane);

/* thread.c: start it if it does not run. Lock held. */
moo_err mooi_thread_start(moo_plane *plane);
void mooi_thread_wake(moo_plane *plane);
/* Lock not held. */
void mooi_thread_stop(moo_plane *plane);

/* import.c: give the lease of an import back and free it. Lock held. */
void mooi_import_end(moo_plane *plane, struct mooi_import *import);

/* memory.c */

/* Memory of the plane was handed out: the plane lives until that is
 * dropped. */
static inline void mooi_plane_hold(moo_plane *plane)
{
    atomic_fetch_add_explicit(&plane->uses, 1, memory_order_relaxed);
}

/* The reverse; the last one frees the plane. No lock held. */
void mooi_plane_rele(moo_plane *plane);

/* Take the lock of a plane that can be used. On error it is not held. */
moo_err mooi_plane_enter(moo_plane *plane);

/* A block as moo_empty hands it out, with one hold. Lock held. */
moo_err mooi_block_for_user(moo_plane *plane, size_t bytes,
                            struct mooi_block **out, char **at);

/* A block with a copy of data[0, bytes) and one hold. Lock held, but let go
 * during the copy. */
moo_err mooi_copy_out(moo_plane *plane, const void *data, size_t bytes,
                      struct mooi_block **out);

#endif
