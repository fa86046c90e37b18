/* SPDX-License-Identifier: MIT */
/* contact.h: see contact.c. All on the engine's own thread. */
#ifndef MOOI_TCP_CONTACT_H
#define MOOI_TCP_CONTACT_H

#include "transport/tcp/engine.h"
#include "transport/tcp/handshake.h"

#define MOOI_TCP_UNPROVED 64 /* accepted connections in their handshake */

struct mooi_tcp_link;

/* An accepted connection that is not authenticated yet. */
struct mooi_tcp_stranger {
    struct mooi_tcp_watched watched; /* first */
    uint64_t since_ns;
    struct mooi_handshake handshake;
};

/* The listener is readable; no lock held. */
void mooi_tcp_accept_ready(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *listener, uint32_t events);
/* Go on with a link's dial; lock held. */
void mooi_tcp_dial_go_on(struct mooi_tcp_link *link);
void mooi_tcp_dial_end(struct mooi_tcp_link *link);
/* Give up a silent acceptor after a while; lock held. */
void mooi_tcp_handshakes_late(struct mooi_tcp_link *link, uint64_t now);
/* Hang up on strangers that took too long, or on all; no lock held. */
void mooi_tcp_strangers_reap(struct mooi_tcp *engine, int all);

#endif
