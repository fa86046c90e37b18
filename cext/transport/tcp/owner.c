/* SPDX-License-Identifier: MIT */
/*
 * owner.c: the owner's side of a link: what the importer asked for is sent
 * straight from where it lies, in the order in which it was asked.
 */
#include "core/crc32c.h"
#include "transport/tcp/internal.h"

/* So many answers, and it is others' turn. */
#define TURNS 2

moo_err mooi_tcp_serve_later(struct mooi_tcp_stripe *stripe,
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

/* What is still to be sent of the answer: its head, and the data. Returns how
 * many parts there are. */
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

/* Small messages that wait go first. Returns whether the next answer can
 * begin; nothing comes between from then on. */
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

/* Have epoll tell when there is room for what is left. */
static void wait_for_room(struct mooi_tcp_stripe *stripe)
{
    mooi_tcp_lock(stripe->link->engine);
    stripe->unserved = stripe->todo_count > 0;
    mooi_tcp_flush(stripe);
    mooi_tcp_unlock(stripe->link->engine);
}

moo_err mooi_tcp_serve(struct mooi_tcp_stripe *stripe)
{
    moo_err err = MOO_OK;

    for (int turn = 0; turn < TURNS && err == MOO_OK; turn++) {
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
