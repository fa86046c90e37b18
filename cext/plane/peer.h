/* SPDX-License-Identifier: MIT */
/*
 * peer.h: the processes that hold leases on our memory, and their sockets on
 * this host. The plane's lock is held in all functions.
 */
#ifndef MOOI_PEER_H
#define MOOI_PEER_H

#include "plane/endpoint.h"
#include "plane/plane.h"
#include "transport/network.h"

#define MOOI_WHY_BYTES 640

/* The state of a peer in a process with a net: as owner, but for two
 * fields. */
struct mooi_reach {
    struct mooi_endpoint endpoint;
    uint8_t has_endpoint, introduced;
    uint8_t was_linked;         /* a link to it stood once, … */
    struct mooi_address linked_at; /* … here, the last time */
    uint8_t called;             /* a link from it stood once */
    uint64_t unheard_ns;        /* when that was found silent; 0: it was not, or
                                   it has called again */
    uint8_t fabric_failed;      /* do without it */
    struct mooi_outgoing out;
    uint64_t sought_ns;         /* its endpoint is missing since then */
    uint64_t tried_ns;          /* when it was called last */
    uint64_t paused_ns;         /* until then `err` is given at once */
    uint8_t guessed;            /* … because others there are silent */
    uint64_t lost_ns;           /* when its last link was lost, and it was
                                   called again; 0: never */
    uint64_t losses_ns;         /* when the count of such losses began */
    uint32_t losses;            /* … which it is */
    uint32_t released;          /* leases that it gave back over this link */
    uint64_t out_ns;            /* when its machine stopped answering a
                                   link; 0: it answers */
    uint32_t ended;             /* calls that have ended, so far */
    uint32_t links;             /* of them, those that gave a link */
    moo_err err;                /* of the last attempt */
    char why[MOOI_WHY_BYTES];   /* of the choice, or of the failure */
};

enum mooi_peer_state {
    MOOI_PEER_SELF,
    MOOI_PEER_NEW,     /* nothing was exported to it yet */
    MOOI_PEER_WAITING, /* not listening yet, or its socket is full */
    MOOI_PEER_CALLING, /* on another host, and being connected to */
    MOOI_PEER_LINKED,
    MOOI_PEER_PARTED, /* its host was not reached, or was lost */
    MOOI_PEER_DEAD    /* for ever: ids are not used twice */
};

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

/* The reach of a peer, made if it does not exist. NULL: no memory. */
struct mooi_reach *mooi_reach_get(struct mooi_peer *peer);

/* The entry for a process, made if it does not exist. NULL: no memory. */
struct mooi_peer *mooi_peer_get(moo_plane *plane, uint64_t id);

/* The same, but only if there is one. */
struct mooi_peer *mooi_peer_find(const moo_plane *plane, uint64_t id);

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

#endif
