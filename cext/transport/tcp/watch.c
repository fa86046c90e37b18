/* SPDX-License-Identifier: MIT */
/*
 * watch.c: what has to be looked at from time to time. Links that have
 * nothing to do cost one look and at most one ping in MOOI_TCP_TICK_IDLE_MS; an
 * engine without links sleeps.
 *
 * A peer is taken for gone when its *kernel* does not acknowledge: that finds
 * cut links and dead machines, and leaves alone who is stopped or starved. So
 * a ping needs no answer. Each side finds out by itself, for an acknowledgement
 * has to go both ways; and who does, resets the connections, which tells the
 * other one if only one way is broken.
 */
#include "core/clock.h"
#include "transport/tcp/internal.h"

#define MS ((uint64_t)1000000)

/* How soon the next look is needed; the least counts. */
enum haste { IDLE, SLOW, BUSY, CONTACT };

static const int period_ms[] = {[IDLE] = -1,
                                [SLOW] = MOOI_TCP_TICK_IDLE_MS,
                                [BUSY] = MOOI_TCP_TICK_BUSY_MS,
                                [CONTACT] = MOOI_TCP_TICK_CONTACT_MS};

static int is_silent(struct mooi_tcp_stripe *stripe)
{
    return mooi_socket_is_silent(stripe->watched.fd, &stripe->silence,
                                 MOOI_TCP_SILENT_MS);
}

/* Have something to be acknowledged, if nothing came of itself. */
static void ping(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_message message = {.kind = MOOI_TCP_PING};
    int waits = stripe->index == 0 || stripe->asks_count;
    int heard = atomic_exchange(&stripe->heard, 0);

    if (heard)
        stripe->pings = 0;
    if (waits && !heard && !stripe->silence.waits &&
        stripe->pings < MOOI_TCP_PINGS && !stripe->out.end &&
        !stripe->sending && mooi_tcp_post(stripe, &message, NULL) == MOO_OK) {
        stripe->pings++;
        mooi_tcp_flush(stripe);
        is_silent(stripe); /* it counts from now */
    }
}

/* The kernel can ask by a connection on which nothing is to be sent: the express
 * one, or, if that is stuck, the others. */
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
    int hopes = link->state != MOOI_TCP_DIALING || link->greeted_ns ||
                mooi_dial_refused(&link->dial, NULL);

    return now < link->deadline_ns && (hopes || now < link->answer_ns);
}

static enum haste watch_coming(struct mooi_tcp_link *link, uint64_t now)
{
    if (has_time(link, now)) {
        if (link->state == MOOI_TCP_DIALING) {
            mooi_tcp_greeting_late(link, now);
            mooi_tcp_dial_go_on(link);
        }
        return CONTACT;
    }
    if (link->state == MOOI_TCP_DIALING) {
        char text[sizeof link->reason];
        mooi_dial_reason(&link->dial, text, sizeof text);
        mooi_tcp_break(link, MOO_ETIMEOUT, text);
    } else {
        mooi_tcp_break(link, MOO_ETIMEOUT,
                       "not all its connections were made in time");
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
                   : (int)((engine->next_tick_ns - now) / MS) + 1;
    mooi_tcp_strangers_reap(engine, 0);
    mooi_tcp_lock(engine);
    most = watch_listener(engine);
    for (struct mooi_tcp_link *link = engine->links; link; link = link->next) {
        enum haste haste = watch_link(link, now);
        most = haste > most ? haste : most;
    }
    mooi_tcp_unlock(engine);
    engine->next_tick_ns =
        most == IDLE ? UINT64_MAX : now + (uint64_t)period_ms[most] * MS;
    return period_ms[most];
}
