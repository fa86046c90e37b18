/* SPDX-License-Identifier: MIT */
/*
 * connect.c: the owner's way to a link. The express connection comes first,
 * found by a dial over all addresses; the others go to the address that proved
 * to be the peer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "transport/tcp/internal.h"

#define MS ((uint64_t)1000000)
/* A greeting may take so long while other addresses are left to be tried. */
#define GREETING_SHORT_MS 700

static moo_err begin_greeting(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    const struct mooi_tcp_options *options = &link->engine->options;
    struct mooi_hello hello = {.from = options->id,
                               .to = link->peer,
                               .purpose = MOOI_PURPOSE_DATA,
                               .index = stripe->index,
                               .count = link->count,
                               .token = link->token};

    memcpy(hello.host, options->host, sizeof hello.host);
    if (!stripe->greeting)
        stripe->greeting = malloc(sizeof *stripe->greeting);
    if (!stripe->greeting)
        return MOO_ENOMEM;
    return mooi_handshake_connect(stripe->greeting, options->key, &hello);
}

static void greet_ready(struct mooi_tcp *engine, struct mooi_tcp_watched *self,
                        uint32_t events);

/* Talk to whoever is at the other end of fd; lock held. */
static void greet(struct mooi_tcp_stripe *stripe, int fd)
{
    moo_err err;

    stripe->watched.fd = fd;
    stripe->watched.ready = greet_ready;
    err = begin_greeting(stripe);
    if (err == MOO_OK)
        err = mooi_tcp_watch(stripe->link->engine, &stripe->watched, EPOLLOUT);
    if (err != MOO_OK)
        mooi_tcp_break(stripe->link, err, NULL);
}

/* Of all that happened, what tells most. */
static moo_err verdict(const struct mooi_dial *dial)
{
    static const moo_err order[] = {MOO_EAUTH, MOO_EVERSION, MOO_ETIMEOUT};

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
        link->greeted_ns = mooi_now_ns();
        mooi_tcp_watch(link->engine, &link->dialing, MOOI_TCP_QUIET);
        greet(express, fd);
    } else if (err != MOO_ETIMEOUT) {
        mooi_dial_reason(&link->dial, text, sizeof text);
        mooi_tcp_break(link, verdict(&link->dial), text);
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

/* The process at one address was another, or did not answer: try the next. */
static void greet_another(struct mooi_tcp_link *link, moo_err why)
{
    mooi_dial_blame(&link->dial, link->which, why);
    mooi_tcp_unwatch(link->engine, &link->stripes[0].watched);
    mooi_tcp_dial_go_on(link);
}

void mooi_tcp_greeting_late(struct mooi_tcp_link *link, uint64_t now)
{
    if (link->stripes[0].watched.fd >= 0 && mooi_dial_has_more(&link->dial) &&
        now - link->greeted_ns > GREETING_SHORT_MS * MS)
        greet_another(link, MOO_ETIMEOUT);
}

/* The express connection stands: now the others. */
static void connect_others(struct mooi_tcp_link *link)
{
    const struct mooi_address *address = &link->dial.address[link->which];

    link->state = MOOI_TCP_GATHERING;
    mooi_tcp_dial_end(link);
    for (uint16_t i = 1; i < link->count && link->broken == MOO_OK; i++) {
        int fd;
        moo_err err = mooi_socket_connect(address, &fd);
        if (err == MOO_OK)
            greet(&link->stripes[i], fd);
        else
            mooi_tcp_break(link, err, NULL);
    }
}

/* Lock held. Returns whether the link is complete. */
static int greeted(struct mooi_tcp_stripe *stripe)
{
    free(stripe->greeting);
    stripe->greeting = NULL;
    if (stripe->index == 0)
        connect_others(stripe->link);
    return mooi_tcp_gather(stripe);
}

static void greet_ready(struct mooi_tcp *engine, struct mooi_tcp_watched *self,
                        uint32_t events)
{
    struct mooi_tcp_stripe *stripe = (struct mooi_tcp_stripe *)self;
    struct mooi_tcp_link *link = stripe->link;
    struct mooi_handshake *greeting = stripe->greeting;
    moo_err err = MOO_OK;
    int complete = 0;

    (void)events;
    mooi_tcp_lock(engine);
    if (link->broken != MOO_OK) {
        mooi_tcp_unlock(engine);
        return;
    }
    if (greeting->step == 0 && greeting->moved == 0)
        err = mooi_socket_connected(self->fd);
    if (err == MOO_OK)
        err = mooi_handshake_step(greeting, self->fd);
    if (err == MOO_OK)
        complete = greeted(stripe);
    else if (err == MOO_ETIMEOUT)
        mooi_tcp_watch(engine, self, mooi_tcp_handshake_events(greeting));
    else if (stripe->index == 0)
        greet_another(link, err);
    else
        mooi_tcp_break(link, err, NULL);
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
    return link->abandoned || (!link->incoming && !link->greeted_ns &&
                               !mooi_dial_refused(&link->dial, NULL));
}

void mooi_tcp_hasten(struct mooi_tcp_link *link, int ms)
{
    mooi_tcp_lock(link->engine);
    link->answer_ns = mooi_now_ns() + (uint64_t)ms * MS;
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
        link->dialing.fd = link->dial.poll;
        *out = link;
        if (err != MOO_OK) /* it has begun, so `down` will tell */
            mooi_tcp_break(link, err, NULL);
    }
    mooi_tcp_unlock(engine);
    if (!link)
        return MOO_ENOMEM;
    mooi_tcp_wake(engine);
    return MOO_OK;
}
