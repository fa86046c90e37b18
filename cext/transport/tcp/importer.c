/* SPDX-License-Identifier: MIT */
/*
 * importer.c: what comes for fetches. Only the engine's threads write to a
 * fetch's memory, each where its stripe's answer belongs, and say so
 * (`receiving`) while they do it without the lock.
 */
#include "core/crc32c.h"
#include "transport/tcp/internal.h"

static struct mooi_tcp_ask *first_ask(struct mooi_tcp_stripe *stripe)
{
    return &stripe->asks[stripe->asks_first];
}

/* The first ask is answered. */
static void pop_ask(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_ask *ask = first_ask(stripe);

    stripe->link->asked_bytes -= ask->length;
    stripe->asks_first = (stripe->asks_first + 1) % MOOI_TCP_DEPTH;
    stripe->asks_count--;
}

/* ---- answers ---- */

static void report(struct mooi_tcp_link *link, void *cookie, moo_err result)
{
    const struct mooi_tcp_events *events = &link->engine->events;

    events->fetched(events->context, cookie, result);
}

/* The stripe's thread is the only one that takes its asks away, so the first may
 * be looked at without the lock, but for its fetch. */
static int answers_first(struct mooi_tcp_stripe *stripe)
{
    int asked;

    mooi_tcp_lock(stripe->link->engine);
    asked = stripe->asks_count > 0;
    mooi_tcp_unlock(stripe->link->engine);
    return asked && first_ask(stripe)->tag == stripe->present.tag;
}

moo_err mooi_tcp_data_begins(struct mooi_tcp_stripe *stripe)
{
    if (!answers_first(stripe) ||
        first_ask(stripe)->length != stripe->present.length ||
        first_ask(stripe)->flags != stripe->present.flags)
        return MOO_EPROTO;
    stripe->left = stripe->present.length;
    stripe->checksum = 0;
    return stripe->left ? MOO_OK : mooi_tcp_data_ends(stripe);
}

moo_err mooi_tcp_refused(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    struct mooi_tcp_fetch *fetch;
    void *cookie = NULL;

    if (!answers_first(stripe))
        return MOO_EPROTO;
    mooi_tcp_lock(link->engine);
    while ((fetch = first_ask(stripe)->fetch) && fetch->receiving)
        pthread_cond_wait(&link->engine->changed, &link->engine->lock);
    pop_ask(stripe);
    if (fetch)
        cookie = mooi_tcp_fetch_end(link, fetch);
    mooi_tcp_ask_more(link);
    mooi_tcp_unlock(link->engine);
    if (fetch)
        report(link, cookie, stripe->present.error);
    return MOO_OK;
}

static moo_err throw_away(struct mooi_tcp_stripe *stripe, int *drained)
{
    size_t moved;
    moo_err err =
        mooi_socket_skip(stripe->watched.fd, stripe->left, &moved);

    *drained = err != MOO_OK;
    mooi_tcp_took(stripe, moved);
    return err;
}

static moo_err receive_into(struct mooi_tcp_stripe *stripe, char *into,
                            int *drained)
{
    struct iovec parts[2] = {{into, stripe->left},
                             {stripe->head, MOOI_TCP_HEAD_BYTES}};
    size_t moved, body;
    moo_err err =
        mooi_socket_receive(stripe->watched.fd, parts, 2, &moved);

    body = moved < stripe->left ? moved : stripe->left;
    if (body && stripe->present.flags & MOOI_TCP_SUMMED)
        stripe->checksum = mooi_crc32c(stripe->checksum, into, body);
    *drained = moved < stripe->left + MOOI_TCP_HEAD_BYTES;
    mooi_tcp_took(stripe, moved);
    return err;
}

moo_err mooi_tcp_receive_data(struct mooi_tcp_stripe *stripe, int *drained)
{
    struct mooi_tcp *engine = stripe->link->engine;
    struct mooi_tcp_ask *ask = first_ask(stripe);
    struct mooi_tcp_fetch *fetch;
    moo_err err;

    mooi_tcp_lock(engine);
    fetch = ask->fetch;
    if (fetch)
        fetch->receiving++;
    mooi_tcp_unlock(engine);
    if (!fetch)
        return throw_away(stripe, drained);
    err = receive_into(stripe, ask->into + (ask->length - stripe->left),
                       drained);
    mooi_tcp_lock(engine);
    if (!--fetch->receiving)
        pthread_cond_broadcast(&engine->changed);
    mooi_tcp_unlock(engine);
    return err;
}

moo_err mooi_tcp_data_ends(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    struct mooi_tcp_fetch *fetch;
    void *cookie = NULL;
    int done = 0;

    mooi_tcp_lock(link->engine);
    fetch = first_ask(stripe)->fetch;
    if (fetch && stripe->checksum != stripe->present.checksum) {
        mooi_tcp_break(link, MOO_EPROTO, "a checksum did not match");
        mooi_tcp_unlock(link->engine);
        return MOO_EPROTO;
    }
    pop_ask(stripe);
    atomic_fetch_add(&link->engine->received_bytes, stripe->present.length);
    if (fetch) {
        fetch->received += stripe->present.length;
        done = fetch->received == fetch->length;
    }
    if (done)
        cookie = mooi_tcp_fetch_end(link, fetch);
    mooi_tcp_ask_more(link);
    mooi_tcp_unlock(link->engine);
    if (done)
        report(link, cookie, MOO_OK);
    return MOO_OK;
}

void mooi_tcp_fetches_fail(struct mooi_tcp_link *link, moo_err why)
{
    void *cookie;

    mooi_tcp_lock(link->engine);
    while (link->all.next != &link->all) {
        cookie = mooi_tcp_fetch_end(
            link, MOOI_TCP_OF(struct mooi_tcp_fetch, all, link->all.next));
        mooi_tcp_unlock(link->engine);
        report(link, cookie, why);
        mooi_tcp_lock(link->engine);
    }
    mooi_tcp_unlock(link->engine);
}
