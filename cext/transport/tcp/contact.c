/* SPDX-License-Identifier: MIT */
/*
 * contact.c: two processes set up a link. The owner connects: the express
 * connection first, by a dial over all addresses; the others go to the address
 * where the peer answered.
 *
 * The importer accepts. Unauthenticated connections are kept in a table of
 * fixed size: under a flood the oldest is closed, and a process with the key
 * needs its place for a round trip only.
 */
#include "transport/tcp/contact.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/times.h"
#include "transport/tcp/link.h"

static uint32_t wanted_events(const struct mooi_handshake *handshake)
{
    return mooi_handshake_wants(handshake) == POLLIN ? EPOLLIN : EPOLLOUT;
}

/* ---- the owner connects ---- */

static moo_err prepare_handshake(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    const struct mooi_tcp_options *options = &link->engine->options;
    struct mooi_handshake *handshake = stripe->handshake;
    struct mooi_hello hello = {.from = options->id,
                               .to = link->peer,
                               .purpose = MOOI_PURPOSE_DATA,
                               .index = stripe->index,
                               .count = link->count,
                               .token = link->token};

    memcpy(hello.host, options->host, sizeof hello.host);
    if (!handshake)
        handshake = malloc(sizeof *handshake);
    if (!handshake)
        return MOO_ENOMEM;
    stripe->handshake = handshake;
    return mooi_handshake_connect(handshake, options->key, &hello);
}

static void handshake_ready(struct mooi_tcp *engine,
                            struct mooi_tcp_watched *self, uint32_t events);

/* Begin the handshake on fd, of a connection begun then; lock held. */
static void start_handshake(struct mooi_tcp_stripe *stripe, int fd,
                            uint64_t began_ns)
{
    moo_err err;

    stripe->watched.fd = fd;
    stripe->watched.ready = handshake_ready;
    stripe->began_ns = began_ns;
    stripe->asked_ns = mooi_now_ns();
    err = prepare_handshake(stripe);
    if (err == MOO_OK)
        err = mooi_tcp_watch(stripe->link->engine, &stripe->watched, EPOLLOUT);
    if (err != MOO_OK)
        mooi_tcp_break(stripe->link, err, NULL);
}

/* The most informative of the errors. */
static moo_err outcome_of(const struct mooi_dial *dial)
{
    static const moo_err order[] = {MOO_EAUTH, MOO_EVERSION};

    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (size_t i = 0; i < dial->count; i++)
            if (dial->result[i] == order[k])
                return order[k];
    return MOO_EPEER;
}

void mooi_tcp_dial_end(struct mooi_tcp_link *link)
{
    mooi_tcp_look_away(link->engine, &link->dialing);
    link->dialing.fd = -1;
    mooi_dial_end(&link->dial);
}

void mooi_tcp_dial_go_on(struct mooi_tcp_link *link)
{
    struct mooi_tcp_stripe *express = &link->stripes[0];
    char text[sizeof link->reason];
    moo_err err;
    int fd;

    if (express->watched.fd >= 0 || link->broken != MOO_OK)
        return;
    err = mooi_dial_step(&link->dial, &fd, &link->which);
    if (err == MOO_OK) {
        link->accepted_ns = mooi_now_ns();
        mooi_tcp_watch(link->engine, &link->dialing, MOOI_TCP_QUIET);
        start_handshake(express, fd,
                        mooi_dial_began_ns(&link->dial, link->which));
    } else if (err != MOO_ETIMEOUT) {
        mooi_dial_reason(&link->dial, text, sizeof text);
        mooi_tcp_break(link, outcome_of(&link->dial), text);
    } else if (mooi_tcp_watch(link->engine, &link->dialing, EPOLLIN) !=
               MOO_OK) {
        mooi_tcp_break(link, MOO_ESYS, NULL);
    }
}

static void dial_ready(struct mooi_tcp *engine, struct mooi_tcp_watched *self,
                       uint32_t events)
{
    (void)events;
    mooi_tcp_lock(engine);
    mooi_tcp_dial_go_on(MOOI_TCP_OF(struct mooi_tcp_link, dialing, self));
    mooi_tcp_unlock(engine);
}

/* Another process, or none, answered at one address: try the next. */
static void try_next(struct mooi_tcp_link *link, moo_err why)
{
    mooi_dial_blame(&link->dial, link->which, why);
    mooi_tcp_unwatch(link->engine, &link->stripes[0].watched);
    mooi_tcp_dial_go_on(link);
}

/* A connection beside the express one, to where that is. */
static void connect_another(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    int fd;
    moo_err err = mooi_socket_connect(&link->dial.address[link->which], &fd);

    if (err == MOO_OK)
        start_handshake(stripe, fd, mooi_now_ns());
    else
        mooi_tcp_break(link, err, NULL);
}

/* The express connection is up: now the others. */
static void connect_others(struct mooi_tcp_link *link)
{
    link->state = MOOI_TCP_GATHERING;
    mooi_tcp_dial_end(link);
    for (uint16_t i = 1; i < link->count && link->broken == MOO_OK; i++)
        connect_another(&link->stripes[i]);
}

/* The acceptor gives it up by then, or is stopped: a new one is as good, and
 * better where packets of this one were lost. */
static int is_too_late(const struct mooi_tcp_stripe *stripe, uint64_t now)
{
    const struct mooi_tcp_link *link = stripe->link;
    int others = stripe->index == 0 &&
                 mooi_dial_has_others(&link->dial, link->which);

    return stripe->handshake && stripe->watched.fd >= 0 &&
           now - stripe->asked_ns >
               (others ? MOOI_HANDSHAKE_SHORT_MS : MOOI_HANDSHAKE_MS) * MOOI_MS;
}

