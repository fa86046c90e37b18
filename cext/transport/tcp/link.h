/* SPDX-License-Identifier: MIT */
/* link.h: links, see link.c. */
#ifndef MOOI_TCP_LINK_H
#define MOOI_TCP_LINK_H

#include <stdatomic.h>

#include "transport/tcp/dial.h"
#include "transport/tcp/engine.h"
#include "transport/tcp/stripe.h"

enum mooi_tcp_state {
    MOOI_TCP_DIALING,   /* owner: the express connection is being made */
    MOOI_TCP_GATHERING, /* both: some of the others are missing */
    MOOI_TCP_UP,
    MOOI_TCP_DOWN
};

struct mooi_tcp_link {
    struct mooi_tcp *engine;
    struct mooi_tcp_link *next; /* of the engine, or of its ended ones */
    atomic_uint holds;
    uint64_t peer, token;
    int incoming; /* we are the importer */
    enum mooi_tcp_state state;
    moo_err broken;       /* MOO_OK: not; else the thread will end it */
    int announced;        /* `down` is owed */
    int abandoned;        /* nobody left to hear of an orderly end */
    uint64_t deadline_ns; /* to come up */
    uint64_t answer_ns;   /* deadline of the first answer */
    char reason[400];

    /* connector, until the express connection is proved */
    struct mooi_tcp_watched dialing; /* the dial's descriptor */
    struct mooi_dial dial;
    size_t which;            /* index of the dial's address in a handshake */
    uint64_t accepted_ns;     /* since when; 0: nobody has accepted yet */

    /* fetches: all; small ones to request; others with more to request, which
     * take turns */
    struct mooi_tcp_node all, small, bulk;
    uint64_t fetches, asked_bytes;
    uint16_t count; /* of stripes, the express connection included */
    struct mooi_tcp_stripe stripes[];
};

/* A new link with no connection yet, in the engine's list; lock held. NULL: no
 * memory. */
struct mooi_tcp_link *mooi_tcp_link_new(struct mooi_tcp *engine, uint64_t peer,
                                        uint16_t count, int incoming);

/* Mark a link to be ended; any thread, lock held. The first reason counts;
 * `text` is one sentence, or NULL for that of `why`. */
void mooi_tcp_break(struct mooi_tcp_link *link, moo_err why, const char *text);

/* Whether it is usable; lock held. */
static inline int mooi_tcp_is_up(const struct mooi_tcp_link *link)
{
    return link->state == MOOI_TCP_UP && link->broken == MOO_OK;
}

/* One more connection is authenticated; lock held. Returns whether it was the
 * last. */
int mooi_tcp_gather(struct mooi_tcp_stripe *stripe);

/* End all broken links, with callbacks; on the thread, no lock held. */
void mooi_tcp_end_broken(struct mooi_tcp *engine);

/* All connections of a link are authenticated; on the thread, no lock held. */
void mooi_tcp_bring_up(struct mooi_tcp_link *link);

/* Free the ended links that no event can name any more. */
void mooi_tcp_free_ended(struct mooi_tcp *engine);

/* Do the periodic checks that are due; on the thread, no lock held. Returns
 * the milliseconds to sleep at most; -1: for ever. */
int mooi_tcp_tick(struct mooi_tcp *engine);

#endif
