/* SPDX-License-Identifier: MIT */
/*
 * remote_source.c: an importer and the processes on other hosts that sent it
 * something. Their owner calls us; what comes before that waits. A fetch is
 * first `waiting`, then `flying`, then done; one that was cancelled while it
 * waited stays as a *discard*, which gives the lease back once it can.
 */
#include "transport/remote.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

struct mooi_source *mooi_source_find(const moo_plane *plane, uint64_t id)
{
    struct mooi_source *source = plane->net->sources;

    while (source && source->id != id)
        source = source->next;
    return source;
}

static struct mooi_source *get(moo_plane *plane, uint64_t id)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (source)
        return source;
    source = calloc(1, sizeof *source);
    if (!source)
        return NULL;
    source->id = id;
    source->next = plane->net->sources;
    plane->net->sources = source;
    return source;
}

/* Ids are not used twice, so what is of no use any more must go. */
static void tidy(moo_plane *plane, struct mooi_source *source)
{
    struct mooi_source **link = &plane->net->sources;

    if (source->link || source->waiting || source->flying || source->pins)
        return;
    while (*link != source)
        link = &(*link)->next;
    *link = source->next;
    free(source);
}

static void insert(struct moo_fetch **list, struct moo_fetch *fetch)
{
    fetch->list = list;
    fetch->previous = NULL;
    fetch->next = *list;
    if (*list)
        (*list)->previous = fetch;
    *list = fetch;
}

/* At the end, so that what was asked for first comes first. */
static void append(struct moo_fetch **list, struct moo_fetch *fetch)
{
    struct moo_fetch *last = *list;

    if (!last) {
        insert(list, fetch);
        return;
    }
    while (last->next)
        last = last->next;
    fetch->list = list;
    fetch->next = NULL;
    fetch->previous = last;
    last->next = fetch;
}

static void take_out(struct moo_fetch *fetch)
{
    if (fetch->previous)
        fetch->previous->next = fetch->next;
    else
        *fetch->list = fetch->next;
    if (fetch->next)
        fetch->next->previous = fetch->previous;
    fetch->list = NULL;
    fetch->next = fetch->previous = NULL;
}

/* ---- the end of a fetch ---- */

static void give_back(struct mooi_source *source, const struct moo_fetch *fetch)
{
    struct mooi_lease_name name = {.slab = fetch->d.slab,
                                   .lease = fetch->d.lease,
                                   .generation = fetch->d.generation};

    /* It fails if the link is down, and with it the lease. */
    if (source->link)
        (void)mooi_tcp_release(source->link, &name);
}

static void count(moo_plane *plane, const struct moo_fetch *fetch)
{
    struct mooi_peer *peer = mooi_peer_get(plane, fetch->d.owner);

    if (peer)
        peer->fetched += fetch->d.length;
    if (fetch->by == &mooi_over_tcp)
        plane->net->fetched_tcp += fetch->d.length;
    else
        plane->net->fetched_ofi += fetch->d.length;
}

/* In no list any more. */
static void finish(struct moo_fetch *fetch, moo_err result)
{
    moo_plane *plane = fetch->plane;

    if (fetch->discard) {
        mooi_fetch_unref(fetch);
        return;
    }
    if (fetch->block && result == MOO_OK && !fetch->freed) {
        fetch->at = fetch->target;
        mooi_plane_hold(plane);
    } else if (fetch->block) {
        mooi_block_rele(&plane->arena, fetch->block);
    }
    fetch->block = NULL;
    mooi_fetch_end(fetch, result);
    mooi_fetch_unref(fetch);
}

void mooi_source_ended(struct moo_fetch *fetch, moo_err result)
{
    struct mooi_source *source = fetch->source;
    moo_plane *plane = fetch->plane;

    take_out(fetch);
    give_back(source, fetch);
    if (fetch->by->pulled)
        fetch->by->pulled(fetch);
    if (result == MOO_OK)
        count(plane, fetch);
    finish(fetch, result);
    tidy(plane, source);
}

static void end_all(struct moo_fetch **list, moo_err why)
{
    while (*list) {
        struct moo_fetch *fetch = *list;
        take_out(fetch);
        finish(fetch, why);
    }
}

/* ---- the beginning ---- */

/* Only the first use of a descriptor can succeed; the owner sees to it once
 * the lease was given back. */
static int is_known(struct moo_fetch *list, const struct mooi_descriptor *d)
{
    for (; list; list = list->next)
        if (list->d.lease == d->lease && list->d.generation == d->generation)
            return 1;
    return 0;
}

static void start(struct moo_fetch *fetch)
{
    struct mooi_source *source = fetch->source;
    moo_err err;

    if (fetch->discard) {
        take_out(fetch);
        give_back(source, fetch);
        finish(fetch, MOO_OK);
        return;
    }
    fetch->by = source->by;
    err = fetch->by->pull(fetch->plane, source, fetch);
    if (err == MOO_ETIMEOUT)
        return;
    take_out(fetch);
    if (err == MOO_OK) {
        insert(&source->flying, fetch);
    } else {
        give_back(source, fetch);
        finish(fetch, err);
    }
}

static void start_all(struct mooi_source *source)
{
    struct moo_fetch *fetch = source->waiting, *next;

    for (; fetch; fetch = next) {
        next = fetch->next;
        start(fetch);
    }
}

