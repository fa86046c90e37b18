/* SPDX-License-Identifier: MIT */
/*
 * meet.c: how the leaders of one epoch make their connections.
 *
 * A leader listens while an epoch's connections are made, on a port of that
 * epoch, and posts the addresses in its cell. Whoever sends connects, so each
 * connection has one direction. Both ends prove the key that lies in the
 * segment, and name their slots and the epoch. What belongs to an epoch that
 * is over finds nobody listening.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring.h"
#include "transport/dial.h"
#include "transport/handshake.h"

#define CONNECT_S 2.2 /* for all connections, once everybody listens */
#define STRANGERS 16  /* accepted connections that have proved nothing yet */

/* A connection that is being made. */
struct proof {
    int fd; /* -1: none */
    struct mooi_handshake handshake;
    double since;
};

struct call {
    bool dialled;
    struct mooi_dial dial;
    size_t which; /* of the addresses */
    struct proof proof;
};

struct mooi_contact {
    int listener;
    double deadline; /* 0: not all of the others listen yet */
    struct call calls[MOOI_LINKS];
    struct proof strangers[STRANGERS];
};

static uint32_t slot_of(const moo_group *group, uint32_t rank)
{
    return group->view.slots[rank];
}

/* ---- the end ---- */

static void drop(struct proof *proof)
{
    if (proof->fd >= 0)
        close(proof->fd);
    proof->fd = -1;
}

void mooi_contact_end(struct mooi_links *links)
{
    struct mooi_contact *contact = links->contact;
    if (!contact)
        return;
    for (int i = 0; i < MOOI_LINKS; i++) {
        if (contact->calls[i].dialled)
            mooi_dial_end(&contact->calls[i].dial);
        drop(&contact->calls[i].proof);
    }
    for (int i = 0; i < STRANGERS; i++)
        drop(&contact->strangers[i]);
    close(contact->listener);
    free(contact);
    links->contact = NULL;
}

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
    for (int i = 0; i < MOOI_LINKS; i++)
        contact->calls[i].proof.fd = -1;
    for (int i = 0; i < STRANGERS; i++)
        contact->strangers[i].fd = -1;
    return contact;
}

/* Whatever fabric there is, if all may use one. Where there is none, TCP will
 * do, and it is not looked for again; where nothing else is allowed, it is. */
static void look_for_shelf(moo_group *group)
{
    struct mooi_ring *ring = group->ring;
    char why[MOOI_FABRIC_WHY_BYTES];
    uint32_t allowed = group->hosts.transports;
    if (ring->shelf || !(allowed & MOO_TRANSPORT_OFI) ||
        (ring->looked_for_shelf && allowed & MOO_TRANSPORT_TCP))
        return;
    ring->looked_for_shelf = true;
    if (mooi_shelf_open(group->bind, &ring->shelf, why, sizeof why))
        ring->shelf = NULL;
}

/* Listen, and say where. */
static moo_err begin(moo_group *group, struct mooi_links *links)
{
    struct mooi_post *post = &group->segment->cells[group->slot].post;
    struct mooi_contact *contact = new_contact();
    if (!contact)
        return MOO_ENOMEM;
    look_for_shelf(group);
    moo_err err = mooi_socket_listen(bind_of(group), &contact->listener);
    if (err) {
        free(contact);
        return err;
    }
    links->contact = contact;
    links->epoch = group->view.epoch;
    for (links->count = 0; 1u << links->count < group->hosts.count;
         links->count++)
        links->to[links->count].fd = links->from[links->count].fd = -1;
    *post = (struct mooi_post){0};
    if (group->ring->shelf)
        mooi_shelf_describe(group->ring->shelf, post);
    post->count = (uint32_t)mooi_socket_addresses(
        contact->listener, post->addresses, MOOI_POST_ADDRESSES);
    mooi_publish(group, POSTED, group->view.epoch);
    return MOO_OK;
}

/* ---- calling ---- */

