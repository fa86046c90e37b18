/* SPDX-License-Identifier: MIT */
/*
 * importer.c: an importer's fetches: requests, chunk by chunk, and their data.
 *
 * A fetch may end before all its chunks have come: cancelled, or refused by the
 * owner. Then its asks are left without a fetch, and their data is discarded.
 * Only the engine's threads write to a fetch's memory, each where its stripe's
 * answer belongs, and say so (`receiving`) while they do it without the lock.
 */
#include "transport/tcp/importer.h"

#include <stdlib.h>

#include "core/crc32c.h"
#include "transport/tcp/link.h"

/* ---- asking; lock held ---- */

/* MOO_ENOMEM: nothing was requested. */
static moo_err ask(struct mooi_tcp_stripe *stripe, struct mooi_tcp_fetch *fetch)
{
    struct mooi_tcp_link *link = stripe->link;
    uint64_t left = fetch->length - fetch->asked;
    struct mooi_tcp_message message = {
        .kind = MOOI_TCP_ASK,
        .flags = link->engine->options.checksum ? MOOI_TCP_SUMMED : 0,
        .tag = stripe->next_tag,
        .length = left < MOOI_TCP_CHUNK ? (uint32_t)left : MOOI_TCP_CHUNK,
        .name = fetch->name,
        .offset = fetch->offset + fetch->asked};
    uint32_t at = (stripe->asks_first + stripe->asks_count) % MOOI_TCP_DEPTH;
    moo_err err = mooi_tcp_post(stripe, &message, NULL);

    if (err != MOO_OK)
        return err;
    stripe->asks[at] = (struct mooi_tcp_ask){
        .fetch = fetch,
        .into = fetch->into ? fetch->into + fetch->asked : NULL,
        .tag = message.tag,
        .length = message.length,
        .flags = message.flags};
    stripe->asks_count++;
    stripe->next_tag++;
    fetch->asked += message.length;
    link->asked_bytes += message.length;
    mooi_tcp_node_out(&fetch->waiting);
    return MOO_OK;
}

static moo_err ask_small(struct mooi_tcp_link *link)
{
    struct mooi_tcp_stripe *express = &link->stripes[0];
    moo_err err = MOO_OK;

    while (err == MOO_OK && express->asks_count < MOOI_TCP_DEPTH &&
           link->small.next != &link->small)
        err = ask(express, MOOI_TCP_OF(struct mooi_tcp_fetch, waiting,
                                       link->small.next));
    return err;
}

/* The connection with the least to answer, if it may take more requests. */
static struct mooi_tcp_stripe *least_asked(struct mooi_tcp_link *link)
{
    struct mooi_tcp_stripe *least = &link->stripes[1];

    for (uint16_t i = 2; i < link->count; i++)
        if (link->stripes[i].asks_count < least->asks_count)
            least = &link->stripes[i];
    return least->asks_count < MOOI_TCP_AHEAD ? least : NULL;
}

/* Fetches take turns: one that was requested goes to the end of the ring. */
static moo_err ask_bulk(struct mooi_tcp_link *link)
{
    struct mooi_tcp_stripe *stripe;
    moo_err err = MOO_OK;

    while (err == MOO_OK && link->bulk.next != &link->bulk &&
           link->asked_bytes + MOOI_TCP_CHUNK <= MOOI_TCP_CREDIT &&
           (stripe = least_asked(link))) {
        struct mooi_tcp_fetch *fetch =
            MOOI_TCP_OF(struct mooi_tcp_fetch, waiting, link->bulk.next);
        err = ask(stripe, fetch);
        if (err == MOO_OK && fetch->asked < fetch->length)
            mooi_tcp_node_last(&link->bulk, &fetch->waiting);
    }
    return err;
}

/* Request as much as credit and connections allow. */
static void ask_more(struct mooi_tcp_link *link)
{
    moo_err err;

    if (!mooi_tcp_is_up(link))
        return;
    err = ask_small(link);
    if (err == MOO_OK)
        err = ask_bulk(link);
    if (err != MOO_OK)
        mooi_tcp_break(link, err, NULL);
    for (uint16_t i = 0; i < link->count; i++)
        if (link->stripes[i].out.end)
            mooi_tcp_flush(&link->stripes[i]);
}

/* ---- fetches; lock held ---- */

static struct mooi_tcp_fetch *find(struct mooi_tcp_link *link,
                                   const void *cookie)
{
    struct mooi_tcp_node *node = link->all.next;

    for (; node != &link->all; node = node->next) {
        struct mooi_tcp_fetch *fetch =
            MOOI_TCP_OF(struct mooi_tcp_fetch, all, node);
        if (fetch->cookie == cookie)
            return fetch;
    }
    return NULL;
}

