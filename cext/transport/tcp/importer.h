/* SPDX-License-Identifier: MIT */
/* importer.h: fetches, see importer.c. */
#ifndef MOOI_TCP_IMPORTER_H
#define MOOI_TCP_IMPORTER_H

#include <stddef.h>

#include "transport/tcp/tcp.h"

#define MOOI_TCP_CHUNK ((uint32_t)512 << 10)
/* Chunks requested ahead on one bulk connection. */
#define MOOI_TCP_AHEAD 2

struct mooi_tcp_stripe;

/* ---- lists ---- */

/* A ring with its head in it; a node that is in none points to itself. */
struct mooi_tcp_node {
    struct mooi_tcp_node *next, *previous;
};

static inline void mooi_tcp_node_init(struct mooi_tcp_node *node)
{
    node->next = node->previous = node;
}

static inline void mooi_tcp_node_out(struct mooi_tcp_node *node)
{
    node->next->previous = node->previous;
    node->previous->next = node->next;
    mooi_tcp_node_init(node);
}

static inline void mooi_tcp_node_last(struct mooi_tcp_node *ring,
                                      struct mooi_tcp_node *node)
{
    node->next = ring;
    node->previous = ring->previous;
    ring->previous->next = node;
    ring->previous = node;
}

#define MOOI_TCP_OF(type, member, pointer) \
    ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* ---- fetches ---- */

struct mooi_tcp_fetch {
    struct mooi_tcp_node all;     /* of its link */
    struct mooi_tcp_node waiting; /* to be requested; else in no ring */
    void *cookie;
    struct mooi_lease_name name;
    uint64_t offset, length;
    char *into;
    uint64_t asked, received; /* bytes */
    uint32_t receiving;       /* threads that are writing to `into` */
};

/* A requested part of a fetch. */
struct mooi_tcp_ask {
    struct mooi_tcp_fetch *fetch; /* NULL: ended meanwhile; discard */
    char *into;
    uint32_t tag, length;
    uint8_t flags;
};

/* On the stripe's thread, no lock held. An answer's head came. */
moo_err mooi_tcp_data_begins(struct mooi_tcp_stripe *stripe);
moo_err mooi_tcp_refused(struct mooi_tcp_stripe *stripe);
/* Receive the rest of the answer, and the next head with it. *drained: there
 * is no more. As mooi_socket_receive. */
moo_err mooi_tcp_receive_data(struct mooi_tcp_stripe *stripe, int *drained);
/* All of the answer has come. */
moo_err mooi_tcp_data_ends(struct mooi_tcp_stripe *stripe);
/* The link has ended: end all its fetches; on the thread, no lock held. */
void mooi_tcp_fetches_fail(struct mooi_tcp_link *link, moo_err why);

#endif
