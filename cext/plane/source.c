/* SPDX-License-Identifier: MIT */
/*
 * source.c: an importer's view of the processes on other hosts that sent it
 * data. They call us; fetches from them wait until then.
 *
 * A fetch is first `waiting`, for its owner's call, then `flying`, then done;
 * if the link is lost under it, it waits again. A fetch that was cancelled
 * while it waited stays as a *discard*, which gives the lease back once it can.
 */
#include "plane/source.h"

#include <errno.h>
#include <stdlib.h>

#include "core/times.h"
#include "plane/peer.h"
#include "plane/thread.h"

/* A fetch whose link is lost so often fails. */
#define MOST_LOSSES 20

/* ---- sources ---- */

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

/* Ids are not used twice, so unused entries must be freed. */
static void tidy(moo_plane *plane, struct mooi_source *source)
{
    struct mooi_source **link = &plane->net->sources;

    if (source->in.link || source->waiting || source->flying ||
        source->pins || source->releases.count)
        return;
    while (*link != source)
        link = &(*link)->next;
    *link = source->next;
    mooi_releases_fini(&source->releases);
    free(source);
}

/* ---- a lost link ---- */

/* Whether its owner may call again. */
static int may_call_again(const moo_plane *plane, uint64_t id)
{
    return !plane->closed && !mooi_peer_is_dead(plane, id);
}

/* Whether its link may have been lost under a pull that ended with that. */
static int is_lost(const moo_plane *plane,
                   const struct mooi_source *source,
                   const struct mooi_pull *pull, moo_err result)
{
    if ((result != MOO_EPEER && result != MOO_ECLOSED) ||
        !may_call_again(plane, source->id))
        return 0;
    return pull->epoch != source->in.epoch || !source->in.link ||
           !mooi_tcp_stands(source->in.link);
}

/* Give a lease back to its owner, now or with its next link. */
static void release(moo_plane *plane, struct mooi_source *source,
                    const struct mooi_lease_name *name)
{
    if (mooi_peer_is_dead(plane, source->id))
        return;
    if (mooi_releases_add(&source->releases, name) != MOO_OK)
        mooi_tcp_drop(plane->net->networks.tcp, source->id, MOO_ENOMEM);
    else if (source->in.by)
        (void)mooi_tcp_release(source->in.link, name);
}

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
        release(fetch->plane, source, &fetch->pull.name);
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

/* It has failed while it was in a list. */
static void fail(struct moo_fetch *fetch, moo_err why)
{
    take_out(fetch);
    finish(fetch, why);
}

/* The same for one whose owner did not call in time. If it calls later, it gets
 * its lease back. */
static void give_up(struct moo_fetch *fetch, moo_err why)
{
    fetch->source->given_up_ns = mooi_now_ns();
    give_back(fetch->source, fetch);
    fail(fetch, why);
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
        is_lost(fetch->plane, source, &fetch->pull, err))
        return;
    take_out(fetch);
    if (err == MOO_OK) {
        insert(&source->flying, fetch);
    } else {
        give_back(source, fetch);
        finish(fetch, err);
    }
}

/* The link was lost under it. It starts again with the next one: this one may
 * still be here, until its end is told, and would lose the fetch at once. */
static void wait_again(struct moo_fetch *fetch)
{
    struct mooi_source *source = fetch->source;
    moo_plane *plane = fetch->plane;

    fetch->losses++;
    fetch->pull.reason = 0;
    await_until(fetch, MOOI_UNHEARD_MS * MOOI_MS +
                           (source->in.link ? mooi_now_ns() : source->lost_ns));
    append(&source->waiting, fetch);
    source->pins++;
    if (source->in.by && mooi_tcp_stands(source->in.link))
        start(fetch);
    source->pins--;
    tidy(plane, source);
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
        is_lost(plane, source, pull, result)) {
        wait_again(fetch);
        return;
    }
    give_back(source, fetch);
    if (result == MOO_OK)
        count(plane, fetch);
    else if (result == MOO_ESTALE && fetch->losses)
        result = MOO_EPEER; /* it had given us up */
    finish(fetch, result);
    tidy(plane, source);
}

