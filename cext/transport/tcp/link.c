/* SPDX-License-Identifier: MIT */
/*
 * link.c: links of both directions: their beginning, their periodic checks,
 * and their end.
 *
 * Links that have nothing to do cost one look and at most one ping in
 * MOOI_TICK_IDLE_MS; an engine without links sleeps.
 *
 * A peer counts as gone when its *kernel* does not acknowledge: that finds cut
 * links and dead machines, but not stopped or starved processes. So a ping
 * needs no answer. Each side finds out by itself, because an acknowledgement
 * has to go both ways. It then resets the connections, which informs the other
 * side if only one way is broken.
 */
#include "transport/tcp/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/times.h"
#include "transport/tcp/contact.h"

/* A peer that sends nothing meanwhile may be stopped: its buffer is not filled
 * with more pings. From then on the kernel probes, see mooi_socket_ask. */
#define PINGS 16

/* ---- memory ---- */

struct mooi_tcp_link *mooi_tcp_link_new(struct mooi_tcp *engine, uint64_t peer,
                                        uint16_t count, int incoming)
{
    struct mooi_tcp_link *link =
        calloc(1, sizeof *link + count * sizeof link->stripes[0]);

    if (!link)
        return NULL;
    link->engine = engine;
    link->peer = peer;
    link->count = count;
    link->incoming = incoming;
    link->announced = !incoming;
    link->state = incoming ? MOOI_TCP_GATHERING : MOOI_TCP_DIALING;
    link->deadline_ns =
        mooi_now_ns() + MOOI_CONNECT_MS * MOOI_MS;
    link->answer_ns = link->deadline_ns;
    atomic_init(&link->holds, 1);
    link->dialing.fd = link->dial.poll = -1;
    mooi_tcp_node_init(&link->all);
    mooi_tcp_node_init(&link->small);
    mooi_tcp_node_init(&link->bulk);
    for (uint16_t i = 0; i < count; i++) {
        link->stripes[i].link = link;
        link->stripes[i].index = i;
        link->stripes[i].watched.fd = -1;
    }
    link->next = engine->links;
    engine->links = link;
    return link;
}

void mooi_tcp_hold(struct mooi_tcp_link *link)
{
    atomic_fetch_add(&link->holds, 1);
}

void mooi_tcp_rele(struct mooi_tcp_link *link)
{
    if (atomic_fetch_sub(&link->holds, 1) == 1)
        free(link);
}

void mooi_tcp_free_ended(struct mooi_tcp *engine)
{
    while (engine->ended) {
        struct mooi_tcp_link *link = engine->ended;
        engine->ended = link->next;
        mooi_tcp_rele(link);
    }
}

void mooi_tcp_reason(struct mooi_tcp_link *link, char *text, size_t room)
{
    mooi_tcp_lock(link->engine);
    snprintf(text, room, "%s", link->reason);
    mooi_tcp_unlock(link->engine);
}

/* ---- the end ---- */

void mooi_tcp_break(struct mooi_tcp_link *link, moo_err why, const char *text)
{
    if (link->broken != MOO_OK || link->state == MOOI_TCP_DOWN)
        return;
    link->broken = why;
    snprintf(link->reason, sizeof link->reason, "%s",
             text ? text : moo_strerror(why));
    if (!pthread_equal(pthread_self(), link->engine->own.thread))
        mooi_tcp_wake(link->engine);
}

void mooi_tcp_drop(struct mooi_tcp *engine, uint64_t peer, moo_err why)
{
    if (!engine)
        return;
    mooi_tcp_lock(engine);
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next)
        if (link->peer == peer)
            mooi_tcp_break(link, why,
                           why == MOO_EPEER ? "the other process is dead"
                                            : NULL);
    mooi_tcp_unlock(engine);
}

int mooi_tcp_stands(struct mooi_tcp_link *link)
{
    int stands;

    mooi_tcp_lock(link->engine);
    stands = mooi_tcp_is_up(link);
    mooi_tcp_unlock(link->engine);
    return stands;
}

static void close_stripe(struct mooi_tcp *engine,
                         struct mooi_tcp_stripe *stripe)
{
    if (stripe->link->abandoned && stripe->watched.fd >= 0)
        mooi_socket_abandon(stripe->watched.fd);
    mooi_tcp_unwatch(engine, &stripe->watched);
    free(stripe->handshake);
    stripe->handshake = NULL;
    free(stripe->out.bytes);
    memset(&stripe->out, 0, sizeof stripe->out);
}