/* Let go of a fetch, which is freed: nothing touches its memory from here on.
 * Returns its cookie. */
static void *fetch_end(struct mooi_tcp_link *link,
                       struct mooi_tcp_fetch *fetch)
{
    void *cookie = fetch->cookie;

    for (uint16_t i = 0; i < link->count; i++) {
        struct mooi_tcp_stripe *stripe = &link->stripes[i];
        for (uint32_t k = 0; k < stripe->asks_count; k++) {
            struct mooi_tcp_ask *ask =
                &stripe->asks[(stripe->asks_first + k) % MOOI_TCP_DEPTH];
            if (ask->fetch == fetch)
                ask->fetch = NULL;
        }
    }
    mooi_tcp_node_out(&fetch->all);
    mooi_tcp_node_out(&fetch->waiting);
    link->fetches--;
    free(fetch);
    return cookie;
}

/* ---- from any thread ---- */

static struct mooi_tcp_fetch *new_fetch(const struct mooi_lease_name *name,
                                        uint64_t offset, uint64_t length,
                                        void *into, void *cookie)
{
    struct mooi_tcp_fetch *fetch = calloc(1, sizeof *fetch);

    if (!fetch)
        return NULL;
    fetch->name = *name;
    fetch->offset = offset;
    fetch->length = length;
    fetch->into = into;
    fetch->cookie = cookie;
    mooi_tcp_node_init(&fetch->all);
    mooi_tcp_node_init(&fetch->waiting);
    return fetch;
}

moo_err mooi_tcp_fetch(struct mooi_tcp_link *link,
                       const struct mooi_lease_name *name, uint64_t offset,
                       uint64_t length, void *into, void *cookie)
{
    struct mooi_tcp_fetch *fetch;
    int up;

    if (!link->incoming || offset > UINT64_MAX - length)
        return MOO_EINVAL;
    fetch = new_fetch(name, offset, length, into, cookie);
    if (!fetch)
        return MOO_ENOMEM;
    mooi_tcp_lock(link->engine);
    up = mooi_tcp_is_up(link);
    if (up) {
        link->fetches++;
        mooi_tcp_node_last(&link->all, &fetch->all);
        mooi_tcp_node_last(length <= MOOI_TCP_SMALL ? &link->small
                                                    : &link->bulk,
                           &fetch->waiting);
        ask_more(link);
    }
    mooi_tcp_unlock(link->engine);
    if (!up)
        free(fetch);
    return up ? MOO_OK : MOO_EPEER;
}

moo_err mooi_tcp_cancel(struct mooi_tcp_link *link, void *cookie)
{
    struct mooi_tcp *engine = link->engine;
    struct mooi_tcp_fetch *fetch;

    mooi_tcp_lock(engine);
    while ((fetch = find(link, cookie)) && fetch->receiving)
        pthread_cond_wait(&engine->changed, &engine->lock);
    if (fetch) {
        fetch_end(link, fetch);
        ask_more(link);
    }
    mooi_tcp_unlock(engine);
    return fetch ? MOO_OK : MOO_ESTALE;
}

moo_err mooi_tcp_release(struct mooi_tcp_link *link,
                         const struct mooi_lease_name *name)
{
    struct mooi_tcp_message message = {.kind = MOOI_TCP_RELEASE, .name = *name};
    moo_err err = MOO_EPEER;

    if (!link->incoming)
        return MOO_EINVAL;
    mooi_tcp_lock(link->engine);
    if (mooi_tcp_is_up(link)) {
        err = mooi_tcp_post(&link->stripes[0], &message, NULL);
        if (err == MOO_OK)
            mooi_tcp_flush(&link->stripes[0]);
        else
            mooi_tcp_break(link, err, "the other side reads nothing");
    }
    mooi_tcp_unlock(link->engine);
    return err;
}

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

/* The stripe's thread is the only one that takes its asks away, so the first
 * may be looked at without the lock, but for its fetch. */
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
        cookie = fetch_end(link, fetch);
    ask_more(link);
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
        cookie = fetch_end(link, fetch);
    ask_more(link);
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
        cookie = fetch_end(
            link, MOOI_TCP_OF(struct mooi_tcp_fetch, all, link->all.next));
        mooi_tcp_unlock(link->engine);
        report(link, cookie, why);
        mooi_tcp_lock(link->engine);
    }
    mooi_tcp_unlock(link->engine);
}
