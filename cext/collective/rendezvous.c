/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.c: how the leaders of one epoch make their connections.
 *
 * Every member listens as long as it lives, and the view says where. The sender
 * connects, so each connection has one direction. Both ends prove the group's
 * key, and name the members and the epoch. A caller whose epoch is ahead of
 * ours waits at the door; one of an earlier epoch is turned away. connect.c
 * makes one connection.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "collective/progress.h"
#include "collective/rendezvous.h"
#include "core/clock.h"

#define CONNECT_S 2.2 /* until the other machine answers */

/* ---- the beginning ---- */

static struct mooi_contact *new_contact(void)
{
    struct mooi_contact *contact = calloc(1, sizeof *contact);
    for (int i = 0; contact && i < MOOI_CALLS; i++)
        contact->calls[i].proof.fd = -1;
    return contact;
}

static struct mooi_proof *new_strangers(void)
{
    struct mooi_proof *strangers = calloc(MOOI_STRANGERS, sizeof *strangers);
    for (int i = 0; strangers && i < MOOI_STRANGERS; i++)
        strangers[i].fd = -1;
    return strangers;
}

/* Open a fabric, if all may use one. If there is none and TCP is allowed, it
 * is not looked for again. */
static void look_for_fabric(moo_group *group)
{
    struct mooi_ring *ring = group->ring;
    char why[MOOI_FABRIC_WHY_BYTES];
    uint32_t allowed = group->hosts.transports;
    if (ring->bounce || !(allowed & MOO_TRANSPORT_OFI) ||
        (ring->looked_for_fabric && allowed & MOO_TRANSPORT_TCP))
        return;
    ring->looked_for_fabric = true;
    if (mooi_bounce_open(group->bind, &ring->bounce, why, sizeof why))
        ring->bounce = NULL;
}

static moo_err begin(moo_group *group, struct mooi_links *links)
{
    struct mooi_ring *ring = group->ring;
    if (!ring->strangers && !(ring->strangers = new_strangers()))
        return MOO_ENOMEM;
    links->contact = new_contact();
    if (!links->contact)
        return MOO_ENOMEM;
    look_for_fabric(group);
    links->epoch = group->view.epoch;
    for (links->count = 0; 1u << links->count < group->hosts.count;
         links->count++) {
        struct mooi_line *line = &links->lines[links->count];
        mooi_pipe_init(&line->to, 1, false);
        mooi_pipe_init(&line->from, 1, false);
        mooi_pipe_init(&links->to[links->count], 1, group->hosts.checks);
        mooi_pipe_init(&links->from[links->count], 1, group->hosts.checks);
    }
    mooi_lines_open(group);
    return MOO_OK;
}

/* ---- the number of connections ---- */

/* Whether bytes between the two hosts go through a fabric; both ends decide
 * alike. If they do not, TCP must be allowed. */
static moo_err choose(moo_group *group, moo_work *work, uint32_t rank,
                      const struct mooi_fabric_post *post, bool *fabric)
{
    struct mooi_ring *ring = group->ring;
    *fabric = ring->bounce &&
              group->hosts.transports & MOO_TRANSPORT_OFI &&
              mooi_bounce_reaches(ring->bounce, post);
    if (*fabric || group->hosts.transports & MOO_TRANSPORT_TCP)
        return MOO_OK;
    return mooi_give_up(group, work, MOOI_WHY_NO_WAY, rank);
}

/* A fabric needs one connection beside it. */
static moo_err plan(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    const struct mooi_hosts *hosts = &group->hosts;
    uint32_t target = mooi_link_target(group, 0);
    uint32_t origin = mooi_link_origin(group, 0);
    bool to, from;
    moo_err err = choose(group, work, target, &links->next, &to);
    if (!err)
        err = choose(group, work, origin, &links->before, &from);
    if (err)
        return err;
    if (to && !links->bulk_to &&
        mooi_bulk_send_open(group->ring->bounce, &links->bulk_to))
        return mooi_lost(group, work, group->rank);
    if (from && !links->bulk_from &&
        mooi_bulk_receive_open(group->ring->bounce, &links->before,
                               &links->bulk_from))
        return mooi_lost(group, work, origin);
    mooi_pipe_init(&links->to[0], to ? 1 : hosts->stripes, hosts->checks);
    mooi_pipe_init(&links->from[0], from ? 1 : hosts->stripes, hosts->checks);
    return MOO_OK;
}

/* ---- both ends, until all are connected ---- */

