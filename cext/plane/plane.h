/* SPDX-License-Identifier: MIT */
/*
 * plane.h: one process's part of the data plane, as its files see it.
 *
 * Two roles meet here. As *owner* a process has an arena, a ledger, a table of
 * leases and one `peer` for each process that holds some (lease.c, peer.c). As
 * *importer* it has one `owner` for each process whose memory it has mapped
 * (owner.c, view.c). plane.c joins the two behind the public functions;
 * thread.c serves peers.
 *
 * Contact is made by the owner: with its first lease for a peer it connects to
 * the peer's listening socket and pushes the ledger and all slabs, before the
 * descriptor leaves. So an importer needs no thread, never waits for a living
 * owner's attention, and can still import what an owner sent before it died.
 * And since the connection stands from the first lease on, the death of a peer
 * always shows as a hang-up, however early it comes.
 *
 * Locks, in the order in which they may be taken: `accepting` of a plane, `rpc`
 * of an owner, `lock` of a plane. No system call that can block is made under
 * `lock`.
 */
#ifndef MOOI_PLANE_H
#define MOOI_PLANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/ledger.h"
#include "core/mac.h"
#include "core/wire.h"
#include "mooactor.h"

struct mooi_transport;

/* ---- as owner ---- */

enum mooi_peer_state {
    MOOI_PEER_SELF,
    MOOI_PEER_NEW,     /* nothing was for it yet */
    MOOI_PEER_WAITING, /* not there yet, or too busy to be told all */
    MOOI_PEER_CALLING, /* on another host, and being connected to */
    MOOI_PEER_LINKED,
    MOOI_PEER_PARTED, /* its host was not reached, or is no longer */
    MOOI_PEER_DEAD    /* for ever: ids are not used twice */
};

struct mooi_net;
struct mooi_reach;

struct mooi_peer {
    uint64_t id;
    struct mooi_peer *next; /* in its bucket */
    enum mooi_peer_state state;
    int fd;                 /* -1: not connected */
    int greeted;            /* HELLO was sent */
    int waiting;            /* the thread tries again */
    uint32_t slabs_sent;
    uint32_t first_lease;
    uint64_t leases, bytes;
    uint64_t exported, fetched; /* bytes, so far: for it, and from it */

    /* in a plane that may use networks: see route.c */
    const struct mooi_transport *transport; /* NULL: not chosen */
    struct mooi_reach *reach;
    int remote; /* it fetches what it is granted */
};

struct mooi_lease {
    struct mooi_block *block; /* NULL: free, or revoked while being released */
    struct mooi_peer *peer;
    uint32_t next, previous; /* of the same peer; `next`: free */
    uint32_t generation;
    uint32_t sending;             /* the engine reads from sent_from */
    struct mooi_block *sent_from; /* held; outlives `block` */
    int doomed;                   /* the index is free after that */
};

#define MOOI_PEER_BUCKETS 256

/* ---- as importer ---- */

/* One mapping of a whole foreign slab, with what is in use there. */
struct mooi_window {
    char *base;                 /* NULL: not mapped yet */
    struct mooi_import **first; /* by page: the import that starts there */
    uint64_t *busy;             /* bit by page: part of an import */
};

struct mooi_view {
    int fd;
    size_t bytes;
    struct mooi_window window[2]; /* by enum mooi_mapping */
};

struct mooi_owner {
    uint64_t id;
    struct mooi_owner *next;
    int fd; /* -1: ourselves */
    pthread_mutex_t rpc;
    uint32_t sequence;
    struct mooi_ledger *ledger;
    uint32_t entries;
    struct mooi_view view[MOOI_MAX_SLABS];
    uint64_t live;        /* imports, and calls that are using this struct */
    uint64_t forget_at_ns; /* 0: alive as far as we know */
};

struct mooi_import {
    struct mooi_owner *owner;
    struct mooi_view *view;
    char *at;
    size_t bytes;
    size_t offset;   /* in the slab */
    uint32_t slab, lease, generation;
    uint8_t shared;  /* it was moved here: writes are seen by the owner */
    uint8_t alone;   /* has a mapping of its own */
    uint8_t moved;   /* to be given away with the next export */
    uint8_t gone;    /* was given away */
    uint64_t born, dropped;        /* see forks.h */
    struct mooi_import *next_kept; /* in the list of those kept for forks */
};

/* ---- both ---- */

enum mooi_region_kind {
    MOOI_OWN_WORK,
    MOOI_OWN_USER,
    MOOI_WINDOW,
    MOOI_ALONE
};

