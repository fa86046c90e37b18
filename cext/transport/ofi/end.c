/* SPDX-License-Identifier: MIT */
/*
 * end.c: how reads end. One that is doomed ends when the device has
 * given back all its pieces; if it does not within the grace, they are taken
 * away from it (cut.c).
 */
#include "transport/ofi/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"

/* ---- lists ---- */

void mooi_fabric_reads_init(struct mooi_fabric_read *head)
{
    head->next = head->previous = head;
}

void mooi_fabric_reads_append(struct mooi_fabric_read *head,
                              struct mooi_fabric_read *read)
{
    read->next = head;
    read->previous = head->previous;
    read->previous->next = read;
    head->previous = read;
}

void mooi_fabric_reads_remove(struct mooi_fabric_read *read)
{
    read->next->previous = read->previous;
    read->previous->next = read->next;
    read->next = read->previous = NULL;
}

/* ---- failures ---- */

void mooi_fabric_explain(struct mooi_fabric_peer *peer, const char *what,
                         const char *said)
{
    struct mooi_fabric *fabric = peer->fabric;

    pthread_mutex_lock(&fabric->lock);
    snprintf(peer->why, sizeof peer->why, "%s over %s: %s", what,
             fabric->info->fabric_attr->prov_name, said);
    pthread_mutex_unlock(&fabric->lock);
}

void mooi_fabric_doom(struct mooi_fabric_read *read, moo_err why,
                      uint64_t grace_ns)
{
    if (read->doomed)
        return;
    read->doomed = 1;
    read->result = why;
    read->patient_until_ns = mooi_now_ns() + grace_ns;
}

/* ---- ends ---- */

void mooi_fabric_end(struct mooi_fabric *fabric, struct mooi_fabric_read *read)
{
    struct mooi_fabric_stop *stop = read->stop;

    mooi_fabric_reads_remove(read);
    read->peer->reads--;
    fabric->reads--;
    fabric->asked -= read->want.bytes - read->here;
    if (!stop) {
        mooi_fabric_reads_append(&fabric->ended, read);
        return;
    }
    free(read);
    pthread_mutex_lock(&fabric->lock);
    stop->result = MOO_OK;
    stop->done = 1;
    pthread_cond_broadcast(&fabric->stopped);
    pthread_mutex_unlock(&fabric->lock);
}

/* Take back its pieces that wait to be posted again. */
static void drop_waiting(struct mooi_fabric *fabric,
                         struct mooi_fabric_read *read)
{
    struct mooi_fabric_piece **link = &fabric->again;

    while (read->waiting) {
        struct mooi_fabric_piece *piece = *link;
        if (piece->read != read) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        piece->next = fabric->idle;
        fabric->idle = piece;
        read->waiting--;
    }
}

/* The time at which it has waited too long. */
static uint64_t limit_of(const struct mooi_fabric *fabric,
                         const struct mooi_fabric_read *read)
{
    uint32_t ms = read->want.patience_ms;

    if (!read->flying && read->peer->answered_port != fabric->port &&
        read->want.contact_ms)
        ms = read->want.contact_ms;
    return read->heard_ns + (uint64_t)ms * 1000000u;
}

static void judge(const struct mooi_fabric *fabric,
                  struct mooi_fabric_read *read, uint64_t now, int closing)
{
    if (closing) {
        mooi_fabric_doom(read, MOO_ECLOSED, 0);
    } else if (read->stop) {
        mooi_fabric_doom(read, MOO_ECLOSED, MOOI_FABRIC_GRACE_NS);
    } else if (read->peer->gone) {
        mooi_fabric_doom(read, MOO_EPEER, MOOI_FABRIC_GRACE_NS);
    } else if (now >= limit_of(fabric, read) && !read->doomed) {
        mooi_fabric_explain(read->peer, "reading its memory",
                            read->flying ? "no answer"
                                         : "it could not be connected to");
        mooi_fabric_doom(read, MOO_ETIMEOUT, 0);
    }
}

/* 1 if no read of a peer has succeeded since one failed: after a refused key
 * verbs' connection is broken, and ofi_rxm goes on using it. */
static int is_wedged(const struct mooi_fabric *fabric,
                     const struct mooi_fabric_read *read, uint64_t now)
{
    return !fabric->over_sockets && !read->doomed && !read->flying &&
           read->peer->suspect &&
           (read->waiting || read->peer->full == fabric->turn) &&
           now >= read->heard_ns + MOOI_FABRIC_GRACE_NS;
}

/* Doom the reads that must end. Returns the time of the next one. */
static uint64_t judge_all(struct mooi_fabric *fabric, uint64_t now, int closing)
{
    struct mooi_fabric_read *read = fabric->ring.next;
    uint64_t soonest = UINT64_MAX;

    for (; read != &fabric->ring; read = read->next) {
        uint64_t due;
        judge(fabric, read, now, closing);
        due = read->doomed ? read->patient_until_ns : limit_of(fabric, read);
        if ((read->doomed && !read->flying) || is_wedged(fabric, read, now))
            due = now;
        if (due < soonest)
            soonest = due;
    }
    return soonest;
}

/* Take pieces that are overdue away from the device. If that needs time as
 * well, extend the deadline. */
static void cut_doomed(struct mooi_fabric *fabric, uint64_t now)
{
    struct mooi_fabric_read *read = fabric->ring.next;

    for (; read != &fabric->ring; read = read->next) {
        if (is_wedged(fabric, read, now)) {
            mooi_fabric_cut(fabric, read->peer);
            read->peer->suspect = read->suspect = 0;
            continue;
        }
        if (!read->doomed || !read->flying || now < read->patient_until_ns)
            continue;
        mooi_fabric_cut(fabric, read->peer);
        read->patient_until_ns = now + MOOI_FABRIC_GRACE_NS;
    }
}

static void end_doomed(struct mooi_fabric *fabric)
{
    struct mooi_fabric_read *read = fabric->ring.next, *next;

    for (; read != &fabric->ring; read = next) {
        next = read->next;
        if (!read->doomed)
            continue;
        drop_waiting(fabric, read);
        if (!read->flying)
            mooi_fabric_end(fabric, read);
    }
}

uint64_t mooi_fabric_expire(struct mooi_fabric *fabric, uint64_t now,
                            int closing)
{
    uint64_t due = judge_all(fabric, now, closing);

    if (due > now)
        return due == UINT64_MAX ? due : due - now;
    cut_doomed(fabric, now);
    end_doomed(fabric);
    due = judge_all(fabric, now, closing);
    return due == UINT64_MAX ? due : due > now ? due - now : 0;
}

void mooi_fabric_free_gone(struct mooi_fabric *fabric)
{
    struct mooi_fabric_peer **link = &fabric->gone;

    while (*link) {
        struct mooi_fabric_peer *peer = *link;
        if (peer->reads) {
            link = &peer->next;
            continue;
        }
        *link = peer->next;
        if (peer->port && peer->port == fabric->port && fabric->reading.ep)
            fi_av_remove(fabric->reading.av, &peer->address, 1, 0);
        free(peer);
    }
}
