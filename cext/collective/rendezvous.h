/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.h: shared by rendezvous.c and connect.c.
 *
 * A leader makes its connections in two phases: first the lines, one for each
 * link; then those for bytes, which are the stripes of the ring, and one for
 * each other link. They have numbers in this order.
 */
#ifndef MOOI_RENDEZVOUS_H
#define MOOI_RENDEZVOUS_H

#include <unistd.h>

#include "collective/ring.h"
#include "transport/tcp/dial.h"
#include "transport/tcp/handshake.h"

#define MOOI_STRANGERS 64 /* have connected, and are not taken over yet */

/* A connection under construction. */
struct mooi_proof {
    int fd; /* -1: none */
    bool proven; /* by its end; it waits for its epoch, or its phase */
    struct mooi_handshake handshake;
    double since;
};

struct mooi_call {
    bool dialled;
    double since;
    struct mooi_dial dial;
    size_t which; /* of the addresses */
    struct mooi_proof proof;
};

#define MOOI_CALLS (MOO_STRIPES_MAX + 2 * MOOI_LINKS - 1)

struct mooi_contact {
    bool bytes; /* the second phase */
    struct mooi_call calls[MOOI_CALLS];
};

/* The pipe and the stripe of a connection. */
static inline struct mooi_pipe *mooi_pipe_at(struct mooi_links *links, bool out,
                                             uint32_t number, uint32_t *stripe)
{
    struct mooi_pipe *pipes = out ? links->to : links->from;
    *stripe = 0;
    if (number < links->count)
        return out ? &links->lines[number].to : &links->lines[number].from;
    number -= links->count;
    if (number >= pipes[0].count)
        return &pipes[number - pipes[0].count + 1];
    *stripe = number;
    return &pipes[0];
}

static inline uint32_t mooi_link_of(const struct mooi_links *links, bool out,
                                    uint32_t number)
{
    uint32_t stripes = (out ? links->to : links->from)[0].count;
    if (number < links->count)
        return number;
    number -= links->count;
    return number < stripes ? 0 : number - stripes + 1;
}

/* The connections of the present phase: from the first up to this one. */
static inline uint32_t mooi_first_number(const struct mooi_links *links)
{
    return links->contact->bytes ? links->count : 0;
}

static inline uint32_t mooi_end_number(const struct mooi_links *links, bool out)
{
    uint32_t stripes = (out ? links->to : links->from)[0].count;
    return links->contact->bytes ? 2 * links->count + stripes - 1
                                 : links->count;
}

static inline bool mooi_is_made(struct mooi_links *links, bool out,
                                uint32_t number)
{
    uint32_t stripe;
    return mooi_pipe_at(links, out, number, &stripe)->stripes[stripe].fd >= 0;
}

static inline void mooi_proof_drop(struct mooi_proof *proof)
{
    if (proof->fd >= 0)
        close(proof->fd);
    proof->fd = -1;
}

/* ---- connect.c; none blocks ---- */

/* Begin the call of that number. MOO_EPEER: it cannot begin, and `work` was
 * aborted. */
moo_err mooi_call_begin(moo_group *group, moo_work *work, uint32_t number);
/* Go on with it. MOO_OK: it is made. MOO_ETIMEOUT: not yet. Any other error:
 * it failed for good. */
moo_err mooi_call_step(moo_group *group, uint32_t number);
/* Accept callers, read from those that are not authenticated yet, and take over
 * those of this epoch and phase. */
void mooi_answer(moo_group *group);

#endif
