/* SPDX-License-Identifier: MIT */
/*
 * source.c: an importer's view of the processes on other hosts that sent it
 * data. They call us; fetches from them wait until then.
 */
#include "plane/net.h"

#include <stdlib.h>

struct mooi_source *mooi_source_find(const moo_plane *plane, uint64_t id)
{
    struct mooi_source *source = plane->net->sources;

    while (source && source->id != id)
        source = source->next;
    return source;
}

struct mooi_source *mooi_source_get(moo_plane *plane, uint64_t id)
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
void mooi_source_tidy(moo_plane *plane, struct mooi_source *source)
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

static void end_all(struct moo_fetch **list, moo_err why)
{
    while (*list)
        mooi_source_fail(*list, why);
}

/* ---- a lost link ---- */

/* An owner whose link was lost, or that was waited for in vain, calls within
 * this time, or not at all: it finds out a little later than we, and has
 * MOOI_TCP_CONNECT_MS. */
#define CALLS_AGAIN_NS ((uint64_t)(MOOI_TCP_CONNECT_MS + 6000) * 1000000u)

/* Whether that may be. */
static int may_call_again(const moo_plane *plane, uint64_t id)
{
    return !plane->closed && !mooi_peer_is_dead(plane, id);
}

int mooi_source_is_lost(const moo_plane *plane,
                        const struct mooi_source *source,
                        const struct mooi_pull *pull, moo_err result)
{
    if ((result != MOO_EPEER && result != MOO_ECLOSED) ||
        !may_call_again(plane, source->id))
        return 0;
    return pull->epoch != source->in.epoch || !source->in.link ||
           !mooi_tcp_stands(source->in.link);
}

void mooi_source_release(moo_plane *plane, struct mooi_source *source,
                         const struct mooi_lease_name *name)
{
    if (mooi_peer_is_dead(plane, source->id))
        return;
    if (mooi_releases_add(&source->releases, name) != MOO_OK)
        mooi_tcp_drop(plane->net->networks.tcp, source->id, MOO_ENOMEM);
    else if (source->in.by)
        (void)mooi_tcp_release(source->in.link, name);
}

/* ---- events ---- */

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
    struct mooi_source *source = mooi_source_get(plane, id);

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
        mooi_source_start(source);
    source->pins--;
    mooi_source_tidy(plane, source);
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
        mooi_source_await(source, silent);
    else
        end_all(&source->waiting, MOO_EPEER);
    mooi_tcp_rele(source->in.link);
    source->in.link = NULL;
    source->lost_ns = mooi_now_ns();
    mooi_source_tidy(plane, source);
    mooi_thread_wake(plane); /* it checks what waits */
}

void mooi_source_lost(moo_plane *plane, uint64_t id)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source)
        return;
    end_all(&source->waiting, MOO_EPEER);
    mooi_releases_fini(&source->releases);
    mooi_source_tidy(plane, source);
}

/* Of an owner that did not call again. Returns the deadline, if that comes. */
static uint64_t expire_releases(struct mooi_source *source, uint64_t now)
{
    uint64_t last = source->lost_ns > source->given_up_ns
                        ? source->lost_ns
                        : source->given_up_ns;
    uint64_t due = last + CALLS_AGAIN_NS;

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
            mooi_source_give_up(fetch, why);
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
            mooi_source_give_up(fetch, MOO_EPEER);
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
        mooi_source_tidy(plane, source);
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
