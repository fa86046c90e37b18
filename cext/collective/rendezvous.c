/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.c: how the leaders of one epoch make their connections.
 *
 * A leader listens while an epoch's connections are made, on a port of that
 * epoch, and posts the addresses. The sender connects, so each connection has
 * one direction. Both ends prove the group's key, and name their slots and the
 * epoch. A late caller of an earlier
 * epoch finds nobody listening. connect.c makes one connection.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "collective/progress.h"
#include "collective/rendezvous.h"
#include "core/clock.h"

#define CONNECT_S 2.2 /* for all connections, once everybody listens */

/* ---- the beginning ---- */

/* "*" only if somebody may live elsewhere. */
static const char *bind_of(const moo_group *group)
{
    if (*group->bind)
        return group->bind;
    return group->hosts.apart ? "*" : NULL;
}

static struct mooi_contact *new_contact(void)
{
    struct mooi_contact *contact = calloc(1, sizeof *contact);
    if (!contact)
        return NULL;
    for (int i = 0; i < MOOI_CALLS; i++)
        contact->calls[i].proof.fd = -1;
    for (int i = 0; i < MOOI_STRANGERS; i++)
        contact->strangers[i].fd = -1;
    return contact;
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

/* Listen, and post the addresses. */
static moo_err begin(moo_group *group, struct mooi_links *links)
{
    struct mooi_post post = {0};
    struct mooi_contact *contact = new_contact();
    if (!contact)
        return MOO_ENOMEM;
    look_for_fabric(group);
    moo_err err = mooi_socket_listen(bind_of(group), &contact->listener);
    if (err) {
        free(contact);
        return err;
    }
    links->contact = contact;
    links->epoch = group->view.epoch;
    for (links->count = 0; 1u << links->count < group->hosts.count;
         links->count++) {
        mooi_pipe_init(&links->to[links->count], 1, group->hosts.checks);
        mooi_pipe_init(&links->from[links->count], 1, group->hosts.checks);
    }
    if (group->ring->bounce)
        mooi_bounce_describe(group->ring->bounce, &post);
    post.count = (uint32_t)mooi_socket_addresses(
        contact->listener, post.addresses, MOOI_POST_ADDRESSES);
    mooi_post_addresses(group, &post);
    return MOO_OK;
}

/* ---- the number of connections ---- */

/* Whether bytes between the two hosts go through a fabric; both ends decide
 * alike. If they do not, TCP must be allowed. */
static moo_err choose(moo_group *group, moo_work *work, uint32_t rank,
                      bool *fabric)
{
    struct mooi_ring *ring = group->ring;
    *fabric = ring->bounce &&
              group->hosts.transports & MOO_TRANSPORT_OFI &&
              mooi_bounce_reaches(ring->bounce, mooi_post_of(group, rank));
    if (*fabric || group->hosts.transports & MOO_TRANSPORT_TCP)
        return MOO_OK;
    return mooi_give_up(group, work, MOOI_WHY_NO_WAY, rank);
}

/* Everybody listens. A fabric needs one connection beside it. */
static moo_err plan(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    const struct mooi_hosts *hosts = &group->hosts;
    uint32_t target = mooi_link_target(group, 0);
    uint32_t origin = mooi_link_origin(group, 0);
    bool to, from;
    moo_err err = choose(group, work, target, &to);
    if (!err)
        err = choose(group, work, origin, &from);
    if (err)
        return err;
    if (to && !links->bulk_to &&
        mooi_bulk_send_open(group->ring->bounce, &links->bulk_to))
        return mooi_lost(group, work, group->rank);
    if (from && !links->bulk_from &&
        mooi_bulk_receive_open(group->ring->bounce,
                                       mooi_post_of(group, origin),
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
    const struct mooi_links *links = &group->ring->links;
    const struct mooi_contact *contact = links->contact;
    struct pollfd entries[1 + MOOI_CALLS + MOOI_STRANGERS];
    double left = mooi_lesser((uint64_t)(POLL_S * 1e3), UINT64_MAX) * 1e-3;
    nfds_t count = 0;
    int wait_ms;
    if (group->slice_end - mooi_now() < left)
        left = group->slice_end - mooi_now();
    if (left <= 0 || group->closing)
        return MOOI_PENDING;
    wait_ms = (int)(left * 1e3) + 1;
    watch_for(entries, &count, contact->listener, POLLIN);
    for (uint32_t i = 0; i < mooi_connections(links, links->to); i++) {
        const struct mooi_call *call = &contact->calls[i];
        int at_most = -1;
        if (mooi_is_made(links->to, i))
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
    for (int i = 0; i < MOOI_STRANGERS; i++)
        if (contact->strangers[i].fd >= 0)
            watch_for(entries, &count, contact->strangers[i].fd,
                      mooi_handshake_wants(&contact->strangers[i].handshake));
    return poll(entries, count, wait_ms) < 0 && errno == EINTR ? MOOI_PENDING
                                                               : MOO_OK;
}

/* MOO_ETIMEOUT: some connections are still missing, of which *rank has one. */
static moo_err step_all(moo_group *group, moo_work *work, uint32_t *rank)
{
    struct mooi_links *links = &group->ring->links;
    moo_err missing = MOO_OK;
    mooi_answer(group);
    for (uint32_t i = 0; i < links->count; i++)
        if (!mooi_pipe_stands(&links->from[i])) {
            missing = MOO_ETIMEOUT;
            *rank = mooi_link_origin(group, i);
        }
    for (uint32_t i = 0; i < mooi_connections(links, links->to); i++) {
        uint32_t target = mooi_link_target(group, mooi_link_of(links->to, i));
        moo_err err = mooi_call_step(group, i);
        if (err && err != MOO_ETIMEOUT)
            return mooi_lost(group, work, target);
        if (err) {
            missing = err;
            *rank = target;
        }
    }
    return missing;
}

/* Wait until everybody listens, and connect. */
static moo_err call_all(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    moo_err err = MOO_OK;
    for (uint32_t i = 0; i < links->count; i++)
        if ((err = mooi_await_rank(group, work, mooi_link_target(group, i),
                                   POSTED, links->epoch)) ||
            (err = mooi_await_rank(group, work, mooi_link_origin(group, i),
                                   POSTED, links->epoch)))
            return err;
    err = plan(group, work);
    for (uint32_t i = 0; !err && i < mooi_connections(links, links->to); i++)
        err = mooi_call_begin(group, work, i);
    links->contact->deadline = mooi_now() + CONNECT_S;
    return err;
}

static moo_err make(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    uint32_t rank = 0;
    moo_err err;
    if (!links->contact->deadline && (err = call_all(group, work)))
        return err;
    while ((err = step_all(group, work, &rank)) == MOO_ETIMEOUT) {
        double now = mooi_now();
        if (now > links->contact->deadline)
            return mooi_lost(group, work, rank);
        if ((err = mooi_inspect(group, work, rank, now)) ||
            (err = wait_for_contact(group)))
            return err;
    }
    if (err)
        return err;
    mooi_contact_end(links);
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
