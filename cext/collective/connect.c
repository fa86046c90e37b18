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

static void take_over(struct mooi_pipe *pipes, uint32_t number,
                      struct mooi_proof *proof)
{
    mooi_pipe_join(&pipes[mooi_link_of(pipes, number)],
                   mooi_stripe_of(pipes, number), proof->fd);
    proof->fd = -1;
}

/* ---- calling ---- */

moo_err mooi_call_begin(moo_group *group, moo_work *work, uint32_t number)
{
    const struct mooi_links *links = &group->ring->links;
    struct mooi_call *call = &links->contact->calls[number];
    uint32_t rank = mooi_link_target(group, mooi_link_of(links->to, number));
    struct mooi_post post = *mooi_post_of(group, rank);
    if (call->dialled)
        return MOO_OK;
    if (post.count > MOOI_POST_ADDRESSES ||
        mooi_dial_begin(&call->dial, post.addresses, post.count))
        return mooi_lost(group, work, rank);
    call->dialled = true;
    return MOO_OK;
}

static moo_err begin_handshake(moo_group *group, uint32_t number, int fd)
{
    const struct mooi_links *links = &group->ring->links;
    struct mooi_proof *proof = &links->contact->calls[number].proof;
    uint32_t rank = mooi_link_target(group, mooi_link_of(links->to, number));
    struct mooi_hello hello = {
        .from = group->slot, .to = mooi_link_slot(group, rank),
        .purpose = MOOI_PURPOSE_RING, .index = (uint16_t)number,
        .count = (uint16_t)mooi_connections(links, links->to),
        .token = group->view.epoch};
    memcpy(hello.host, group->host, sizeof hello.host);
    proof->fd = fd;
    return mooi_handshake_connect(&proof->handshake, mooi_group_key(group),
                                  &hello);
}

moo_err mooi_call_step(moo_group *group, uint32_t number)
{
    struct mooi_links *links = &group->ring->links;
    struct mooi_call *call = &links->contact->calls[number];
    moo_err err;
    int fd;
    if (mooi_is_made(links->to, number))
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
        take_over(links->to, number, &call->proof);
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
    struct mooi_contact *contact = group->ring->links.contact;
    for (int i = 0; i < MOOI_STRANGERS; i++) {
        struct mooi_proof *proof = &contact->strangers[i];
        if (proof->fd >= 0)
            continue;
        if (mooi_socket_accept(contact->listener, &proof->fd)) {
            proof->fd = -1;
            return;
        }
        proof->since = mooi_now();
        if (mooi_handshake_accept(&proof->handshake, mooi_group_key(group),
                                  group->slot, group->host,
                                  MOOI_PURPOSE_RING))
            mooi_proof_drop(proof);
    }
}

/* The member expected at the other end of a connection. */
static uint64_t slot_at(const moo_group *group, const struct mooi_hello *hello)
{
    uint32_t link = mooi_link_of(group->ring->links.from, hello->index);
    return mooi_link_slot(group, mooi_link_origin(group, link));
}

/* The other end proved the key, so it is a member; is it the expected one? */
static void welcome(moo_group *group, struct mooi_proof *proof)
{
    struct mooi_links *links = &group->ring->links;
    const struct mooi_hello *hello = &proof->handshake.hello;
    if (hello->count == mooi_connections(links, links->from) &&
        !mooi_is_made(links->from, hello->index) &&
        hello->token == links->epoch && hello->from == slot_at(group, hello))
        take_over(links->from, hello->index, proof);
    else
        mooi_proof_drop(proof);
}

static void hear_strangers(moo_group *group)
{
    struct mooi_contact *contact = group->ring->links.contact;
    double now = mooi_now();
    for (int i = 0; i < MOOI_STRANGERS; i++) {
        struct mooi_proof *proof = &contact->strangers[i];
        if (proof->fd < 0)
            continue;
        moo_err err = mooi_handshake_step(&proof->handshake, proof->fd);
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
    for (int i = 0; i < MOOI_STRANGERS; i++)
        mooi_proof_drop(&contact->strangers[i]);
    close(contact->listener);
    free(contact);
    links->contact = NULL;
}
