/* SPDX-License-Identifier: MIT */
/*
 * outbox.c: the messages to one process.
 *
 * All outboxes of an inbox share its sending lock: a send is a copy and a push
 * into libzmq's own queue, so it is never held for long, and no Python code
 * runs under it. Therefore a signal handler may send to the very process that
 * the interrupted code was sending to.
 *
 * An outbox without a connection is *held*: it keeps its records until
 * moo_outbox_connect. So the way to a process that is not located yet, or whose
 * connection broke, loses nothing that was not handed to libzmq before.
 *
 * Invariant, sending lock held: an outbox with records in it that has a socket
 * is on its inbox's list of outboxes to flush, unless the system had no memory
 * for the message just now.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mail/internal.h"
#include "mail/zmq.h"

#define FLUSH_RECORDS 64
#define FLUSH_BYTES (1 << 16)

struct moo_outbox {
    moo_inbox *inbox;
    void *socket;    /* NULL, not held: it is gone, and sends are dropped */
    moo_outbox *next; /* on the list, or NULL; see `listed` */
    int listed;
    int held;    /* until there is a connection; without a socket */
    size_t part; /* most bytes in a part of a message; 0: no limit */
    uint32_t records;
    size_t prefix_bytes, bytes, room; /* bytes: the prefix and the records */
    char *pending;
};

moo_err moo_outbox_open(moo_inbox *inbox, uintptr_t socket, const char *prefix,
                        size_t prefix_bytes, moo_outbox **out)
{
    moo_outbox *outbox = calloc(1, sizeof *outbox);

    if (!outbox)
        return MOO_ENOMEM;
    outbox->room = prefix_bytes + 512;
    outbox->pending = malloc(outbox->room);
    if (!outbox->pending) {
        free(outbox);
        return MOO_ENOMEM;
    }
    outbox->inbox = inbox;
    atomic_fetch_add(&inbox->holds, 1);
    outbox->socket = (void *)socket;
    outbox->prefix_bytes = outbox->bytes = prefix_bytes;
    memcpy(outbox->pending, prefix, prefix_bytes);
    *out = outbox;
    return MOO_OK;
}

/* ---- the sending lock is held ---- */

/* Bytes [from, from + count) of the waiting ones with `record` behind them. */
static void copy_out(const moo_outbox *outbox, const char *record, size_t from,
                     size_t count, char *to)
{
    size_t waiting = from < outbox->bytes ? outbox->bytes - from : 0;

    if (waiting > count)
        waiting = count;
    if (waiting)
        memcpy(to, outbox->pending + from, waiting);
    if (count > waiting)
        memcpy(to + waiting, record + (from + waiting - outbox->bytes),
               count - waiting);
}

static moo_err send_part(mooi_zmq_msg *part, void *socket, int flags)
{
    int sent;

    do
        sent = mooi_zmq.msg_send(part, socket, MOOI_ZMQ_DONTWAIT | flags);
    while (sent < 0 && mooi_zmq.error() == EINTR);
    if (sent >= 0)
        return MOO_OK;
    errno = mooi_zmq.error();
    mooi_zmq.msg_close(part);
    return MOO_ESYS;
}

/* No memory for a later part: what was sent must not become the beginning of
 * the next message. The receiver finds its last record cut short. */
static moo_err cut_short(moo_outbox *outbox)
{
    mooi_zmq_msg nothing;

    mooi_zmq.msg_init(&nothing);
    (void)send_part(&nothing, outbox->socket, 0);
    return MOO_ENOMEM;
}

/* One message of the waiting records and `record`, NULL for none. */
static moo_err send_all(moo_outbox *outbox, const char *record, size_t bytes)
{
    size_t all = outbox->bytes + bytes, at = 0, count;
    moo_err err = MOO_OK;

    if (!outbox->socket)
        return MOO_OK;
    for (; err == MOO_OK && at < all; at += count) {
        mooi_zmq_msg part;
        count = all - at;
        if (outbox->part && count > outbox->part)
            count = outbox->part;
        if (mooi_zmq.msg_init_size(&part, count))
            return at ? cut_short(outbox) : MOO_ENOMEM;
        copy_out(outbox, record, at, count, mooi_zmq.msg_data(&part));
        err = send_part(&part, outbox->socket,
                        at + count < all ? MOOI_ZMQ_SNDMORE : 0);
    }
    return err;
}

static moo_err flush(moo_outbox *outbox, const char *record, size_t bytes)
{
    moo_err err = send_all(outbox, record, bytes);

    if (err != MOO_ENOMEM) { /* a socket that refuses will refuse again */
        outbox->records = 0;
        outbox->bytes = outbox->prefix_bytes;
    }
    return err;
}

static void unlist(moo_outbox *outbox)
{
    moo_outbox **at = &outbox->inbox->unsent;

    if (!outbox->listed)
        return;
    while (*at != outbox)
        at = &(*at)->next;
    *at = outbox->next;
    outbox->listed = 0;
}

static moo_err append(moo_outbox *outbox, const char *record, size_t bytes)
{
    if (outbox->bytes + bytes > outbox->room) {
        size_t room = 2 * (outbox->bytes + bytes);
        char *larger = realloc(outbox->pending, room);
        if (!larger)
            return MOO_ENOMEM;
        outbox->pending = larger;
        outbox->room = room;
    }
    memcpy(outbox->pending + outbox->bytes, record, bytes);
    outbox->bytes += bytes;
    outbox->records++;
    if (!outbox->listed && !outbox->held) {
        outbox->next = outbox->inbox->unsent;
        outbox->inbox->unsent = outbox;
        outbox->listed = 1;
    }
    return MOO_OK;
}

