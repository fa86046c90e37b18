/* SPDX-License-Identifier: MIT */
/*
 * shm.h: shared memory between processes of one host.
 *
 * Contact is made by the owner: with its first lease for a process it connects
 * to that process's listening socket and pushes the ledger and all slabs
 * (push.c), before the descriptor leaves. So an importer needs no thread,
 * never waits for a living owner's attention, and can still import memory that
 * an owner sent before it died. The connection exists from the first lease on,
 * so the death of a process always shows as a hang-up, even an early one.
 *
 *   link.c     the sockets, and messages with descriptors on them
 *   push.c     owner: the descriptors that an importer gets
 *   contact.c  importer: the owners that connect to it
 *   owner.c    importer: an owner, its slabs, and grants requested of it
 *   mapped.c   importer: a slab as it is mapped here
 *   shm.c      the table of operations
 *
 * Locks, in the order in which they may be taken: `accepting`, `rpc` of an
 * owner, `lock`. No system call that can block is made under `lock`.
 */
#ifndef MOOI_SHM_H
#define MOOI_SHM_H

#include "transport/local.h"

/* One mapping of a whole foreign slab, with its imports. */
struct mooi_window {
    char *base;                 /* NULL: not mapped yet */
    struct mooi_import **first; /* by page: the import that starts there */
    uint64_t *busy;             /* bit by page: part of an import */
};

/* A slab pushed by an owner, or one of our own as an importer sees it. */
struct mooi_mapped {
    int fd; /* -1: not here yet */
    size_t bytes;
    struct mooi_window window[2]; /* by enum mooi_mapping */
};

/* A process whose memory we have mapped. */
struct mooi_owner {
    uint64_t id;
    struct mooi_owner *next;
    int fd; /* -1: ourselves */
    pthread_mutex_t rpc;
    uint32_t sequence;
    struct mooi_ledger *ledger;
    uint32_t entries;
    struct mooi_mapped slab[MOOI_MAX_SLABS];
    uint64_t live;         /* imports, and calls that are using this struct */
    uint64_t forget_at_ns; /* 0: alive as far as we know */
};

struct mooi_import {
    struct mooi_owner *owner;
    struct mooi_mapped *mapped;
    char *at;
    size_t bytes;
    size_t offset;   /* in the slab */
    uint32_t slab, lease, generation;
    uint8_t shared;  /* it was moved here: writes are seen by the owner */
    uint8_t alone;   /* has a mapping of its own */
    uint8_t moved;   /* to be given away with the next export */
    uint8_t gone;    /* was given away */
    uint64_t born, dropped;        /* see core/forks.h */
    struct mooi_import *next_kept; /* in the list of those kept for forks */
};

/* ---- shm.c, for the plane ---- */

/* Initialise the fields that the plane does not fill in: nothing is open. */
void mooi_local_init(struct mooi_local *local);

/* Open the directory, and listen there. MOO_ESYS: see errno. */
moo_err mooi_local_open(struct mooi_local *local, const char *directory);

/* Accept nobody any more, and wake those that wait for it. Lock not held. */
void mooi_local_stop(struct mooi_local *local);

/* In a forked child: close the sockets that stand for the parent. */
void mooi_local_disown(struct mooi_local *local);

/* The plane closes: forget the owners that nothing here uses; lock held. */
void mooi_local_close(struct mooi_local *local);

/* Let go of all owners, and unmap all imports. */
void mooi_local_fini(struct mooi_local *local);

/* ---- push.c ---- */

/* The descriptors that an importer has got so far. */
struct mooi_pushed {
    int fd;       /* of the connection, -1: none */
    int hello_sent;
    uint32_t slabs;
};

/* Push the missing descriptors to process `to`, the one that `pushed` is
 * connected with. Lock held, does not block. Errors as of mooi_link_send;
 * descriptors sent before an error are counted. */
moo_err mooi_shm_push(struct mooi_local *local, uint64_t to,
                      struct mooi_pushed *pushed);