/* Remove it from the engine's list, all closed; lock held. */
static void take_down(struct mooi_tcp_link *link)
{
    struct mooi_tcp *engine = link->engine;
    struct mooi_tcp_link **at = &engine->links;

    mooi_tcp_halt_others(engine);
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    link->next = NULL;
    link->state = MOOI_TCP_DOWN;
    mooi_tcp_dial_end(link);
    for (uint16_t i = 0; i < link->count; i++)
        close_stripe(engine, &link->stripes[i]);
    mooi_tcp_let_others_go_on(engine);
}

static void bring_down(struct mooi_tcp_link *link)
{
    struct mooi_tcp *engine = link->engine;

    for (uint16_t i = 0; i < link->count; i++)
        mooi_tcp_serve_no_more(&link->stripes[i]);
    mooi_tcp_fetches_fail(link, link->broken);
    if (link->announced)
        engine->events.down(engine->events.context, link, link->peer,
                            link->broken);
    link->next = engine->ended;
    engine->ended = link;
}

void mooi_tcp_end_broken(struct mooi_tcp *engine)
{
    struct mooi_tcp_link *link;

    do {
        mooi_tcp_lock(engine);
        link = engine->links;
        while (link && link->broken == MOO_OK)
            link = link->next;
        if (link)
            take_down(link);
        mooi_tcp_unlock(engine);
        if (link)
            bring_down(link);
    } while (link);
}

/* ---- the beginning ---- */

int mooi_tcp_gather(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    uint16_t proved = 0;

    stripe->proved = 1;
    stripe->heard = 1;
    stripe->watched.ready = mooi_tcp_stripe_ready;
    if (mooi_tcp_watch(link->engine, &stripe->watched, MOOI_TCP_QUIET) !=
        MOO_OK)
        mooi_tcp_break(link, MOO_ESYS, NULL);
    for (uint16_t i = 0; i < link->count; i++)
        proved += (uint16_t)link->stripes[i].proved;
    return proved == link->count && link->broken == MOO_OK;
}

/* The same process connected anew, so it has given up the old link. */
static void end_older(struct mooi_tcp_link *link)
{
    struct mooi_tcp *engine = link->engine;

    mooi_tcp_lock(engine);
    for (struct mooi_tcp_link *old = engine->links; old; old = old->next)
        if (old != link && old->incoming && old->peer == link->peer &&
            old->state == MOOI_TCP_UP)
            mooi_tcp_break(old, MOO_EPEER, "the other side connected again");
    mooi_tcp_unlock(engine);
    mooi_tcp_end_broken(engine);
}

/* Returns whether it is up: it may have been broken meanwhile. */
static int stand(struct mooi_tcp_link *link)
{
    struct mooi_tcp *engine = link->engine;
    int stands;

    mooi_tcp_lock(engine);
    stands = link->state == MOOI_TCP_GATHERING && link->broken == MOO_OK;
    for (uint16_t i = 1; i < link->count && stands; i++)
        if (mooi_tcp_hand_over(engine, &link->stripes[i].watched) != MOO_OK) {
            mooi_tcp_break(link, MOO_ESYS, NULL);
            stands = 0;
        }
    if (stands) {
        link->state = MOOI_TCP_UP;
        link->announced = 1;
    }
    mooi_tcp_unlock(engine);
    return stands;
}

void mooi_tcp_bring_up(struct mooi_tcp_link *link)
{
    struct mooi_tcp *engine = link->engine;

    if (link->incoming)
        end_older(link);
    if (!stand(link))
        return;
    engine->next_tick_ns = 0;
    engine->events.up(engine->events.context, link, link->peer,
                      link->incoming);
    /* only now: `up` comes before their messages */
    mooi_tcp_lock(engine);
    for (uint16_t i = 0; i < link->count && link->broken == MOO_OK; i++)
        mooi_tcp_flush(&link->stripes[i]);
    mooi_tcp_unlock(engine);
}

/* ---- periodic checks ---- */

/* The time until the next check is needed; the least counts. */
enum haste { IDLE, SLOW, BUSY, CONTACT };

static const int period_ms[] = {[IDLE] = -1,
                                [SLOW] = MOOI_TICK_IDLE_MS,
                                [BUSY] = MOOI_TICK_BUSY_MS,
                                [CONTACT] = MOOI_TICK_CONTACT_MS};

