/* SPDX-License-Identifier: MIT */
/*
 * stripe.c: one authenticated connection, in both directions. Received
 * messages go to their handlers, small messages go out. An owner answers the
 * importer's requests in their order, straight from the leased memory;
 * importer.c receives the data of fetches.
 */
#include "transport/tcp/stripe.h"

#include <stdlib.h>
#include <string.h>

#include "core/crc32c.h"
#include "transport/tcp/link.h"

/* System calls for one connection before others have their turn. */
#define TURNS 8
/* So many answers, too. */
#define ANSWERS 2

/* ---- small messages out ---- */

static moo_err make_room(struct mooi_tcp_outbox *out, size_t bytes)
{
    size_t used = out->end - out->first, room = out->room ? out->room : 512;
    uint8_t *larger;

    if (out->first)
        memmove(out->bytes, out->bytes + out->first, used);
    out->first = 0;
    out->end = used;
    while (room < used + bytes)
        room *= 2;
    if (room > MOOI_TCP_OUTBOX_MAX)
        return MOO_ENOMEM;
    if (room == out->room)
        return MOO_OK;
    larger = realloc(out->bytes, room);
    if (!larger)
        return MOO_ENOMEM;
    out->bytes = larger;
    out->room = room;
    return MOO_OK;
}

moo_err mooi_tcp_post(struct mooi_tcp_stripe *stripe,
                      const struct mooi_tcp_message *message,
                      const uint8_t *body)
{
    struct mooi_tcp_outbox *out = &stripe->out;
    size_t bytes = MOOI_TCP_HEAD_BYTES + (body ? message->length : 0);

    if (out->room - out->end < bytes && make_room(out, bytes) != MOO_OK)
        return MOO_ENOMEM;
    mooi_tcp_message_pack(message, out->bytes + out->end);
    if (body)
        memcpy(out->bytes + out->end + MOOI_TCP_HEAD_BYTES, body,
               message->length);
    out->end += bytes;
    return MOO_OK;
}

static moo_err empty(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_outbox *out = &stripe->out;
    moo_err err = MOO_OK;

    while (out->first < out->end && err == MOO_OK) {
        struct iovec part = {out->bytes + out->first, out->end - out->first};
        size_t moved;
        err = mooi_socket_send(stripe->watched.fd, &part, 1, 0, &moved);
        out->first += moved;
    }
    if (out->first == out->end)
        out->first = out->end = 0;
    return err == MOO_ETIMEOUT ? MOO_OK : err;
}

void mooi_tcp_flush(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    uint32_t events = EPOLLIN;
    moo_err err = MOO_OK;

    if (!mooi_tcp_is_up(link))
        return;
    if (!stripe->sending)
        err = empty(stripe);
    if (stripe->out.end || stripe->unserved)
        events |= EPOLLOUT;
    if (err == MOO_OK)
        err = mooi_tcp_watch(link->engine, &stripe->watched, events);
    if (err != MOO_OK)
        mooi_tcp_break(link, err, NULL);
}

/* ---- an owner's answers ---- */

static moo_err serve_later(struct mooi_tcp_stripe *stripe,
                           const struct mooi_tcp_message *ask)
{
    uint32_t at = (stripe->todo_first + stripe->todo_count) % MOOI_TCP_DEPTH;

    if (stripe->todo_count == MOOI_TCP_DEPTH)
        return MOO_EPROTO;
    stripe->todo[at] = *ask;
    stripe->todo_count++;
    return MOO_OK;
}

static struct mooi_tcp_message *first(struct mooi_tcp_stripe *stripe)
{
    return &stripe->todo[stripe->todo_first];
}

/* The first is answered: others may send now. */
static void answered(struct mooi_tcp_stripe *stripe)
{
    stripe->todo_first = (stripe->todo_first + 1) % MOOI_TCP_DEPTH;
    stripe->todo_count--;
    mooi_tcp_lock(stripe->link->engine);
    stripe->sending = 0;
    mooi_tcp_unlock(stripe->link->engine);
}

static void give_back(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    const struct mooi_tcp_events *events = &link->engine->events;

    stripe->sourced = 0;
    events->sourced(events->context, link->peer, &first(stripe)->name);
}

void mooi_tcp_serve_no_more(struct mooi_tcp_stripe *stripe)
{
    if (stripe->sourced)
        give_back(stripe);
}

static moo_err refuse(struct mooi_tcp_stripe *stripe, moo_err why)
{
    struct mooi_tcp_message answer = {
        .kind = MOOI_TCP_REFUSE, .tag = first(stripe)->tag, .error = why};
    moo_err err;

    mooi_tcp_lock(stripe->link->engine);
    err = mooi_tcp_post(stripe, &answer, NULL);
    mooi_tcp_unlock(stripe->link->engine);
    answered(stripe);
    return err;
}