/* ---- contact.c ---- */

/* The owner `id`, kept from being forgotten until mooi_owner_unpin. Waits for
 * its first contact. Lock not held. */
moo_err mooi_owner_pin(struct mooi_local *local, uint64_t id, int timeout_ms,
                       struct mooi_owner **out);

/* ---- owner.c ---- */

/* Lock not held. */
void mooi_owner_unpin(struct mooi_local *local, struct mooi_owner *owner);

/* The owner `id` or NULL; a new one, which takes the socket and the ledger, or
 * NULL without memory. Lock held. */
struct mooi_owner *mooi_owner_find(struct mooi_local *local, uint64_t id);
struct mooi_owner *mooi_owner_new(struct mooi_local *local, uint64_t id, int fd,
                                  struct mooi_ledger *ledger, uint32_t entries);

/* The slab `index` of a pinned owner. Lock not held. */
moo_err mooi_owner_slab(struct mooi_local *local, struct mooi_owner *owner,
                        uint32_t index, int timeout_ms,
                        struct mooi_mapped **out);

/* Our own memory as an importer sees it. Lock held. */
struct mooi_owner *mooi_owner_self(struct mooi_local *local);

/* Forget dead owners that nothing uses any more and whose grace is over.
 * Returns the nanoseconds until the next is due, or UINT64_MAX. Lock held. */
uint64_t mooi_owners_reap(struct mooi_local *local);
void mooi_owners_fini(struct mooi_local *local);

/* A process is known to be dead, and its last messages may be imported for
 * `grace_ms` more; lock held. */
void mooi_owner_lost(struct mooi_local *local, uint64_t id, int grace_ms);

/* Ask the owner of received memory to grant a lease to a third process. Lock
 * not held. Any error: copy instead. */
moo_err mooi_owner_grant(struct mooi_local *local,
                         const struct mooi_import *import, uint64_t offset,
                         uint64_t length, uint64_t to, int moved,
                         struct mooi_descriptor *out);

/* ---- mapped.c: all with the lock held ---- */

/* Choose an address for [offset, offset + bytes) of a slab and note the
 * import. On error nothing changes. */
moo_err mooi_mapped_place(struct mooi_local *local, struct mooi_mapped *mapped,
                          struct mooi_import *import);

/* Undo it; the memory shows the owner's bytes again. */
void mooi_mapped_remove(struct mooi_local *local, struct mooi_import *import);

/* The import that contains `at`, or NULL. */
struct mooi_import *mooi_mapped_find(const struct mooi_window *window,
                                     const void *at);
void mooi_mapped_fini(struct mooi_local *local, struct mooi_mapped *mapped);

/* The import of a region that contains [data, data + bytes); NULL: there is
 * none. */
struct mooi_import *mooi_import_at(const struct mooi_region *region,
                                   const void *data, size_t bytes);

/* ---- link.c: one whole message at a time, on sockets that keep boundaries */

/* Send without blocking, with descriptor `fd` attached if it is not -1.
 * MOO_EPEER: hung up. MOO_ETIMEOUT: no room now. */
moo_err mooi_link_send(int socket, const struct mooi_message *message, int fd);

/* Receive one message, waiting at most `timeout_ms` (0: not at all). *fd is
 * the caller's, or -1. MOO_EPEER: hung up. */
moo_err mooi_link_receive(int socket, struct mooi_message *out, int *fd,
                          int timeout_ms);

/* Connect to the socket of process `id`. MOO_ETIMEOUT: not there yet, or its
 * queue is full. MOO_EPEER: there was one and it is gone. */
moo_err mooi_link_connect(struct mooi_local *local, uint64_t id, int *out);
moo_err mooi_link_listen(struct mooi_local *local, int *out);

/* Raise the soft limit of open files if `fd`, the lowest free one, is near it:
 * a descriptor that cannot be received is lost. */
void mooi_link_make_room(int fd);

#endif
