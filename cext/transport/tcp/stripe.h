/* SPDX-License-Identifier: MIT */
/* stripe.h: one connection of a link, see stripe.c. */
#ifndef MOOI_TCP_STRIPE_H
#define MOOI_TCP_STRIPE_H

#include <stdatomic.h>

#include "transport/tcp/engine.h"
#include "transport/tcp/importer.h"
#include "transport/tcp/message.h"

#define MOOI_TCP_OUTBOX_MAX ((size_t)4 << 20)

struct mooi_handshake;

struct mooi_tcp_outbox {
    uint8_t *bytes;
    size_t first, end, room;
};

struct mooi_tcp_stripe {
    struct mooi_tcp_watched watched; /* first */
    struct mooi_tcp_link *link;
    uint16_t index; /* 0: express */
    int proved;
    struct mooi_handshake *handshake; /* connector, until proved */
    uint64_t began_ns, asked_ns;      /* its connection, and that handshake */

    struct mooi_tcp_outbox out;
    int sending;  /* in the middle of DATA: nothing may interrupt it */
    int unserved; /* the thread has asks to answer */

    /* receiving, its loop only: the next head, and the missing bytes of the
     * present message's body */
    uint8_t head[MOOI_TCP_HEAD_BYTES];
    uint32_t head_got;
    struct mooi_tcp_message present;
    uint32_t left, checksum;
    uint8_t control[MOOI_TCP_CONTROL_BYTES];

    /* importer: unanswered asks, in order */
    struct mooi_tcp_ask asks[MOOI_TCP_DEPTH];
    uint32_t asks_first, asks_count, asked_bytes, next_tag;

    /* owner, its loop only: to be answered, in order; the first one's answer
     * is under way if `sending` */
    struct mooi_tcp_message todo[MOOI_TCP_DEPTH];
    uint32_t todo_first, todo_count;
    uint8_t answer[MOOI_TCP_HEAD_BYTES];
    uint32_t answered; /* bytes of it, head included */
    const char *data;
    int sourced; /* the data are out */

    atomic_int heard; /* anything, since the last tick */
    /* the thread only */
    int kept_short; /* mooi_socket_keep_short was done */
    int pings; /* in a row, with nothing heard */
    int asking; /* mooi_socket_ask is on */
    struct mooi_silence silence;
};

void mooi_tcp_stripe_ready(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *watched, uint32_t events);

/* Queue a small message, `body` being that of a CONTROL; lock held.
 * MOO_ENOMEM. */
moo_err mooi_tcp_post(struct mooi_tcp_stripe *stripe,
                      const struct mooi_tcp_message *message,
                      const uint8_t *body);

/* Send the queue as far as possible, unless DATA is under way, and watch for
 * the rest; lock held. A failure breaks the link. */
void mooi_tcp_flush(struct mooi_tcp_stripe *stripe);

/* Count received bytes: first the body's part, then the head's; its loop
 * only. */
void mooi_tcp_took(struct mooi_tcp_stripe *stripe, size_t moved);

/* The link has ended: give back the source that is out; on the thread, no lock
 * held. */
void mooi_tcp_serve_no_more(struct mooi_tcp_stripe *stripe);

#endif