static void watch_for(struct pollfd *entries, nfds_t *count, int fd,
                      short events)
{
    entries[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

/* Sleep until a contact has an event, or for a moment. */
static moo_err wait_for_contact(moo_group *group)
{
    struct mooi_links *links = &group->ring->links;
    const struct mooi_proof *strangers = group->ring->strangers;
    struct pollfd entries[3 + MOOI_CALLS + MOOI_STRANGERS];
    double left = POLL_S;
    nfds_t count = 0;
    int wait_ms;
    if (group->slice_end - mooi_now() < left)
        left = group->slice_end - mooi_now();
    if (left <= 0 || group->closing)
        return MOOI_PENDING;
    wait_ms = (int)(left * 1e3) + 1;
    watch_for(entries, &count, group->listener, POLLIN);
    for (uint32_t i = mooi_first_number(links);
         i < mooi_end_number(links, true); i++) {
        const struct mooi_call *call = &links->contact->calls[i];
        int at_most = -1;
        if (mooi_is_made(links, true, i))
            continue;
        if (call->proof.fd >= 0) {
            watch_for(entries, &count, call->proof.fd,
                      mooi_handshake_wants(&call->proof.handshake));
        } else {
            watch_for(entries, &count, call->dial.poll, POLLIN);
            at_most = mooi_dial_wait_ms(&call->dial);
        }
        if (at_most >= 0 && at_most < wait_ms)
            wait_ms = at_most;
    }
    if (links->described && !links->next_known)
        watch_for(entries, &count, links->lines[0].to.stripes[0].fd, POLLIN);
    if (links->described && !links->before_known)
        watch_for(entries, &count, links->lines[0].from.stripes[0].fd, POLLIN);
    for (int i = 0; i < MOOI_STRANGERS; i++)
        if (strangers[i].fd >= 0 && !strangers[i].proven)
            watch_for(entries, &count, strangers[i].fd,
                      mooi_handshake_wants(&strangers[i].handshake));
    return poll(entries, count, wait_ms) < 0 && errno == EINTR ? MOOI_PENDING
                                                               : MOO_OK;
}

/* MOO_ETIMEOUT: some connections of this phase are still missing, of which
 * *rank has one. */
static moo_err step_all(moo_group *group, moo_work *work, uint32_t *rank)
{
    struct mooi_links *links = &group->ring->links;
    uint32_t first = mooi_first_number(links);
    moo_err missing = MOO_OK;
    mooi_answer(group);
    for (uint32_t i = first; i < mooi_end_number(links, false); i++)
        if (!mooi_is_made(links, false, i)) {
            missing = MOO_ETIMEOUT;
            *rank = mooi_link_origin(group, mooi_link_of(links, false, i));
        }
    for (uint32_t i = first; i < mooi_end_number(links, true); i++) {
        const struct mooi_call *call = &links->contact->calls[i];
        uint32_t target =
            mooi_link_target(group, mooi_link_of(links, true, i));
        moo_err err = mooi_call_begin(group, work, i);
        if (err)
            return err;
        err = mooi_call_step(group, i);
        /* One that is connected may be busy elsewhere, and come later. */
        if ((err && err != MOO_ETIMEOUT) ||
            (err && call->proof.fd < 0 && mooi_now() - call->since > CONNECT_S))
            return mooi_lost(group, work, target);
        if (err) {
            missing = err;
            *rank = target;
        }
    }
    return missing;
}

/* The same; from one phase to the next. */
static moo_err advance(moo_group *group, moo_work *work, uint32_t *rank)
{
    struct mooi_links *links = &group->ring->links;
    moo_err err = step_all(group, work, rank);
    if (err || links->contact->bytes)
        return err;
    if (group->hosts.transports & MOO_TRANSPORT_OFI) {
        err = mooi_lines_describe(group, rank);
        if (err)
            return err == MOO_ETIMEOUT ? err : mooi_lost(group, work, *rank);
    }
    err = plan(group, work);
    if (err)
        return err;
    links->contact->bytes = true;
    return step_all(group, work, rank);
}

static moo_err make(moo_group *group, moo_work *work)
{
    uint32_t rank = 0;
    moo_err err;
    while ((err = advance(group, work, &rank)) == MOO_ETIMEOUT)
        if ((err = mooi_inspect(group, work, rank, mooi_now())) ||
            (err = wait_for_contact(group)))
            return err;
    if (err)
        return err;
    mooi_contact_end(&group->ring->links);
    mooi_carrier_tell(group);
    return MOO_OK;
}

moo_err mooi_links_make(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    if (links->epoch == group->view.epoch && !links->contact)
        return MOO_OK;
    if (links->epoch != group->view.epoch) {
        mooi_ring_hang_up(group);
        if (begin(group, links))
            return mooi_lost(group, work, group->rank);
    }
    return make(group, work);
}
