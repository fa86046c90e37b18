/* SPDX-License-Identifier: MIT */
/*
 * source_fetch.c: a fetch from another host, from its beginning to its end. It
 * is first `waiting`, for its owner's call, then `flying`, then done; if the
 * link is lost under it, it waits again. A fetch that was cancelled while it
 * waited stays as a *discard*, which gives the lease back once it can.
 */
#include "plane/net.h"

#include <errno.h>

#define MS ((uint64_t)1000000)
/* The owner must call before we give up. One that has called before knows our
 * address, so its next call succeeds or fails soon; another may need long to
 * find us. */
#define CALL_AGAIN_MS 2500
/* One whose link was lost calls again at once when it knows. That is a little
 * later than we, if its machine was silent. One that hung up may have died. */
#define SILENT_MS 2000
#define HUNG_UP_MS 1500
/* A fetch whose link is lost so often fails. */
#define MOST_LOSSES 20
/* If we found the owner's machine silent, the owner may not know yet. Waits of
 * successive fetches must not add up: a moment is enough for a call that gets
 * through, but a call is awaited at least for this long after the loss. */
#define MOMENT_MS 500
#define SUSPECT_MS 5000 /* so long after the loss */

/* ---- lists ---- */

static void insert(struct moo_fetch **list, struct moo_fetch *fetch)
{
    fetch->list = list;
    fetch->previous = NULL;
    fetch->next = *list;
    if (*list)
        (*list)->previous = fetch;
    *list = fetch;
}

/* At the end, so that the earliest request comes first. */
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

static void await_until(struct moo_fetch *fetch, uint64_t due)
{
    uint64_t now = mooi_now_ns();

    fetch->due_ns = due;
    fetch->patience_ns = due > now ? due - now : 0;
}

/* ---- the end of a fetch ---- */

/* A read from a device keeps the lease, for moo_discard: it may be one part of
 * several. */
static void give_back(struct mooi_source *source, const struct moo_fetch *fetch)
{
    if (!fetch->pull.region || fetch->discard)
        mooi_source_release(fetch->plane, source, &fetch->pull.name);
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
    if (result != MOO_OK && plane->closed)
        result = MOO_ECLOSED; /* links and engines end one after the other */
    if (fetch->block && result == MOO_OK && !fetch->freed) {
        fetch->at = fetch->pull.target;
        mooi_plane_hold(plane);
    } else if (fetch->block) {
        mooi_block_rele(&plane->arena, fetch->block);
    }
    fetch->block = NULL;
    mooi_fetch_end(fetch, result);
    mooi_fetch_unref(fetch);
}

void mooi_source_fail(struct moo_fetch *fetch, moo_err why)
{
    take_out(fetch);
    finish(fetch, why);
}

void mooi_source_give_up(struct moo_fetch *fetch, moo_err why)
{
    fetch->source->given_up_ns = mooi_now_ns();
    give_back(fetch->source, fetch);
    mooi_source_fail(fetch, why);
}

/* ---- the beginning ---- */

static int is_in(const struct moo_fetch *list, const struct mooi_lease_name *of)
{
    for (; list; list = list->next)
        if (!list->pull.region && list->d.lease == of->lease &&
            list->d.generation == of->generation)
            return 1;
    return 0;
}

/* Only the first use of a descriptor can succeed. Once the owner has confirmed
 * that it got the lease back, it refuses others; before, a request may arrive
 * by another connection than what gives the lease back, and sooner. */
static int was_used(const struct mooi_source *source,
                    const struct mooi_lease_name *name)
{
    return is_in(source->waiting, name) || is_in(source->flying, name) ||
           mooi_releases_have(&source->releases, name);
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
    fetch->by = source->in.by;
    fetch->pull.epoch = source->in.epoch;
    if (fetch->pull.region && fetch->by->bit != MOO_TRANSPORT_OFI)
        err = MOO_EUNREACHABLE; /* its owner has changed to another network */
    else
        err = fetch->by->pull(&fetch->pull);
    if (err == MOO_ETIMEOUT ||
        mooi_source_is_lost(fetch->plane, source, &fetch->pull, err))
        return;
    take_out(fetch);
    if (err == MOO_OK) {
        insert(&source->flying, fetch);
    } else {
        give_back(source, fetch);
        finish(fetch, err);
    }
}

/* The link was lost under it. */
static void wait_again(struct moo_fetch *fetch)
{
    struct mooi_source *source = fetch->source;
    moo_plane *plane = fetch->plane;

    fetch->losses++;
    fetch->pull.reason = 0;
    await_until(fetch, SILENT_MS * MS + (source->in.link ? mooi_now_ns()
                                                         : source->lost_ns));
    append(&source->waiting, fetch);
    source->pins++;
    if (source->in.by)
        start(fetch);
    source->pins--;
    mooi_source_tidy(plane, source);
    mooi_thread_wake(plane);
}