static moo_err begin_answer(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    const struct mooi_tcp_events *events = &link->engine->events;
    const struct mooi_tcp_message *ask = first(stripe);
    struct mooi_tcp_message answer = {.kind = MOOI_TCP_DATA,
                                      .flags = ask->flags,
                                      .tag = ask->tag,
                                      .length = ask->length};
    const void *data = NULL;
    moo_err err = events->source(events->context, link->peer, &ask->name,
                                 ask->offset, ask->length, &data);

    if (err != MOO_OK)
        return refuse(stripe, err);
    stripe->sourced = 1;
    stripe->data = data;
    stripe->answered = 0;
    if (answer.flags & MOOI_TCP_SUMMED)
        answer.checksum = mooi_crc32c(0, data, ask->length);
    mooi_tcp_message_pack(&answer, stripe->answer);
    return MOO_OK;
}

/* The rest of the answer: its head, and the data. Returns the number of
 * parts. */
static int rest(struct mooi_tcp_stripe *stripe, struct iovec parts[2])
{
    uint32_t length = first(stripe)->length, at = stripe->answered;
    char *data = (char *)stripe->data;

    if (at < MOOI_TCP_HEAD_BYTES) {
        parts[0] = (struct iovec){stripe->answer + at,
                                  MOOI_TCP_HEAD_BYTES - at};
        parts[1] = (struct iovec){data, length};
        return length ? 2 : 1;
    }
    at -= MOOI_TCP_HEAD_BYTES;
    parts[0] = (struct iovec){data + at, length - at};
    return 1;
}

/* MOO_ETIMEOUT: the socket is full. */
static moo_err go_on(struct mooi_tcp_stripe *stripe)
{
    uint32_t length = first(stripe)->length;
    struct iovec parts[2];
    int count = rest(stripe, parts);
    size_t moved;
    moo_err err = mooi_socket_send(stripe->watched.fd, parts, count, 0, &moved);

    stripe->answered += (uint32_t)moved;
    if (err != MOO_OK)
        return err;
    if (stripe->answered < MOOI_TCP_HEAD_BYTES + length)
        return MOO_ETIMEOUT;
    atomic_fetch_add(&stripe->link->engine->served, length);
    give_back(stripe);
    answered(stripe);
    return MOO_OK;
}

/* Waiting small messages go first. Returns whether the next answer can begin;
 * from then on nothing may interrupt it. */
static int may_begin(struct mooi_tcp_stripe *stripe)
{
    int may;

    mooi_tcp_lock(stripe->link->engine);
    stripe->unserved = stripe->todo_count > 0;
    mooi_tcp_flush(stripe);
    may = stripe->todo_count && !stripe->out.end &&
          mooi_tcp_is_up(stripe->link);
    stripe->sending = may;
    mooi_tcp_unlock(stripe->link->engine);
    return may;
}

/* Have epoll report when there is room for the rest. */
static void wait_for_room(struct mooi_tcp_stripe *stripe)
{
    mooi_tcp_lock(stripe->link->engine);
    stripe->unserved = stripe->todo_count > 0;
    mooi_tcp_flush(stripe);
    mooi_tcp_unlock(stripe->link->engine);
}

/* Answer until there are no more requests, the socket is full, or the turn is
 * over. */
static moo_err serve(struct mooi_tcp_stripe *stripe)
{
    moo_err err = MOO_OK;

    for (int turn = 0; turn < ANSWERS && err == MOO_OK; turn++) {
        if (!stripe->sourced) {
            if (!may_begin(stripe))
                return MOO_OK;
            err = begin_answer(stripe);
        }
        if (stripe->sourced)
            err = go_on(stripe);
    }
    wait_for_room(stripe);
    return err == MOO_ETIMEOUT ? MOO_OK : err;
}

/* ---- messages in ---- */

static moo_err take_from_importer(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    const struct mooi_tcp_events *events = &link->engine->events;

    if (stripe->present.kind == MOOI_TCP_ASK)
        return serve_later(stripe, &stripe->present);
    if (stripe->present.kind != MOOI_TCP_RELEASE || stripe->index)
        return MOO_EPROTO;
    events->released(events->context, link->peer, &stripe->present.name);
    return MOO_OK;
}

static moo_err take_from_owner(struct mooi_tcp_stripe *stripe)
{
    if (stripe->present.kind == MOOI_TCP_DATA)
        return mooi_tcp_data_begins(stripe);
    if (stripe->present.kind == MOOI_TCP_REFUSE)
        return mooi_tcp_refused(stripe);
    return MOO_EPROTO;
}