static moo_err dial(moo_group *group, moo_work *work, uint32_t i)
{
    struct call *call = &group->ring->links.contact->calls[i];
    uint32_t rank = mooi_link_target(group, i);
    struct mooi_post post;
    moo_err err = mooi_await_rank(group, work, rank, POSTED, group->view.epoch);
    if (err)
        return err;
    post = group->segment->cells[slot_of(group, rank)].post;
    if (post.count > MOOI_POST_ADDRESSES ||
        mooi_dial_begin(&call->dial, post.addresses, post.count))
        return mooi_lost(group, work, rank);
    call->dialled = true;
    return MOO_OK;
}

static moo_err greet(moo_group *group, uint32_t i, int fd)
{
    struct proof *proof = &group->ring->links.contact->calls[i].proof;
    struct mooi_hello hello = {
        .from = group->slot, .to = slot_of(group, mooi_link_target(group, i)),
        .purpose = MOOI_PURPOSE_RING, .index = (uint16_t)i,
        .count = (uint16_t)group->ring->links.count,
        .token = group->view.epoch};
    memcpy(hello.host, group->host, sizeof hello.host);
    proof->fd = fd;
    return mooi_handshake_connect(&proof->handshake, group->segment->key,
                                  &hello);
}

/* MOO_ETIMEOUT: not yet. Any other error: in no way. */
static moo_err step_call(moo_group *group, uint32_t i)
{
    struct mooi_links *links = &group->ring->links;
    struct call *call = &links->contact->calls[i];
    moo_err err;
    int fd;
    if (links->to[i].fd >= 0)
        return MOO_OK;
    if (call->proof.fd < 0) {
        err = mooi_dial_step(&call->dial, &fd, &call->which);
        if (!err)
            err = greet(group, i, fd);
        if (err)
            return err;
    }
    err = mooi_handshake_step(&call->proof.handshake, call->proof.fd);
    if (!err) {
        mooi_pipe_open(&links->to[i], call->proof.fd, group->hosts.checks);
        call->proof.fd = -1;
        mooi_dial_end(&call->dial);
    } else if (err != MOO_ETIMEOUT) { /* somebody else answered there */
        mooi_dial_blame(&call->dial, call->which, err);
        drop(&call->proof);
        err = MOO_ETIMEOUT;
    }
    return err;
}

/* ---- answering ---- */

static void take_strangers(moo_group *group)
{
    struct mooi_contact *contact = group->ring->links.contact;
    for (int i = 0; i < STRANGERS; i++) {
        struct proof *proof = &contact->strangers[i];
        if (proof->fd >= 0)
            continue;
        if (mooi_socket_accept(contact->listener, &proof->fd)) {
            proof->fd = -1;
            return;
        }
        proof->since = mooi_now();
        if (mooi_handshake_accept(&proof->handshake, group->segment->key,
                                  group->slot, group->host,
                                  MOOI_PURPOSE_RING))
            drop(proof);
    }
}

/* Whoever proved the key is a member; is it one that we expect? */
static void welcome(moo_group *group, struct proof *proof)
{
    struct mooi_links *links = &group->ring->links;
    const struct mooi_hello *hello = &proof->handshake.hello;
    if (hello->index >= links->count || links->from[hello->index].fd >= 0 ||
        hello->token != links->epoch ||
        hello->from != slot_of(group, mooi_link_origin(group, hello->index))) {
        drop(proof);
        return;
    }
    mooi_pipe_open(&links->from[hello->index], proof->fd,
                   group->hosts.checks);
    proof->fd = -1;
}

static void hear_strangers(moo_group *group)
{
    struct mooi_contact *contact = group->ring->links.contact;
    double now = mooi_now();
    for (int i = 0; i < STRANGERS; i++) {
        struct proof *proof = &contact->strangers[i];
        if (proof->fd < 0)
            continue;
        moo_err err = mooi_handshake_step(&proof->handshake, proof->fd);
        if (!err)
            welcome(group, proof);
        else if (err != MOO_ETIMEOUT ||
                 now - proof->since > MOOI_HANDSHAKE_MS * 1e-3)
            drop(proof);
    }
}

/* ---- both, until all stand ---- */