moo_err mooi_source_begin(struct moo_fetch *fetch, int timeout_ms)
{
    moo_plane *plane = fetch->plane;
    struct mooi_source *source = get(plane, fetch->d.owner);
    int again;
    moo_err err;

    if (!source)
        return MOO_ENOMEM;
    err = mooi_thread_start(plane); /* it looks after those that wait */
    if (err != MOO_OK) {
        tidy(plane, source);
        return err;
    }
    again = is_known(source->waiting, &fetch->d) ||
            is_known(source->flying, &fetch->d);
    fetch->source = source;
    fetch->holds++;
    fetch->due_ns = mooi_now_ns() + (uint64_t)timeout_ms * 1000000u;
    plane->fetches += !fetch->discard;
    if (again || (!source->link && mooi_peer_is_dead(plane, source->id))) {
        finish(fetch, again ? MOO_ESTALE : MOO_EPEER);
    } else {
        append(&source->waiting, fetch);
        if (source->by)
            start(fetch);
        else
            mooi_thread_wake(plane);
    }
    tidy(plane, source);
    return MOO_OK;
}

/* ---- cancelling ---- */

/* Closing ends all fetches; engines that are being closed are not called. */
static void cancel_flying(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;
    struct mooi_source *source = fetch->source;
    moo_err err;

    if (plane->closed) {
        while (!fetch->done)
            pthread_cond_wait(&fetch->ended, &plane->lock);
        return;
    }
    source->pins++;
    plane->net->busy++;
    pthread_mutex_unlock(&plane->lock);
    err = fetch->by->cancel(plane, source, fetch);
    pthread_mutex_lock(&plane->lock);
    if (!--plane->net->busy)
        pthread_cond_broadcast(&plane->net->decided);
    source->pins--;
    if (err == MOO_OK)
        mooi_source_ended(fetch, MOO_ECLOSED);
    else
        tidy(plane, source);
}

void mooi_source_cancel(struct moo_fetch *fetch)
{
    moo_plane *plane = fetch->plane;

    if (fetch->list == &fetch->source->flying) {
        cancel_flying(fetch);
        return;
    }
    if (fetch->block)
        mooi_block_rele(&plane->arena, fetch->block);
    fetch->block = NULL;
    fetch->target = NULL;
    fetch->discard = 1;
    plane->fetches--;
}

/* ---- events ---- */

void mooi_source_up(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id)
{
    struct mooi_source *source = get(plane, id);

    if (!source || source->link) { /* no memory: as if it had not called */
        mooi_tcp_drop(plane->net->tcp, id);
        return;
    }
    mooi_tcp_hold(link);
    source->link = link;
    source->by = NULL;
}

static void part(moo_plane *plane, struct mooi_source *source)
{
    if (source->by)
        source->by->part(plane, source);
    source->by = NULL;
}

static moo_err hear(moo_plane *plane, struct mooi_source *source,
                    const uint8_t *note, size_t length)
{
    struct mooi_note parsed;
    moo_err err = mooi_note_parse(note, length, &parsed);

    if (err != MOO_OK)
        return err;
    if (parsed.kind == MOOI_NOTE_SERVE) {
        const struct mooi_transport *by = mooi_transport_by_bit(parsed.u.serve);
        if (!by || !(by->bit & plane->net->transports) || by == source->by)
            return MOO_EPROTO;
        part(plane, source);
        source->by = by;
    }
    return source->by ? source->by->hear(plane, source, &parsed) : MOO_EPROTO;
}

void mooi_source_note(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id,
                      const uint8_t *note, size_t length)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source || source->link != link)
        return; /* an owner has nothing to hear */
    if (hear(plane, source, note, length) != MOO_OK) {
        mooi_tcp_drop(plane->net->tcp, id);
        return;
    }
    source->pins++;
    if (source->by)
        start_all(source);
    source->pins--;
    tidy(plane, source);
}

void mooi_source_down(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source || source->link != link)
        return;
    part(plane, source);
    mooi_tcp_rele(source->link);
    source->link = NULL;
    end_all(&source->waiting, MOO_EPEER);
    tidy(plane, source);
}

void mooi_source_lost(moo_plane *plane, uint64_t id)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source)
        return;
    end_all(&source->waiting, MOO_EPEER);
    tidy(plane, source);
}

uint64_t mooi_source_expire(moo_plane *plane)
{
    uint64_t now = mooi_now_ns(), soonest = UINT64_MAX;
    struct mooi_source *source, *next_source;

    for (source = plane->net->sources; source; source = next_source) {
        struct moo_fetch *fetch, *next;
        next_source = source->next;
        for (fetch = source->waiting; fetch; fetch = next) {
            next = fetch->next;
            if (fetch->due_ns > now) {
                if (fetch->due_ns - now < soonest)
                    soonest = fetch->due_ns - now;
                continue;
            }
            take_out(fetch);
            finish(fetch, MOO_EPEER);
        }
        tidy(plane, source);
    }
    return soonest;
}

void mooi_source_fini(moo_plane *plane)
{
    while (plane->net->sources) {
        struct mooi_source *source = plane->net->sources;
        plane->net->sources = source->next;
        end_all(&source->waiting, MOO_ECLOSED);
        end_all(&source->flying, MOO_ECLOSED);
        free(source);
    }
}