/* Start all that wait, as the transport is known now. The source is pinned. */
static void start_all(struct mooi_source *source)
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
    uint64_t now = mooi_now_ns(), due = now + (uint64_t)timeout_ms * MOOI_MS;
    uint64_t least = now + MOOI_MOMENT_MS * MOOI_MS;

    if (!reach || !reach->called)
        return due;
    if (due > now + MOOI_CALL_AGAIN_MS * MOOI_MS)
        due = now + MOOI_CALL_AGAIN_MS * MOOI_MS;
    if (reach->unheard_ns &&
        now - reach->unheard_ns < MOOI_SUSPECT_MS * MOOI_MS) {
        if (least < reach->unheard_ns + MOOI_UNHEARD_MS * MOOI_MS)
            least = reach->unheard_ns + MOOI_UNHEARD_MS * MOOI_MS;
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
    struct mooi_source *source = get(plane, fetch->d.owner);
    int again;
    moo_err err;

    if (!source)
        return MOO_ENOMEM;
    err = mooi_thread_start(plane); /* it checks the waiting fetches */
    if (err != MOO_OK) {
        tidy(plane, source);
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
    tidy(plane, source);
    return MOO_OK;
}

/* Let all that wait do so for the next call of the owner, whose machine is
 * `silent`, or which hung up. */
static void await_call(struct mooi_source *source, int silent)
{
    uint64_t due = mooi_now_ns() +
                   (silent ? MOOI_UNHEARD_MS : MOOI_HUNG_UP_MS) * MOOI_MS;

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
    fetch->pull.target = NULL;
    fetch->discard = 1;
    plane->fetches--;
}

/* ---- events ---- */

static void end_all(struct moo_fetch **list, moo_err why)
{
    while (*list)
        fail(*list, why);
}

/* So that the next wait for it is short. Without memory it is long. */
static void remember(moo_plane *plane, uint64_t id, int silent)
{
    struct mooi_peer *peer = mooi_peer_get(plane, id);

    if (peer && mooi_reach_get(peer)) {
        peer->reach->called = 1;
        peer->reach->unheard_ns = silent ? mooi_now_ns() : 0;
    }
}

void mooi_source_up(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id)
{
    struct mooi_source *source = get(plane, id);

    remember(plane, id, 0);
    if (!source || source->in.link) { /* no memory: treat it as not having
                                       * called */
        mooi_tcp_drop(plane->net->networks.tcp, id, MOO_ENOMEM);
        return;
    }
    mooi_tcp_hold(link);
    source->in.link = link;
    source->in.by = NULL;
    source->in.epoch++;
}

static void part(moo_plane *plane, struct mooi_source *source)
{
    if (source->in.by)
        source->in.by->part(&plane->net->networks, &source->in);
    source->in.by = NULL;
}

/* It serves us by that network from here on. */
static moo_err is_served(moo_plane *plane, struct mooi_source *source,
                         uint32_t transport)
{
    const struct mooi_network_ops *by = mooi_network_by_bit(transport);
    int first = !source->in.by;

    if (!by || !(by->bit & plane->net->transports) || by == source->in.by)
        return MOO_EPROTO;
    part(plane, source);
    source->in.by = by;
    return first ? mooi_releases_send(&source->releases, source->in.link)
                 : MOO_OK;
}

static moo_err hear(moo_plane *plane, struct mooi_source *source,
                    const uint8_t *control, size_t length)
{
    struct mooi_networks *networks = &plane->net->networks;
    struct mooi_control parsed;
    moo_err err = mooi_control_parse(control, length, &parsed);

    if (err == MOO_OK && parsed.kind == MOOI_CONTROL_SERVE)
        err = is_served(plane, source, parsed.u.serve);
    if (err != MOO_OK)
        return err;
    if (!source->in.by)
        return MOO_EPROTO;
    if (parsed.kind == MOOI_CONTROL_RELEASED)
        return mooi_releases_confirmed(&source->releases);
    return source->in.by->hear(networks, &source->in, &parsed);
}

void mooi_source_control(moo_plane *plane, struct mooi_tcp_link *link,
                         uint64_t id, const uint8_t *control, size_t length)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source || source->in.link != link)
        return; /* owners get no control messages here */
    if (hear(plane, source, control, length) != MOO_OK) {
        mooi_tcp_drop(plane->net->networks.tcp, id, MOO_EPROTO);
        return;
    }
    source->pins++;
    if (source->in.by)
        start_all(source);
    source->pins--;
    tidy(plane, source);
}