/* A stretch of addresses that this plane mapped. */
struct mooi_region {
    uintptr_t start, end;
    enum mooi_region_kind kind;
    uint32_t slab;              /* own */
    struct mooi_window *window; /* MOOI_WINDOW */
    struct mooi_import *import; /* MOOI_ALONE */
};

struct moo_plane {
    pthread_mutex_t lock;
    uint64_t id;
    uint8_t key[MOOI_KEY_BYTES];
    int directory; /* O_PATH descriptor */
    int listener;
    int pagemap;
    _Atomic int forked;
    _Atomic uint64_t uses; /* the user's, and one for each thing handed out */
    int closed;
    struct moo_plane *next; /* in the list for atfork */

    /* as owner */
    struct mooi_arena arena;
    int ledger_fd;
    struct mooi_ledger *ledger;
    struct mooi_lease *lease;
    uint32_t leases_made, leases_free, leases_live;
    struct mooi_peer *peer[MOOI_PEER_BUCKETS];
    uint32_t peers_waiting;
    int retry_ms; /* when they are tried again */
    pthread_t thread;
    int running, epoll, wake;

    /* as importer */
    pthread_mutex_t accepting;
    struct mooi_owner *owners;
    uint64_t imports, imported;
    struct mooi_import *kept; /* dropped, and seen by forks */
    uint64_t kept_bytes;

    struct moo_fetch *finished, *finished_last; /* with tickets not taken */
    int finished_fd; /* -1: nobody asked for it */
    uint64_t fetches;
    struct mooi_net *net; /* NULL: shared memory only */
    char serve_why[280]; /* what was allowed but cannot be had; "" */

    struct mooi_region *region; /* sorted by address */
    size_t regions, regions_room;
    uint32_t slabs_known, users_known;

    uint64_t exports, exports_copied, bytes_copied, revoked;
};

/* lease.c: all with the lock held. */

/* Give `peer` one lease on bytes [offset, offset + length) of the block's slab
 * and describe it. Holds the block. */
moo_err mooi_lease_grant(moo_plane *plane, struct mooi_block *block,
                         struct mooi_peer *peer, uint64_t offset,
                         uint64_t length, int flags,
                         struct mooi_descriptor *out);

/* The engine has sent what it asked for of this lease. */
void mooi_lease_unsend(moo_plane *plane, uint32_t index);

/* Take back one lease that nobody imported; 0 if somebody did. */
int mooi_lease_revoke(moo_plane *plane, uint32_t index, uint32_t generation);

/* The holder, which is this process, ends it. */
void mooi_lease_end_own(moo_plane *plane, uint32_t index, uint32_t generation,
                        enum mooi_lease_state from);

/* End all leases of a dead peer. */
void mooi_lease_revoke_all(moo_plane *plane, struct mooi_peer *peer);

/* Collect what holders have released. */
void mooi_lease_drain(moo_plane *plane);

/* 1 if `peer` holds that lease and it covers those bytes of that slab. */
int mooi_lease_covers(moo_plane *plane, const struct mooi_peer *peer,
                      uint32_t index, uint32_t generation, uint32_t slab,
                      uint64_t offset, uint64_t length);

/* peer.c: all with the lock held. */

/* The entry for a process, made if need be. NULL: no memory. */
struct mooi_peer *mooi_peer_get(moo_plane *plane, uint64_t id);

/* The same, but only if there is one. */
struct mooi_peer *mooi_peer_find(const moo_plane *plane, uint64_t id);

/* See to it that the peer can reach our memory, now or later: by shared memory
 * or, if the plane has a net, as route.c decides. Does not block. MOO_EPEER:
 * it is dead. MOO_EUNREACHABLE: nothing leads there. */
moo_err mooi_peer_offer(moo_plane *plane, struct mooi_peer *peer);

/* Connect if need be and push what the peer lacks. MOO_OK also if that must
 * wait: then the thread goes on trying. MOO_EPEER: it is dead. */
moo_err mooi_peer_reach(moo_plane *plane, struct mooi_peer *peer);

/* The two halves of it: the attempt itself, with errno from the system; and
 * what follows from its result. */
moo_err mooi_peer_try(moo_plane *plane, struct mooi_peer *peer);
moo_err mooi_peer_tried(moo_plane *plane, struct mooi_peer *peer, moo_err err);
void mooi_peer_set_state(moo_plane *plane, struct mooi_peer *peer,
                         enum mooi_peer_state state);

/* 1 if it is known to be dead. */
int mooi_peer_is_dead(const moo_plane *plane, uint64_t id);

/* It died: revoke all, hang up. */
void mooi_peer_bury(moo_plane *plane, struct mooi_peer *peer);

