/* SPDX-License-Identifier: MIT */
/*
 * accept.c: the importer's way to a link. Strangers are kept in a table of
 * fixed size: under a flood the oldest of them has to go, and one who knows the
 * key needs it for a round trip only.
 */
#include <errno.h>

#include "core/clock.h"
#include "transport/tcp/internal.h"

#define MS ((uint64_t)1000000)

static void turn_away(struct mooi_tcp *engine,
                      struct mooi_tcp_stranger *stranger)
{
    mooi_tcp_unwatch(engine, &stranger->watched);
    atomic_fetch_add(&engine->refused, 1);
}

void mooi_tcp_strangers_reap(struct mooi_tcp *engine, int all)
{
    uint64_t now = mooi_now_ns();

    mooi_tcp_lock(engine);
    for (int i = 0; i < MOOI_TCP_UNPROVED; i++) {
        struct mooi_tcp_stranger *s = &engine->strangers[i];
        if (s->watched.fd >= 0 &&
            (all || now - s->since_ns > MOOI_HANDSHAKE_MS * MS))
            turn_away(engine, s);
    }
    mooi_tcp_unlock(engine);
}

/* A free place, or that of who has had it for longest. */
static struct mooi_tcp_stranger *place(struct mooi_tcp *engine)
{
    struct mooi_tcp_stranger *oldest = &engine->strangers[0];

    for (int i = 0; i < MOOI_TCP_UNPROVED; i++) {
        struct mooi_tcp_stranger *s = &engine->strangers[i];
        if (s->watched.fd < 0)
            return s;
        if (s->since_ns < oldest->since_ns)
            oldest = s;
    }
    turn_away(engine, oldest);
    return oldest;
}

/* Find the link that a proved connection belongs to; lock held. NULL: its place
 * is taken, or it makes no sense. */
static struct mooi_tcp_stripe *find_stripe(struct mooi_tcp *engine,
                                           const struct mooi_hello *hello)
{
    struct mooi_tcp_link *link = engine->links;

    if (hello->count < 2 || hello->count > 1 + MOO_STRIPES_MAX)
        return NULL;
    while (link && !(link->incoming && link->state == MOOI_TCP_GATHERING &&
                     link->peer == hello->from && link->token == hello->token))
        link = link->next;
    if (!link) {
        link = mooi_tcp_link_new(engine, hello->from, hello->count, 1);
        if (link)
            link->token = hello->token;
    }
    if (!link || link->count != hello->count ||
        link->stripes[hello->index].watched.fd >= 0)
        return NULL;
    return &link->stripes[hello->index];
}

/* Lock held. Returns the link if it is complete. */
static struct mooi_tcp_link *admit(struct mooi_tcp *engine,
                                   struct mooi_tcp_stranger *stranger)
{
    struct mooi_tcp_stripe *stripe =
        find_stripe(engine, &stranger->handshake.hello);

    if (!stripe) {
        turn_away(engine, stranger);
        return NULL;
    }
    mooi_tcp_look_away(engine, &stranger->watched);
    engine->next_tick_ns = 0; /* its link has a deadline */
    stripe->watched.fd = stranger->watched.fd;
    stranger->watched.fd = -1;
    return mooi_tcp_gather(stripe) ? stripe->link : NULL;
}

static void stranger_ready(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *self, uint32_t events)
{
    struct mooi_tcp_stranger *stranger = (struct mooi_tcp_stranger *)self;
    struct mooi_tcp_link *complete = NULL;
    moo_err err;

    (void)events;
    mooi_tcp_lock(engine);
    err = mooi_handshake_step(&stranger->handshake, self->fd);
    if (err == MOO_OK)
        complete = admit(engine, stranger);
    else if (err == MOO_ETIMEOUT)
        err = mooi_tcp_watch(engine, self,
                             mooi_tcp_handshake_events(&stranger->handshake));
    if (err != MOO_OK)
        turn_away(engine, stranger);
    mooi_tcp_unlock(engine);
    if (complete)
        mooi_tcp_bring_up(complete);
}

/* Lock held. */
static void meet(struct mooi_tcp *engine, int fd)
{
    const struct mooi_tcp_options *options = &engine->options;
    struct mooi_tcp_stranger *stranger = place(engine);

    stranger->watched.fd = fd;
    stranger->watched.ready = stranger_ready;
    stranger->since_ns = mooi_now_ns();
    if (mooi_handshake_accept(&stranger->handshake, options->key, options->id,
                              options->host, MOOI_PURPOSE_DATA) != MOO_OK ||
        mooi_tcp_watch(engine, &stranger->watched, EPOLLIN) != MOO_OK)
        turn_away(engine, stranger);
}

void mooi_tcp_accept_ready(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *listener, uint32_t events)
{
    moo_err err = MOO_OK;

    (void)events;
    mooi_tcp_lock(engine);
    for (int i = 0; i < MOOI_TCP_UNPROVED && err == MOO_OK; i++) {
        int fd;
        err = mooi_socket_accept(listener->fd, &fd);
        if (err == MOO_OK)
            meet(engine, fd);
    }
    engine->next_tick_ns = 0;
    /* no descriptors or no memory: it would be reported again at once */
    if (err == MOO_ESYS) {
        engine->listener_rests = 1;
        mooi_tcp_watch(engine, listener, MOOI_TCP_QUIET);
    }
    mooi_tcp_unlock(engine);
}