/* A head is complete. */
static moo_err begin_message(struct mooi_tcp_stripe *stripe)
{
    moo_err err = mooi_tcp_message_parse(stripe->head, &stripe->present);

    stripe->head_got = 0;
    if (err != MOO_OK || stripe->present.kind == MOOI_TCP_PING)
        return err;
    if (stripe->present.kind == MOOI_TCP_CONTROL) {
        stripe->left = stripe->present.length;
        return stripe->index ? MOO_EPROTO : MOO_OK;
    }
    return stripe->link->incoming ? take_from_owner(stripe)
                                  : take_from_importer(stripe);
}

/* A body is complete. */
static moo_err end_message(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    const struct mooi_tcp_events *events = &link->engine->events;

    if (stripe->present.kind == MOOI_TCP_DATA)
        return mooi_tcp_data_ends(stripe);
    events->control(events->context, link, link->peer, stripe->control,
                    stripe->present.length);
    return MOO_OK;
}

void mooi_tcp_took(struct mooi_tcp_stripe *stripe, size_t moved)
{
    size_t body = moved < stripe->left ? moved : stripe->left;

    stripe->left -= (uint32_t)body;
    stripe->head_got += (uint32_t)(moved - body);
    if (moved)
        atomic_store(&stripe->heard, 1);
}

/* Heads, and the bodies of control messages with the heads that follow. */
static moo_err receive_small(struct mooi_tcp_stripe *stripe, int *drained)
{
    size_t body = stripe->left, moved;
    struct iovec parts[2] = {{stripe->head + stripe->head_got,
                              MOOI_TCP_HEAD_BYTES - stripe->head_got}};
    moo_err err;

    if (body) {
        parts[1] = parts[0];
        parts[0].iov_base = stripe->control + (stripe->present.length - body);
        parts[0].iov_len = body;
    }
    err = mooi_socket_receive(stripe->watched.fd, parts, body ? 2 : 1, &moved);
    *drained = moved < body + MOOI_TCP_HEAD_BYTES - stripe->head_got;
    mooi_tcp_took(stripe, moved);
    return err;
}

static moo_err receive_some(struct mooi_tcp_stripe *stripe, int *drained)
{
    int body = stripe->left > 0;
    moo_err err = body && stripe->present.kind == MOOI_TCP_DATA
                      ? mooi_tcp_receive_data(stripe, drained)
                      : receive_small(stripe, drained);

    if (err == MOO_OK && body && !stripe->left)
        err = end_message(stripe);
    return err;
}

static moo_err receive(struct mooi_tcp_stripe *stripe)
{
    int drained = 0;

    for (int turn = 0; turn < TURNS && !drained; turn++) {
        moo_err err = receive_some(stripe, &drained);
        if (err == MOO_OK && !stripe->left &&
            stripe->head_got == MOOI_TCP_HEAD_BYTES)
            err = begin_message(stripe);
        if (err != MOO_OK)
            return err == MOO_ETIMEOUT ? MOO_OK : err;
    }
    return MOO_OK;
}

/* ---- both ---- */

static int is_up(struct mooi_tcp_stripe *stripe)
{
    struct mooi_tcp_link *link = stripe->link;
    int up;

    mooi_tcp_lock(link->engine);
    up = mooi_tcp_is_up(link);
    if (!up) /* the peer is silent until all are authenticated, but may hang
              * up */
        mooi_tcp_break(link, MOO_EPEER, NULL);
    mooi_tcp_unlock(link->engine);
    return up;
}

void mooi_tcp_stripe_ready(struct mooi_tcp *engine,
                           struct mooi_tcp_watched *watched, uint32_t events)
{
    struct mooi_tcp_stripe *stripe = (struct mooi_tcp_stripe *)watched;
    moo_err err = MOO_OK;

    if (!is_up(stripe))
        return;
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        err = receive(stripe);
    if (err == MOO_OK && !stripe->link->incoming)
        err = serve(stripe);
    mooi_tcp_lock(engine);
    if (err != MOO_OK)
        mooi_tcp_break(stripe->link, err, NULL);
    else if (stripe->link->incoming && events & EPOLLOUT)
        mooi_tcp_flush(stripe);
    mooi_tcp_unlock(engine);
}

moo_err mooi_tcp_control(struct mooi_tcp_link *link, const uint8_t *bytes,
                         size_t length)
{
    struct mooi_tcp_message message = {.kind = MOOI_TCP_CONTROL,
                                       .length = (uint32_t)length};
    struct mooi_tcp_stripe *express = &link->stripes[0];
    moo_err err = MOO_EPEER;

    if (!length || length > MOOI_TCP_CONTROL_BYTES)
        return MOO_EINVAL;
    mooi_tcp_lock(link->engine);
    if (mooi_tcp_is_up(link)) {
        err = mooi_tcp_post(express, &message, bytes);
        if (err == MOO_OK)
            mooi_tcp_flush(express);
        else
            mooi_tcp_break(link, err, "the other side reads nothing");
    }
    mooi_tcp_unlock(link->engine);
    return err;
}