/* ---- it is not ---- */

moo_err moo_outbox_send(moo_outbox *outbox, const char *record, size_t bytes)
{
    moo_err err;

    if (!mooi_inbox_is_ours(outbox->inbox))
        return MOO_ECLOSED;
    pthread_mutex_lock(&outbox->inbox->sending);
    unlist(outbox);
    err = outbox->held ? append(outbox, record, bytes)
                       : flush(outbox, record, bytes);
    pthread_mutex_unlock(&outbox->inbox->sending);
    return err;
}

moo_err moo_outbox_queue(moo_outbox *outbox, const char *record, size_t bytes,
                         int *waits)
{
    moo_err err;

    *waits = 0;
    if (!mooi_inbox_is_ours(outbox->inbox))
        return MOO_ECLOSED;
    pthread_mutex_lock(&outbox->inbox->sending);
    if (outbox->held) {
        err = append(outbox, record, bytes);
    } else if (outbox->records + 1 < FLUSH_RECORDS &&
               outbox->bytes + bytes < FLUSH_BYTES) {
        err = append(outbox, record, bytes);
        *waits = err == MOO_OK;
    } else {
        unlist(outbox);
        err = flush(outbox, record, bytes);
    }
    pthread_mutex_unlock(&outbox->inbox->sending);
    return err;
}

void moo_inbox_flush(moo_inbox *inbox)
{
    moo_outbox *outbox;

    if (!mooi_inbox_is_ours(inbox))
        return;
    pthread_mutex_lock(&inbox->sending);
    while ((outbox = inbox->unsent)) {
        unlist(outbox);
        flush(outbox, NULL, 0);
    }
    pthread_mutex_unlock(&inbox->sending);
}

void moo_outbox_hold(moo_outbox *outbox)
{
    if (!mooi_inbox_is_ours(outbox->inbox))
        return;
    pthread_mutex_lock(&outbox->inbox->sending);
    unlist(outbox);
    outbox->socket = NULL;
    outbox->held = 1;
    pthread_mutex_unlock(&outbox->inbox->sending);
}

moo_err moo_outbox_connect(moo_outbox *outbox, uintptr_t socket,
                           const char *prefix, size_t part_bytes)
{
    moo_err err = MOO_OK;

    if (!mooi_inbox_is_ours(outbox->inbox))
        return MOO_ECLOSED;
    pthread_mutex_lock(&outbox->inbox->sending);
    if (outbox->held) {
        outbox->held = 0;
        outbox->socket = (void *)socket;
        outbox->part = part_bytes;
        memcpy(outbox->pending, prefix, outbox->prefix_bytes);
        if (outbox->records)
            err = flush(outbox, NULL, 0);
        if (err == MOO_ENOMEM) { /* as if it had not been tried */
            outbox->held = 1;
            outbox->socket = NULL;
        }
    } else {
        err = MOO_ECLOSED;
    }
    pthread_mutex_unlock(&outbox->inbox->sending);
    return err;
}

moo_err moo_outbox_lead(moo_outbox *outbox, const char *record, size_t bytes)
{
    moo_err err = MOO_ECLOSED;
    size_t kept;
    char *first;

    if (!mooi_inbox_is_ours(outbox->inbox))
        return MOO_ECLOSED;
    pthread_mutex_lock(&outbox->inbox->sending);
    if (outbox->held) {
        kept = outbox->bytes - outbox->prefix_bytes;
        err = append(outbox, record, bytes);
        if (err == MOO_OK) {
            first = outbox->pending + outbox->prefix_bytes;
            memmove(first + bytes, first, kept);
            memcpy(first, record, bytes);
        }
    }
    pthread_mutex_unlock(&outbox->inbox->sending);
    return err;
}

void moo_outbox_drop(moo_outbox *outbox)
{
    if (!mooi_inbox_is_ours(outbox->inbox))
        return;
    pthread_mutex_lock(&outbox->inbox->sending);
    if (outbox->held) {
        outbox->records = 0;
        outbox->bytes = outbox->prefix_bytes;
    }
    pthread_mutex_unlock(&outbox->inbox->sending);
}

size_t moo_outbox_held(moo_outbox *outbox)
{
    size_t records;

    if (!mooi_inbox_is_ours(outbox->inbox))
        return 0;
    pthread_mutex_lock(&outbox->inbox->sending);
    records = outbox->held ? outbox->records : 0;
    pthread_mutex_unlock(&outbox->inbox->sending);
    return records;
}

void moo_outbox_close(moo_outbox *outbox)
{
    if (!mooi_inbox_is_ours(outbox->inbox))
        return;
    pthread_mutex_lock(&outbox->inbox->sending);
    unlist(outbox);
    outbox->socket = NULL;
    outbox->held = 0;
    pthread_mutex_unlock(&outbox->inbox->sending);
}

void moo_outbox_free(moo_outbox *outbox)
{
    if (!mooi_inbox_is_ours(outbox->inbox))
        return;
    moo_outbox_close(outbox);
    moo_inbox_free(outbox->inbox);
    free(outbox->pending);
    free(outbox);
}