void mooi_source_ended(struct mooi_pull *pull, moo_err result)
{
    struct moo_fetch *fetch = (struct moo_fetch *)pull; /* its first member */
    struct mooi_source *source = fetch->source;
    moo_plane *plane = fetch->plane;

    if (!pull->reason)
        pull->reason = errno; /* the calls below may change it */
    take_out(fetch);
    fetch->by->pulled(pull);
    if (!fetch->freed && fetch->losses < MOST_LOSSES &&
        mooi_source_is_lost(plane, source, pull, result)) {
        wait_again(fetch);
        return;
    }
    give_back(source, fetch);
    if (result == MOO_OK)
        count(plane, fetch);
    else if (result == MOO_ESTALE && fetch->losses)
        result = MOO_EPEER; /* it had given us up */
    finish(fetch, result);
    mooi_source_tidy(plane, source);
}

void mooi_source_start(struct mooi_source *source)
{
    struct moo_fetch *fetch = source->waiting, *next;

    for (; fetch; fetch = next) {
        next = fetch->next;
        start(fetch);
    }
}

static uint64_t due_ns(const struct moo_fetch *fetch, int timeout_ms)
{
    const struct mooi_peer *owner = mooi_peer_find(fetch->plane,
                                                   fetch->d.owner);
    const struct mooi_reach *reach = owner ? owner->reach : NULL;
    uint64_t now = mooi_now_ns(), due = now + (uint64_t)timeout_ms * MS;
    uint64_t least = now + MOMENT_MS * MS;

    if (!reach || !reach->called)
        return due;
    if (due > now + CALL_AGAIN_MS * MS)
        due = now + CALL_AGAIN_MS * MS;
    if (reach->unheard_ns && now - reach->unheard_ns < SUSPECT_MS * MS) {
        if (least < reach->unheard_ns + SILENT_MS * MS)
            least = reach->unheard_ns + SILENT_MS * MS;
        due = least < due ? least : due;
    }
    return due;
}

static void fill_pull(struct moo_fetch *fetch, struct mooi_source *source)
{
    struct mooi_pull *pull = &fetch->pull;

    pull->networks = &fetch->plane->net->networks;
    pull->incoming = &source->in;
    pull->name = (struct mooi_lease_name){.slab = fetch->d.slab,
                                          .lease = fetch->d.lease,
                                          .generation = fetch->d.generation};
    pull->offset = fetch->d.offset;
    pull->length = fetch->d.length;
}

moo_err mooi_source_begin(struct moo_fetch *fetch, int timeout_ms)
{
    moo_plane *plane = fetch->plane;
    struct mooi_source *source = mooi_source_get(plane, fetch->d.owner);
    int again;
    moo_err err;

    if (!source)
        return MOO_ENOMEM;
    err = mooi_thread_start(plane); /* it checks the waiting fetches */
    if (err != MOO_OK) {
        mooi_source_tidy(plane, source);
        return err;
    }
    fill_pull(fetch, source);
    again = !fetch->pull.region && was_used(source, &fetch->pull.name);
    fetch->source = source;
    fetch->holds++;
    await_until(fetch, due_ns(fetch, timeout_ms));
    plane->fetches += !fetch->discard;
    if (again || (!source->in.link && mooi_peer_is_dead(plane, source->id))) {
        finish(fetch, again ? MOO_ESTALE : MOO_EPEER);
    } else {
        append(&source->waiting, fetch);
        if (source->in.by)
            start(fetch);
        else
            mooi_thread_wake(plane);
    }
    mooi_source_tidy(plane, source);
    return MOO_OK;
}

void mooi_source_await(struct mooi_source *source, int silent)
{
    uint64_t due = mooi_now_ns() + (silent ? SILENT_MS : HUNG_UP_MS) * MS;

    for (struct moo_fetch *fetch = source->waiting; fetch; fetch = fetch->next)
        await_until(fetch, due);
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
    err = fetch->by->cancel(&fetch->pull);
    pthread_mutex_lock(&plane->lock);
    if (!--plane->net->busy)
        pthread_cond_broadcast(&plane->net->decided);
    source->pins--;
    if (err == MOO_OK)
        mooi_source_ended(&fetch->pull, MOO_ECLOSED);
    else
        mooi_source_tidy(plane, source);
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
    fetch->pull.target = NULL;
    fetch->discard = 1;
    plane->fetches--;
}
