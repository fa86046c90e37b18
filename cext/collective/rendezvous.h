/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.h: shared by rendezvous.c and connect.c.
 *
 * A leader connects by every stripe of the ring, and by one connection for
 * each other link. Numbers: the stripes first, then the links from 1 on.
 */
#ifndef MOOI_RENDEZVOUS_H
#define MOOI_RENDEZVOUS_H

#include <unistd.h>

#include "collective/ring.h"
#include "transport/tcp/dial.h"
#include "transport/tcp/handshake.h"

#define MOOI_STRANGERS 16 /* accepted, and not authenticated yet */

/* A connection under construction. */
struct mooi_proof {
    int fd; /* -1: none */
    struct mooi_handshake handshake;
    double since;
};

struct mooi_call {
    bool dialled;
    struct mooi_dial dial;
    size_t which; /* of the addresses */
    struct mooi_proof proof;
};

#define MOOI_CALLS (MOO_STRIPES_MAX + MOOI_LINKS - 1)

struct mooi_contact {
    int listener;
    double deadline; /* 0: not all of the others listen yet */
    struct mooi_call calls[MOOI_CALLS];
    struct mooi_proof strangers[MOOI_STRANGERS];
};

static inline uint32_t mooi_link_slot(const moo_group *group, uint32_t rank)
{
    return group->view.slots[rank];
}

/* The number of connections in one direction, and the purpose of each. */
static inline uint32_t mooi_connections(const struct mooi_links *links,
                                        const struct mooi_pipe *pipes)
{
    return pipes[0].count + links->count - 1;
}

static inline uint32_t mooi_link_of(const struct mooi_pipe *pipes,
                                    uint32_t number)
{
    return number < pipes[0].count ? 0 : number - pipes[0].count + 1;
}

static inline uint32_t mooi_stripe_of(const struct mooi_pipe *pipes,
                                      uint32_t number)
{
    return number < pipes[0].count ? number : 0;
}

static inline bool mooi_is_made(const struct mooi_pipe *pipes, uint32_t number)
{
    uint32_t stripe = mooi_stripe_of(pipes, number);
    return pipes[mooi_link_of(pipes, number)].stripes[stripe].fd >= 0;
}

static inline void mooi_proof_drop(struct mooi_proof *proof)
{
    if (proof->fd >= 0)
        close(proof->fd);
    proof->fd = -1;
}

/* ---- connect.c; none blocks ---- */

/* Begin the call of that number; its other end has posted its address.
 * MOO_EPEER: it cannot begin, and `work` was aborted. */
moo_err mooi_call_begin(moo_group *group, moo_work *work, uint32_t number);
/* Go on with it. MOO_OK: it is made. MOO_ETIMEOUT: not yet. Any other error:
 * it failed for good. */
moo_err mooi_call_step(moo_group *group, uint32_t number);
/* Accept callers, and read from those that are not authenticated yet. */
void mooi_answer(moo_group *group);

#endif
