/* SPDX-License-Identifier: MIT */
/*
 * network.h: memory of processes that share none with us. Their bytes are
 * fetched. There are two ways: over TCP, and by RDMA through libfabric.
 *
 * Both begin with a link of the TCP engine, which the owner made: leases are
 * given back over it, the owner's control messages say how it serves, and all
 * ends with it. Only the way of the bytes differs.
 */
#ifndef MOOI_NETWORK_H
#define MOOI_NETWORK_H

#include <pthread.h>
#include <stdint.h>

#include "core/arena.h"
#include "mooactor.h"
#include "transport/control.h"
#include "transport/ofi.h"
#include "transport/tcp/tcp.h"

/* Owner: an importer, and how much its link has told it. */
struct mooi_outgoing {
    struct mooi_tcp_link *link; /* held; NULL: none */
    uint32_t slabs_told;
    uint8_t address_told;
};

/* Importer: an owner, and how it serves us. */
struct mooi_incoming {
    struct mooi_tcp_link *link;        /* held; NULL: none */
    const struct mooi_network_ops *by; /* as it told; NULL: not yet */
    void *state;                       /* of `by` */
    uint32_t epoch;                    /* links so far */
};

/* Importer: one transfer. */
struct mooi_pull {
    struct mooi_networks *networks;
    struct mooi_incoming *incoming;
    struct mooi_lease_name name; /* the bytes of this lease: */
    uint64_t offset, length;     /* in its slab */
    char *target;                /* where they go */
    /* `target`: the user's view of this block; NULL: the user's memory */
    const struct mooi_block *block;
    /* Of a device: the region of `target`, and the remote bytes, which the
     * lease need not cover. NULL: it is none. */
    const struct mooi_fabric_region *region;
    uint64_t from, key;
    uint32_t epoch; /* of `incoming`, when it began */
    int reason;  /* with MOO_ESYS: the errno */
    void *state; /* of the network */
};

/* The state that the networks share, a part of each plane. */
struct mooi_networks {
    pthread_mutex_t *lock; /* the plane's, taken before an engine's own */
    struct mooi_arena *arena;
    struct mooi_tcp *tcp;       /* NULL: closed */
    struct mooi_fabric *fabric; /* NULL: none is allowed, or to be had */
    struct mooi_fabric_region *region[MOOI_MAX_SLABS]; /* of `work` */

    /* A pull has ended; lock held. */
    void (*ended)(struct mooi_pull *pull, moo_err result);
};

/* One of the two. Lock held and nothing blocks, unless it says so. */
struct mooi_network_ops {
    const char *scheme; /* "tcp", "ofi" */
    uint32_t bit;       /* MOO_TRANSPORT_… */

    /* Owner: tell the importer all that it needs to fetch from our slabs.
     * Called when the link came up, and again before a descriptor leaves if
     * slabs were added since. New are those from `slabs_told` on; the caller
     * counts. */
    moo_err (*tell)(struct mooi_networks *networks, struct mooi_outgoing *to);

    /* Importer: such a message came, SERVE first. MOO_EPROTO: no correct owner
     * sends it. Waiting pulls are tried again after it. */
    moo_err (*hear)(struct mooi_networks *networks, struct mooi_incoming *from,
                    const struct mooi_control *control);

    /* Importer: begin to receive. On MOO_OK `ended` will be called once, later,
     * from another thread. MOO_ETIMEOUT: not yet; try again after the next
     * message. */
    moo_err (*pull)(struct mooi_pull *pull);

    /* Importer, lock not held: end it; nothing writes to its target after this
     * returns. MOO_OK: `ended` will not be called for it. MOO_ESTALE: it was
     * called, or is about to be. `incoming` stays meanwhile. */
    moo_err (*cancel)(struct mooi_pull *pull);

    /* Importer: a pull has ended, well or not: free its resources. */
    void (*pulled)(struct mooi_pull *pull);

    /* Importer: the link is down, or the other network takes over. Pulls that
     * are under way must end soon. */
    void (*part)(struct mooi_networks *networks, struct mooi_incoming *from);
};

extern const struct mooi_network_ops mooi_over_tcp;

/* The network of one MOO_TRANSPORT_… bit; NULL: there is none. */
static inline const struct mooi_network_ops *mooi_network_by_bit(uint32_t bit)
{
    if (bit == MOO_TRANSPORT_OFI)
        return mooi_ofi ? mooi_ofi->network : NULL;
    return bit == MOO_TRANSPORT_TCP ? &mooi_over_tcp : NULL;
}

/* Send a control message over a link that stands. As mooi_tcp_control. */
moo_err mooi_control_send(struct mooi_tcp_link *link,
                          const struct mooi_control *control);

#endif
