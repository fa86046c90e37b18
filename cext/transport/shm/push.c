/* SPDX-License-Identifier: MIT */
/* push.c: an owner gives an importer its ledger and its slabs. */
#include "transport/shm/shm.h"

static moo_err send_hello(struct mooi_local *local, uint64_t to, int socket)
{
    struct mooi_message hello = {.kind = MOOI_MSG_HELLO};

    hello.u.hello.from = local->id;
    hello.u.hello.to = to;
    hello.u.hello.entries = MOOI_LEDGER_ENTRIES;
    mooi_hello_proof(local->key, local->id, to, hello.u.hello.proof);
    return mooi_link_send(socket, &hello, local->leases->fd);
}

static moo_err push_slab(struct mooi_local *local, struct mooi_pushed *pushed)
{
    const struct mooi_slab *slab = &local->arena->slab[pushed->slabs];
    struct mooi_message message = {.kind = MOOI_MSG_SLAB};

    message.u.slab.index = pushed->slabs;
    message.u.slab.size = slab->bytes;
    return mooi_link_send(pushed->fd, &message, slab->fd);
}

moo_err mooi_shm_push(struct mooi_local *local, uint64_t to,
                      struct mooi_pushed *pushed)
{
    moo_err err = MOO_OK;

    if (!pushed->hello_sent) {
        err = send_hello(local, to, pushed->fd);
        pushed->hello_sent = err == MOO_OK;
    }
    while (err == MOO_OK && pushed->slabs < local->arena->slabs) {
        err = push_slab(local, pushed);
        pushed->slabs += err == MOO_OK;
    }
    return err;
}