void mooi_tcp_handshakes_late(struct mooi_tcp_link *link, uint64_t now)
{
    if (link->state == MOOI_TCP_DIALING && is_too_late(&link->stripes[0], now))
        try_next(link, MOO_ETIMEOUT);
    if (link->state != MOOI_TCP_GATHERING || link->incoming)
        return;
    for (uint16_t i = 1; i < link->count && link->broken == MOO_OK; i++)
        if (is_too_late(&link->stripes[i], now)) {
            mooi_tcp_unwatch(link->engine, &link->stripes[i].watched);
            connect_another(&link->stripes[i]);
        }
}

/* Its connection has ended. If that is later than the short limit, counted from
 * the first packet, one of both was late: it was stopped, or a cable cut. A
 * side that hangs up before has another id or key. */
static void handshake_failed(struct mooi_tcp_stripe *stripe, moo_err why)
{
    struct mooi_tcp_link *link = stripe->link;
    int late = why == MOO_EPEER && mooi_now_ns() - stripe->began_ns >
                                       MOOI_HANDSHAKE_SHORT_MS * MOOI_MS;

    if (stripe->index == 0) {
        try_next(link, late ? MOO_ETIMEOUT : why);
    } else if (late) {
        mooi_tcp_unwatch(link->engine, &stripe->watched);
        connect_another(stripe);
    } else {
        mooi_tcp_break(link, why, NULL);
    }
}

/* Lock held. Returns whether the link is complete. */
static int handshake_done(struct mooi_tcp_stripe *stripe)
{
    free(stripe->handshake);
    stripe->handshake = NULL;
    if (stripe->index == 0)
        connect_others(stripe->link);
    return mooi_tcp_gather(stripe);
}

static void handshake_ready(struct mooi_tcp *engine,
                            struct mooi_tcp_watched *self, uint32_t events)
{
    struct mooi_tcp_stripe *stripe = (struct mooi_tcp_stripe *)self;
    struct mooi_tcp_link *link = stripe->link;
    struct mooi_handshake *handshake = stripe->handshake;
    moo_err err = MOO_OK;
    int complete = 0;

    (void)events;
    mooi_tcp_lock(engine);
    if (link->broken != MOO_OK) {
        mooi_tcp_unlock(engine);
        return;
    }
    if (handshake->step == 0 && handshake->moved == 0)
        err = mooi_socket_connected(self->fd);
    if (err == MOO_OK)
        err = mooi_handshake_step(handshake, self->fd);
    if (err == MOO_OK)
        complete = handshake_done(stripe);
    else if (err == MOO_ETIMEOUT)
        mooi_tcp_watch(engine, self, wanted_events(handshake));
    else
        handshake_failed(stripe, err);
    mooi_tcp_unlock(engine);
    if (complete)
        mooi_tcp_bring_up(link);
}

void mooi_tcp_address(const struct mooi_tcp_link *link,
                      struct mooi_address *out)
{
    *out = link->dial.address[link->which];
}

int mooi_tcp_nobody_at(const struct mooi_tcp_link *link,
                       const struct mooi_address *address)
{
    return mooi_dial_refused(&link->dial, address);
}

int mooi_tcp_is_unanswered(const struct mooi_tcp_link *link)
{
    return link->abandoned || (!link->incoming && !link->accepted_ns &&
                               !mooi_dial_answered(&link->dial));
}

void mooi_tcp_hasten(struct mooi_tcp_link *link, int ms)
{
    mooi_tcp_lock(link->engine);
    link->answer_ns = mooi_now_ns() + (uint64_t)ms * MOOI_MS;
    mooi_tcp_unlock(link->engine);
}

moo_err mooi_tcp_connect(struct mooi_tcp *engine, uint64_t peer,
                         const struct mooi_address *addresses, size_t count,
                         struct mooi_tcp_link **out)
{
    uint16_t stripes = (uint16_t)(1 + engine->options.stripes);
    struct mooi_tcp_link *link;
    uint64_t token;
    moo_err err;

    if (!count)
        return MOO_EINVAL;
    err = mooi_random(&token, sizeof token);
    if (err != MOO_OK)
        return err;
    mooi_tcp_lock(engine);
    link = mooi_tcp_link_new(engine, peer, stripes, 0);
    if (link) {
        link->token = token;
        link->dialing.ready = dial_ready;
        err = mooi_dial_begin(&link->dial, addresses, count);
        link->dial.patient = 1;
        link->dialing.fd = link->dial.poll;
        *out = link;
        if (err != MOO_OK) /* it has begun, so `down` will follow */
            mooi_tcp_break(link, err, NULL);
    }
    mooi_tcp_unlock(engine);
    if (!link)
        return MOO_ENOMEM;
    mooi_tcp_wake(engine);
    return MOO_OK;
}

/* ---- the importer accepts ---- */

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
            (all || now - s->since_ns > MOOI_HANDSHAKE_MS * MOOI_MS))
            turn_away(engine, s);
    }
    mooi_tcp_unlock(engine);
}

/* A free place, or that of the oldest stranger. */
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

/* Find the link of an authenticated connection; lock held. NULL: its place is
 * taken, or its HELLO fits no link. */
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
                             wanted_events(&stranger->handshake));
    if (err != MOO_OK)
        turn_away(engine, stranger);
    mooi_tcp_unlock(engine);
    if (complete)
        mooi_tcp_bring_up(complete);
}

/* Lock held. */
static void take_stranger(struct mooi_tcp *engine, int fd)
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
            take_stranger(engine, fd);
    }
    engine->next_tick_ns = 0;
    /* no descriptors or no memory: epoll would report it again at once */
    if (err == MOO_ESYS) {
        engine->listener_rests = 1;
        mooi_tcp_watch(engine, listener, MOOI_TCP_QUIET);
    }
    mooi_tcp_unlock(engine);
}