/* forks.c: all with the lock held. */

/* Ids from here on are no process's: they name other events of the thread. */
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

/* Let go of what was kept for children that have ended. */
void mooi_forks_reap(moo_plane *plane);
void mooi_forks_fini(moo_plane *plane);

/* thread.c: start it if it does not run. Lock held. */
moo_err mooi_thread_start(moo_plane *plane);
void mooi_thread_wake(moo_plane *plane);
/* Lock not held. */
void mooi_thread_stop(moo_plane *plane);

/* import.c: give the lease of an import back and free it. Lock held. */
void mooi_import_end(moo_plane *plane, struct mooi_import *import);

/* contact.c */

/* The owner `id`, kept from being forgotten until mooi_owner_unpin. Waits for
 * its first contact. Lock not held. */
moo_err mooi_owner_pin(moo_plane *plane, uint64_t id, int timeout_ms,
                       struct mooi_owner **out);

/* owner.c */

void mooi_owner_unpin(moo_plane *plane, struct mooi_owner *owner);

/* The owner `id` or NULL; a new one, which takes the socket and the ledger, or
 * NULL without memory. Lock held. */
struct mooi_owner *mooi_owner_find(moo_plane *plane, uint64_t id);
struct mooi_owner *mooi_owner_new(moo_plane *plane, uint64_t id, int fd,
                                  struct mooi_ledger *ledger, uint32_t entries);

/* The slab `index` of a pinned owner. Lock not held. */
moo_err mooi_owner_view(moo_plane *plane, struct mooi_owner *owner,
                        uint32_t index, int timeout_ms,
                        struct mooi_view **out);

/* Ask the owner of received memory to grant a lease to a third process. Lock
 * not held. Any error: copy instead. */
moo_err mooi_owner_grant(moo_plane *plane, const struct mooi_import *import,
                         uint64_t offset, uint64_t length, uint64_t to,
                         int flags, struct mooi_descriptor *out);

/* Our own memory as an importer sees it. Lock held. */
struct mooi_owner *mooi_owner_self(moo_plane *plane);

/* Forget dead owners that nothing uses any more and whose time has come.
 * Returns the nanoseconds until the next is due, or UINT64_MAX. Lock held. */
uint64_t mooi_owners_reap(moo_plane *plane);
void mooi_owners_fini(moo_plane *plane);

/* view.c: all with the lock held. */

/* Choose an address for [offset, offset + bytes) of a view and note the
 * import. On error nothing changes. */
moo_err mooi_view_place(moo_plane *plane, struct mooi_view *view,
                        struct mooi_import *import);

/* Undo it; the memory shows the owner's bytes again. */
void mooi_view_remove(moo_plane *plane, struct mooi_import *import);

/* The import that contains `at`, or NULL. */
struct mooi_import *mooi_view_find(const struct mooi_window *window,
                                   const void *at);
void mooi_view_fini(moo_plane *plane, struct mooi_view *view);

/* The import of a region that contains [data, data + bytes), or NULL. */
struct mooi_import *mooi_import_at(const struct mooi_region *region,
                                   const void *data, size_t bytes);

/* memory.c */

/* Something of the plane was handed out: it lives until that is dropped. */
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

/* region.c: all with the lock held. */
moo_err mooi_region_add(moo_plane *plane, const struct mooi_region *region);
void mooi_region_remove(moo_plane *plane, const void *start);
const struct mooi_region *mooi_region_find(const moo_plane *plane,
                                           const void *at);

/* link.c: one whole message at a time, on sockets that keep boundaries. */

/* Send without blocking, with descriptor `fd` attached if it is not -1.
 * MOO_EPEER: hung up. MOO_ETIMEOUT: no room now. */
moo_err mooi_link_send(int socket, const struct mooi_message *message, int fd);

/* Receive one message, waiting at most `timeout_ms` (0: not at all). *fd is
 * the caller's, or -1. MOO_EPEER: hung up. */
moo_err mooi_link_receive(int socket, struct mooi_message *out, int *fd,
                          int timeout_ms);

/* Connect to the socket of process `id`. MOO_ETIMEOUT: not there yet, or its
 * queue is full. MOO_EPEER: there was one and it is gone. */
moo_err mooi_link_connect(moo_plane *plane, uint64_t id, int *out);
moo_err mooi_link_listen(moo_plane *plane, int *out);

/* Raise the soft limit of open files if `fd`, the lowest that was free, comes
 * near it: a descriptor that cannot be received is lost. */
void mooi_link_make_room(int fd);

#endif