static int is_silent(struct mooi_tcp_stripe *stripe)
{
    return mooi_socket_is_silent(stripe->watched.fd, &stripe->silence,
                                 MOOI_SILENT_MS);
}

/* Send a ping to be acknowledged, if nothing arrived. */
static void ping(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_message message = {.kind = MOOI_TCP_PING};
    int waits = stripe->index == 0 || stripe->asks_count;
    int heard = atomic_exchange(&stripe->heard, 0);

    if (heard)
        stripe->pings = 0;
    if (waits && !heard && !stripe->silence.waits &&
        stripe->pings < PINGS && !stripe->out.end &&
        !stripe->sending && mooi_tcp_post(stripe, &message, NULL) == MOO_OK) {
        stripe->pings++;
        mooi_tcp_flush(stripe);
        is_silent(stripe); /* it counts from now */
    }
}

/* The kernel can probe over a connection with nothing to send: the express one
 * or, if that is stuck, the others. */
static void let_ask(struct mooi_tcp_stripe *stripe)
{
    int on = stripe->index == 0 || stripe->link->stripes[0].silence.stuck;

    if (stripe->asking != on)
        mooi_socket_ask(stripe->watched.fd, on);
    stripe->asking = on;
}

static enum haste watch_stripe(struct mooi_tcp_stripe *stripe)
{
    if (is_silent(stripe)) {
        mooi_tcp_break(stripe->link, MOO_EPEER,
                       "the other side's machine does not answer");
        stripe->link->abandoned = 1;
    } else {
        ping(stripe);
    }
    let_ask(stripe);
    if (!stripe->link->incoming && !stripe->kept_short)
        stripe->kept_short = mooi_socket_keep_short(stripe->watched.fd);
    return stripe->asks_count || stripe->unserved || stripe->silence.waits
               ? BUSY
               : SLOW;
}

static int has_time(const struct mooi_tcp_link *link, uint64_t now)
{
    int hopes = link->state != MOOI_TCP_DIALING || link->accepted_ns ||
                mooi_dial_answered(&link->dial);

    return now < link->deadline_ns && (hopes || now < link->answer_ns);
}

static enum haste watch_coming(struct mooi_tcp_link *link, uint64_t now)
{
    if (has_time(link, now)) {
        mooi_tcp_handshakes_late(link, now);
        if (link->state == MOOI_TCP_DIALING)
            mooi_tcp_dial_go_on(link);
        return CONTACT;
    }
    if (link->state == MOOI_TCP_DIALING) {
        char text[sizeof link->reason];
        mooi_dial_reason(&link->dial, text, sizeof text);
        mooi_tcp_break(link, MOO_ETIMEOUT, text);
    } else {
        mooi_tcp_break(link, MOO_ETIMEOUT,
                       "some of its connections were not made in time");
    }
    return BUSY;
}

static enum haste watch_link(struct mooi_tcp_link *link, uint64_t now)
{
    enum haste most = SLOW;

    if (link->broken != MOO_OK)
        return SLOW;
    if (link->state != MOOI_TCP_UP)
        return watch_coming(link, now);
    for (uint16_t i = 0; i < link->count && link->broken == MOO_OK; i++) {
        enum haste haste = watch_stripe(&link->stripes[i]);
        most = haste > most ? haste : most;
    }
    return most;
}

static enum haste watch_listener(struct mooi_tcp *engine)
{
    if (engine->listener_rests) {
        engine->listener_rests = 0;
        mooi_tcp_watch(engine, &engine->listener, EPOLLIN);
    }
    for (int i = 0; i < MOOI_TCP_UNPROVED; i++)
        if (engine->strangers[i].watched.fd >= 0)
            return BUSY;
    return IDLE;
}

int mooi_tcp_tick(struct mooi_tcp *engine)
{
    uint64_t now = mooi_now_ns();
    enum haste most;

    if (now < engine->next_tick_ns)
        return engine->next_tick_ns == UINT64_MAX
                   ? -1
                   : (int)((engine->next_tick_ns - now) / MOOI_MS) + 1;
    mooi_tcp_strangers_reap(engine, 0);
    mooi_tcp_lock(engine);
    most = watch_listener(engine);
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next) {
        enum haste haste = watch_link(link, now);
        most = haste > most ? haste : most;
    }
    mooi_tcp_unlock(engine);
    engine->next_tick_ns =
        most == IDLE ? UINT64_MAX : now + (uint64_t)period_ms[most] * MOOI_MS;
    return period_ms[most];
}
