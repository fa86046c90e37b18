/* SPDX-License-Identifier: MIT */
/*
 * connect.c: one connection of a leader, until it is authenticated or all
 * attempts have failed.
 */
#include <stdlib.h>
#include <string.h>

#include "collective/progress.h"
#include "collective/rendezvous.h"
#include "core/clock.h"

static void take_over(struct mooi_links *links, bool out, uint32_t number,
                      struct mooi_proof *proof)
{
    uint32_t stripe;
    struct mooi_pipe *pipe = mooi_pipe_at(links, out, number, &stripe);
    mooi_pipe_join(pipe, stripe, proof->fd);
    proof->fd = -1;
}

/* A member, among all that the group ever has. */
static uint64_t identity(const struct mooi_member *member)
{
    return (uint64_t)member->host << 32 | member->serial;
}

static uint64_t own_identity(const moo_group *group)
{
    return identity(&group->view.members[group->rank]);
}

static const uint8_t no_host[MOOI_HOST_BYTES];

/* ---- calling ---- */

moo_err mooi_call_begin(moo_group *group, moo_work *work, uint32_t number)
{
    const struct mooi_links *links = &group->ring->links;
    struct mooi_call *call = &links->contact->calls[number];
    uint32_t rank = mooi_link_target(group, mooi_link_of(links, true, number));
    const struct mooi_member *member = &group->view.members[rank];
    if (call->dialled)
        return MOO_OK;
    if (mooi_dial_begin(&call->dial, member->address, member->addresses))
        return mooi_lost(group, work, rank);
    call->dialled = true;
    call->since = mooi_now();
    return MOO_OK;
}

static moo_err begin_handshake(moo_group *group, uint32_t number, int fd)
{
    const struct mooi_links *links = &group->ring->links;
    struct mooi_proof *proof = &links->contact->calls[number].proof;
    uint32_t rank = mooi_link_target(group, mooi_link_of(links, true, number));
    struct mooi_hello hello = {
        .from = own_identity(group),
        .to = identity(&group->view.members[rank]),
        .purpose = MOOI_PURPOSE_RING, .index = (uint16_t)number,
        .count = MOOI_CALLS, .token = group->view.epoch};
    proof->fd = fd;
    return mooi_handshake_connect(&proof->handshake, group->view.key, &hello);
}

moo_err mooi_call_step(moo_group *group, uint32_t number)
{
    struct mooi_links *links = &group->ring->links;
    struct mooi_call *call = &links->contact->calls[number];
    moo_err err;
    int fd;
    if (mooi_is_made(links, true, number))
        return MOO_OK;
    if (call->proof.fd < 0) {
        err = mooi_dial_step(&call->dial, &fd, &call->which);
        if (!err)
            err = begin_handshake(group, number, fd);
        if (err)
            return err;
    }
    err = mooi_handshake_step(&call->proof.handshake, call->proof.fd);
    if (!err) {
        take_over(links, true, number, &call->proof);
        mooi_dial_end(&call->dial);
    } else if (err != MOO_ETIMEOUT) { /* another process answered there */
        mooi_dial_blame(&call->dial, call->which, err);
        mooi_proof_drop(&call->proof);
        err = MOO_ETIMEOUT;
    }
    return err;
}

/* ---- answering ---- */

static void take_strangers(moo_group *group)
{
    for (int i = 0; i < MOOI_STRANGERS; i++) {
        struct mooi_proof *proof = &group->ring->strangers[i];
        if (proof->fd >= 0)
            continue;
        if (mooi_socket_accept(group->listener, &proof->fd)) {
            proof->fd = -1;
            return;
        }
        proof->since = mooi_now();
        proof->proven = false;
        if (mooi_handshake_accept(&proof->handshake, group->view.key,
                                  own_identity(group), no_host,
                                  MOOI_PURPOSE_RING))
            mooi_proof_drop(proof);
    }
}

/* The other end proved the key, so it is a member: is it the one that is
 * expected, now or later? */
static void welcome(moo_group *group, struct mooi_proof *proof)
{
    struct mooi_links *links = &group->ring->links;
    const struct mooi_hello *hello = &proof->handshake.hello;
    if (hello->token > links->epoch ||
        (hello->token == links->epoch && !links->contact->bytes &&
         hello->index >= links->count))
        return; /* it waits */
    if (hello->token < links->epoch ||
        hello->index >= mooi_end_number(links, false) ||
        mooi_is_made(links, false, hello->index)) {
        mooi_proof_drop(proof);
        return;
    }
    uint32_t link = mooi_link_of(links, false, hello->index);
    uint32_t origin = mooi_link_origin(group, link);
    if (hello->from == identity(&group->view.members[origin]))
        take_over(links, false, hello->index, proof);
    else
        mooi_proof_drop(proof);
}

static void hear_strangers(moo_group *group)
{
    double now = mooi_now();
    for (int i = 0; i < MOOI_STRANGERS; i++) {
        struct mooi_proof *proof = &group->ring->strangers[i];
        if (proof->fd < 0)
            continue;
        moo_err err = proof->proven
                          ? MOO_OK
                          : mooi_handshake_step(&proof->handshake, proof->fd);
        proof->proven = !err;
        if (!err)
            welcome(group, proof);
        else if (err != MOO_ETIMEOUT ||
                 now - proof->since > MOOI_HANDSHAKE_MS * 1e-3)
            mooi_proof_drop(proof);
    }
}

void mooi_answer(moo_group *group)
{
    take_strangers(group);
    hear_strangers(group);
}

/* ---- the end ---- */

void mooi_contact_end(struct mooi_links *links)
{
    struct mooi_contact *contact = links->contact;
    if (!contact)
        return;
    for (int i = 0; i < MOOI_CALLS; i++) {
        if (contact->calls[i].dialled)
            mooi_dial_end(&contact->calls[i].dial);
        mooi_proof_drop(&contact->calls[i].proof);
    }
    free(contact);
    links->contact = NULL;
}

void mooi_strangers_end(struct mooi_ring *ring)
{
    for (int i = 0; ring->strangers && i < MOOI_STRANGERS; i++)
        mooi_proof_drop(&ring->strangers[i]);
    free(ring->strangers);
    ring->strangers = NULL;
}