static void watch_for(struct pollfd *entries, nfds_t *count, int fd,
                      short events)
{
    entries[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

/* Sleep until something happens to a contact, or for a moment. */
static moo_err wait_for_contact(moo_group *group)
{
    const struct mooi_links *links = &group->ring->links;
    const struct mooi_contact *contact = links->contact;
    struct pollfd entries[1 + MOOI_LINKS + STRANGERS];
    double left = mooi_lesser((uint64_t)(POLL_S * 1e3), UINT64_MAX) * 1e-3;
    nfds_t count = 0;
    int wait_ms;
    if (group->slice_end - mooi_now() < left)
        left = group->slice_end - mooi_now();
    if (left <= 0 || group->closing)
        return MOOI_PENDING;
    wait_ms = (int)(left * 1e3) + 1;
    watch_for(entries, &count, contact->listener, POLLIN);
    for (uint32_t i = 0; i < links->count; i++) {
        const struct call *call = &contact->calls[i];
        int at_most = mooi_dial_wait_ms(&call->dial);
        if (links->to[i].fd >= 0)
            continue;
        if (call->proof.fd >= 0)
            watch_for(entries, &count, call->proof.fd,
                      mooi_handshake_wants(&call->proof.handshake));
        else
            watch_for(entries, &count, call->dial.poll, POLLIN);
        if (at_most >= 0 && at_most < wait_ms)
            wait_ms = at_most;
    }
    for (int i = 0; i < STRANGERS; i++)
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
    take_strangers(group);
    hear_strangers(group);
    for (uint32_t i = 0; i < links->count; i++) {
        if (links->from[i].fd < 0) {
            missing = MOO_ETIMEOUT;
            *rank = mooi_link_origin(group, i);
        }
        moo_err err = step_call(group, i);
        if (err && err != MOO_ETIMEOUT)
            return mooi_lost(group, work, mooi_link_target(group, i));
        if (err) {
            missing = err;
            *rank = mooi_link_target(group, i);
        }
    }
    return missing;
}

static const struct mooi_post *post_of(const moo_group *group, uint32_t rank)
{
    return &group->segment->cells[slot_of(group, rank)].post;
}

/* Whether bytes between here and there go through a fabric: both ends say the
 * same. If they do not, TCP must be allowed. */
static moo_err choose(moo_group *group, moo_work *work, uint32_t rank,
                      bool *fabric)
{
    struct mooi_ring *ring = group->ring;
    moo_err err = mooi_await_rank(group, work, rank, POSTED, group->view.epoch);
    if (err)
        return err;
    *fabric = ring->shelf &&
              group->hosts.transports & MOO_TRANSPORT_OFI &&
              mooi_shelf_reaches(ring->shelf, post_of(group, rank));
    if (*fabric || group->hosts.transports & MOO_TRANSPORT_TCP)
        return MOO_OK;
    mooi_abort(group, work->seq, FATE_NO_WAY, rank);
    return MOO_EPEER;
}

static moo_err open_bulk(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    uint32_t target = mooi_link_target(group, 0);
    uint32_t origin = mooi_link_origin(group, 0);
    bool to, from;
    moo_err err = choose(group, work, target, &to);
    if (!err)
        err = choose(group, work, origin, &from);
    if (err)
        return err;
    if (to && mooi_bulk_send_open(group->ring->shelf, &links->bulk_to))
        return mooi_lost(group, work, group->rank);
    if (from && mooi_bulk_receive_open(group->ring->shelf,
                                       post_of(group, origin),
                                       &links->bulk_from))
        return mooi_lost(group, work, origin);
    return MOO_OK;
}

static moo_err make(moo_group *group, moo_work *work)
{
    struct mooi_links *links = &group->ring->links;
    uint32_t rank = 0;
    moo_err err;
    for (uint32_t i = 0; i < links->count; i++)
        if ((!links->contact->calls[i].dialled && (err = dial(group, work, i))) ||
            (err = mooi_await_rank(group, work, mooi_link_origin(group, i),
                                   POSTED, links->epoch)))
            return err;
    if (!links->contact->deadline)
        links->contact->deadline = mooi_now() + CONNECT_S;
    while ((err = step_all(group, work, &rank)) == MOO_ETIMEOUT) {
        double now = mooi_now();
        if (now > links->contact->deadline)
            return mooi_lost(group, work, rank);
        if ((err = mooi_inspect(group, work, rank, now)) ||
            (err = wait_for_contact(group)))
            return err;
    }
    if (err || (err = open_bulk(group, work)))
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
