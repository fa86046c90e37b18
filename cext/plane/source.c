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

    if (source->in.link || source->waiting || source->flying || source->pins)
        return;
    while (*link != source)
        link = &(*link)->next;
    *link = source->next;
    free(source);
}

static void end_all(struct moo_fetch **list, moo_err why)
{
    while (*list)
        mooi_source_fail(*list, why);
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
        mooi_tcp_drop(plane->net->networks.tcp, id);
        return;
    }
    mooi_tcp_hold(link);
    source->in.link = link;
    source->in.by = NULL;
}

static void part(moo_plane *plane, struct mooi_source *source)
{
    if (source->in.by)
        source->in.by->part(&plane->net->networks, &source->in);
    source->in.by = NULL;
}

static moo_err hear(moo_plane *plane, struct mooi_source *source,
                    const uint8_t *control, size_t length)
{
    struct mooi_networks *networks = &plane->net->networks;
    struct mooi_control parsed;
    moo_err err = mooi_control_parse(control, length, &parsed);

    if (err != MOO_OK)
        return err;
    if (parsed.kind == MOOI_CONTROL_SERVE) {
        const struct mooi_network_ops *by =
            mooi_network_by_bit(parsed.u.serve);
        if (!by || !(by->bit & plane->net->transports) || by == source->in.by)
            return MOO_EPROTO;
        part(plane, source);
        source->in.by = by;
    }
    return source->in.by ? source->in.by->hear(networks, &source->in, &parsed)
                         : MOO_EPROTO;
}

void mooi_source_control(moo_plane *plane, struct mooi_tcp_link *link,
                         uint64_t id, const uint8_t *control, size_t length)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source || source->in.link != link)
        return; /* owners get no control messages here */
    if (hear(plane, source, control, length) != MOO_OK) {
        mooi_tcp_drop(plane->net->networks.tcp, id);
        return;
    }
    source->pins++;
    if (source->in.by)
        mooi_source_start(source);
    source->pins--;
    mooi_source_tidy(plane, source);
}

void mooi_source_down(moo_plane *plane, struct mooi_tcp_link *link, uint64_t id)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source || source->in.link != link)
        return;
    remember(plane, id, mooi_tcp_is_unanswered(link));
    part(plane, source);
    mooi_tcp_rele(source->in.link);
    source->in.link = NULL;
    end_all(&source->waiting, MOO_EPEER);
    mooi_source_tidy(plane, source);
}

void mooi_source_lost(moo_plane *plane, uint64_t id)
{
    struct mooi_source *source = mooi_source_find(plane, id);

    if (!source)
        return;
    end_all(&source->waiting, MOO_EPEER);
    mooi_source_tidy(plane, source);
}

/* End the fetches that have waited too long. Returns the next one's
 * deadline. */
static uint64_t expire(struct mooi_source *source, uint64_t now)
{
    uint64_t soonest = UINT64_MAX;
    struct moo_fetch *fetch, *next;

    for (fetch = source->waiting; fetch; fetch = next) {
        next = fetch->next;
        if (fetch->due_ns <= now && !source->in.link) {
            /* all wait for the same call */
            end_all(&source->waiting, MOO_EUNREACHABLE);
            return UINT64_MAX;
        }
        if (fetch->due_ns <= now)
            mooi_source_fail(fetch, MOO_EPEER);
        else if (fetch->due_ns < soonest)
            soonest = fetch->due_ns;
    }
    return soonest;
}

uint64_t mooi_source_expire(moo_plane *plane)
{
    uint64_t now = mooi_now_ns(), soonest = UINT64_MAX;
    struct mooi_source *source, *next;

    for (source = plane->net->sources; source; source = next) {
        uint64_t due = expire(source, now);
        next = source->next;
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
        free(source);
    }
}