void mooi_source_down(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id,
                      moo_err why)
{
    struct mooi_source *source = mooi_source_find(plane, id);
    int silent = mooi_tcp_is_unanswered(link);

    if (!source || source->in.link != link)
        return;
    remember(plane, id, silent);
    part(plane, source);
    if (why == MOO_EPEER && may_call_again(plane, id))
        await_call(source, silent);
    else
        end_all(&source->waiting, MOO_EPEER);
    mooi_tcp_rele(source->in.link);
    source->in.link = NULL;
    source->lost_ns = mooi_now_ns();
    tidy(plane, source);
    mooi_thread_wake(plane); /* it checks what waits */
}

void mooi_source_lost(moo_plane *plane, uint64_t id)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source)
        return;
    end_all(&source->waiting, MOO_EPEER);
    mooi_releases_fini(&source->releases);
    tidy(plane, source);
}

/* Of an owner that did not call again. Returns the deadline, if that comes. */
static uint64_t expire_releases(struct mooi_source *source, uint64_t now)
{
    uint64_t last = source->lost_ns > source->given_up_ns
                        ? source->lost_ns
                        : source->given_up_ns;
    uint64_t due = last + MOOI_FORGOTTEN_MS * MOOI_MS;

    if (source->in.link || !source->releases.count)
        return UINT64_MAX;
    if (due > now)
        return due;
    mooi_releases_fini(&source->releases);
    return UINT64_MAX;
}

/* Patiences that differ by less are the same. */
#define SAME_NS ((uint64_t)50 * 1000000u)

/* A fetch has waited for the owner's call for too long. Others wait for the same
 * one, except those that are given more time. */
static void give_up_all(struct mooi_source *source, const struct moo_fetch *first)
{
    moo_err why = source->lost_ns ? MOO_EPEER : MOO_EUNREACHABLE;
    uint64_t most = first->patience_ns;
    struct moo_fetch *fetch, *next;

    for (fetch = source->waiting; fetch; fetch = next) {
        next = fetch->next;
        if (fetch->patience_ns <= most + SAME_NS)
            give_up(fetch, why);
    }
}

/* End the fetches that have waited too long. Returns the next one's
 * deadline. */
static uint64_t expire(struct mooi_source *source, uint64_t now)
{
    uint64_t soonest = UINT64_MAX;
    struct moo_fetch *fetch = source->waiting, *next;

    while (fetch) {
        next = fetch->next;
        if (fetch->due_ns > now) {
            soonest = fetch->due_ns < soonest ? fetch->due_ns : soonest;
        } else if (source->in.link) {
            give_up(fetch, MOO_EPEER);
        } else {
            give_up_all(source, fetch);
            soonest = UINT64_MAX;
            next = source->waiting; /* those that are left, from the first */
        }
        fetch = next;
    }
    return soonest;
}

uint64_t mooi_source_expire(moo_plane *plane)
{
    uint64_t now = mooi_now_ns(), soonest = UINT64_MAX;
    struct mooi_source *source, *next;

    for (source = plane->net->sources; source; source = next) {
        uint64_t due = expire(source, now);
        uint64_t forgotten = expire_releases(source, now);
        next = source->next;
        due = forgotten < due ? forgotten : due;
        soonest = due < soonest ? due : soonest;
        tidy(plane, source);
    }
    return soonest == UINT64_MAX ? soonest : soonest - now;
}

void mooi_source_fini(moo_plane *plane)
{
    while (plane->net->sources) {
        struct mooi_source *source = plane->net->sources;
        plane->net->sources = source->next;
        end_all(&source->waiting, MOO_ECLOSED);
        end_all(&source->flying, MOO_ECLOSED);
        mooi_releases_fini(&source->releases);
        free(source);
    }
}
